/* SPDX-License-Identifier: BSD-3-Clause */
/* box_range.c -- see box_range.h. */
#include "model/box_range.h"

#include <assert.h>

#include "sidestep/sidestep.h"

/* The number of elements of ${common} that come before element ${n} of ${box}. */
static uint64_t count_before(const struct box *box, const struct box *common, uint64_t n)
{
    int64_t at[SIDESTEP_MAX_NDIM];
    uint64_t count = 0, inner = box_volume(common);

    if (n >= box_volume(box))
        return inner;
    for (uint32_t d = box->ndim; d-- > 0;) {
        at[d] = box->offsets[d] + (int64_t)(n % (uint64_t)box->lengths[d]);
        n /= (uint64_t)box->lengths[d];
    }
    for (uint32_t d = 0; d < box->ndim; d++) {
        int64_t before = at[d] - common->offsets[d];

        inner /= (uint64_t)common->lengths[d];
        if (before < 0)
            return count;
        if (before >= common->lengths[d])
            return count + (uint64_t)common->lengths[d] * inner;
        count += (uint64_t)before * inner;
    }
    return count;
}

/* The index in ${in} of element ${k} of ${common}. */
static uint64_t index_in(const struct box *common, uint64_t k, const struct box *in)
{
    uint64_t index = 0, stride = 1;

    for (uint32_t d = common->ndim; d-- > 0;) {
        uint64_t at = k % (uint64_t)common->lengths[d];

        k /= (uint64_t)common->lengths[d];
        index += (at + (uint64_t)(common->offsets[d] - in->offsets[d])) * stride;
        stride *= (uint64_t)in->lengths[d];
    }
    return index;
}

bool box_range(const struct box *box, uint64_t begin, uint64_t end, size_t item_bytes,
               const struct box *chunk, uint64_t *first, uint64_t *last)
{
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];
    struct box common = {.ndim = box->ndim, .offsets = offsets, .lengths = lengths};

    assert(box->ndim == chunk->ndim && begin <= end);
    if (begin == end || !box_intersect(box, chunk, offsets, lengths))
        return false;
    uint64_t first_element = begin / item_bytes, last_element = (end - 1) / item_bytes;
    uint64_t from = count_before(box, &common, first_element);
    uint64_t to = count_before(box, &common, last_element + 1);
    if (from >= to)
        return false;
    *first = index_in(&common, from, chunk) * item_bytes;
    *last = (index_in(&common, to - 1, chunk) + 1) * item_bytes;
    /* The range may begin or end inside an element. */
    if (index_in(&common, from, box) == first_element)
        *first += begin % item_bytes;
    if (index_in(&common, to - 1, box) == last_element)
        *last -= (last_element + 1) * item_bytes - end;
    return true;
}
