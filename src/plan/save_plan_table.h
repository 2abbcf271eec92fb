/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_plan_table.h -- decodes the ranks' tables, on rank 0, into claims grouped by name.  The
 * tables come from other processes, and are not trusted.
 */
#ifndef PLAN_SAVE_PLAN_TABLE_H
#define PLAN_SAVE_PLAN_TABLE_H

#include "plan/save_plan.h"

/* "Rank ${rank} has ${box} of this tensor", or the object, in its entry ${entry}. */
struct plan_claim {
    uint32_t rank;
    uint32_t entry;
    uint32_t name; /* index in plan_tables.names */
    uint32_t flags;
    uint32_t
        common; /* number of the box among those of save_plan.common, from 1; 0: none of them */
    struct box box;
    const struct box *part; /* what the rank writes of it; NULL: nothing */
};

/* A tensor or object, with the claims of all ranks that have it. */
struct plan_entry {
    const char *name;
    bool is_object;
    enum sidestep_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    uint32_t first_rank; /* the lowest rank that lists it */
    size_t claim_count;
    struct plan_claim **claims; /* by rank, then by entry */
};

struct plan_tables {
    struct arena arena; /* everything but the table of names */
    uint32_t world_size;
    struct plan_claim *claims; /* by rank, then by entry */
    size_t count;
    size_t *first; /* world_size + 1 of them: rank r has the claims [first[r], first[r + 1]) */
    struct plan_entry *names;
    size_t name_count;
    uint32_t common_count;
    struct hash_table index;
};

void save_plan_table_release(struct plan_tables *tables);

/* The bytes of ${tables} must outlive ${out}, which points to names in them.  EINVAL: ranks differ
 * in the kind, shape or dtype of a name.  ECORRUPT: a table is damaged.  Both name the rank. */
enum sidestep_status save_plan_table_decode(const void *const *tables, const size_t *table_bytes,
                                            uint32_t world_size, struct plan_tables *out,
                                            struct sidestep_error *err);

#endif
