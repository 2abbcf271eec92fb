/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_check.c -- checks that memory stayed protected until it was read; see cow.h.  The kernel can
 * change memory without an event (the table in cow.h), but each such change leaves pages
 * unprotected. */
#include <assert.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/base.h"
#include "snapshot/cow_internal.h"

/* A bit of the entries of /proc/self/pagemap, which has 8 bytes for each page. */
#define ENTRY_PROTECTED ((uint64_t)1 << 57)
#define MIN_PAGE_BYTES 4096u

/* PAGEMAP_SCAN, which the headers of older distributions lack: finds stretches of pages that are in
 * the same state.  Since Linux 6.7; five times as fast as reading the entries. */
struct scan_region {
    uint64_t begin;
    uint64_t end;
    uint64_t state;
};
struct scan {
    uint64_t size, flags, begin, end, walk_end, regions, region_count, max_pages;
    uint64_t inverted_mask, all_mask, any_mask, state_mask;
};
#define SCAN_PAGES _IOWR('f', 16, struct scan)
#define PAGE_UNPROTECTED ((uint64_t)1 << 1)
#define PAGE_PRESENT ((uint64_t)1 << 3)
#define PAGE_SWAPPED ((uint64_t)1 << 4) /* or never touched, but protected */

/* The pagemap entries of a granule. */
struct granule_pages {
    uint64_t page_bytes;
    uint64_t begin;
    uint64_t entries[COW_GRANULE_BYTES / MIN_PAGE_BYTES];
};

/* Is every page of granule ${g} protected?  False: a page is not, or this way does not tell. */
static bool scan_finds_protection(const struct cow *cow, size_t g)
{
    const struct cow_granule *granule = &cow->plan.granules[g];
    struct scan_region region = {0};
    struct scan scan = {.size = sizeof(scan),
                        .begin = granule->begin,
                        .end = granule->end,
                        .regions = (uint64_t)(uintptr_t)&region,
                        .region_count = 1,
                        .inverted_mask = PAGE_UNPROTECTED,
                        .all_mask = PAGE_UNPROTECTED,
                        .any_mask = PAGE_PRESENT | PAGE_SWAPPED,
                        .state_mask = PAGE_UNPROTECTED};

    if (fault_hit("cow.scan") || ioctl(cow->pagemap_fd, SCAN_PAGES, &scan) != 1)
        return false;
    return region.begin == granule->begin && region.end == granule->end;
}

/* Returns 0 or an errno. */
static int read_pages(struct cow *cow, size_t g, struct granule_pages *pages)
{
    const struct cow_granule *granule = &cow->plan.granules[g];

    pages->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    pages->begin = granule->begin;
    size_t bytes = (granule->end - granule->begin) / pages->page_bytes * sizeof(*pages->entries);
    uint64_t offset = granule->begin / pages->page_bytes * sizeof(*pages->entries);
    assert(bytes <= sizeof(pages->entries));
    if (fault_hit("cow.pagemap"))
        return errno;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = TEMP_FAILURE_RETRY(pread(cow->pagemap_fd, (uint8_t *)pages->entries + done,
                                             bytes - done, (off_t)(offset + done)));
        if (n <= 0)
            return n < 0 ? errno : EIO;
        done += (size_t)n;
    }
    return 0;
}

/* The first unprotected page that ${piece} touches; 0: all are protected. */
static uint64_t find_unprotected(const struct granule_pages *pages, const struct cow_piece *piece)
{
    uint64_t at = round_down(piece->address, pages->page_bytes);

    assert(pages->begin <= at && piece->address + piece->bytes <= pages->begin + COW_GRANULE_BYTES);
    for (; at < piece->address + piece->bytes; at += pages->page_bytes)
        if ((pages->entries[(at - pages->begin) / pages->page_bytes] & ENTRY_PROTECTED) == 0)
            return at;
    return 0;
}

/* Fail the save because page ${at} of ${piece} is not protected.  If the memory was unmapped or
 * moved, its event arrives after this check.  Lifting the protection changes nothing here, but
 * waits for that event, which then becomes the reason. */
static void fail_unprotected(struct cow *cow, const struct cow_piece *piece, uint64_t at)
{
    struct sidestep_error why = {0};

    cow_unprotect(cow, at, at + (uint64_t)sysconf(_SC_PAGESIZE));
    (void)FAIL(&why, SIDESTEP_EINVAL,
               "memory of tensor '%s' at 0x%llx lost its write protection before the save had "
               "RELEASED it, so its bytes may not be those of the call. The kernel does that where "
               "it merges pages (KSM), behind guard pages (MADV_GUARD_INSTALL), and for another "
               "user of userfaultfd. This engine's next saves copy the state",
               cow_tensor_name(cow, piece), (unsigned long long)at);
    cow_mark_unreliable(cow, &why);
}

/* Fail the save because the pagemap could not be read. */
static void fail_unread(struct cow *cow, int sys_errno)
{
    struct sidestep_error why = {0};

    (void)error_set(&why, SIDESTEP_EIO, sys_errno, HERE,
                    "read from /proc/self/pagemap whether memory is still protected");
    cow_mark_unreliable(cow, &why);
}

/* Not checked: the pieces of a claimed granule belong to the thread that has claimed it. */
LOCK_UNCHECKED void cow_check_pages(struct cow *cow, size_t g)
{
    const struct cow_plan *plan = &cow->plan;
    struct granule_pages pages;

    if (!atomic_load(&cow->all_protected)) /* the trainer was still in the call */
        return;
    if (fault_hit("trust.pages")) /* a negative control */
        return;
    if (scan_finds_protection(cow, g))
        return;
    int failed = read_pages(cow, g, &pages);
    if (failed != 0)
        fail_unread(cow, failed);
    for (size_t i = plan->granules[g].first_piece;
         failed == 0 && i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        if (cow->shared.pieces[i] != COW_PIECE_COPYING)
            continue;
        uint64_t at = find_unprotected(&pages, piece);
        if (at != 0) {
            fail_unprotected(cow, piece, at);
            return;
        }
    }
}
