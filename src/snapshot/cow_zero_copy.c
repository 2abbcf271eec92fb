/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_zero_copy.c -- hashes and writes windows from the trainer's memory, without a copy; see
 * cow.h. */
#include <assert.h>

#include "base/base.h"
#include "snapshot/cow_internal.h"

/* The granules of an inner window: [first, last]. */
struct span {
    size_t first;
    size_t last;
};

uint8_t *cow_zero_copy_address(const struct cow *cow, const struct image *image, size_t i)
{
    const struct cow_plan *plan = &cow->plan;
    uint64_t begin, end;
    size_t k;

    if (!image_is_tensor_only(image, i, &k, &begin))
        return NULL;
    assert(k < plan->item_count); /* the plan was made for ${image} */
    end = begin + image->windows[i].bytes;
    if (begin < plan->protected[k].begin || end > plan->protected[k].end)
        return NULL;
    return (uint8_t *)(uintptr_t)(plan->items[k].address + begin);
}

static struct span granules_of(const struct cow *cow, const struct image *image, size_t i)
{
    uint64_t address = (uint64_t)(uintptr_t)cow_zero_copy_address(cow, image, i);

    struct span span = {
        .first = cow_plan_find_granule(&cow->plan, address),
        .last = cow_plan_find_granule(&cow->plan, address + image->windows[i].bytes - 1),
    };
    assert(address != 0 && span.first <= span.last && span.last < cow->plan.granule_count);
    return span;
}

/* Locked: change the pieces of window ${i} in granule ${g} from state ${from} to ${to}.  Returns
 * how many. */
static uint32_t change_piece_states(struct cow *cow, size_t g, size_t i, enum cow_piece_state from,
                                    enum cow_piece_state to) REQUIRES(&cow->shared.lock)
{
    const struct cow_plan *plan = &cow->plan;
    uint32_t changed = 0;

    for (size_t n = plan->granules[g].first_piece; n < plan->granules[g + 1].first_piece; n++)
        if (plan->pieces[n].window == i && cow->shared.pieces[n] == from) {
            cow->shared.pieces[n] = (uint8_t)to;
            changed++;
        }
    return changed;
}

/* Locked: is any granule claimed?  A thread that has claimed one reads all of its pieces without
 * the lock. */
static bool any_is_claimed(const struct cow *cow, struct span span) REQUIRES(&cow->shared.lock)
{
    for (size_t g = span.first; g <= span.last; g++)
        if (cow->shared.controls[g].state == COW_GRANULE_CLAIMED)
            return true;
    return false;
}

/* Locked: set the pieces of window ${i} to COW_PIECE_ZERO_COPY.  Returns false if the window has a
 * slot: pieces are copied only then, and handlers acquire it under the lock. */
static bool claim_pieces(struct cow *cow, struct span span, size_t i) REQUIRES(&cow->shared.lock)
{
    while (pool_slots_get(cow->slots, i) == NULL && any_is_claimed(cow, span))
        lock_wait(&cow->shared.lock, &cow->shared.changed);
    if (pool_slots_get(cow->slots, i) != NULL)
        return false;
    for (size_t g = span.first; g <= span.last; g++)
        (void)change_piece_states(cow, g, i, COW_PIECE_PENDING, COW_PIECE_ZERO_COPY);
    return true;
}

/* The first piece of inner window ${i} in granule ${g}, which names the tensor. */
static const struct cow_piece *piece_of(const struct cow *cow, size_t g, size_t i)
{
    const struct cow_piece *piece = &cow->plan.pieces[cow->plan.granules[g].first_piece];
    const struct cow_piece *end = &cow->plan.pieces[cow->plan.granules[g + 1].first_piece];

    while (piece < end && piece->window != i)
        piece++;
    assert(piece < end);
    return piece;
}

/* Add a block's hash to the fingerprint of a window. */
static uint64_t add_fingerprint(uint64_t print, uint64_t hash)
{
    return (print ^ hash) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Read window ${i} and hash its parts with ${hash}, which hashes for the file or for comparison.
 * ${*print}: the fingerprint of what was read. */
static enum sidestep_status hash_window(struct cow *cow, struct image *image, size_t i,
                                        uint64_t (*hash)(struct image *image, size_t i, uint64_t at,
                                                         const uint8_t *bytes),
                                        uint64_t *print, struct sidestep_error *err)
{
    unsigned number = cow_acquire_bounce_buffer(cow);
    uint8_t *bounce = cow->bounce_buffers + number * COW_BOUNCE_BUFFER_BYTES;
    enum sidestep_status status = SIDESTEP_OK;
    uint64_t memory = (uint64_t)(uintptr_t)cow_zero_copy_address(cow, image, i), bytes;

    *print = 0;
    for (uint64_t at = 0;
         status == SIDESTEP_OK && (bytes = image_tensor_part_bytes(image, i, at)) != 0;
         at += bytes) {
        int failed = cow_read_memory(bounce, memory + at, bytes);
        if (failed != 0)
            status = cow_report_unreadable(cow, piece_of(cow, granules_of(cow, image, i).first, i),
                                           memory + at, failed, err);
        else
            *print = add_fingerprint(*print, hash(image, i, at, bounce));
    }
    lock_acquire(&cow->shared.lock);
    cow_free_bounce_buffer(cow, number);
    lock_release(&cow->shared.lock);
    return status;
}

enum sidestep_status cow_begin_zero_copy(struct cow *cow, struct image *image, size_t i, bool *live,
                                         struct sidestep_error *err)
{
    struct span span = granules_of(cow, image, i);

    assert(atomic_load(&cow->all_protected)); /* what is read is the state of the call */
    *live = false;
    (void)fault_hit("cow.live");
    lock_acquire(&cow->shared.lock);
    enum sidestep_status status = cow_first_failure(cow, err);
    if (status == SIDESTEP_OK)
        *live = claim_pieces(cow, span, i);
    lock_release(&cow->shared.lock);
    if (*live)
        status = hash_window(cow, image, i, image_hash_tensor_part, &image->windows[i].print, err);
    (void)fault_hit("cow.hashed");
    return status;
}

/* After window ${i} was written: check that its bytes still match the hash.  Protection does not
 * stop a device from writing. */
static void check_bytes(struct cow *cow, struct image *image, size_t i,
                        const struct cow_piece *piece)
{
    struct sidestep_error why = {0};
    uint64_t print;

    if (fault_hit("trust.bytes")) /* negative control of the attack tests */
        return;
    if (hash_window(cow, image, i, image_rehash_tensor_part, &print, &why) != SIDESTEP_OK) {
        lock_acquire(&cow->shared.lock);
        cow_record_failure(cow, &why);
        lock_release(&cow->shared.lock);
    } else if (print != image->windows[i].print) {
        (void)FAIL(
            &why, SIDESTEP_EINVAL,
            "memory of tensor '%s' changed while it was written, although it was "
            "write-protected: a device writes to it, or a direct read (O_DIRECT) that began "
            "before the call. Set SIDESTEP_TENSOR_PINNED for the tensor, or let such reads end "
            "before the call. This engine's next saves copy the state",
            cow_tensor_name(cow, piece));
        cow_mark_unreliable(cow, &why);
    }
}

/* Locked; releases the lock in between. */
static void unprotect_window(struct cow *cow, size_t i, struct span span)
    REQUIRES(&cow->shared.lock)
{
    for (size_t g = span.first; g <= span.last; g++) {
        struct cow_granule_control *cell = &cow->shared.controls[g];
        while (cell->state == COW_GRANULE_CLAIMED)
            lock_wait(&cow->shared.lock, &cow->shared.changed);
        uint32_t done = change_piece_states(cow, g, i, COW_PIECE_ZERO_COPY, COW_PIECE_DONE);
        assert(done <= cell->pieces_left);
        cell->pieces_left -= done;
        if (cell->pieces_left != 0 || cell->state != COW_GRANULE_PROTECTED)
            continue;
        cell->state = COW_GRANULE_CLAIMED;
        cow_unprotect_granule(cow, g);
    }
    lock_wake_all(&cow->shared.changed);
}

enum sidestep_status cow_end_zero_copy(struct cow *cow, struct image *image, size_t i,
                                       struct sidestep_error *err)
{
    struct span span = granules_of(cow, image, i);

    (void)fault_hit("cow.written");
    for (size_t g = span.first; g <= span.last; g++)
        cow_check_pages(cow, g, COW_PIECE_ZERO_COPY, i);
    check_bytes(cow, image, i, piece_of(cow, span.first, i));
    lock_acquire(&cow->shared.lock);
    unprotect_window(cow, i, span);
    enum sidestep_status status = cow_first_failure(cow, err);
    lock_release(&cow->shared.lock);
    return status;
}

bool cow_get_range(const struct cow *cow, size_t i, uint64_t *begin, uint64_t *end)
{
    if (i >= cow->plan.range_count)
        return false;
    *begin = cow->plan.ranges[i].begin;
    *end = cow->plan.ranges[i].end;
    return true;
}
