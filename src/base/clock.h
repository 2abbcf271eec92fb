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

/* Polling with back-off: 1, 2, 4 ... ${max_ms}. */
struct backoff {
    uint64_t next_ms;
    uint64_t max_ms;
};
static inline void backoff_sleep(struct backoff *b, struct clock *clock)
{
    if (b->next_ms == 0)
        b->next_ms = 1;
    clock->sleep_ms(clock, b->next_ms);
    b->next_ms = b->next_ms * 2 > b->max_ms ? b->max_ms : b->next_ms * 2;
}

#endif
