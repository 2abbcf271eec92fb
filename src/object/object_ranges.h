/* SPDX-License-Identifier: BSD-3-Clause */
/* object_ranges.h -- which bytes of a part are there, while it is gathered in any order. */
#ifndef OBJECT_OBJECT_RANGES_H
#define OBJECT_OBJECT_RANGES_H

#include "base/base.h"

#define OBJECT_MAX_RANGES 64u /* of one part, with gaps between */

struct object_ranges {
    size_t count;
    struct {
        uint64_t begin, end;
    } ranges[OBJECT_MAX_RANGES]; /* in order, apart from each other */
};

/* [begin, end) is there now. False: there would be too many ranges. */
bool object_ranges_add(struct object_ranges *r, uint64_t begin, uint64_t end);
/* Is [0, length) there? */
bool object_ranges_are(const struct object_ranges *r, uint64_t length);
/* Of the first ${length} bytes, make those zero that are not there. */
void object_ranges_clear_gaps(const struct object_ranges *r, uint8_t *bytes, size_t length);

#endif
