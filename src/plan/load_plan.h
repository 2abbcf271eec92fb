/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load_plan.h -- who reads which bytes.  From a checkpoint's metadata and the state that is to
 * be filled: each stored chunk that is needed, once, in file order, with the shards it goes to.
 */
#ifndef PLAN_LOAD_PLAN_H
#define PLAN_LOAD_PLAN_H

#include "model/model.h"

struct load_plan_chunk {
    const struct metadata_entry *entry;
    const struct metadata_storage *storage;
    struct box box; /* of the chunk; for objects ndim 0 */
    size_t target_count;
    struct state_entry **targets; /* shards that overlap it, or the object's entry */
};

struct load_plan {
    struct arena arena;
    struct load_plan_chunk *chunks; /* by file, then by offset; malloc'ed */
    size_t count;
    uint64_t wanted_bytes; /* to be placed in the state's tensors */
    const char **missing;  /* sorted; texts as in sidestep_load_report */
    size_t missing_count;
    const char **unexpected; /* only if asked for */
    size_t unexpected_count;
    const char **mismatched;
    size_t mismatched_count;
};
void load_plan_release(struct load_plan *plan);

/*
 * Names that are missing or mismatched are listed and left out of the chunks; whether that is an
 * error is the caller's business.  A wanted shard that the stored chunks do not cover is ECORRUPT,
 * and so are overlapping chunks of a wanted tensor.  EINVAL: a shard with a stride of 0 along more
 * than one element, whose elements would be written over each other.  The metadata and the state
 * must outlive the plan.  ${whole}: list what is unexpected, too; without it the time does not
 * depend on what else was saved, so who wants one name after the other may plan each by itself.
 */
enum sidestep_status load_plan_build(const struct metadata *metadata,
                                     struct sidestep_state_dict *state, bool whole,
                                     struct load_plan *out, struct sidestep_error *err);

#endif
