/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool_slots.h -- where in the pool each window of a save lies.
 *
 * Either the pool is as large as the file, and every window has a place of its own; or windows
 * share the pool: one gets a place when its first bytes are copied, and gives it back when it is
 * written.  The lowest free place is taken first, so that no more of the pool is ever touched than
 * was needed at once.
 *
 * Windows that share are staged in the order of the file, but who writes to memory that is held
 * (cow.h) opens windows far ahead of that.  These must not starve the window whose turn it is:
 * so a part of the pool, the reserve, is only for POOL_SLOTS_IN_ORDER, and whoever stages in order
 * asks for places in just that order, one window after the other.  Then nobody waits for ever,
 * given a reserve that holds the largest window: let window s be the first without a place.  All of
 * the reserve is held by windows before s, which have their places, so they will be staged, hashed,
 * written (none of which takes another place), and give the reserve back, all of which s fits into.
 *
 * It all lies in a mapping of its own: handlers of faults use it (rule 2 in cow.h), under a lock
 * that is held for a few steps and under which no other is taken.
 */
#ifndef SNAPSHOT_POOL_SLOTS_H
#define SNAPSHOT_POOL_SLOTS_H

#include <stdbool.h>

#include "snapshot/image.h"

struct pool_slots;

enum pool_slots_order {
    POOL_SLOTS_IN_ORDER,     /* of the reserve */
    POOL_SLOTS_AHEAD,        /* in order, too, but as far ahead as there is room */
    POOL_SLOTS_OUT_OF_ORDER, /* out of order: what is not in the reserve */
};

/* For the windows of ${image}, which stay. */
enum sidestep_status pool_slots_new(struct pool_slots **places, const struct image *image,
                                    struct sidestep_error *err);
void pool_slots_free(struct pool_slots **places);

/* What becomes of the pool in this save; all places are free then.  Each window at its place in the
 * file ... */
void pool_slots_set_dedicated(struct pool_slots *places, uint8_t *pool);
/* ... or windows share ${bytes}, of which ${reserve} are in reserve: all multiples of IMAGE_ALIGN.
 */
void pool_slots_set_shared(struct pool_slots *places, uint8_t *pool, uint64_t bytes,
                           uint64_t reserve);

/* The place of window ${i}; NULL: it has none. */
uint8_t *pool_slots_get(struct pool_slots *places, size_t i);
/* The same, after giving it one if it has none and there is room. */
uint8_t *pool_slots_acquire(struct pool_slots *places, size_t i, enum pool_slots_order who);
void pool_slots_return(struct pool_slots *places, size_t i);
/* How much of the pool was ever used in this save; and from where on nothing was. */
uint64_t pool_slots_peak_bytes(struct pool_slots *places);
uint8_t *pool_slots_first_unused(struct pool_slots *places);

#endif
