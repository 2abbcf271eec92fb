/* SPDX-License-Identifier: BSD-3-Clause */
/* aliases.c -- checks tensors that share memory after a load; see aliases.h. */
#include "load/aliases.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "load/fetch.h"
#include "model/model.h"

/* Bytes that are compared in one step, if single blocks can be read. */
#define PART_BYTES ((uint64_t)64 << 20)

/* A tensor that was loaded, and its memory. */
struct loaded_target {
    struct state_entry *target;
    const struct metadata_entry *saved;
    uint64_t begin, end; /* addresses */
    bool is_doubtful;    /* what is in its memory afterwards may not be what was saved for it */
};

static int by_address(const void *a, const void *b)
{
    const struct loaded_target *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->target < y->target ? -1 : x->target > y->target;
}

static bool are_sorted(const struct loaded_target *loaded, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (by_address(&loaded[i - 1], &loaded[i]) > 0)
            return false;
    return true;
}

/* List each target once, by address: a target may have parts of several chunks. */
static size_t find_loaded(const struct load_plan *plan, struct loaded_target *loaded)
{
    size_t count = 0, kept = 0;

    for (size_t c = 0; c < plan->count; c++)
        for (size_t t = 0; t < plan->chunks[c].target_count; t++) {
            struct state_entry *target = plan->chunks[c].targets[t];
            struct loaded_target *p = &loaded[count];
            uint64_t bytes;

            if (target->is_object || target->on_device != 0)
                continue;
            *p = (struct loaded_target){.target = target, .saved = plan->chunks[c].entry};
            state_entry_extent(target, &p->begin, &bytes);
            p->end = p->begin + bytes;
            count++;
        }
    if (!are_sorted(loaded, count)) /* targets in one allocation mostly are sorted */
        qsort(loaded, count, sizeof(*loaded), by_address);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || loaded[kept - 1].target != loaded[i].target)
            loaded[kept++] = loaded[i];
    return kept;
}

/* ---- which elements share memory */

/* Sort the dimensions with more than one element by stride, largest first.  Returns how many. */
static uint32_t sort_dimensions(const struct state_entry *e, uint32_t order[SIDESTEP_MAX_NDIM])
{
    uint32_t count = 0;

    for (uint32_t d = 0; d < e->ndim; d++) {
        uint32_t at = count;

        if (e->box.lengths[d] == 1)
            continue;
        for (; at > 0 && llabs(e->strides[order[at - 1]]) < llabs(e->strides[d]); at--)
            order[at] = order[at - 1];
        order[at] = d;
        count++;
    }
    return count;
}

/* Do no two elements share memory?  False also if that cannot be determined. */
static bool has_distinct_elements(const struct state_entry *e)
{
    uint32_t order[SIDESTEP_MAX_NDIM];
    int64_t reach = 1;

    for (uint32_t i = sort_dimensions(e, order); i-- > 0;) {
        int64_t stride = llabs(e->strides[order[i]]);

        if (stride < reach)
            return false;
        reach += (e->box.lengths[order[i]] - 1) * stride;
    }
    return true;
}

/* ${b} does not begin before ${a}.  Are both parts of one larger tensor, for example columns,
 * without a common element?  False also if that cannot be determined. */
static bool are_disjoint(const struct state_entry *a, const struct state_entry *b)
{
    uint32_t order[SIDESTEP_MAX_NDIM], count = sort_dimensions(a, order);
    int64_t size = (int64_t)sidestep_dtype_size(a->dtype), outer = INT64_MAX;
    int64_t between = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data);
    bool apart = false;

    if (a->ndim != b->ndim || a->dtype != b->dtype || between % size != 0)
        return false;
    for (uint32_t d = 0; d < a->ndim; d++)
        if ((a->box.lengths[d] == 1) != (b->box.lengths[d] == 1))
            return false;
    between /= size;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t d = order[i];
        int64_t stride = a->strides[d], first = stride > 0 ? between / stride : 0;

        /* The strides do not fit one larger tensor, or a part wraps around to its next row. */
        if (stride <= 0 || stride != b->strides[d] || first < 0 ||
            a->box.lengths[d] > outer / stride || b->box.lengths[d] > outer / stride - first)
            return false;
        apart = apart || first >= a->box.lengths[d];
        between -= first * stride;
        outer = stride;
    }
    return apart && between == 0 && has_distinct_elements(a) && has_distinct_elements(b);
}

static const struct footer_item *find_footer_item(const struct reader *reader,
                                                  const struct metadata_chunk *chunk)
{
    const struct reader_file *file =
        &reader->files[hash_table_find(&reader->file_names, chunk->storage.file)];

    return file->ours ? reader_find_footer_item(file, chunk->storage.offset) : NULL;
}

/* Tied weights: one tensor under two names, and the same data was saved for both. */
static bool are_tied(const struct reader *reader, const struct loaded_target *a,
                     const struct loaded_target *b)
{
    const struct state_entry *x = a->target, *y = b->target;

    if (x->data != y->data || x->dtype != y->dtype || !box_equal(&x->box, &y->box) ||
        (x->ndim != 0 && memcmp(x->strides, y->strides, x->ndim * sizeof(*x->strides)) != 0) ||
        a->saved->chunk_count != b->saved->chunk_count || reader->foreign != NULL)
        return false;
    for (size_t c = 0; c < a->saved->chunk_count; c++) {
        const struct footer_item *m = find_footer_item(reader, &a->saved->chunks[c]),
                                 *n = find_footer_item(reader, &b->saved->chunks[c]);
        if (m == NULL || n == NULL || !box_equal(&m->box, &n->box) ||
            m->raw_bytes != n->raw_bytes || !hash128_equal(m->raw_hash, n->raw_hash))
            return false;
    }
    return true;
}

static void compare(const struct reader *reader, struct loaded_target *a, struct loaded_target *b)
{
    if (are_disjoint(a->target, b->target))
        return;
    a->target->shares_memory = b->target->shares_memory = true;
    if (!are_tied(reader, a, b))
        a->is_doubtful = b->is_doubtful = true;
}

static void mark_shared(const struct reader *reader, struct loaded_target *loaded, size_t count)
{
    size_t first_overlap = 0; /* the first target that may overlap the current one */

    for (size_t i = 0; i < count; i++)
        loaded[i].is_doubtful = loaded[i].target->shares_memory =
            !has_distinct_elements(loaded[i].target);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = i; k-- > first_overlap;)
            if (loaded[k].end > loaded[i].begin)
                compare(reader, &loaded[k], &loaded[i]);
        while (first_overlap < i && loaded[first_overlap].end <= loaded[i].begin)
            first_overlap++;
    }
}

/* ---- read again what was saved */

static enum sidestep_status read_again(struct reader *reader, const struct loaded_target *p,
                                       const struct box *box, uint8_t *to, struct workers *workers,
                                       struct sidestep_error *err)
{
    OWNED_BY(sidestep_state_dict_free) struct sidestep_state_dict *state = NULL;
    OWNED_BY(load_plan_release) struct load_plan plan = {0};
    const struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                           .name = p->target->name,
                                           .dtype = p->target->dtype,
                                           .ndim = p->target->ndim,
                                           .shape = p->target->shape,
                                           .offsets = box->offsets,
                                           .lengths = box->lengths,
                                           .data = to};
    uint64_t bytes_read;

    TRY(sidestep_state_dict_new(&state, err));
    TRY(sidestep_state_dict_add_tensor(state, &tensor, err));
    TRY(load_plan_build(&reader->metadata, state, false, &plan, err));
    return fetch_run(reader, &plan, FETCH_ALL, workers, NULL, &bytes_read, err);
}

static enum sidestep_status check_box(struct reader *reader, const struct loaded_target *p,
                                      const struct box *box, struct workers *workers,
                                      struct sidestep_error *err)
{
    const struct box_memory there = state_entry_memory(p->target);
    uint64_t bytes = box_volume(box) * there.item_bytes;
    OWNED uint8_t *saved = memory_new(bytes, 1);
    OWNED uint8_t *current = memory_new(bytes, 1);

    if (saved == NULL || current == NULL)
        return FAIL_NOMEM(err, 2 * bytes);
    TRY(read_again(reader, p, box, saved, workers, err));
    (void)box_transfer(box, 0, bytes, current, &there, BOX_GATHER);
    if (memcmp(saved, current, bytes) == 0)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EMISMATCH,
                "'%s' shares memory with another tensor of the state, or with itself, and the data "
                "saved for them differs: load into tensors that share no memory",
                display_name(p->target->name).text);
}

/* Compare slice by slice, along the first dimension. */
static enum sidestep_status check_tensor(struct reader *reader, const struct loaded_target *p,
                                         struct workers *workers, struct sidestep_error *err)
{
    const struct box *all = &p->target->box;
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];
    const struct box part = {.ndim = all->ndim, .offsets = offsets, .lengths = lengths};
    uint64_t bytes = box_volume(all) * sidestep_dtype_size(p->target->dtype);

    if (all->ndim == 0 || !reader->has_manifest)
        return check_box(reader, p, all, workers, err);
    memcpy(offsets, all->offsets, all->ndim * sizeof(*offsets));
    memcpy(lengths, all->lengths, all->ndim * sizeof(*lengths));
    int64_t rows = (int64_t)max_u64(
        1, min_u64((uint64_t)lengths[0], PART_BYTES / max_u64(1, bytes / (uint64_t)lengths[0])));
    for (int64_t at = 0; at < all->lengths[0]; at += rows) {
        offsets[0] = all->offsets[0] + at;
        lengths[0] = at + rows < all->lengths[0] ? rows : all->lengths[0] - at;
        TRY(check_box(reader, p, &part, workers, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status aliases_find(const struct reader *reader, const struct load_plan *plan,
                                  struct aliases *aliases, struct sidestep_error *err)
{
    size_t most = 0;

    for (size_t c = 0; c < plan->count; c++)
        most += plan->chunks[c].target_count;
    aliases->loaded = memory_new(most, sizeof(*aliases->loaded));
    if (aliases->loaded == NULL)
        return FAIL_NOMEM(err, most * sizeof(*aliases->loaded));
    aliases->count = find_loaded(plan, aliases->loaded);
    mark_shared(reader, aliases->loaded, aliases->count);
    return SIDESTEP_OK;
}

enum sidestep_status aliases_check(struct reader *reader, const struct aliases *aliases,
                                   struct workers *workers, struct sidestep_error *err)
{
    for (size_t i = 0; i < aliases->count; i++)
        if (aliases->loaded[i].is_doubtful)
            TRY(check_tensor(reader, &aliases->loaded[i], workers, err));
    return SIDESTEP_OK;
}

void aliases_release(struct aliases *aliases)
{
    free(aliases->loaded);
    *aliases = (struct aliases){0};
}
