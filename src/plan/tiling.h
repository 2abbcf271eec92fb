/* SPDX-License-Identifier: BSD-3-Clause */
/* tiling.h -- do these boxes cover a tensor exactly: no gap, no overlap? */
#ifndef PLAN_TILING_H
#define PLAN_TILING_H

#include "model/model.h"

enum tiling_result { TILING_EXACT, TILING_GAP, TILING_OVERLAP };

/*
 * Boxes were accepted by box_check().  Those without elements are ignored.  O(n log n) for any
 * sharding that occurs, and bounded for any other.  Where there are gaps and overlaps, the overlap
 * is reported.  ${culprit} (may be NULL): of two boxes that overlap, the index of the later one;
 * SIZE_MAX where there is none, or where looking for it took too long.  Fails only for lack of
 * memory.
 */
enum sidestep_status tiling_check(uint32_t ndim, const int64_t *shape, const struct box *boxes,
                                  size_t count, enum tiling_result *result, size_t *culprit,
                                  struct sidestep_error *err);

#endif
