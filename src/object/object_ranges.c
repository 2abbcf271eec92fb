/* SPDX-License-Identifier: BSD-3-Clause */
/* object_ranges.c -- which bytes of a part were written. */
#include "object/object_ranges.h"

#include <string.h>

bool object_ranges_add(struct object_ranges *r, uint64_t begin, uint64_t end)
{
    size_t kept = 0, at = 0;

    /* Merge ranges that touch the new one. */
    for (size_t i = 0; i < r->count; i++) {
        if (r->ranges[i].end < begin || r->ranges[i].begin > end) {
            at += r->ranges[i].end < begin;
            r->ranges[kept++] = r->ranges[i];
        } else {
            begin = min_u64(begin, r->ranges[i].begin);
            end = max_u64(end, r->ranges[i].end);
        }
    }
    if (kept == OBJECT_MAX_RANGES)
        return false;
    memmove(&r->ranges[at + 1], &r->ranges[at], (kept - at) * sizeof(r->ranges[0]));
    r->ranges[at].begin = begin;
    r->ranges[at].end = end;
    r->count = kept + 1;
    return true;
}

bool object_ranges_cover(const struct object_ranges *r, uint64_t length)
{
    return r->count == 1 && r->ranges[0].begin == 0 && r->ranges[0].end == length;
}

void object_ranges_clear_gaps(const struct object_ranges *r, uint8_t *bytes, size_t length)
{
    uint64_t at = 0;

    for (size_t i = 0; i < r->count; i++) {
        memset(bytes + at, 0, r->ranges[i].begin - at);
        at = r->ranges[i].end;
    }
    if (at < length)
        memset(bytes + at, 0, length - at);
}
