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

/* The pauses between polls: 1, 2, 4 ... ms, up to ${max_ms}.  A pause of more than BACKOFF_QUICK_MS
 * is at most 1/BACKOFF_SHARE of the time slept so far.  So a long wait polls seldom, and still ends
 * soon after what it waits for. */
#define BACKOFF_QUICK_MS 50u
#define BACKOFF_SHARE 32u
struct backoff {
    uint64_t next_ms; /* the next pause; 0: 1 ms */
    uint64_t max_ms;
    uint64_t slept_ms; /* the sum of all pauses */
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
