/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_granule.c -- claims a granule, copies it and lifts its protection; see cow.h.  Everything
 * here obeys rule 2: it may run while any page of the process is protected. */
#include <assert.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "snapshot/cow_internal.h"

/* Parts of the claimed pieces of a granule that are copied in one call. */
struct batch {
    size_t g;
    struct memory_reader *reader;
    struct iovec to[MEMORY_READER_PARTS];
    struct iovec from[MEMORY_READER_PARTS];
    size_t count;
    size_t bytes;
};

static enum sidestep_status copy_batch(struct cow *cow, struct batch *batch,
                                       struct sidestep_error *err)
{
    uint64_t at = (uint64_t)(uintptr_t)batch->from[0].iov_base;
    int failed = 0;

    if (batch->count == 0)
        return SIDESTEP_OK;
    if (fault_hit("cow.read"))
        failed = errno;
    else
        failed = memory_reader_copy(batch->reader, batch->to, batch->from, batch->count);
    batch->count = batch->bytes = 0;
    if (failed == 0)
        return SIDESTEP_OK;
    return cow_report_unreadable(cow, cow_find_piece(cow, batch->g, at, at + 1), at, failed, err);
}

/* Copy ${piece} to ${place}, or leave a part of it in the batch. */
static enum sidestep_status copy_piece(struct cow *cow, struct batch *batch,
                                       const struct cow_piece *piece, uint8_t *place,
                                       struct sidestep_error *err)
{
    for (uint64_t at = 0, length; at < piece->bytes; at += length) {
        if (batch->count == MEMORY_READER_PARTS || batch->bytes == MEMORY_READER_BYTES)
            TRY(copy_batch(cow, batch, err));
        length = min_u64(piece->bytes - at, MEMORY_READER_BYTES - batch->bytes);
        void *from = (void *)(uintptr_t)(piece->address + at);
        batch->to[batch->count] = (struct iovec){place + at, length};
        batch->from[batch->count++] = (struct iovec){from, length};
        batch->bytes += length;
    }
    return SIDESTEP_OK;
}

/* Copy the claimed pieces of granule ${g} to their slots.  Not checked: the pieces of a claimed
 * granule belong to the thread that has claimed it. */
static LOCK_UNCHECKED enum sidestep_status
copy_claimed(struct cow *cow, size_t g, struct memory_reader *reader, struct sidestep_error *err)
{
    const struct cow_plan *plan = &cow->plan;
    struct batch batch = {.g = g, .reader = reader};
    uint8_t *place = NULL;
    size_t window = SIZE_MAX;

    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        if (cow->shared.pieces[i] != COW_PIECE_COPYING)
            continue;
        if (piece->window != window) {
            window = piece->window;
            place = pool_slots_get(cow->slots, window);
            assert(place != NULL); /* a piece is claimed only if its window has a slot */
            place -= plan->window_offsets[window];
        }
        TRY(copy_piece(cow, &batch, piece, place + piece->file_offset, err));
    }
    return copy_batch(cow, &batch, err);
}

/* Acquire a reader that no other thread uses, and return its number. */
static unsigned acquire_reader(struct cow *cow)
{
    unsigned n = 0;

    lock_acquire(&cow->shared.lock);
    while (n < COW_READERS && cow->shared.reader_is_used[n])
        n++;
    assert(n < COW_READERS); /* there are more than threads that claim granules */
    cow->shared.reader_is_used[n] = true;
    lock_release(&cow->shared.lock);
    return n;
}

uint64_t cow_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Locked: count the wait of a writer since ${since_ns}. */
static void account_wait(struct cow *cow, uint64_t since_ns) REQUIRES(&cow->shared.lock)
{
    uint64_t waited = cow_now_ns() - since_ns;

    cow->shared.stats.fault_ns += waited;
    cow->shared.stats.fault_max_ns = max_u64(cow->shared.stats.fault_max_ns, waited);
}

void cow_end_granule_wait(struct cow *cow, size_t g)
{
    struct cow_granule_control *control = &cow->shared.controls[g];

    if (control->waiting_since_ns == 0)
        return;
    account_wait(cow, control->waiting_since_ns);
    control->waiting_since_ns = 0;
    assert(cow->shared.granules_awaited != 0);
    if (--cow->shared.granules_awaited == 0)
        atomic_store(&cow->pool_full, false);
}

uint64_t cow_claim_granule(struct cow *cow, size_t g, bool acquires)
{
    const struct cow_plan *plan = &cow->plan;
    size_t window = SIZE_MAX;
    bool has_place = false;
    uint64_t bytes = 0;

    assert(cow->shared.controls[g].state == COW_GRANULE_PROTECTED);
    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        if (cow->shared.pieces[i] != COW_PIECE_PENDING)
            continue;
        if (piece->window != window) {
            window = piece->window;
            has_place = (acquires ? pool_slots_acquire(cow->slots, window, POOL_SLOTS_OUT_OF_ORDER)
                                  : pool_slots_get(cow->slots, window)) != NULL;
        }
        if (!has_place)
            continue;
        cow->shared.pieces[i] = COW_PIECE_COPYING;
        bytes += piece->bytes;
    }
    if (bytes != 0)
        cow->shared.controls[g].state = COW_GRANULE_CLAIMED;
    return bytes;
}

/* Locked: the claimed pieces of granule ${g} are copied, or the save has failed.  Returns true if
 * no piece of the granule is left. */
static bool end_copy(struct cow *cow, size_t g) REQUIRES(&cow->shared.lock)
{
    const struct cow_plan *plan = &cow->plan;

    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++)
        if (cow->shared.pieces[i] == COW_PIECE_COPYING) {
            assert(cow->shared.controls[g].pieces_left != 0);
            cow->shared.pieces[i] = COW_PIECE_DONE;
            cow->shared.controls[g].pieces_left--;
        }
    return cow->shared.controls[g].pieces_left == 0;
}

/* Copy the claimed pieces of granule ${g}, and check that their bytes are those of the call. */
static void copy_checked(struct cow *cow, size_t g, struct memory_reader *reader)
{
    struct sidestep_error why = {0};
    enum sidestep_status status = copy_claimed(cow, g, reader, &why);

    (void)fault_hit("cow.copied");
    if (status != SIDESTEP_OK) {
        lock_acquire(&cow->shared.lock);
        cow_record_failure(cow, &why);
        lock_release(&cow->shared.lock);
    } else {
        cow_check_pages(cow, g);
    }
}

static void signal_retry(struct cow *cow)
{
    uint64_t one = 1;

    /* If the counter is full, the descriptor is readable already. */
    if (write(cow->retry_fd, &one, sizeof(one)) < 0)
        return;
}

void cow_unprotect_granule(struct cow *cow, size_t g)
{
    const struct cow_granule *granule = &cow->plan.granules[g];

    assert(cow->shared.controls[g].state == COW_GRANULE_CLAIMED);
    assert(cow->shared.controls[g].pieces_left == 0 && cow->shared.granules_left != 0);
    /* First, so that a handler which reads a fault from now on wakes its thread itself.  The kernel
     * lets a thread wait also after cow_unprotect() has woken the others: a thread that has noticed
     * the protection before, if its page is not writable yet (after a fork, for example). */
    cow->shared.controls[g].state = COW_GRANULE_UNPROTECTED;
    lock_release(&cow->shared.lock);
    cow_unprotect(cow, granule->begin, granule->end);
    (void)fault_hit("cow.lifted");
    lock_acquire(&cow->shared.lock);
    cow_end_granule_wait(cow, g);
    cow->shared.granules_left--;
}

void cow_copy_claimed(struct cow *cow, size_t g)
{
    unsigned reader = acquire_reader(cow);

    if (fault_hit("cow.early")) /* a negative control: tests must notice it */
        cow_unprotect(cow, cow->plan.granules[g].begin, cow->plan.granules[g].end);
    copy_checked(cow, g, &cow->readers[reader]);
    lock_acquire(&cow->shared.lock);
    struct cow_granule_control *control = &cow->shared.controls[g];
    assert(control->state == COW_GRANULE_CLAIMED); /* by this thread */
    cow->shared.reader_is_used[reader] = false;
    if (end_copy(cow, g)) {
        cow_unprotect_granule(cow, g);
    } else {
        control->state = COW_GRANULE_PROTECTED;
        /* A writer came since the claim.  A handler may find slots for the rest. */
        if (control->waiting_since_ns != 0)
            signal_retry(cow);
    }
    lock_wake_all(&cow->shared.changed);
    lock_release(&cow->shared.lock);
}

void cow_retry_waiters(struct cow *cow)
{
    lock_acquire(&cow->shared.lock);
    if (cow->shared.granules_awaited != 0)
        signal_retry(cow);
    lock_release(&cow->shared.lock);
}
