/* SPDX-License-Identifier: BSD-3-Clause */
/* collapse.c -- collapses pages of tensors after a save; see collapse.h. */
#include "save/collapse.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "save/snapshot_policy.h"
#include "snapshot/snapshot.h"

/* Protecting takes at most 1 ms per GiB on huge pages, and 20 ms per GiB on pages of 4 KiB.  It is
 * slow above SLOW_NS, plus SLOW_NS_PER_GIB for each GiB. */
#define SLOW_NS ((uint64_t)1000000)
#define SLOW_NS_PER_GIB ((uint64_t)4000000)
/* Collapsing a page takes 0.2 to 0.5 ms, in which the program cannot map memory.  It can during the
 * pause. */
#define PAUSE_MS 1u
/* After so many pages in a row that cannot be collapsed, memory is too fragmented for more. */
#define MAX_FAILURES 8u
/* Bits of an entry of /proc/self/pagemap, which has 8 bytes for each page (admin-guide/mm/pagemap
 * of the kernel's documentation).  The zero page is never exclusive. */
#define ENTRY_OWN ((uint64_t)1 << 63 | (uint64_t)1 << 56) /* present; exclusively mapped */

struct collapse_run {
    const struct cow *cow;
    struct throttle *throttle;
    struct clock *clock;
    struct collapse *out;
    int pagemap_fd;
    bool takes_all; /* also memory without MADV_HUGEPAGE */
    unsigned failures;
    bool stopped; /* collapse no more pages */
};

bool collapse_is_due(const struct sidestep_save_info *info)
{
    uint64_t slow_ns = SLOW_NS + info->cow_bytes / (1u << 20) * (SLOW_NS_PER_GIB / 1024);

    return info->cow_bytes != 0 && ((info->stage_ns > slow_ns && !snapshot_policy_was_busy(info)) ||
                                    fault_hit("huge.missing"));
}

/* Does the system give huge pages to memory that asks for them? */
static bool are_offered(void)
{
    char line[64];

    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (file == NULL)
        return false;
    bool offered = fgets(line, sizeof(line), file) != NULL && strstr(line, "[never]") == NULL;
    (void)fclose(file);
    return offered;
}

/* Does the process have each page at [at, at + huge_page_bytes()) for itself? */
static bool owns_pages(const struct collapse_run *run, uint64_t at)
{
    uint64_t entries[512];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), left = huge_page_bytes() / page;
    uint64_t offset = at / page * sizeof(*entries);

    for (ssize_t n; left > 0; left -= (uint64_t)n / sizeof(*entries), offset += (uint64_t)n) {
        size_t wanted = min_u64(left, ARRAY_LENGTH(entries)) * sizeof(*entries);
        n = TEMP_FAILURE_RETRY(pread(run->pagemap_fd, entries, wanted, (off_t)offset));
        if (n <= 0 || (size_t)n % sizeof(*entries) != 0)
            return false;
        for (size_t i = 0; i < (size_t)n / sizeof(*entries); i++)
            if ((entries[i] & ENTRY_OWN) != ENTRY_OWN)
                return false;
    }
    return true;
}

/* Collapse [begin, end).  Returns the bytes of it that are on huge pages now. */
static uint64_t collapse(struct collapse_run *run, uint64_t begin, uint64_t end)
{
    uint64_t huge = 0;

    assert(begin % huge_page_bytes() == 0 && end % huge_page_bytes() == 0);
    for (uint64_t at = begin; at < end && !run->stopped; at += huge_page_bytes()) {
        if (!owns_pages(run, at))
            continue;
        uint64_t began = clock_now(run->clock);
        bool made = huge_page_collapse(at);
        huge += made ? huge_page_bytes() : 0;
        run->failures = made ? 0 : run->failures + 1;
        /* EINVAL: Linux before 6.1, or no huge pages for this process */
        run->stopped = (!made && errno == EINVAL) || run->failures == MAX_FAILURES;
        run->out->took_ns += clock_now(run->clock) - began;
        run->clock->sleep_ms(run->clock, PAUSE_MS);
        run->stopped = run->stopped || !throttle_is_idle(run->throttle);
    }
    return huge;
}

static void collapse_mapping(void *context, const struct memory_map_huge *mapping)
{
    struct collapse_run *run = context;
    uint64_t begin = mapping->begin, end = mapping->end, huge = 0, held_begin, held_end;
    uint64_t missing = end - begin - min_u64(mapping->huge_bytes, end - begin);

    if (missing < huge_page_bytes() || !(mapping->asks || (run->takes_all && mapping->may)))
        return;
    for (size_t i = 0; cow_get_range(run->cow, i, &held_begin, &held_end) && !run->stopped; i++) {
        uint64_t from = round_up(max_u64(begin, held_begin), huge_page_bytes());
        uint64_t to = round_down(min_u64(end, held_end), huge_page_bytes());
        if (from < to)
            huge += collapse(run, from, to);
    }
    run->out->bytes += min_u64(huge, missing); /* some may have been huge before */
}

void collapse_run(const struct cow *cow, struct throttle *throttle, struct clock *clock,
                  struct collapse *out)
{
    OWNED_FD pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    struct collapse_run run = {.cow = cow,
                               .throttle = throttle,
                               .clock = clock,
                               .out = out,
                               .pagemap_fd = pagemap_fd,
                               .takes_all = are_offered()};

    *out = (struct collapse){0};
    if (pagemap_fd >= 0 && throttle_is_idle(throttle))
        (void)memory_map_read_huge(collapse_mapping, &run, NULL);
}
