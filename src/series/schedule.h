/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * schedule.h -- decides at which step a save is due, the same on all ranks.
 *
 * Clocks, requests and signals differ between ranks, and a rank that saves alone hangs the run.  So
 * the ranks agree on everything that does not follow from the step alone, at steps that they agreed
 * on before.  Nothing here communicates: schedule_needs_agreement() says whether to
 * communicate, schedule_fill_words() what to send, schedule_apply_words() what the result means.
 */
#ifndef SERIES_SCHEDULE_H
#define SERIES_SCHEDULE_H

#include <stdatomic.h>

#include "base/base.h"

#define SCHEDULE_DEFAULT_CHECK_MS 5000u
#define SCHEDULE_MAX_STRIDE ((uint64_t)1 << 20) /* steps between two agreements */

/* What the ranks tell each other, by one element-wise maximum. */
enum schedule_word {
    SCHEDULE_WORD_INTERVAL, /* one word per reason, so that the maximum is an "or" */
    SCHEDULE_WORD_SAVE,
    SCHEDULE_WORD_STOP,
    SCHEDULE_WORD_STRIDE, /* set by rank 0: steps until the next agreement */
    SCHEDULE_WORD_BUSY,   /* a save is under way on this rank */
    SCHEDULE_WORDS,
};

struct schedule {
    /* Constant. */
    uint64_t interval_steps;
    uint64_t interval_ns; /* as the caller set it */
    uint64_t check_ns;
    uint64_t mtbf_ns;
    double max_lost;
    bool listens;    /* requests and signals of any rank count */
    bool skips_busy; /* no save is due while another one is under way */

    atomic_uint requested; /* SIDESTEP_DUE_*; set by any thread */

    /* Used only by the training thread. */
    bool has_begun;
    uint64_t last_step;   /* step of the last call of schedule_needs_agreement() */
    uint64_t check_step;  /* step of the next agreement */
    uint64_t stride;      /* steps from the last agreement to the next */
    uint64_t agreed_step; /* step and time of the last agreement, or of the start */
    uint64_t agreed_ns;
    uint64_t saved_ns;   /* time of the last save, or of the start */
    uint64_t cost_ns;    /* time that the last save took from the training, on this rank */
    uint64_t busy_ns;    /* time that the last save was under way */
    uint64_t skipped;    /* saves that were skipped because another one was under way */
    uint64_t agreements; /* so far */
    bool stopping;       /* the ranks agreed to save and stop */
};

/*
 * The interval between saves that cost ${cost_ns} each, if the job fails every ${mtbf_ns}.  The
 * lost share of time is cost / interval + interval / (2 mtbf).  Returns the longest interval that
 * loses at most ${max_lost}.  If there is none, or ${max_lost} is 0, returns the interval that
 * loses least (Young, 1974; Daly, 2006).
 */
uint64_t schedule_optimal_interval_ns(uint64_t cost_ns, uint64_t mtbf_ns, double max_lost);
double schedule_lost_fraction(uint64_t cost_ns, uint64_t mtbf_ns, uint64_t interval_ns);

/* The interval between saves, as of now; 0: none by time. */
uint64_t schedule_current_interval_ns(const struct schedule *due);

/* Must the ranks agree at ${step}?  ${*why}: what follows from the step alone.  Returns the same on
 * every rank that asks for the same steps. */
bool schedule_needs_agreement(struct schedule *due, uint64_t step, uint64_t now_ns, bool is_alone,
                              uint32_t *why);
/* The first step, not before ${step}, at which a save may be due or an agreement needed;
 * UINT64_MAX: none. */
uint64_t schedule_quiet_until(const struct schedule *due, uint64_t step, bool is_alone);
/* Fill in this rank's words. */
void schedule_fill_words(struct schedule *due, uint64_t step, uint64_t now_ns, uint32_t why,
                         bool is_rank_0, bool is_busy, uint64_t words[SCHEDULE_WORDS]);
/* Return what the maximum of all ranks' words means: SIDESTEP_DUE_*. */
uint32_t schedule_apply_words(struct schedule *due, uint64_t step, uint64_t now_ns,
                              const uint64_t words[SCHEDULE_WORDS]);
/* Record that a save was started: what it cost the training, and how long the save before was under
 * way (0: not known). */
void schedule_record_save(struct schedule *due, uint64_t now_ns, uint64_t cost_ns,
                          uint64_t busy_ns);

#endif
