/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * schedule.h -- when is a save due?  Clocks, requests and signals differ between ranks, and one
 * rank that saves alone hangs the run; so what does not follow from the step alone is agreed on, at
 * steps that were agreed on before.  Nothing here talks: schedule_needs_agreement() says whether
 * to, schedule_fill_words() what, schedule_apply_words() what it came to.
 */
#ifndef SERIES_SCHEDULE_H
#define SERIES_SCHEDULE_H

#include <stdatomic.h>

#include "base/base.h"

#define SCHEDULE_DEFAULT_CHECK_MS 5000u
#define SCHEDULE_MAX_STRIDE ((uint64_t)1 << 20) /* steps between two agreements */

/* What ranks tell each other, by one element-wise maximum. */
enum schedule_word {
    SCHEDULE_WORD_INTERVAL, /* one word for each reason, so that a maximum is an "or" */
    SCHEDULE_WORD_SAVE,
    SCHEDULE_WORD_STOP,
    SCHEDULE_WORD_STRIDE, /* rank 0's: steps until the next agreement */
    SCHEDULE_WORD_BUSY,   /* a save is under way here */
    SCHEDULE_WORDS,
};

struct schedule {
    /* Constant. */
    uint64_t interval_steps;
    uint64_t interval_ns; /* as the caller gave it */
    uint64_t check_ns;
    uint64_t mtbf_ns;
    double max_lost;
    bool listens;
    bool skips_busy;

    atomic_uint requested; /* SIDESTEP_DUE_*, from anywhere */

    /* The thread's that trains. */
    bool has_begun;
    uint64_t last_step;  /* of the last question */
    uint64_t check_step; /* of the next agreement */
    uint64_t stride;     /* of the last */
    uint64_t seen_step;  /* at the last agreement, and when that was */
    uint64_t seen_ns;
    uint64_t saved_ns; /* the last save, or the beginning */
    uint64_t cost_ns;  /* what a save costs the training, as measured on this rank */
    uint64_t busy_ns;  /* ... and how long it is under way */
    uint64_t skipped;
    uint64_t agreements;
    bool stopping;
};

/*
 * The interval between saves that cost ${cost_ns} each, where the job fails every ${mtbf_ns}: lost
 * is cost / interval + interval / (2 mtbf).  The longest for which that is at most ${max_lost}; if
 * there is none, or ${max_lost} is 0, the one for which it is least (Young, 1974; Daly, 2006).
 */
uint64_t schedule_optimal_interval_ns(uint64_t cost_ns, uint64_t mtbf_ns, double max_lost);
double schedule_lost_fraction(uint64_t cost_ns, uint64_t mtbf_ns, uint64_t interval_ns);

/* Between saves, as of now; 0: not by time. */
uint64_t schedule_current_interval_ns(const struct schedule *due);

/* Is there something to agree on at ${step}?  ${*why} is what follows from the step alone.  The
 * same answers on every rank that asks after the same steps. */
bool schedule_needs_agreement(struct schedule *due, uint64_t step, uint64_t now_ns, bool is_alone,
                              uint32_t *why);
/* The first step, from ${step} on, at which schedule_needs_agreement() may have something to say;
 * UINT64_MAX: none.
 */
uint64_t schedule_quiet_until(const struct schedule *due, uint64_t step, bool is_alone);
/* This rank's words. */
void schedule_fill_words(struct schedule *due, uint64_t step, uint64_t now_ns, uint32_t why,
                         bool is_rank_0, bool is_busy, uint64_t words[SCHEDULE_WORDS]);
/* What the maximum of all ranks' words means: SIDESTEP_DUE_*. */
uint32_t schedule_apply_words(struct schedule *due, uint64_t step, uint64_t now_ns,
                              const uint64_t words[SCHEDULE_WORDS]);
/* A save was started; what it has cost the training, and how long the one before was under way (0:
 * not known). */
void schedule_record_save(struct schedule *due, uint64_t now_ns, uint64_t cost_ns,
                          uint64_t busy_ns);

#endif
