/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.c -- tells the time and sleeps, by the system's clock. */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

static uint64_t system_now_ns(struct clock *clock)
{
    struct timespec now;

    (void)clock;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void system_sleep_ms(struct clock *clock, uint64_t ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)clock;
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

struct clock *clock_system(void)
{
    static struct clock system = {.now_ns = system_now_ns, .sleep_ms = system_sleep_ms};

    return &system;
}
