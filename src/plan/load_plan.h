/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load_plan.h -- finds the stored chunks that a state needs: each once, in the order of the files,
 * with the shards that it fills.
 */
#ifndef PLAN_LOAD_PLAN_H
#define PLAN_LOAD_PLAN_H

#include "model/model.h"

struct load_plan_chunk {
    const struct metadata_entry *entry;
    const struct metadata_storage *storage;
    struct box box; /* of the chunk; for objects ndim 0 */
    size_t target_count;
    struct state_entry **targets; /* the shards that overlap it, or the object's entry */
};

struct load_plan {
    struct arena arena;
    struct load_plan_chunk *chunks; /* by file, then by offset */
    size_t count;
    uint64_t wanted_bytes; /* of the state's tensors that the chunks fill */
    const char **missing;  /* sorted; texts as in sidestep_load_report */
    size_t missing_count;
    const char **unexpected; /* set by load_plan_build() with ${whole} */
    size_t unexpected_count;
    const char **mismatched;
    size_t mismatched_count;
};
void load_plan_release(struct load_plan *plan);

/*
 * Plan a load.  Names that are missing or mismatched are listed, and have no chunks.  The caller
 * decides whether this is an error.  ECORRUPT: the stored chunks do not cover a shard of the state,
 * or they overlap.  EINVAL: a shard has a stride of 0 along several elements, so these would
 * overwrite each other.  The metadata and the state must outlive the plan.
 * ${whole}: also list unexpected names.  Otherwise the time does not depend on the size of the
 * checkpoint, so a caller may plan one name after the other.
 */
enum sidestep_status load_plan_build(const struct metadata *metadata,
                                     struct sidestep_state_dict *state, bool whole,
                                     struct load_plan *out, struct sidestep_error *err);

#endif
