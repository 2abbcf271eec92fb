/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_plan.h -- decides which rank writes what.
 *
 * Each rank encodes its state as a table.  Rank 0 gathers the tables, removes replicas, balances by
 * bytes, checks that the boxes tile each tensor, and sends each rank the list of what it writes.
 */
#ifndef PLAN_SAVE_PLAN_H
#define PLAN_SAVE_PLAN_H

#include "base/base.h"
#include "model/model.h"

/* A replicated box that is larger than this is split. */
#define PLAN_SPLIT_BYTES ((uint64_t)8 << 20)

/*
 * The digest of this rank's layout: names, kinds, dtypes, shapes, boxes, flags, paths, order.  It
 * does not cover sizes of objects and addresses.  Never 0.
 */
uint64_t save_plan_digest(const struct sidestep_state_dict *state);

/* Append this rank's table, for rank 0.  Entries with replicated[i] count as declared REPLICATED,
 * too.  NULL: none. */
enum sidestep_status save_plan_table_encode(const struct sidestep_state_dict *state,
                                            const bool *replicated, struct buffer *out,
                                            struct sidestep_error *err);

/* What one rank writes, in file order: tensors as in its state, then objects. */
struct save_plan_item {
    size_t entry;   /* index in the rank's state dict */
    struct box box; /* the part to write, in global coordinates; unused for objects */
};
struct save_plan {
    struct arena arena;
    struct save_plan_item *items;
    size_t count;
    /* The entries of tensors that all ranks have with the same box, and that some rank does not
     * declare REPLICATED.  In the same order on all ranks. */
    size_t *common;
    size_t common_count;
    uint64_t global_digest; /* of the whole plan: the same on all ranks; never 0 */
};
void save_plan_release(struct save_plan *plan);

/*
 * On rank 0: from ${world_size} tables make ${world_size} plans, encoded one after the other in
 * ${out}.  sizes[r] is the length of rank r's plan.  EINVAL, which names the tensor and the ranks:
 * shapes, dtypes or kinds differ between ranks, boxes overlap, or they leave gaps.
 * ${hosts}: the number of each rank's host, below ${world_size}; NULL: all are on one host.
 *
 * The rules: A box that several ranks list is written once.  The lowest of them writes it, unless
 * all declare it REPLICATED.  Then the one on the host with the fewest bytes so far, and of those
 * the one with the fewest itself, writes it (the lowest of several such); the largest boxes are
 * assigned first.  If it is larger than PLAN_SPLIT_BYTES, it is split by rows between them, into
 * parts of at least half of that, so that hosts, and then ranks, have equal bytes.  A box without
 * elements is written only if the whole tensor has none: one box, by the lowest rank.  The lowest
 * rank that lists an object writes it.
 */
enum sidestep_status save_plan_build(const void *const *tables, const size_t *table_bytes,
                                     uint32_t world_size, const uint32_t *hosts, struct buffer *out,
                                     size_t *sizes, struct sidestep_error *err);
/* Decode a plan from rank 0, and check it against this rank's state. */
enum sidestep_status save_plan_decode(const void *bytes, size_t length,
                                      const struct sidestep_state_dict *state,
                                      struct save_plan *out, struct sidestep_error *err);

#endif
