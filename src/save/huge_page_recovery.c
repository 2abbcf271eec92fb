/* SPDX-License-Identifier: BSD-3-Clause */
/* huge_page_recovery.c -- collapses lost huge pages after a save; see huge_page_recovery.h. */
#include "save/huge_page_recovery.h"

#include <assert.h>
#include <errno.h>

#include "base/base.h"
#include "snapshot/snapshot.h"

/* Protecting takes at most 1 ms per GiB on huge pages, and 20 ms per GiB on pages of 4 KiB.  It is
 * slow above SLOW_NS, plus SLOW_NS_PER_GIB for each GiB. */
#define SLOW_NS ((uint64_t)1000000)
#define SLOW_NS_PER_GIB ((uint64_t)4000000)
/* Collapsing a page takes 0.2 to 0.5 ms, in which the program cannot map memory.  It can during the
 * pause. */
#define PAUSE_MS 1u

struct recovery_run {
    const struct cow *cow;
    struct throttle *throttle;
    struct clock *clock;
    struct huge_page_recovery *out;
    bool stopped; /* collapse no more pages */
};

bool huge_page_recovery_is_needed(uint64_t held_bytes, uint64_t took_ns)
{
    return held_bytes != 0 &&
           (took_ns > SLOW_NS + held_bytes / (1u << 20) * (SLOW_NS_PER_GIB / 1024) ||
            fault_hit("huge.missing"));
}

/* Collapse [begin, end).  Returns the bytes of it that are on huge pages now. */
static uint64_t collapse(struct recovery_run *run, uint64_t begin, uint64_t end)
{
    uint64_t huge = 0;

    assert(begin % huge_page_bytes() == 0 && end % huge_page_bytes() == 0);
    for (uint64_t at = begin; at < end && !run->stopped; at += huge_page_bytes()) {
        uint64_t began = clock_now(run->clock);
        if (huge_page_collapse(at))
            huge += huge_page_bytes();
        else if (errno == EINVAL) /* Linux before 6.1 */
            run->stopped = true;
        run->out->took_ns += clock_now(run->clock) - began;
        run->clock->sleep_ms(run->clock, PAUSE_MS);
        run->stopped = run->stopped || !throttle_is_idle(run->throttle);
    }
    return huge;
}

static void recover_mapping(void *context, uint64_t begin, uint64_t end, uint64_t huge_bytes)
{
    struct recovery_run *run = context;
    uint64_t missing = end - begin - huge_bytes, huge = 0, held_begin, held_end;

    if (end - begin < huge_bytes || missing < huge_page_bytes())
        return;
    for (size_t i = 0; cow_get_range(run->cow, i, &held_begin, &held_end) && !run->stopped; i++) {
        uint64_t from = round_up(max_u64(begin, held_begin), huge_page_bytes());
        uint64_t to = round_down(min_u64(end, held_end), huge_page_bytes());
        if (from < to)
            huge += collapse(run, from, to);
    }
    run->out->bytes += min_u64(huge, missing); /* some may have been huge before */
}

void huge_page_recovery_run(const struct cow *cow, struct throttle *throttle, struct clock *clock,
                            struct huge_page_recovery *out)
{
    struct recovery_run run = {.cow = cow, .throttle = throttle, .clock = clock, .out = out};

    *out = (struct huge_page_recovery){0};
    if (throttle_is_idle(throttle))
        (void)memory_map_read_huge(recover_mapping, &run, NULL);
}
