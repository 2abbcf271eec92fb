/* SPDX-License-Identifier: BSD-3-Clause */
/* overlap.h -- which of many boxes meet a given one, without looking at all of them. */
#ifndef PLAN_OVERLAP_H
#define PLAN_OVERLAP_H

#include "model/model.h"

/*
 * The boxes, sorted by where they begin in the dimension in which that differs most.  ${reach} of a
 * box is how far it and all boxes before it extend, so that those which end too early are skipped
 * by bisection.
 */
struct overlap_box {
    struct box box;
    size_t index; /* the caller's */
    int64_t reach;
};
struct overlap_index {
    struct overlap_box *boxes; /* NULL: too few to be sorted */
    size_t count;
    uint32_t dimension;
};
void overlap_index_release(struct overlap_index *index);

/* Sorts only if ${lookups} on ${count} boxes make it worth while.  Arrays of the boxes must outlive
 * the index. */
enum sidestep_status overlap_index_build(struct overlap_index *index, const struct box *boxes,
                                         size_t count, size_t lookups, struct sidestep_error *err);

/* Boxes that may meet ${box}: overlap_index_box_number() of [*from, *to). */
void overlap_index_find(const struct overlap_index *index, const struct box *box, size_t *from,
                        size_t *to);
/* The caller's number of a box. */
static inline size_t overlap_index_box_number(const struct overlap_index *index, size_t i)
{
    return index->boxes != NULL ? index->boxes[i].index : i;
}

#endif
