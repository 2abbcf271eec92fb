/* SPDX-License-Identifier: BSD-3-Clause */
/* schedule.c -- decides when a save is due, as a pure function of steps, times and requests; see
 * schedule.h. */
#include "series/schedule.h"

#include <math.h>

#include "sidestep/sidestep_series.h"

uint64_t schedule_optimal_interval_ns(uint64_t cost_ns, uint64_t mtbf_ns, double max_lost)
{
    double cost = (double)cost_ns, mtbf = (double)mtbf_ns;
    double best = sqrt(2 * cost * mtbf);
    double root = max_lost * max_lost - 2 * cost / mtbf;

    if (cost_ns == 0 || mtbf_ns == 0)
        return 0;
    if (max_lost > 0 && root > 0)
        best = mtbf * (max_lost + sqrt(root));
    return best < (double)INT64_MAX ? (uint64_t)best : INT64_MAX;
}

double schedule_lost_fraction(uint64_t cost_ns, uint64_t mtbf_ns, uint64_t interval_ns)
{
    if (interval_ns == 0 || mtbf_ns == 0)
        return 0;
    return (double)cost_ns / (double)interval_ns + (double)interval_ns / (2 * (double)mtbf_ns);
}

uint64_t schedule_current_interval_ns(const struct schedule *due)
{
    uint64_t interval = schedule_optimal_interval_ns(due->cost_ns, due->mtbf_ns, due->max_lost);

    if (interval == 0) /* nothing measured yet, or the interval is fixed */
        return due->interval_ns;
    return interval > due->busy_ns ? interval : due->busy_ns;
}

static bool by_step(const struct schedule *due, uint64_t step)
{
    return due->interval_steps != 0 && step != 0 && step % due->interval_steps == 0;
}

bool schedule_needs_agreement(struct schedule *due, uint64_t step, uint64_t now_ns, bool is_alone,
                              uint32_t *why)
{
    bool agrees = due->listens || due->interval_ns != 0 || due->mtbf_ns != 0;

    *why = by_step(due, step) ? SIDESTEP_DUE_INTERVAL : 0;
    if (!due->has_begun) {
        due->saved_ns = due->agreed_ns = now_ns;
        due->agreed_step = due->check_step = step;
        due->has_begun = true;
    }
    if (step < due->last_step) { /* the run went back to an older step, on every rank */
        due->check_step = due->agreed_step = step;
        due->agreed_ns = now_ns;
    }
    due->last_step = step;
    if (due->stopping) {
        *why |= SIDESTEP_DUE_STOP;
        return false;
    }
    if (*why != 0)
        return agrees || due->skips_busy;
    return agrees && (is_alone || step >= due->check_step);
}

uint64_t schedule_quiet_until(const struct schedule *due, uint64_t step, bool is_alone)
{
    bool agrees = due->listens || due->interval_ns != 0 || due->mtbf_ns != 0;
    uint64_t until = UINT64_MAX;

    if (!due->has_begun || due->stopping || step < due->last_step || (agrees && is_alone))
        return step;
    if (due->interval_steps != 0) {
        uint64_t over = step % due->interval_steps;
        if (__builtin_add_overflow(step, over != 0 || step == 0 ? due->interval_steps - over : 0,
                                   &until))
            until = UINT64_MAX;
    }
    if (agrees && due->check_step < until)
        until = due->check_step;
    return until > step ? until : step;
}

/* Number of steps until the next agreement, decided by rank 0: soon enough for a request and for
 * the end of the interval.  At most about twice the last stride, because the time per step varies.
 */
static uint64_t next_stride(const struct schedule *due, uint64_t step, uint64_t now_ns)
{
    uint64_t interval = schedule_current_interval_ns(due), wait = due->check_ns;
    uint64_t steps = step - due->agreed_step, took = now_ns - due->agreed_ns;
    uint64_t stride = due->stride * 2 + 1;

    if (interval != 0) {
        uint64_t at = due->saved_ns + interval;
        uint64_t left = at > now_ns ? at - now_ns : interval;
        if (!due->listens || left < wait)
            wait = left;
    }
    if (steps != 0 && took / steps != 0 && wait / (took / steps) < stride)
        stride = wait / (took / steps);
    if (stride > SCHEDULE_MAX_STRIDE)
        stride = SCHEDULE_MAX_STRIDE;
    return stride != 0 ? stride : 1;
}

void schedule_fill_words(struct schedule *due, uint64_t step, uint64_t now_ns, uint32_t why,
                         bool is_rank_0, bool is_busy, uint64_t words[SCHEDULE_WORDS])
{
    uint64_t interval = schedule_current_interval_ns(due);
    unsigned requested = due->listens ? atomic_load(&due->requested) : 0;

    if (is_rank_0 && interval != 0 && now_ns - due->saved_ns >= interval)
        why |= SIDESTEP_DUE_INTERVAL;
    words[SCHEDULE_WORD_INTERVAL] = why & SIDESTEP_DUE_INTERVAL;
    words[SCHEDULE_WORD_SAVE] = requested & SIDESTEP_DUE_SAVE;
    words[SCHEDULE_WORD_STOP] = requested & SIDESTEP_DUE_STOP;
    words[SCHEDULE_WORD_STRIDE] = is_rank_0 ? next_stride(due, step, now_ns) : 0;
    words[SCHEDULE_WORD_BUSY] = is_busy;
}

uint32_t schedule_apply_words(struct schedule *due, uint64_t step, uint64_t now_ns,
                              const uint64_t words[SCHEDULE_WORDS])
{
    uint32_t why = (uint32_t)(words[SCHEDULE_WORD_INTERVAL] | words[SCHEDULE_WORD_SAVE] |
                              words[SCHEDULE_WORD_STOP]);

    due->agreements++;
    due->stride = words[SCHEDULE_WORD_STRIDE];
    due->check_step = step + due->stride;
    due->agreed_step = step;
    due->agreed_ns = now_ns;
    if (words[SCHEDULE_WORD_SAVE] != 0) /* a later request counts for the next save */
        atomic_fetch_and(&due->requested, ~SIDESTEP_DUE_SAVE);
    if (why == SIDESTEP_DUE_INTERVAL && due->skips_busy && words[SCHEDULE_WORD_BUSY] != 0) {
        due->skipped++;
        due->saved_ns = now_ns;
        why = 0;
    }
    due->stopping |= (why & SIDESTEP_DUE_STOP) != 0;
    return why;
}

void schedule_record_save(struct schedule *due, uint64_t now_ns, uint64_t cost_ns, uint64_t busy_ns)
{
    due->saved_ns = now_ns;
    due->cost_ns = cost_ns;
    if (busy_ns != 0)
        due->busy_ns = busy_ns;
}
