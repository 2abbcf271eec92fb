/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_fault.c -- see cow.h: what the kernel tells, and who listens and helps.  Everything here
 * obeys rule 2: it may run while any page of the process is protected. */
#include <assert.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fault.h"
#include "snapshot/cow_internal.h"

#define KEPT_FAULTS 64u
/* A handler lets others go first for so long, or until there are places, once it is told what it
 * knows. */
#define AGAIN_MS 1

uint64_t cow_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void cow_record_failure(struct cow *cow, const struct sidestep_error *why)
{
    if (!cow->shared.failed)
        cow->shared.err = *why;
    cow->shared.failed = true;
    pthread_cond_broadcast(&cow->shared.changed);
}

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

/* ---- events */

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

/* Locked. */
static void take_event(struct cow *cow, const struct uffd_message *m)
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
        take_event(cow, &m);
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

/* ---- who helps */

void cow_attach_thread(struct cow *cow, const struct priority_rights *rights)
{
    pthread_mutex_lock(&cow->shared.lock);
    assert(cow->shared.helper_count < COW_MAX_THREADS);
    struct cow_thread *helper = &cow->shared.helpers[cow->shared.helper_count++];
    *helper = (struct cow_thread){.thread = priority_self(), .raised = rights == NULL};
    if (rights != NULL)
        helper->rights = *rights;
    pthread_mutex_unlock(&cow->shared.lock);
}

/* Locked. */
static struct cow_thread *find_helper(struct cow *cow)
{
    pid_t self = priority_self();
    unsigned i = 0;

    while (cow->shared.helpers[i].thread != self)
        i++;
    assert(i < cow->shared.helper_count);
    return &cow->shared.helpers[i];
}

void cow_detach_thread(struct cow *cow)
{
    pthread_mutex_lock(&cow->shared.lock);
    *find_helper(cow) = cow->shared.helpers[cow->shared.helper_count - 1];
    cow->shared.helper_count--;
    pthread_mutex_unlock(&cow->shared.lock);
}

bool cow_should_lower_priority(struct cow *cow)
{
    pthread_mutex_lock(&cow->shared.lock);
    struct cow_thread *helper = find_helper(cow);
    bool was_raised = helper->raised && cow->shared.waiting == 0;
    if (was_raised)
        helper->raised = false;
    pthread_mutex_unlock(&cow->shared.lock);
    return was_raised;
}

/* ---- faults */

/* Locked: serve who waits to write to granule ${g}, which is protected, as far as there are places;
 * the lock is released meanwhile. */
static void serve_granule(struct cow *cow, size_t g)
{
    uint64_t bytes = cow_claim_granule(cow, g, true);

    cow->shared.stats.fault_bytes += bytes;
    pthread_mutex_unlock(&cow->shared.lock);
    if (bytes != 0)
        cow_copy_claimed(cow, g);
    pthread_mutex_lock(&cow->shared.lock);
}

/* Locked: somebody waits for what they do. */
static void raise_helpers(struct cow *cow)
{
    for (unsigned i = 0; i < cow->shared.helper_count; i++) {
        struct cow_thread *helper = &cow->shared.helpers[i];
        if (!helper->raised)
            priority_raise(helper->thread, &helper->rights);
        helper->raised = true;
    }
}

/* Locked: somebody waits to write to page ${at} of granule ${g}, which is not given back. */
static void note_fault(struct cow *cow, size_t g, uint64_t at, uint64_t since_ns)
{
    struct cow_granule_control *cell = &cow->shared.cells[g];

    cow->shared.stats.faults++;
    cow->shared.stats.faults_waited += cell->state == COW_GRANULE_CLAIMED;
    if (cell->waited_ns == 0) {
        cell->waited_ns = since_ns;
        cow->shared.waiting++;
    }
    cell->waited_at = at;
    pthread_cond_broadcast(&cow->shared.changed); /* cow_wait_for_faults() */
}

/* A thread waits to write to page ${at} of granule ${g}; read at ${since_ns}.  False: that is
 * known, and nothing can be done about it yet. */
static bool serve_fault(struct cow *cow, size_t g, uint64_t at, uint64_t since_ns)
{
    struct cow_granule_control *cell = &cow->shared.cells[g];

    pthread_mutex_lock(&cow->shared.lock);
    uint32_t state = cell->state;
    bool waited = cell->waited_ns != 0, is_new = !waited || cell->waited_at != at;
    if (state != COW_GRANULE_UNPROTECTED && is_new)
        note_fault(cow, g, at, since_ns);
    if (state == COW_GRANULE_PROTECTED) {
        serve_granule(cow, g);
        if (cell->state == COW_GRANULE_PROTECTED && cell->waited_ns != 0) {
            cow->shared.stats.faults_disk += is_new;
            atomic_store(&cow->full, true);
            is_new = !waited;
        }
    }
    if (cell->waited_ns != 0)
        raise_helpers(cow);
    pthread_mutex_unlock(&cow->shared.lock);
    if (state ==
        COW_GRANULE_UNPROTECTED) /* arming came after the copy, or the fault was told late */
        cow_unprotect(cow, cow->plan.granules[g].begin, cow->plan.granules[g].end);
    return is_new || state == COW_GRANULE_UNPROTECTED;
}

/* A thread waits to write at ${address}; read at ${since_ns}.  False as above. */
static bool serve(struct cow *cow, uint64_t address, uint64_t since_ns)
{
    size_t g = cow_plan_find_granule(&cow->plan, address);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = round_down(address, page);

    (void)fault_hit("cow.fault");
    /* Left over from a plan of before; or a stranger (see cow_plan.h). */
    if (g != SIZE_MAX && cow_plan_has_piece_in(&cow->plan, g, at, at + page))
        return serve_fault(cow, g, at, since_ns);
    cow_unprotect(cow, at, at + page);
    return true;
}

/* Locked: there are places again; the lock is released meanwhile. */
static void serve_waiting(struct cow *cow)
{
    for (size_t g = 0; g < cow->plan.granule_count && cow->shared.waiting != 0; g++)
        if (cow->shared.cells[g].waited_ns != 0 &&
            cow->shared.cells[g].state == COW_GRANULE_PROTECTED)
            serve_granule(cow, g);
}

/* Locked: what there is to read, and to do.  The lock is released meanwhile.  False: it was known.
 */
static bool listen_once(struct cow *cow, bool poked)
{
    struct uffd_message m = uffd_read_event(&cow->uffd);
    bool is_new = true;

    if (m.event != UFFD_FAULT)
        take_event(cow, &m);
    cow->shared.busy++;
    if (m.event == UFFD_FAULT) {
        pthread_mutex_unlock(&cow->shared.lock);
        is_new = serve(cow, m.begin, cow_now_ns());
        pthread_mutex_lock(&cow->shared.lock);
    }
    if (poked)
        serve_waiting(cow);
    if (--cow->shared.busy == 0)
        pthread_cond_broadcast(&cow->shared.changed);
    return is_new;
}

/* A system call that writes, and is interrupted, does not wait: the kernel lets it fault again and
 * again until a handler has served it.  Whoever waits for a place is served by a poke, so a handler
 * that hears the same again has nothing to do before that. */
void *cow_fault_handler_main(void *argument)
{
    struct cow *cow = argument;
    struct pollfd fds[] = {{.fd = cow->stop_fd, .events = POLLIN},
                           {.fd = cow->poke_fd, .events = POLLIN},
                           {.fd = cow->uffd.fd, .events = POLLIN}};
    bool is_new = true;

    for (;;) {
        uint64_t pokes;
        (void)poll(fds, is_new ? 3 : 2, is_new ? -1 : AGAIN_MS);
        if (fds[0].revents != 0)
            return NULL;
        /* One of the handlers gets it. */
        bool poked = fds[1].revents != 0 && read(cow->poke_fd, &pokes, sizeof(pokes)) > 0;
        pthread_mutex_lock(&cow->shared.lock);
        is_new = cow->shared.dead || listen_once(cow, poked);
        pthread_mutex_unlock(&cow->shared.lock);
    }
}
