/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_fault.c -- see cow.h: a granule is taken and given back; what the kernel tells, and who
 * listens.  Everything here obeys rule 2: it may run while any page of the process is protected. */
#include <assert.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fault.h"
#include "base/stream.h"
#include "snapshot/cow_inside.h"

#define KEPT_FAULTS 64u

uint64_t cow_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void cow_fail(struct cow *cow, const struct sidestep_error *why)
{
    if (!cow->shared.failed)
        cow->shared.err = *why;
    cow->shared.failed = true;
    pthread_cond_broadcast(&cow->shared.changed);
}

void cow_give_up(struct cow *cow, const char *what, int sys_errno)
{
    struct sidestep_error why = {0};

    (void)error_set(&why, SIDESTEP_EIO, sys_errno, HERE,
                    "%s: write protection of memory is given up", what);
    cow_fail(cow, &why);
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
        if (granule->begin >= end || granule->end <= begin ||
            cow->shared.cells[g].state == COW_GIVEN_BACK)
            continue;
        const struct cow_piece *piece = &plan->pieces[granule->first_piece];
        (void)FAIL(&why, SIDESTEP_EINVAL,
                   "memory at 0x%llx (bytes %llu of this rank's file) was %s before the save had "
                   "RELEASED it",
                   (unsigned long long)max_u64(granule->begin, begin),
                   (unsigned long long)piece->file_offset, how);
        cow_fail(cow, &why);
        return;
    }
}

/* Locked. */
static void take_event(struct cow *cow, const struct uffd_message *m)
{
    switch (m->event) {
    case UFFD_DROPPED:
        lose(cow, m->begin, m->end, "discarded");
        break;
    case UFFD_MOVED:
        lose(cow, m->begin, m->end, "moved");
        cow->shared.planned = false;
        (void)uffd_unregister(&cow->uffd, m->to, m->to + (m->end - m->begin));
        break;
    case UFFD_UNMAPPED:
        lose(cow, m->begin, m->end, "unmapped");
        cow->shared.planned = false;
        break;
    case UFFD_FAULT:
    case UFFD_NOTHING:
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
    struct uffd_message m = uffd_read(&cow->uffd);
    if (m.event != UFFD_FAULT)
        take_event(cow, &m);
    pthread_mutex_unlock(&cow->shared.lock);
    if (m.event == UFFD_NOTHING)
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

void cow_lift(struct cow *cow, uint64_t begin, uint64_t end)
{
    struct kept_faults kept = {.count = 0};
    int failed;

    while ((failed = uffd_lift(&cow->uffd, begin, end)) == EAGAIN)
        make_way(cow, &kept);
    if (failed != 0) {
        pthread_mutex_lock(&cow->shared.lock);
        if (failed == ENOENT) /* there is nothing of ours any more */
            lose(cow, begin, end, "unmapped");
        else
            cow_give_up(cow, "lift it", failed);
        pthread_mutex_unlock(&cow->shared.lock);
    }
    wake_kept(cow, &kept);
}

/* ---- granules */

/* Bytes [begin, begin + bytes) of the process's memory are in ${bytes_at}: to their places. */
static void place_bytes(struct cow *cow, size_t g, const uint8_t *from, uint64_t begin,
                        uint64_t end)
{
    const struct cow_plan *plan = &cow->plan;

    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        uint64_t first = max_u64(begin, piece->address);
        uint64_t last = min_u64(end, piece->address + piece->bytes);
        if (first < last)
            stream_copy(cow->pool + piece->file_offset + (first - piece->address),
                        from + (first - begin), last - first);
    }
}

/* 0 or an errno. */
static int read_self(void *to, uint64_t from, size_t bytes)
{
    struct iovec local = {to, bytes}, remote = {(void *)(uintptr_t)from, bytes};

    if (fault_hit("cow.read"))
        return errno;
    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (n < 0)
        return errno;
    return (size_t)n == bytes ? 0 : EFAULT;
}

static int copy_granule(struct cow *cow, size_t g, uint8_t *bounce)
{
    const struct cow_granule *granule = &cow->plan.granules[g];

    for (uint64_t at = granule->begin; at < granule->end; at += COW_BOUNCE_BYTES) {
        uint64_t end = min_u64(at + COW_BOUNCE_BYTES, granule->end);
        int failed = read_self(bounce, at, end - at);
        if (failed != 0)
            return failed;
        place_bytes(cow, g, bounce, at, end);
    }
    return 0;
}

static unsigned claim_bounce(struct cow *cow)
{
    unsigned bounce = 0;

    pthread_mutex_lock(&cow->shared.lock);
    while (cow->shared.free_bounces[bounce / 64] == 0)
        bounce += 64;
    assert(bounce < COW_BOUNCES);
    bounce += (unsigned)__builtin_ctzll(cow->shared.free_bounces[bounce / 64]);
    cow->shared.free_bounces[bounce / 64] &= ~((uint64_t)1 << bounce % 64);
    pthread_mutex_unlock(&cow->shared.lock);
    return bounce;
}

/* Locked: somebody has waited since ${since_ns}. */
static void account_wait(struct cow *cow, uint64_t since_ns)
{
    uint64_t waited = cow_now() - since_ns;

    cow->shared.stats.fault_ns += waited;
    cow->shared.stats.fault_max_ns = max_u64(cow->shared.stats.fault_max_ns, waited);
}

void cow_take(struct cow *cow, size_t g)
{
    const struct cow_granule *granule = &cow->plan.granules[g];
    struct cow_cell *cell = &cow->shared.cells[g];
    struct sidestep_error why = {0};
    unsigned bounce = claim_bounce(cow);

    int failed = copy_granule(cow, g, cow->bounces + bounce * COW_BOUNCE_BYTES);
    (void)fault_hit("cow.copied");
    cow_lift(cow, granule->begin, granule->end);
    (void)fault_hit("cow.lifted");
    pthread_mutex_lock(&cow->shared.lock);
    cow->shared.free_bounces[bounce / 64] |= (uint64_t)1 << bounce % 64;
    if (failed != 0) {
        (void)error_set(&why, SIDESTEP_EIO, failed, HERE,
                        "read memory at 0x%llx, which must stay until the save has RELEASED it",
                        (unsigned long long)granule->begin);
        cow_fail(cow, &why);
    }
    if (cell->waited_ns != 0)
        account_wait(cow, cell->waited_ns);
    cell->waited_ns = 0;
    cell->state = COW_GIVEN_BACK;
    cow->shared.left--;
    pthread_cond_broadcast(&cow->shared.changed);
    pthread_mutex_unlock(&cow->shared.lock);
}

/* ---- faults */

/* A thread waits to write at ${address}; read at ${since_ns}. */
static void serve(struct cow *cow, uint64_t address, uint64_t since_ns)
{
    size_t g = cow_plan_find(&cow->plan, address);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = round_down(address, page);

    (void)fault_hit("cow.fault");
    if (g == SIZE_MAX) { /* left over from a plan of before */
        cow_lift(cow, at, at + page);
        return;
    }
    struct cow_cell *cell = &cow->shared.cells[g];
    pthread_mutex_lock(&cow->shared.lock);
    uint64_t state = cell->state;
    cow->shared.stats.faults += state != COW_GIVEN_BACK;
    if (state == COW_PROTECTED) {
        cell->state = COW_TAKEN;
    } else if (state == COW_TAKEN) { /* who has taken it will wake the thread */
        cow->shared.stats.faults_waited++;
        if (cell->waited_ns == 0)
            cell->waited_ns = since_ns;
    }
    pthread_mutex_unlock(&cow->shared.lock);
    if (state == COW_PROTECTED) {
        cow_take(cow, g);
        pthread_mutex_lock(&cow->shared.lock);
        cow->shared.stats.fault_bytes += cow->plan.granules[g].end - cow->plan.granules[g].begin;
        account_wait(cow, since_ns);
        pthread_mutex_unlock(&cow->shared.lock);
    } else if (state == COW_GIVEN_BACK) {
        /* Arming came after the copy, or the fault was told late. */
        cow_lift(cow, cow->plan.granules[g].begin, cow->plan.granules[g].end);
    }
}

/* Locked. */
static void listen_once(struct cow *cow)
{
    struct uffd_message m = uffd_read(&cow->uffd);

    if (m.event != UFFD_FAULT) {
        take_event(cow, &m);
        return;
    }
    cow->shared.busy++;
    pthread_mutex_unlock(&cow->shared.lock);
    serve(cow, m.begin, cow_now());
    pthread_mutex_lock(&cow->shared.lock);
    if (--cow->shared.busy == 0)
        pthread_cond_broadcast(&cow->shared.changed);
}

void *cow_handler_main(void *argument)
{
    struct cow *cow = argument;
    struct pollfd fds[] = {{.fd = cow->uffd.fd, .events = POLLIN},
                           {.fd = cow->stop_fd, .events = POLLIN}};

    for (;;) {
        (void)poll(fds, 2, -1);
        if (fds[1].revents != 0)
            return NULL;
        pthread_mutex_lock(&cow->shared.lock);
        if (!cow->shared.dead)
            listen_once(cow);
        pthread_mutex_unlock(&cow->shared.lock);
    }
}
