/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tiling.c -- see tiling.h: checks exactly, without comparing each box with each other one.
 *
 * Count for each cell of the tensor how many boxes cover it, and take the difference of this
 * function along each dimension in turn.  For one box, the result is +1 or -1 at each of its 2^d
 * corners, and 0 elsewhere.  Summing up undoes the differences, so no information is lost.  So
 * boxes tile a tensor if and only if their signed corners add up to those of the tensor.  To
 * compare them, sort all corners.  Dimensions that every box spans are left out, so d is the number
 * of sharded dimensions.
 *
 * Only if this fails, a sweep searches for two boxes that overlap.
 */
#include "plan/tiling.h"

#include <assert.h>
#include <stdlib.h>

#include "base/base.h"

__extension__ typedef unsigned __int128 uint128;

/* With more sharded dimensions than this, corners are used only if they are few. */
#define ALWAYS_CORNERS_NDIM 6u
#define MAX_CORNERS ((size_t)1 << 20)
/* Pairs of boxes that a sweep compares before it gives up. */
#define MAX_SWEEP_STEPS ((uint64_t)100 * 1000 * 1000)

/* The boxes that have elements, and the sharded dimensions. */
struct tiling {
    const int64_t *shape;
    const struct box *boxes;
    size_t *used; /* indices in ${boxes} */
    size_t count;
    uint32_t dimensions[SIDESTEP_MAX_NDIM];
    uint32_t ndim; /* of ${dimensions} */
};

static void tiling_release(struct tiling *t)
{
    free(t->used);
}

static bool is_spanned(const struct tiling *t, uint32_t dimension)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->boxes[t->used[i]].lengths[dimension] != t->shape[dimension])
            return false;
    return true;
}

static enum sidestep_status tiling_init(struct tiling *t, uint32_t ndim, const int64_t *shape,
                                        const struct box *boxes, size_t count,
                                        struct sidestep_error *err)
{
    t->shape = shape;
    t->boxes = boxes;
    t->used = memory_new(count, sizeof(*t->used));
    if (t->used == NULL)
        return FAIL_NOMEM(err, count * sizeof(*t->used));
    for (size_t i = 0; i < count; i++)
        if (box_volume(&boxes[i]) != 0)
            t->used[t->count++] = i;
    for (uint32_t d = 0; d < ndim; d++)
        if (!is_spanned(t, d))
            t->dimensions[t->ndim++] = d;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- corners */

static int compare_corners(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/*
 * Set ${out} to the corners of one box, as 2 * position + (1 if negative).  A corner's position is
 * the number of its cell.  Corners at the far edges have no cell, and share the number of another
 * corner.  The check stays exact: write each corner as x^position.  Then the corners of a box are
 * the polynomial of its cells, times the product of (1 - x^step) over the dimensions.  This product
 * is the same for all boxes, and a multiplication with a polynomial that is not 0 can be undone.
 * Positions do not overflow: there are less than 2^62 cells, and each dimension has at least 2, so
 * the farthest corner is below 2^62 * (1 + 1/2 + 1/4 ...).
 */
static void put_corners(const struct tiling *t, const int64_t *offsets, const int64_t *lengths,
                        unsigned negative, uint64_t *out)
{
    uint64_t step = 1, edges[SIDESTEP_MAX_NDIM], origin = 0;
    size_t corners = (size_t)1 << t->ndim;

    for (uint32_t i = 0; i < t->ndim; i++) {
        uint32_t d = t->dimensions[i];

        origin += step * (uint64_t)(offsets != NULL ? offsets[d] : 0);
        edges[i] = step * (uint64_t)lengths[d];
        step *= (uint64_t)t->shape[d];
    }
    for (size_t corner = 0; corner < corners; corner++) {
        unsigned ends = (unsigned)__builtin_popcountl(corner);
        uint64_t position = origin;

        for (uint32_t i = 0; i < t->ndim; i++)
            if (corner & (size_t)1 << i)
                position += edges[i];
        out[corner] = position << 1 | ((ends + negative) & 1);
    }
}

/* Do the signed corners of all boxes, minus those of the tensor, add up to 0 everywhere? */
static enum sidestep_status corners_cancel(const struct tiling *t, bool *cancel,
                                           struct sidestep_error *err)
{
    size_t total = (t->count + 1) << t->ndim;
    OWNED uint64_t *corners = memory_new(total, sizeof(*corners));

    if (corners == NULL)
        return FAIL_NOMEM(err, total * sizeof(*corners));
    for (size_t i = 0; i < t->count; i++)
        put_corners(t, t->boxes[t->used[i]].offsets, t->boxes[t->used[i]].lengths, 0,
                    corners + (i << t->ndim));
    put_corners(t, NULL, t->shape, 1, corners + (t->count << t->ndim));
    qsort(corners, total, sizeof(*corners), compare_corners);

    int64_t sum = 0;
    *cancel = true;
    for (size_t i = 0; i < total && *cancel; i++) {
        sum += (corners[i] & 1) != 0 ? -1 : 1;
        if (i + 1 == total || corners[i] >> 1 != corners[i + 1] >> 1)
            *cancel = sum == 0;
    }
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- the sweep */

/* A box's extent in the dimension of the sweep. */
struct span {
    int64_t begin;
    int64_t end;
    size_t box;
};

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->box < y->box ? -1 : x->box > y->box;
}

static void sort_spans(const struct tiling *t, uint32_t dimension, struct span *spans)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct box *box = &t->boxes[t->used[i]];

        spans[i] = (struct span){box->offsets[dimension],
                                 box->offsets[dimension] + box->lengths[dimension], t->used[i]};
    }
    qsort(spans, t->count, sizeof(*spans), compare_spans);
}

/* The dimension with the most distinct offsets: there, the sweep compares the fewest pairs. */
static uint32_t best_dimension(const struct tiling *t, struct span *spans)
{
    uint32_t best = 0;
    size_t best_distinct = 0;

    for (uint32_t i = 0; i < t->ndim; i++) {
        size_t distinct = 1;

        sort_spans(t, t->dimensions[i], spans);
        for (size_t k = 1; k < t->count; k++)
            distinct += spans[k].begin != spans[k - 1].begin;
        if (distinct > best_distinct) {
            best_distinct = distinct;
            best = t->dimensions[i];
        }
    }
    return best;
}

/* Search for two boxes that overlap.  False: there are none, or, if ${*gave_up}, too many pairs to
 * compare. */
static bool sweep(const struct tiling *t, const struct span *spans, size_t *culprit, bool *gave_up)
{
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];
    uint64_t steps = 0;

    for (size_t i = 0; i < t->count; i++)
        for (size_t k = i + 1; k < t->count && spans[k].begin < spans[i].end; k++) {
            const struct box *a = &t->boxes[spans[i].box], *b = &t->boxes[spans[k].box];

            if (++steps > MAX_SWEEP_STEPS) {
                *gave_up = true;
                return false;
            }
            if (box_intersect(a, b, offsets, lengths)) {
                *culprit = spans[i].box > spans[k].box ? spans[i].box : spans[k].box;
                return true;
            }
        }
    return false;
}

/* Without sharded dimensions, all boxes are the same box. */
static enum sidestep_status find_overlap(const struct tiling *t, size_t *culprit, bool *found,
                                         bool *gave_up, struct sidestep_error *err)
{
    OWNED struct span *spans = memory_new(t->count, sizeof(*spans));

    if (spans == NULL)
        return FAIL_NOMEM(err, t->count * sizeof(*spans));
    *gave_up = false;
    if (t->ndim == 0) {
        *found = t->count > 1;
        *culprit = *found ? t->used[1] : SIZE_MAX;
        return SIDESTEP_OK;
    }
    sort_spans(t, best_dimension(t, spans), spans);
    *found = sweep(t, spans, culprit, gave_up);
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- both */

/* Do the boxes have more (1), as many (0) or fewer (-1) elements than the tensor? */
static int compare_volumes(const struct tiling *t, uint32_t ndim)
{
    uint64_t volume = box_volume(&(struct box){ndim, t->shape, t->shape});
    uint128 sum = 0;

    for (size_t i = 0; i < t->count; i++)
        sum += box_volume(&t->boxes[t->used[i]]);
    return sum < volume ? -1 : sum > volume;
}

enum sidestep_status tiling_check(uint32_t ndim, const int64_t *shape, const struct box *boxes,
                                  size_t count, enum tiling_result *result, size_t *culprit,
                                  struct sidestep_error *err)
{
    OWNED_BY(tiling_release) struct tiling t = {0};
    size_t none;
    bool exact = true, found = false, gave_up = false;

    culprit = culprit != NULL ? culprit : &none;
    *culprit = SIZE_MAX;
    *result = TILING_EXACT;
    for (uint32_t d = 0; d < ndim; d++)
        if (shape[d] == 0)
            return SIDESTEP_OK;
    if (count == 1 && box_is_whole(&boxes[0], shape)) /* the usual case */
        return SIDESTEP_OK;
    TRY(tiling_init(&t, ndim, shape, boxes, count, err));
    *result = TILING_GAP;
    if (t.count == 0)
        return SIDESTEP_OK;

    int volumes = compare_volumes(&t, ndim);
    bool by_corners = t.ndim <= ALWAYS_CORNERS_NDIM || t.count + 1 <= MAX_CORNERS >> t.ndim;
    if (volumes != 0)
        exact = false;
    else if (by_corners)
        TRY(corners_cancel(&t, &exact, err));
    if (!exact || !by_corners)
        TRY(find_overlap(&t, culprit, &found, &gave_up, err));
    if (exact && !found && !gave_up)
        *result = TILING_EXACT;
    else if (found || volumes >= 0)
        *result = TILING_OVERLAP;
    return SIDESTEP_OK;
}

enum sidestep_status tiling_check_chunks(const struct metadata_entry *entry,
                                         enum tiling_result *result, struct sidestep_error *err)
{
    OWNED struct box *boxes = memory_new(entry->chunk_count, sizeof(*boxes));

    assert(!entry->is_object);
    if (boxes == NULL)
        return FAIL_NOMEM(err, entry->chunk_count * sizeof(*boxes));
    for (size_t c = 0; c < entry->chunk_count; c++)
        boxes[c] = entry->chunks[c].box;
    return tiling_check(entry->ndim, entry->shape, boxes, entry->chunk_count, result, NULL, err);
}
