/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h -- tells the time and sleeps, through functions that tests replace. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

struct clock {
    uint64_t (*now_ns)(struct clock *clock); /* monotonic */
    void (*sleep_ms)(struct clock *clock, uint64_t ms);
};

/* CLOCK_MONOTONIC and clock_nanosleep(). */
struct clock *clock_system(void);

static inline uint64_t clock_now(struct clock *clock)
{
    return clock->now_ns(clock);
}

/* Polling with back-off: 1, 2, 4 ... ${max_ms}. Beyond BACKOFF_QUICK_MS a pause is a
 * BACKOFF_SHARE-th of what was slept: a long wait gets little longer, and asks seldom. */
#define BACKOFF_QUICK_MS 50u
#define BACKOFF_SHARE 32u
struct backoff {
    uint64_t next_ms;
    uint64_t max_ms;
    uint64_t slept_ms;
};
static inline void backoff_sleep(struct backoff *b, struct clock *clock)
{
    uint64_t pause = b->next_ms != 0 ? b->next_ms : 1, most = b->slept_ms / BACKOFF_SHARE;

    most = most > BACKOFF_QUICK_MS ? most : BACKOFF_QUICK_MS;
    most = most < b->max_ms ? most : b->max_ms;
    clock->sleep_ms(clock, pause);
    b->slept_ms += pause;
    b->next_ms = pause * 2 < most ? pause * 2 : most;
}

#endif
