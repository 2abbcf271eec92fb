/* SPDX-License-Identifier: BSD-3-Clause */
/* overlap.c -- see overlap.h. */
#include "plan/overlap.h"

#include <stdlib.h>

#include "base/base.h"

/* If boxes times lookups are at most this many, comparing all is faster than sorting. */
#define FEW_PAIRS 256u

void overlap_index_release(struct overlap_index *index)
{
    free(index->boxes);
    *index = (struct overlap_index){0};
}

static int compare_numbers(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static enum sidestep_status choose_dimension(const struct box *boxes, size_t count,
                                             uint32_t *dimension, struct sidestep_error *err)
{
    OWNED int64_t *begins = memory_new(count, sizeof(*begins));
    size_t best = 0;

    if (begins == NULL)
        return FAIL_NOMEM(err, count * sizeof(*begins));
    for (uint32_t d = 0; d < boxes[0].ndim; d++) {
        size_t distinct = 1;

        for (size_t i = 0; i < count; i++)
            begins[i] = boxes[i].offsets[d];
        qsort(begins, count, sizeof(*begins), compare_numbers);
        for (size_t i = 1; i < count; i++)
            distinct += begins[i] != begins[i - 1];
        if (distinct > best) {
            best = distinct;
            *dimension = d;
        }
    }
    return SIDESTEP_OK;
}

/* Until all boxes are sorted, ${reach} is their offset. */
static int compare_begins(const void *a, const void *b)
{
    const struct overlap_box *x = a, *y = b;

    if (x->reach != y->reach)
        return x->reach < y->reach ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void sort_boxes(struct overlap_index *index)
{
    uint32_t d = index->dimension;
    int64_t reach = 0;

    for (size_t i = 0; i < index->count; i++)
        index->boxes[i].reach = index->boxes[i].box.offsets[d];
    qsort(index->boxes, index->count, sizeof(*index->boxes), compare_begins);
    for (size_t i = 0; i < index->count; i++) {
        const struct box *box = &index->boxes[i].box;

        if (box->offsets[d] + box->lengths[d] > reach)
            reach = box->offsets[d] + box->lengths[d];
        index->boxes[i].reach = reach;
    }
}

enum sidestep_status overlap_index_build(struct overlap_index *index, const struct box *boxes,
                                         size_t count, size_t lookups, struct sidestep_error *err)
{
    OWNED struct overlap_box *entries = NULL;

    *index = (struct overlap_index){.count = count};
    if (count <= 1 || boxes[0].ndim == 0 || lookups <= FEW_PAIRS / count)
        return SIDESTEP_OK;
    entries = memory_new(count, sizeof(*entries));
    if (entries == NULL)
        return FAIL_NOMEM(err, count * sizeof(*entries));
    for (size_t i = 0; i < count; i++)
        entries[i] = (struct overlap_box){.box = boxes[i], .index = i};
    TRY(choose_dimension(boxes, count, &index->dimension, err));
    index->boxes = TAKE(entries);
    sort_boxes(index);
    return SIDESTEP_OK;
}

void overlap_index_find(const struct overlap_index *index, const struct box *box, size_t *from,
                        size_t *to)
{
    size_t low = 0, high = index->count;

    *from = 0;
    *to = index->count;
    if (index->boxes == NULL)
        return;
    int64_t begin = box->offsets[index->dimension];
    int64_t end = begin + box->lengths[index->dimension];
    while (low < high) { /* find the first box that reaches beyond ${begin} */
        size_t middle = low + (high - low) / 2;

        if (index->boxes[middle].reach > begin)
            high = middle;
        else
            low = middle + 1;
    }
    *from = low;
    for (high = index->count; low < high;) { /* find the first box that begins at ${end} or later */
        size_t middle = low + (high - low) / 2;

        if (index->boxes[middle].box.offsets[index->dimension] < end)
            low = middle + 1;
        else
            high = middle;
    }
    *to = low;
}
