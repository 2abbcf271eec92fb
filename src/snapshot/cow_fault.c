/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_fault.c -- see cow.h: the handlers, which serve who waits to write, and the threads that
 * help. Everything here obeys rule 2: it may run while any page of the process is protected. */
#include <assert.h>
#include <poll.h>
#include <unistd.h>

#include "base/base.h"
#include "snapshot/cow_internal.h"

/* A handler lets others go first for so long, or until there are places, once it is told what it
 * knows. */
#define AGAIN_MS 1

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
        cow_take_event(cow, &m);
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
