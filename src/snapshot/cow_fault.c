/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_fault.c -- see cow.h: a granule is taken and given back; what the kernel tells, and who
 * listens and helps.  Everything here obeys rule 2: it may run while any page of the process is
 * protected. */
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
        if (granule->begin >= end || granule->end <= begin || cow->shared.cells[g].missing == 0 ||
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

/* Bytes [begin, end) of the process's memory are at ${from}: to the places of what is claimed. */
static void place_bytes(struct cow *cow, size_t g, const uint8_t *from, uint64_t begin,
                        uint64_t end)
{
    const struct cow_plan *plan = &cow->plan;
    uint8_t *place = NULL;
    size_t window = SIZE_MAX;

    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        uint64_t first = max_u64(begin, piece->address);
        uint64_t last = min_u64(end, piece->address + piece->bytes);
        if (first >= last || cow->shared.pieces[i] != COW_COPYING)
            continue;
        if (piece->window != window) {
            window = piece->window;
            place = places_of(cow->places, window) - plan->cuts[window];
        }
        stream_copy(place + piece->file_offset + (first - piece->address), from + (first - begin),
                    last - first);
    }
}

int cow_read(void *to, uint64_t from, size_t bytes)
{
    struct iovec local = {to, bytes}, remote = {(void *)(uintptr_t)from, bytes};

    if (fault_hit("cow.read"))
        return errno;
    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (n < 0)
        return errno;
    return (size_t)n == bytes ? 0 : EFAULT;
}

/* What of granule ${g} is claimed lies in [*begin, *end). */
static void span_claimed(const struct cow *cow, size_t g, uint64_t *begin, uint64_t *end)
{
    const struct cow_plan *plan = &cow->plan;

    *begin = plan->granules[g].end;
    *end = plan->granules[g].begin;
    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        if (cow->shared.pieces[i] != COW_COPYING)
            continue;
        *begin = min_u64(*begin, piece->address);
        *end = max_u64(*end, piece->address + piece->bytes);
    }
}

static int copy_claimed(struct cow *cow, size_t g, uint8_t *bounce)
{
    uint64_t begin, end;

    span_claimed(cow, g, &begin, &end);
    for (uint64_t at = begin; at < end; at += COW_COPY_BYTES) {
        uint64_t next = min_u64(at + COW_COPY_BYTES, end);
        int failed = cow_read(bounce, at, next - at);
        if (failed != 0)
            return failed;
        place_bytes(cow, g, bounce, at, next);
    }
    return 0;
}

unsigned cow_claim_bounce(struct cow *cow)
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

void cow_free_bounce(struct cow *cow, unsigned bounce)
{
    cow->shared.free_bounces[bounce / 64] |= (uint64_t)1 << bounce % 64;
}

/* Locked: somebody has waited since ${since_ns}. */
static void account_wait(struct cow *cow, uint64_t since_ns)
{
    uint64_t waited = cow_now() - since_ns;

    cow->shared.stats.fault_ns += waited;
    cow->shared.stats.fault_max_ns = max_u64(cow->shared.stats.fault_max_ns, waited);
}

void cow_end_waiting(struct cow *cow, size_t g)
{
    struct cow_cell *cell = &cow->shared.cells[g];

    if (cell->waited_ns == 0)
        return;
    account_wait(cow, cell->waited_ns);
    cell->waited_ns = 0;
    if (--cow->shared.waiting == 0)
        atomic_store(&cow->full, false);
}

uint64_t cow_claim(struct cow *cow, size_t g, bool open)
{
    const struct cow_plan *plan = &cow->plan;
    size_t window = SIZE_MAX;
    bool has_place = false;
    uint64_t bytes = 0;

    assert(cow->shared.cells[g].state == COW_PROTECTED);
    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        if (cow->shared.pieces[i] != COW_UNTOUCHED)
            continue;
        if (piece->window != window) {
            window = piece->window;
            has_place = (open ? places_take(cow->places, window, PLACES_ANY)
                              : places_of(cow->places, window)) != NULL;
        }
        if (!has_place)
            continue;
        cow->shared.pieces[i] = COW_COPYING;
        bytes += piece->bytes;
    }
    if (bytes != 0)
        cow->shared.cells[g].state = COW_TAKEN;
    return bytes;
}

/* Locked: what was claimed of granule ${g} is copied, or cannot be because of ${failed}; true: it
 * was the last of it. */
static bool end_copy(struct cow *cow, size_t g, int failed)
{
    const struct cow_plan *plan = &cow->plan;
    struct sidestep_error why = {0};

    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++)
        if (cow->shared.pieces[i] == COW_COPYING) {
            cow->shared.pieces[i] = COW_DONE;
            cow->shared.cells[g].missing--;
        }
    if (failed != 0) {
        (void)error_set(&why, SIDESTEP_EIO, failed, HERE,
                        "read memory at 0x%llx, which must stay until the save has RELEASED it",
                        (unsigned long long)plan->granules[g].begin);
        cow_fail(cow, &why);
    }
    return cow->shared.cells[g].missing == 0;
}

static void poke(struct cow *cow)
{
    uint64_t one = 1;

    /* Should the counter be full, it is readable. */
    if (write(cow->poke_fd, &one, sizeof(one)) < 0)
        return;
}

void cow_give_back(struct cow *cow, size_t g)
{
    const struct cow_granule *granule = &cow->plan.granules[g];

    pthread_mutex_unlock(&cow->shared.lock);
    cow_lift(cow, granule->begin, granule->end);
    (void)fault_hit("cow.lifted");
    pthread_mutex_lock(&cow->shared.lock);
    cow_end_waiting(cow, g);
    cow->shared.cells[g].state = COW_GIVEN_BACK;
    cow->shared.left--;
}

void cow_take(struct cow *cow, size_t g)
{
    struct cow_cell *cell = &cow->shared.cells[g];
    unsigned bounce = cow_claim_bounce(cow);

    int failed = copy_claimed(cow, g, cow->bounces + bounce * COW_BOUNCE_BYTES);
    (void)fault_hit("cow.copied");
    pthread_mutex_lock(&cow->shared.lock);
    cow_free_bounce(cow, bounce);
    if (end_copy(cow, g, failed)) {
        cow_give_back(cow, g);
    } else {
        cell->state = COW_PROTECTED;
        if (cell->waited_ns != 0) /* since it was taken: a handler may have places for the rest */
            poke(cow);
    }
    pthread_cond_broadcast(&cow->shared.changed);
    pthread_mutex_unlock(&cow->shared.lock);
}

void cow_poke(struct cow *cow)
{
    pthread_mutex_lock(&cow->shared.lock);
    if (cow->shared.waiting != 0)
        poke(cow);
    pthread_mutex_unlock(&cow->shared.lock);
}

/* ---- who helps */

void cow_join(struct cow *cow, const struct priority_rights *rights)
{
    pthread_mutex_lock(&cow->shared.lock);
    assert(cow->shared.helper_count < COW_MAX_HELPERS);
    struct cow_helper *helper = &cow->shared.helpers[cow->shared.helper_count++];
    *helper = (struct cow_helper){.thread = priority_self(), .raised = rights == NULL};
    if (rights != NULL)
        helper->rights = *rights;
    pthread_mutex_unlock(&cow->shared.lock);
}

/* Locked. */
static struct cow_helper *find_helper(struct cow *cow)
{
    pid_t self = priority_self();
    unsigned i = 0;

    while (cow->shared.helpers[i].thread != self)
        i++;
    assert(i < cow->shared.helper_count);
    return &cow->shared.helpers[i];
}

void cow_leave(struct cow *cow)
{
    pthread_mutex_lock(&cow->shared.lock);
    *find_helper(cow) = cow->shared.helpers[cow->shared.helper_count - 1];
    cow->shared.helper_count--;
    pthread_mutex_unlock(&cow->shared.lock);
}

bool cow_was_raised(struct cow *cow)
{
    pthread_mutex_lock(&cow->shared.lock);
    struct cow_helper *helper = find_helper(cow);
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
    uint64_t bytes = cow_claim(cow, g, true);

    cow->shared.stats.fault_bytes += bytes;
    pthread_mutex_unlock(&cow->shared.lock);
    if (bytes != 0)
        cow_take(cow, g);
    pthread_mutex_lock(&cow->shared.lock);
}

/* Locked: somebody waits for what they do. */
static void raise_helpers(struct cow *cow)
{
    for (unsigned i = 0; i < cow->shared.helper_count; i++) {
        struct cow_helper *helper = &cow->shared.helpers[i];
        if (!helper->raised)
            priority_raise(helper->thread, &helper->rights);
        helper->raised = true;
    }
}

/* A thread waits to write to granule ${g}; read at ${since_ns}. */
static void serve_fault(struct cow *cow, size_t g, uint64_t since_ns)
{
    struct cow_cell *cell = &cow->shared.cells[g];

    pthread_mutex_lock(&cow->shared.lock);
    uint32_t state = cell->state;
    if (state != COW_GIVEN_BACK) {
        cow->shared.stats.faults++;
        cow->shared.stats.faults_waited += state == COW_TAKEN;
        if (cell->waited_ns == 0) {
            cell->waited_ns = since_ns;
            cow->shared.waiting++;
        }
        pthread_cond_broadcast(&cow->shared.changed); /* cow_await_faults() */
    }
    if (state == COW_PROTECTED) {
        serve_granule(cow, g);
        if (cell->state == COW_PROTECTED && cell->waited_ns != 0) {
            cow->shared.stats.faults_disk++;
            atomic_store(&cow->full, true);
        }
    }
    if (cell->waited_ns != 0)
        raise_helpers(cow);
    pthread_mutex_unlock(&cow->shared.lock);
    if (state == COW_GIVEN_BACK) /* arming came after the copy, or the fault was told late */
        cow_lift(cow, cow->plan.granules[g].begin, cow->plan.granules[g].end);
}

/* A thread waits to write at ${address}; read at ${since_ns}. */
static void serve(struct cow *cow, uint64_t address, uint64_t since_ns)
{
    size_t g = cow_plan_find(&cow->plan, address);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = round_down(address, page);

    (void)fault_hit("cow.fault");
    /* Left over from a plan of before; or a stranger (see cow_plan.h). */
    if (g == SIZE_MAX || !cow_plan_touches(&cow->plan, g, at, at + page))
        cow_lift(cow, at, at + page);
    else
        serve_fault(cow, g, since_ns);
}

/* Locked: there are places again; the lock is released meanwhile. */
static void serve_waiting(struct cow *cow)
{
    for (size_t g = 0; g < cow->plan.granule_count && cow->shared.waiting != 0; g++)
        if (cow->shared.cells[g].waited_ns != 0 && cow->shared.cells[g].state == COW_PROTECTED)
            serve_granule(cow, g);
}

/* Locked: what there is to read, and to do.  The lock is released meanwhile. */
static void listen_once(struct cow *cow, bool poked)
{
    struct uffd_message m = uffd_read(&cow->uffd);

    if (m.event != UFFD_FAULT)
        take_event(cow, &m);
    cow->shared.busy++;
    if (m.event == UFFD_FAULT) {
        pthread_mutex_unlock(&cow->shared.lock);
        serve(cow, m.begin, cow_now());
        pthread_mutex_lock(&cow->shared.lock);
    }
    if (poked)
        serve_waiting(cow);
    if (--cow->shared.busy == 0)
        pthread_cond_broadcast(&cow->shared.changed);
}

void *cow_handler_main(void *argument)
{
    struct cow *cow = argument;
    struct pollfd fds[] = {{.fd = cow->uffd.fd, .events = POLLIN},
                           {.fd = cow->poke_fd, .events = POLLIN},
                           {.fd = cow->stop_fd, .events = POLLIN}};

    for (;;) {
        uint64_t pokes;
        (void)poll(fds, 3, -1);
        if (fds[2].revents != 0)
            return NULL;
        /* One of the handlers gets it. */
        bool poked = fds[1].revents != 0 && read(cow->poke_fd, &pokes, sizeof(pokes)) > 0;
        pthread_mutex_lock(&cow->shared.lock);
        if (!cow->shared.dead)
            listen_once(cow, poked);
        pthread_mutex_unlock(&cow->shared.lock);
    }
}
