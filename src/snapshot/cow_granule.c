/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_granule.c -- claims a granule, copies it and lifts its protection; see cow.h.  Everything
 * here obeys rule 2: it may run while any page of the process is protected. */
#include <assert.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "snapshot/cow_internal.h"

_Static_assert(COW_COPY_STEP_BYTES <= COW_BOUNCE_BUFFER_BYTES, "a step fits into a bounce buffer");

/* Copy bytes [begin, end) of the process's memory, which are at ${from}, to the slots of the
 * claimed pieces.  Not checked: the pieces of a claimed granule belong to the thread that has
 * claimed it. */
static LOCK_UNCHECKED void copy_to_slots(struct cow *cow, size_t g, const uint8_t *from,
                                         uint64_t begin, uint64_t end)
{
    const struct cow_plan *plan = &cow->plan;
    uint8_t *place = NULL;
    size_t window = SIZE_MAX;

    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        uint64_t first = max_u64(begin, piece->address);
        uint64_t last = min_u64(end, piece->address + piece->bytes);
        if (first >= last || cow->shared.pieces[i] != COW_PIECE_COPYING)
            continue;
        if (piece->window != window) {
            window = piece->window;
            place = pool_slots_get(cow->slots, window);
            assert(place != NULL); /* a piece is claimed only if its window has a slot */
            place -= plan->window_offsets[window];
        }
        nontemporal_copy(place + piece->file_offset + (first - piece->address),
                         from + (first - begin), last - first);
    }
}

int cow_read_memory(void *to, uint64_t from, size_t bytes)
{
    struct iovec local = {to, bytes}, remote = {(void *)(uintptr_t)from, bytes};

    if (fault_hit("cow.read"))
        return errno;
    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (n < 0)
        return errno;
    return (size_t)n == bytes ? 0 : EFAULT;
}

/* The range [*begin, *end) of memory that contains all claimed pieces of granule ${g}.  Not
 * checked, as above. */
static LOCK_UNCHECKED void span_claimed(const struct cow *cow, size_t g, uint64_t *begin,
                                        uint64_t *end)
{
    const struct cow_plan *plan = &cow->plan;

    *begin = plan->granules[g].end;
    *end = plan->granules[g].begin;
    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        if (cow->shared.pieces[i] != COW_PIECE_COPYING)
            continue;
        *begin = min_u64(*begin, piece->address);
        *end = max_u64(*end, piece->address + piece->bytes);
    }
    assert(*begin < *end); /* some piece is claimed */
}

static enum sidestep_status copy_claimed(struct cow *cow, size_t g, uint8_t *bounce,
                                         struct sidestep_error *err)
{
    uint64_t begin, end;

    span_claimed(cow, g, &begin, &end);
    for (uint64_t at = begin; at < end; at += COW_COPY_STEP_BYTES) {
        uint64_t next = min_u64(at + COW_COPY_STEP_BYTES, end);
        int failed = cow_read_memory(bounce, at, next - at);
        if (failed != 0)
            return cow_report_unreadable(cow, cow_find_piece(cow, g, at, next), at, failed, err);
        copy_to_slots(cow, g, bounce, at, next);
    }
    return SIDESTEP_OK;
}

unsigned cow_acquire_bounce_buffer(struct cow *cow)
{
    unsigned bounce = 0;

    lock_acquire(&cow->shared.lock);
    while (bounce < COW_BOUNCE_BUFFERS && cow->shared.free_bounce_buffers[bounce / 64] == 0)
        bounce += 64;
    assert(bounce < COW_BOUNCE_BUFFERS); /* there are more than threads that claim granules */
    bounce += (unsigned)__builtin_ctzll(cow->shared.free_bounce_buffers[bounce / 64]);
    cow->shared.free_bounce_buffers[bounce / 64] &= ~((uint64_t)1 << bounce % 64);
    lock_release(&cow->shared.lock);
    return bounce;
}

void cow_free_bounce_buffer(struct cow *cow, unsigned bounce)
{
    uint64_t bit = (uint64_t)1 << bounce % 64;

    assert(bounce < COW_BOUNCE_BUFFERS);
    assert((cow->shared.free_bounce_buffers[bounce / 64] & bit) == 0); /* it is in use */
    cow->shared.free_bounce_buffers[bounce / 64] |= bit;
}

uint64_t cow_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Locked: account for a writer that has waited since ${since_ns}. */
static void account_wait(struct cow *cow, uint64_t since_ns) REQUIRES(&cow->shared.lock)
{
    uint64_t waited = cow_now_ns() - since_ns;

    cow->shared.stats.fault_ns += waited;
    cow->shared.stats.fault_max_ns = max_u64(cow->shared.stats.fault_max_ns, waited);
}

void cow_end_granule_wait(struct cow *cow, size_t g)
{
    struct cow_granule_control *cell = &cow->shared.controls[g];

    if (cell->waiting_since_ns == 0)
        return;
    account_wait(cow, cell->waiting_since_ns);
    cell->waiting_since_ns = 0;
    assert(cow->shared.granules_awaited != 0);
    if (--cow->shared.granules_awaited == 0)
        atomic_store(&cow->pool_full, false);
}

uint64_t cow_claim_granule(struct cow *cow, size_t g, bool open)
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
            has_place = (open ? pool_slots_acquire(cow->slots, window, POOL_SLOTS_OUT_OF_ORDER)
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
static void copy_checked(struct cow *cow, size_t g, uint8_t *bounce)
{
    struct sidestep_error why = {0};
    enum sidestep_status status = copy_claimed(cow, g, bounce, &why);

    (void)fault_hit("cow.copied");
    if (status != SIDESTEP_OK) {
        lock_acquire(&cow->shared.lock);
        cow_record_failure(cow, &why);
        lock_release(&cow->shared.lock);
    } else {
        cow_check_pages(cow, g, COW_PIECE_COPYING, SIZE_MAX);
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
    lock_release(&cow->shared.lock);
    cow_unprotect(cow, granule->begin, granule->end);
    (void)fault_hit("cow.lifted");
    lock_acquire(&cow->shared.lock);
    cow_end_granule_wait(cow, g);
    cow->shared.controls[g].state = COW_GRANULE_UNPROTECTED;
    cow->shared.granules_left--;
}

void cow_copy_claimed(struct cow *cow, size_t g)
{
    unsigned bounce = cow_acquire_bounce_buffer(cow);

    copy_checked(cow, g, cow->bounce_buffers + bounce * COW_BOUNCE_BUFFER_BYTES);
    lock_acquire(&cow->shared.lock);
    struct cow_granule_control *cell = &cow->shared.controls[g];
    assert(cell->state == COW_GRANULE_CLAIMED); /* by this thread */
    cow_free_bounce_buffer(cow, bounce);
    if (end_copy(cow, g)) {
        cow_unprotect_granule(cow, g);
    } else {
        cell->state = COW_GRANULE_PROTECTED;
        if (cell->waiting_since_ns !=
            0) /* a writer came since the claim; a handler may find slots for the rest */
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
