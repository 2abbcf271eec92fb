/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_protect.c -- protects pages and lifts protection while events of the kernel are pending; see
 * cow.h.  Everything here obeys rule 2: it may run while any page of the process is protected. */
#include <assert.h>
#include <sched.h>
#include <unistd.h>

#include "base/base.h"
#include "snapshot/cow_internal.h"

#define MAX_DEFERRED_FAULTS 64u

void cow_unregister_ranges(struct cow *cow)
{
    for (size_t i = 0; i < cow->plan.range_count; i++)
        (void)uffd_unregister(&cow->uffd, cow->plan.ranges[i].begin, cow->plan.ranges[i].end);
}

/* Locked: give up all protection, for good. */
static void disable(struct cow *cow, const char *what, int sys_errno) REQUIRES(&cow->shared.lock)
{
    struct sidestep_error why = {0};

    (void)error_set(&why, SIDESTEP_EIO, sys_errno, HERE,
                    "%s: write protection of memory is given up", what);
    cow_record_failure(cow, &why);
    cow->shared.plan_valid = false;
    if (cow->shared.disabled)
        return;
    cow->shared.disabled = true;
    cow_unregister_ranges(cow);
    /* Keep the number of the descriptor in use, so that no ioctl() of another thread reaches
     * another file.  The userfaultfd itself closes only once the handlers have left poll(2), so
     * waiting threads were woken above. */
    (void)dup2(cow->stop_fd, cow->uffd.fd);
}

/* Locked: fail the save because the contents of [begin, end) are lost, or about to be. */
static void report_lost_memory(struct cow *cow, uint64_t begin, uint64_t end, const char *how)
    REQUIRES(&cow->shared.lock)
{
    const struct cow_plan *plan = &cow->plan;
    struct sidestep_error why = {0};

    if (cow->shared.granules_left == 0 || cow->shared.failed)
        return;
    for (size_t g = 0; g < plan->granule_count; g++) {
        const struct cow_granule *granule = &plan->granules[g];
        if (granule->begin >= end || granule->end <= begin ||
            cow->shared.controls[g].pieces_left == 0 ||
            cow->shared.controls[g].state == COW_GRANULE_UNPROTECTED)
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
        report_lost_memory(cow, m->begin, m->end, "discarded");
        break;
    case UFFD_REMAPPED:
        report_lost_memory(cow, m->begin, m->end, "moved");
        cow->shared.plan_valid = false;
        (void)uffd_unregister(&cow->uffd, m->to, m->to + (m->end - m->begin));
        break;
    case UFFD_UNMAPPED:
        report_lost_memory(cow, m->begin, m->end, "unmapped");
        cow->shared.plan_valid = false;
        break;
    case UFFD_FAULT:
    case UFFD_NONE:
        break;
    }
}

/* Faults that were read in order to reach an event.  Their threads are woken, and fault again. */
struct deferred_faults {
    uint64_t at[MAX_DEFERRED_FAULTS];
    unsigned count;
};

static void wake_deferred(struct cow *cow, struct deferred_faults *deferred)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    assert(deferred->count <= MAX_DEFERRED_FAULTS);
    for (unsigned i = 0; i < deferred->count; i++) {
        uint64_t at = round_down(deferred->at[i], page);
        uffd_wake(&cow->uffd, at, at + page);
    }
    deferred->count = 0;
}

/* Read one event that blocks an ioctl.  The kernel delivers faults first, so they have to be read,
 * too. */
static void read_pending_event(struct cow *cow, struct deferred_faults *deferred)
{
    lock_acquire(&cow->shared.lock);
    struct uffd_message m = uffd_read_event(&cow->uffd);
    if (m.event != UFFD_FAULT)
        cow_take_event(cow, &m);
    lock_release(&cow->shared.lock);
    if (m.event == UFFD_NONE)
        (void)sched_yield(); /* the thread that causes the event has not queued it yet */
    if (m.event != UFFD_FAULT)
        return;
    if (deferred->count == MAX_DEFERRED_FAULTS)
        wake_deferred(cow, deferred);
    deferred->at[deferred->count++] = m.begin;
}

int cow_protect(struct cow *cow, uint64_t begin, uint64_t end)
{
    struct deferred_faults deferred = {.count = 0};
    int failed;

    assert(begin < end);
    while ((failed = uffd_protect(&cow->uffd, begin, end)) == EAGAIN)
        read_pending_event(cow, &deferred);
    wake_deferred(cow, &deferred);
    return failed;
}

/* Returns 0 or an errno. */
static int lift(struct cow *cow, uint64_t begin, uint64_t end)
{
    struct deferred_faults deferred = {.count = 0};
    int failed;

    while ((failed = uffd_unprotect(&cow->uffd, begin, end)) == EAGAIN)
        read_pending_event(cow, &deferred);
    wake_deferred(cow, &deferred);
    return failed;
}

/* Is the protection lifted, or the memory no longer registered with sidestep? */
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

/* Part of [begin, end) is no longer registered.  Lift the rest, granule by granule, and page by
 * page in granules that are only partly registered.  Also wakes threads that wait in the part that
 * is gone. */
static int lift_registered(struct cow *cow, uint64_t begin, uint64_t end)
{
    uint64_t next;
    int failed = 0;

    for (uint64_t at = begin; at < end && is_lifted(failed); at = next) {
        next = min_u64(round_down(at, COW_GRANULE_BYTES) + COW_GRANULE_BYTES, end);
        assert(at < next);
        failed = lift(cow, at, next);
        if (failed == ENOENT)
            failed = lift_pages(cow, at, next);
    }
    uffd_wake(&cow->uffd, begin, end);
    return is_lifted(failed) ? ENOENT : failed;
}

void cow_unprotect(struct cow *cow, uint64_t begin, uint64_t end)
{
    assert(begin < end);
    int failed = lift(cow, begin, end);

    if (failed == 0)
        return;
    if (failed == ENOENT)
        failed = lift_registered(cow, begin, end);
    lock_acquire(&cow->shared.lock);
    if (failed == ENOENT)
        report_lost_memory(cow, begin, end, "unmapped, or taken by another user of userfaultfd,");
    else
        disable(cow, "lift protection", failed);
    lock_release(&cow->shared.lock);
}
