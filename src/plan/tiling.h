/* SPDX-License-Identifier: BSD-3-Clause */
/* tiling.h -- checks that boxes tile a tensor: without gaps, and without overlap. */
#ifndef PLAN_TILING_H
#define PLAN_TILING_H

#include "model/model.h"

enum tiling_result { TILING_EXACT, TILING_GAP, TILING_OVERLAP };

/*
 * box_check() must have accepted the boxes.  Boxes without elements are ignored.  The time is
 * O(n log n) for any usual sharding, and limited for any other.  If there are both gaps and
 * overlaps, the result is OVERLAP.  ${culprit} (may be NULL): the index of the later one of two
 * boxes that overlap; SIZE_MAX: none overlap, or the search took too long.  Fails only for lack of
 * memory.
 */
enum sidestep_status tiling_check(uint32_t ndim, const int64_t *shape, const struct box *boxes,
                                  size_t count, enum tiling_result *result, size_t *culprit,
                                  struct sidestep_error *err);
/* The same for the chunks of a tensor. */
enum sidestep_status tiling_check_chunks(const struct metadata_entry *entry,
                                         enum tiling_result *result, struct sidestep_error *err);

#endif
