/* SPDX-License-Identifier: BSD-3-Clause */
/* overlap.h -- finds the boxes that may overlap a given one, without looking at all of them. */
#ifndef PLAN_OVERLAP_H
#define PLAN_OVERLAP_H

#include "model/model.h"

/*
 * The boxes, sorted by their offset in the dimension with the most different offsets.  ${reach} is
 * the largest end of a box and all boxes before it, so a binary search can skip boxes that end too
 * early.
 */
struct overlap_box {
    struct box box;
    size_t index; /* in the caller's array */
    int64_t reach;
};
struct overlap_index {
    struct overlap_box *boxes; /* NULL: not sorted, because there are few */
    size_t count;
    uint32_t dimension;
};
void overlap_index_release(struct overlap_index *index);

/* Sorts the boxes only if that is faster for ${lookups} lookups in ${count} boxes.  The arrays of
 * the boxes must outlive the index. */
enum sidestep_status overlap_index_build(struct overlap_index *index, const struct box *boxes,
                                         size_t count, size_t lookups, struct sidestep_error *err);

/* Set [*from, *to) to the boxes that may overlap ${box}. */
void overlap_index_find(const struct overlap_index *index, const struct box *box, size_t *from,
                        size_t *to);
/* The index in the caller's array of box ${i}, of the range from overlap_index_find(). */
static inline size_t overlap_index_box_number(const struct overlap_index *index, size_t i)
{
    return index->boxes != NULL ? index->boxes[i].index : i;
}

#endif
