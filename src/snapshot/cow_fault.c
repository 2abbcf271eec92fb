/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_fault.c -- the fault handlers, which serve writers that wait, and raise the priority of the
 * threads that writers wait for; see cow.h.  Everything here obeys rule 2: it may run while any
 * page of the process is protected. */
#include <assert.h>
#include <poll.h>
#include <unistd.h>

#include "base/base.h"
#include "snapshot/cow_internal.h"

/* A handler that reads a known fault, which it cannot serve yet, ignores further faults for this
 * long, or until it gets the signal that slots are free. */
#define RETRY_MS 1

/* ---- threads that writers may wait for */

void cow_attach_thread(struct cow *cow, const struct priority_rights *rights)
{
    lock_acquire(&cow->shared.lock);
    assert(cow->shared.thread_count < COW_MAX_THREADS);
    struct cow_thread *thread = &cow->shared.threads[cow->shared.thread_count++];
    *thread = (struct cow_thread){.thread = priority_self(), .raised = rights == NULL};
    if (rights != NULL)
        thread->rights = *rights;
    lock_release(&cow->shared.lock);
}

/* Locked: the entry of the calling thread. */
static struct cow_thread *find_thread(struct cow *cow) REQUIRES(&cow->shared.lock)
{
    pid_t self = priority_self();
    unsigned i = 0;

    while (i < cow->shared.thread_count && cow->shared.threads[i].thread != self)
        i++;
    assert(i < cow->shared.thread_count); /* it is attached */
    return &cow->shared.threads[i];
}

void cow_detach_thread(struct cow *cow)
{
    lock_acquire(&cow->shared.lock);
    *find_thread(cow) = cow->shared.threads[cow->shared.thread_count - 1];
    cow->shared.thread_count--;
    lock_release(&cow->shared.lock);
}

bool cow_should_lower_priority(struct cow *cow)
{
    lock_acquire(&cow->shared.lock);
    struct cow_thread *thread = find_thread(cow);
    bool was_raised = thread->raised && cow->shared.granules_awaited == 0;
    if (was_raised)
        thread->raised = false;
    lock_release(&cow->shared.lock);
    return was_raised;
}

/* ---- faults */

/* Locked: copy protected granule ${g} as far as there are slots, for a writer that waits.  Releases
 * the lock during the copy. */
static void copy_for_writer(struct cow *cow, size_t g) REQUIRES(&cow->shared.lock)
{
    uint64_t bytes = cow_claim_granule(cow, g, true);

    cow->shared.stats.fault_bytes += bytes;
    lock_release(&cow->shared.lock);
    if (bytes != 0)
        cow_copy_claimed(cow, g);
    lock_acquire(&cow->shared.lock);
}

/* Locked: raise the priority of all attached threads, because a writer waits for them. */
static void raise_threads(struct cow *cow) REQUIRES(&cow->shared.lock)
{
    for (unsigned i = 0; i < cow->shared.thread_count; i++) {
        struct cow_thread *thread = &cow->shared.threads[i];
        if (!thread->raised)
            priority_raise(thread->thread, &thread->rights);
        thread->raised = true;
    }
}

/* Locked: record that a writer waits for page ${at} of granule ${g}, which is still protected. */
static void record_fault(struct cow *cow, size_t g, uint64_t at, uint64_t since_ns)
    REQUIRES(&cow->shared.lock)
{
    struct cow_granule_control *control = &cow->shared.controls[g];

    assert(control->state != COW_GRANULE_UNPROTECTED);
    cow->shared.stats.faults++;
    cow->shared.stats.faults_waited += control->state == COW_GRANULE_CLAIMED;
    if (control->waiting_since_ns == 0) {
        control->waiting_since_ns = since_ns;
        cow->shared.granules_awaited++;
    }
    control->waiting_page = at;
    lock_wake_all(&cow->shared.changed); /* for cow_wait_for_faults() */
}

/* Handle a write fault at page ${at} of granule ${g}, read at ${since_ns}.  Returns false if the
 * fault was known and nothing can be done about it yet. */
static bool handle_granule_fault(struct cow *cow, size_t g, uint64_t at, uint64_t since_ns)
{
    lock_acquire(&cow->shared.lock);
    struct cow_granule_control *control = &cow->shared.controls[g];
    uint32_t state = control->state;
    bool waited = control->waiting_since_ns != 0, is_new = !waited || control->waiting_page != at;
    if (state != COW_GRANULE_UNPROTECTED && is_new)
        record_fault(cow, g, at, since_ns);
    if (state == COW_GRANULE_PROTECTED) {
        copy_for_writer(cow, g);
        if (control->state == COW_GRANULE_PROTECTED && control->waiting_since_ns != 0) {
            cow->shared.stats.faults_disk += is_new;
            atomic_store(&cow->pool_full, true);
            is_new = !waited;
        }
    }
    if (control->waiting_since_ns != 0)
        raise_threads(cow);
    lock_release(&cow->shared.lock);
    /* The fault arrived late, or the memory was protected after the granule was copied. */
    if (state == COW_GRANULE_UNPROTECTED)
        cow_unprotect(cow, cow->plan.granules[g].begin, cow->plan.granules[g].end);
    return is_new || state == COW_GRANULE_UNPROTECTED;
}

/* Handle a write fault at ${address}, read at ${since_ns}.  Returns false as above. */
static bool handle_fault(struct cow *cow, uint64_t address, uint64_t since_ns)
{
    size_t g = cow_plan_find_granule(&cow->plan, address);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = round_down(address, page);

    (void)fault_hit("cow.fault");
    /* Otherwise the fault is left over from an earlier plan, or hits memory of other code (see
     * cow_plan.h). */
    if (g != SIZE_MAX && cow_plan_has_piece_in(&cow->plan, g, at, at + page))
        return handle_granule_fault(cow, g, at, since_ns);
    cow_unprotect(cow, at, at + page);
    return true;
}

/* Locked: copy granules that writers wait for, after slots were freed.  Releases the lock during
 * copies. */
static void retry_waiting(struct cow *cow) REQUIRES(&cow->shared.lock)
{
    for (size_t g = 0; g < cow->plan.granule_count && cow->shared.granules_awaited != 0; g++)
        if (cow->shared.controls[g].waiting_since_ns != 0 &&
            cow->shared.controls[g].state == COW_GRANULE_PROTECTED)
            copy_for_writer(cow, g);
}

/* Locked: read and handle one event.  Releases the lock during copies.  Returns false if the event
 * is a known fault that cannot be served yet. */
static bool handle_event(struct cow *cow, bool signalled) REQUIRES(&cow->shared.lock)
{
    struct uffd_message m = uffd_read_event(&cow->uffd);
    bool is_new = true;

    if (m.event != UFFD_FAULT)
        cow_take_event(cow, &m);
    cow->shared.busy_handlers++;
    if (m.event == UFFD_FAULT) {
        lock_release(&cow->shared.lock);
        is_new = handle_fault(cow, m.begin, cow_now_ns());
        lock_acquire(&cow->shared.lock);
    }
    if (signalled)
        retry_waiting(cow);
    assert(cow->shared.busy_handlers != 0);
    if (--cow->shared.busy_handlers == 0)
        lock_wake_all(&cow->shared.changed);
    return is_new;
}

/* A system call that writes and is interrupted does not wait: the kernel lets it fault again and
 * again until a handler serves it.  A writer that waits for a slot is served after a signal on
 * retry_fd, so a handler that reads the same fault again can do nothing before that signal. */
void *cow_fault_handler_main(void *argument)
{
    struct cow *cow = argument;
    struct pollfd fds[] = {{.fd = cow->stop_fd, .events = POLLIN},
                           {.fd = cow->retry_fd, .events = POLLIN},
                           {.fd = cow->uffd.fd, .events = POLLIN}};
    bool is_new = true;

    for (;;) {
        uint64_t signals;
        (void)poll(fds, is_new ? 3 : 2, is_new ? -1 : RETRY_MS);
        if (fds[0].revents != 0)
            return NULL;
        /* Only one of the handlers reads it. */
        bool signalled = fds[1].revents != 0 && read(cow->retry_fd, &signals, sizeof(signals)) > 0;
        lock_acquire(&cow->shared.lock);
        is_new = cow->shared.disabled || handle_event(cow, signalled);
        lock_release(&cow->shared.lock);
    }
}
