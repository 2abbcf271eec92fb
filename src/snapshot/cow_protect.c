/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_protect.c -- see cow.h: pages are protected, and that is lifted, whatever events the kernel
 * has put in the way.  Everything here obeys rule 2: it may run while any page of the process is
 * protected. */
#include <sched.h>
#include <unistd.h>

#include "base/base.h"
#include "snapshot/cow_internal.h"

#define KEPT_FAULTS 64u

void cow_disable(struct cow *cow, const char *what, int sys_errno)
{
    struct sidestep_error why = {0};

    (void)error_set(&why, SIDESTEP_EIO, sys_errno, HERE,
                    "%s: write protection of memory is given up", what);
    cow_record_failure(cow, &why);
    cow->shared.planned = false;
    if (cow->shared.dead)
        return;
    cow->shared.dead = true;
    for (size_t i = 0; i < cow->plan.range_count; i++)
        (void)uffd_unregister(&cow->uffd, cow->plan.ranges[i].begin, cow->plan.ranges[i].end);
    /* The number stays taken, so that nobody's ioctl() goes astray.  What it meant is gone once the
     * handlers have left poll(2): not before, so those who wait were woken above. */
    (void)dup2(cow->stop_fd, cow->uffd.fd);
}

/* Locked: contents of [begin, end) are gone, or about to go. */
static void lose(struct cow *cow, uint64_t begin, uint64_t end, const char *how)
{
    const struct cow_plan *plan = &cow->plan;
    struct sidestep_error why = {0};

    if (cow->shared.left == 0 || cow->shared.failed)
        return;
    for (size_t g = 0; g < plan->granule_count; g++) {
        const struct cow_granule *granule = &plan->granules[g];
        if (granule->begin >= end || granule->end <= begin || cow->shared.cells[g].missing == 0 ||
            cow->shared.cells[g].state == COW_GRANULE_UNPROTECTED)
            continue;
        const struct cow_piece *piece = cow_find_piece(cow, g, begin, end);
        (void)cow_fail_lost(cow, piece, max_u64(granule->begin, begin), 0, how, &why);
        cow_record_failure(cow, &why);
        return;
    }
}

void cow_take_event(struct cow *cow, const struct uffd_message *m)
{
    switch (m->event) {
    case UFFD_REMOVED:
        lose(cow, m->begin, m->end, "discarded");
        break;
    case UFFD_REMAPPED:
        lose(cow, m->begin, m->end, "moved");
        cow->shared.planned = false;
        (void)uffd_unregister(&cow->uffd, m->to, m->to + (m->end - m->begin));
        break;
    case UFFD_UNMAPPED:
        lose(cow, m->begin, m->end, "unmapped");
        cow->shared.planned = false;
        break;
    case UFFD_FAULT:
    case UFFD_NONE:
        break;
    }
}

/* Faults that were read on the way to an event: they are told to come again. */
struct kept_faults {
    uint64_t at[KEPT_FAULTS];
    unsigned count;
};

static void wake_kept(struct cow *cow, struct kept_faults *kept)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    for (unsigned i = 0; i < kept->count; i++) {
        uint64_t at = round_down(kept->at[i], page);
        uffd_wake(&cow->uffd, at, at + page);
    }
    kept->count = 0;
}

/* An event is in the way.  Faults come first, so they have to be read to get to it. */
static void make_way(struct cow *cow, struct kept_faults *kept)
{
    pthread_mutex_lock(&cow->shared.lock);
    struct uffd_message m = uffd_read_event(&cow->uffd);
    if (m.event != UFFD_FAULT)
        cow_take_event(cow, &m);
    pthread_mutex_unlock(&cow->shared.lock);
    if (m.event == UFFD_NONE)
        (void)sched_yield(); /* its thread is not through yet */
    if (m.event != UFFD_FAULT)
        return;
    if (kept->count == KEPT_FAULTS)
        wake_kept(cow, kept);
    kept->at[kept->count++] = m.begin;
}

int cow_protect(struct cow *cow, uint64_t begin, uint64_t end)
{
    struct kept_faults kept = {.count = 0};
    int failed;

    while ((failed = uffd_protect(&cow->uffd, begin, end)) == EAGAIN)
        make_way(cow, &kept);
    wake_kept(cow, &kept);
    return failed;
}

/* 0 or an errno. */
static int lift(struct cow *cow, uint64_t begin, uint64_t end)
{
    struct kept_faults kept = {.count = 0};
    int failed;

    while ((failed = uffd_unprotect(&cow->uffd, begin, end)) == EAGAIN)
        make_way(cow, &kept);
    wake_kept(cow, &kept);
    return failed;
}

/* Is it lifted, or not ours to lift? */
static bool is_lifted(int failed)
{
    return failed == 0 || failed == ENOENT;
}

static int lift_pages(struct cow *cow, uint64_t begin, uint64_t end)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int failed = 0;

    for (uint64_t at = begin; at < end && is_lifted(failed); at += page)
        failed = lift(cow, at, at + page);
    return failed;
}

/* Some of [begin, end) is nothing of ours any more: all else, by granules, and by pages of those
 * that are not whole.  Whoever waits at what is gone goes on, too. */
static int lift_pieces(struct cow *cow, uint64_t begin, uint64_t end)
{
    uint64_t next;
    int failed = 0;

    for (uint64_t at = begin; at < end && is_lifted(failed); at = next) {
        next = min_u64(round_down(at, COW_GRANULE_BYTES) + COW_GRANULE_BYTES, end);
        failed = lift(cow, at, next);
        if (failed == ENOENT)
            failed = lift_pages(cow, at, next);
    }
    uffd_wake(&cow->uffd, begin, end);
    return is_lifted(failed) ? ENOENT : failed;
}

void cow_unprotect(struct cow *cow, uint64_t begin, uint64_t end)
{
    int failed = lift(cow, begin, end);

    if (failed == 0)
        return;
    if (failed == ENOENT)
        failed = lift_pieces(cow, begin, end);
    pthread_mutex_lock(&cow->shared.lock);
    if (failed == ENOENT)
        lose(cow, begin, end, "unmapped");
    else
        cow_disable(cow, "lift it", failed);
    pthread_mutex_unlock(&cow->shared.lock);
}
