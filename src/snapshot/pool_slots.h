/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool_slots.h -- assigns each window of a save a slot in the pool.
 *
 * Either the pool is as large as the file, and every window has a slot of its own.  Or windows
 * share the pool: a window gets a slot when its first bytes are copied, and returns it when it is
 * written.  The lowest free slot is used first, so no more of the pool is ever touched than was
 * needed at one time.
 *
 * Windows that share the pool are staged in file order.  But when the trainer writes to protected
 * memory (cow.h), windows far ahead get slots out of order.  These must not starve the window whose
 * turn it is.  So a part of the pool, the reserve, is only for POOL_SLOTS_IN_ORDER, and the thread
 * that stages in order acquires slots strictly in file order, one window after the other.  If the
 * reserve can hold the largest window, no thread waits forever.  Proof: let window s be the first
 * without a slot.  The whole reserve is used by windows before s, which have their slots.  So they
 * will be staged, hashed and written, none of which needs another slot, and they return the
 * reserve, into which s fits.
 *
 * Everything is in a mapping of its own, because fault handlers use it (rule 2 in cow.h).  Its lock
 * is held for a few steps, and no other lock is taken under it.
 */
#ifndef SNAPSHOT_POOL_SLOTS_H
#define SNAPSHOT_POOL_SLOTS_H

#include <stdbool.h>

#include "snapshot/image.h"

struct pool_slots;

enum pool_slots_order {
    POOL_SLOTS_IN_ORDER,     /* only from the reserve */
    POOL_SLOTS_AHEAD,        /* in order, too, but as far ahead as there are free slots */
    POOL_SLOTS_OUT_OF_ORDER, /* not from the reserve */
};

/* For the windows of ${image}, which must outlive ${slots}. */
enum sidestep_status pool_slots_new(struct pool_slots **slots, const struct image *image,
                                    struct sidestep_error *err);
void pool_slots_free(struct pool_slots **slots);

/* Set up the pool for this save; all slots become free.  Each window has a slot at its offset in
 * the file. */
void pool_slots_set_dedicated(struct pool_slots *slots, uint8_t *pool);
/* Or windows share ${bytes}, of which ${reserve} are the reserve.  Multiples of image_align(). */
void pool_slots_set_shared(struct pool_slots *slots, uint8_t *pool, uint64_t bytes,
                           uint64_t reserve);

/* The slot of window ${i}; NULL: it has none. */
uint8_t *pool_slots_get(struct pool_slots *slots, size_t i);
/* The same, but assign a slot if the window has none and enough of the pool is free. */
uint8_t *pool_slots_acquire(struct pool_slots *slots, size_t i, enum pool_slots_order order);
void pool_slots_return(struct pool_slots *slots, size_t i);
/* How many bytes of the pool this save used, and the address from which on it used none. */
uint64_t pool_slots_peak_bytes(struct pool_slots *slots);
uint8_t *pool_slots_first_unused(struct pool_slots *slots);

#endif
