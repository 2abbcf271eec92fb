/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_plan.h -- who writes what.  Each rank encodes its state as a table; rank 0 gathers the
 * tables, removes duplicates, balances by bytes, checks that each tensor is tiled exactly, and
 * sends each rank the list of what it writes.
 */
#ifndef PLAN_SAVE_PLAN_H
#define PLAN_SAVE_PLAN_H

#include "base/base.h"
#include "model/model.h"

/* A tensor that is declared replicated by all who list it, and larger than this, is split. */
#define PLAN_SPLIT_BYTES ((uint64_t)8 << 20)

/*
 * Digest of this rank's layout: names, kinds, dtypes, shapes, boxes, flags, paths, order.  Sizes of
 * objects and addresses are no part of it.  Never 0.
 */
uint64_t save_plan_digest(const struct sidestep_state_dict *state);

/* Append this rank's table for rank 0. */
enum sidestep_status save_plan_table_encode(const struct sidestep_state_dict *state,
                                            struct buffer *out, struct sidestep_error *err);

/* What one rank writes, in file order: tensors as in its state, then objects. */
struct save_plan_item {
    size_t entry;   /* index in the rank's own state dict */
    struct box box; /* the part of it, in global coordinates; unused for objects */
};
struct save_plan {
    struct arena arena;
    struct save_plan_item *items;
    size_t count;
    uint64_t global_digest; /* of the whole plan: the same on all ranks; never 0 */
};
void save_plan_release(struct save_plan *plan);

/*
 * On rank 0: from ${world_size} tables make ${world_size} plans, encoded one behind the other in
 * ${out}; sizes[r] is the length of rank r's.  EINVAL names tensor and ranks: shapes, dtypes or
 * kinds that differ between ranks, boxes that overlap, gaps, a name that is a tensor here and an
 * object there. Rules: a box listed by several ranks is written once: by the lowest, or, if all of
 * them declare it REPLICATED, by the one with the fewest bytes so far (ties: lowest; the largest
 * boxes are given away first), split by rows between them when larger than PLAN_SPLIT_BYTES, into
 * parts of half of that at least.  Boxes without elements are written only where the whole tensor
 * has none: one, by the lowest rank.  Objects: by the lowest rank that lists them.
 */
enum sidestep_status save_plan_build(const void *const *tables, const size_t *table_bytes,
                                     uint32_t world_size, struct buffer *out, size_t *sizes,
                                     struct sidestep_error *err);
/* Decode what rank 0 sent, against this rank's own state. */
enum sidestep_status save_plan_decode(const void *bytes, size_t length,
                                      const struct sidestep_state_dict *state,
                                      struct save_plan *out, struct sidestep_error *err);

#endif
