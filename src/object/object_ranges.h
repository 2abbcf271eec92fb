/* SPDX-License-Identifier: BSD-3-Clause */
/* object_ranges.h -- which bytes of a part were written, in any order. */
#ifndef OBJECT_OBJECT_RANGES_H
#define OBJECT_OBJECT_RANGES_H

#include "base/base.h"

#define OBJECT_MAX_RANGES 64u /* of one part */

struct object_ranges {
    size_t count;
    struct {
        uint64_t begin, end;
    } ranges[OBJECT_MAX_RANGES]; /* in order, with gaps between them */
};

/* Add [begin, end). False: there would be too many ranges. */
bool object_ranges_add(struct object_ranges *r, uint64_t begin, uint64_t end);
/* Are the ranges exactly [0, length)? */
bool object_ranges_cover(const struct object_ranges *r, uint64_t length);
/* Zero those of the first ${length} bytes that were not written. */
void object_ranges_clear_gaps(const struct object_ranges *r, uint8_t *bytes, size_t length);

#endif
