/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diff_data.c -- compares tensors, in batches of bounded size.  A batch consists of parts, which
 * are boxes of tensors.  Parts are read from both checkpoints as by a load, with every byte
 * verified.  Then all threads compare them in slices.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"
#include "inspect/diff.h"
#include "load/load.h"

#define PART_MAX 4096u                  /* of one batch */
#define SLICE_BYTES ((uint64_t)1 << 20) /* what a thread compares at once */

/* A box of a tensor. */
struct part {
    struct diff_pair *pair;
    int64_t *offsets;
    int64_t *lengths;
    uint64_t bytes;
    uint64_t place; /* offset in the buffers */
};

struct slice {
    const struct part *part;
    uint64_t begin; /* element of the part */
    uint64_t end;
    struct tensor_difference sum; /* counts elements of the part */
};

struct batch {
    struct diff *diff;
    struct arena arena; /* boxes */
    struct part parts[PART_MAX];
    size_t count;
    uint64_t bytes;   /* used in each buffer: every part begins at a page */
    uint64_t payload; /* bytes of the parts */
    uint8_t *buffers[2];
    uint64_t capacity; /* size of each buffer */
    struct slice *slices;
    size_t slice_count;
    _Atomic size_t next_slice;
};

/* ---- hashes */

static int compare_chunks(const void *x, const void *y)
{
    const struct metadata_chunk *a = *(const struct metadata_chunk *const *)x,
                                *b = *(const struct metadata_chunk *const *)y;

    for (uint32_t d = 0; d < a->box.ndim && d < b->box.ndim; d++)
        if (a->box.offsets[d] != b->box.offsets[d])
            return a->box.offsets[d] < b->box.offsets[d] ? -1 : 1;
    return 0;
}

static enum sidestep_status sort_chunks(const struct metadata_entry *entry,
                                        const struct metadata_chunk ***sorted,
                                        struct sidestep_error *err)
{
    *sorted = memory_new(entry->chunk_count, sizeof(**sorted));
    if (*sorted == NULL)
        return FAIL_NOMEM(err, entry->chunk_count * sizeof(**sorted));
    for (size_t i = 0; i < entry->chunk_count; i++)
        (*sorted)[i] = &entry->chunks[i];
    if (entry->chunk_count != 0)
        qsort(*sorted, entry->chunk_count, sizeof(**sorted), compare_chunks);
    return SIDESTEP_OK;
}

/* The item that stores a chunk, if sidestep wrote it; else NULL. */
static const struct footer_item *find_own_item(const struct reader *reader,
                                               const struct metadata_storage *storage)
{
    size_t i =
        storage->file != NULL ? hash_table_find(&reader->file_names, storage->file) : SIZE_MAX;

    if (i == SIZE_MAX || !reader->files[i].ours)
        return NULL;
    return reader_find_footer_item(&reader->files[i], storage->offset);
}

static bool has_same_hash(const struct diff *diff, const struct metadata_chunk *a,
                          const struct metadata_chunk *b)
{
    if (a->box.ndim != b->box.ndim || !box_equal(&a->box, &b->box))
        return false;
    const struct footer_item *x = find_own_item(diff->readers[0], &a->storage);
    const struct footer_item *y = find_own_item(diff->readers[1], &b->storage);
    return x != NULL && y != NULL && x->raw_bytes == y->raw_bytes &&
           x->raw_hash.low == y->raw_hash.low && x->raw_hash.high == y->raw_hash.high;
}

/* Open the files that store a tensor: their footers have the hashes. */
static enum sidestep_status admit_chunks(struct reader *reader, const struct metadata_entry *entry,
                                         struct sidestep_error *err)
{
    struct reader_item item;

    for (size_t i = 0; i < entry->chunk_count; i++) {
        const struct metadata_chunk *chunk = &entry->chunks[i];
        enum sidestep_status status =
            reader->has_manifest
                ? reader_locate_item(reader, entry, &chunk->storage, &chunk->box, NULL, &item, err)
                : reader_admit(reader, &chunk->storage, err);
        TRY(WRAP(status, err, "checkpoint '%s'", reader->path));
    }
    return SIDESTEP_OK;
}

enum sidestep_status diff_compare_hashes(struct diff *diff, struct diff_pair *pair,
                                         struct sidestep_error *err)
{
    OWNED const struct metadata_chunk **a = NULL, **b = NULL;

    if (pair->a->chunk_count != pair->b->chunk_count)
        return SIDESTEP_OK;
    TRY(admit_chunks(diff->readers[0], pair->a, err));
    TRY(admit_chunks(diff->readers[1], pair->b, err));
    TRY(sort_chunks(pair->a, &a, err));
    TRY(sort_chunks(pair->b, &b, err));
    for (size_t i = 0; i < pair->a->chunk_count; i++)
        if (!has_same_hash(diff, a[i], b[i]))
            return SIDESTEP_OK;
    pair->by_hash = true;
    return SIDESTEP_OK;
}

/* ---- one batch */

static enum sidestep_status fetch_side(struct batch *batch, int side, struct sidestep_error *err)
{
    OWNED_BY(sidestep_state_dict_free) struct sidestep_state_dict *state = NULL;
    OWNED_BY(load_plan_release) struct load_plan plan = {0};
    struct diff *diff = batch->diff;
    struct reader *reader = diff->readers[side];
    uint64_t bytes_read;

    TRY(sidestep_state_dict_new(&state, err));
    for (size_t i = 0; i < batch->count; i++) {
        const struct part *part = &batch->parts[i];
        const struct metadata_entry *entry = part->pair->a;
        struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                         .name = entry->name,
                                         .dtype = entry->dtype,
                                         .ndim = entry->ndim,
                                         .shape = entry->shape,
                                         .offsets = part->offsets,
                                         .lengths = part->lengths,
                                         .data = batch->buffers[side] + part->place};
        TRY(sidestep_state_dict_add_tensor(state, &tensor, err));
    }
    TRY(load_plan_build(&reader->metadata, state, false, &plan, err));
    enum sidestep_status status =
        fetch_run(reader, &plan, diff->workers, true, NULL, &bytes_read, err);
    if (status != SIDESTEP_OK)
        error_wrap(err, "checkpoint '%s'", diff->paths[side]);
    return status;
}

static enum sidestep_status make_slices(struct batch *batch, struct sidestep_error *err)
{
    size_t most = batch->count + (size_t)(batch->bytes / SLICE_BYTES) + 1;

    batch->slices = memory_new(most, sizeof(*batch->slices));
    if (batch->slices == NULL)
        return FAIL_NOMEM(err, most * sizeof(*batch->slices));
    batch->slice_count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const struct part *part = &batch->parts[i];
        uint64_t size = sidestep_dtype_size(part->pair->a->dtype), count = part->bytes / size;
        for (uint64_t at = 0; at < count; at += SLICE_BYTES / size)
            batch->slices[batch->slice_count++] =
                (struct slice){.part = part,
                               .begin = at,
                               .end = min_u64(at + SLICE_BYTES / size, count),
                               .sum = TENSOR_DIFFERENCE_INIT};
    }
    return SIDESTEP_OK;
}

static void compare_slices(void *context)
{
    struct batch *batch = context;

    for (;;) {
        size_t i = atomic_fetch_add(&batch->next_slice, 1);
        if (i >= batch->slice_count)
            return;
        struct slice *slice = &batch->slices[i];
        const struct part *part = slice->part;
        tensor_difference_add(&slice->sum, part->pair->a->dtype, batch->buffers[0] + part->place,
                              batch->buffers[1] + part->place, slice->begin, slice->end);
    }
}

/* The index of element ${number} of a part in the whole tensor. */
static uint64_t index_in_tensor(const struct part *part, uint64_t number)
{
    const struct metadata_entry *entry = part->pair->a;
    uint64_t whole = 0, stride = 1;

    for (uint32_t d = entry->ndim; d-- > 0;) {
        uint64_t length = (uint64_t)part->lengths[d];
        whole += ((uint64_t)part->offsets[d] + number % length) * stride;
        number /= length;
        stride *= (uint64_t)entry->shape[d];
    }
    return whole;
}

static void add_slice(const struct slice *slice)
{
    struct diff_pair *pair = slice->part->pair;

    if (slice->sum.count == 0)
        return;
    pair->kind = DIFF_DATA;
    pair->sum.count += slice->sum.count;
    pair->sum.first = min_u64(pair->sum.first, index_in_tensor(slice->part, slice->sum.first));
    /* If one max_abs is NaN, all are: the dtype is not a number. */
    if (!(pair->sum.max_abs >= slice->sum.max_abs))
        pair->sum.max_abs = slice->sum.max_abs;
    if (!(pair->sum.max_rel >= slice->sum.max_rel))
        pair->sum.max_rel = slice->sum.max_rel;
}

static enum sidestep_status get_buffers(struct batch *batch, struct sidestep_error *err)
{
    if (batch->bytes <= batch->capacity)
        return SIDESTEP_OK;
    for (int side = 0; side < 2; side++) {
        uint8_t *buffer = memory_resize(batch->buffers[side], batch->bytes, 1);
        if (buffer == NULL)
            return FAIL_NOMEM(err, batch->bytes);
        batch->buffers[side] = buffer;
    }
    batch->capacity = batch->bytes;
    return SIDESTEP_OK;
}

/* Read and compare the batch, and begin another one. */
static enum sidestep_status flush(struct batch *batch, struct sidestep_error *err)
{
    const struct sidestep_diff_options *options = batch->diff->options;

    if (batch->count == 0)
        return SIDESTEP_OK;
    if (options->cancel != NULL && *options->cancel)
        return FAIL(err, SIDESTEP_ECANCELLED, "interrupted");
    TRY(get_buffers(batch, err));
    TRY(fetch_side(batch, 0, err));
    TRY(fetch_side(batch, 1, err));
    TRY(make_slices(batch, err));
    atomic_store(&batch->next_slice, 0);
    workers_run(batch->diff->workers, compare_slices, batch);
    for (size_t i = 0; i < batch->slice_count; i++)
        add_slice(&batch->slices[i]);
    free(TAKE(batch->slices));
    batch->diff->done_bytes += batch->payload;
    if (options->on_progress != NULL)
        options->on_progress(options->context, batch->diff->done_bytes, batch->diff->total_bytes);
    arena_release(&batch->arena);
    batch->count = 0;
    batch->bytes = batch->payload = 0;
    return SIDESTEP_OK;
}

/* ---- cutting tensors into parts */

static enum sidestep_status add_part(struct batch *batch, struct diff_pair *pair,
                                     const int64_t *offsets, const int64_t *lengths,
                                     struct sidestep_error *err)
{
    uint32_t ndim = pair->a->ndim;
    struct box box = {ndim, offsets, lengths};
    uint64_t bytes = box_volume(&box) * sidestep_dtype_size(pair->a->dtype);

    if (bytes == 0)
        return SIDESTEP_OK;
    if (batch->count == PART_MAX || batch->bytes + bytes > DIFF_BATCH_BYTES)
        TRY(flush(batch, err));
    struct part part = {.pair = pair,
                        .offsets = arena_copy(&batch->arena, offsets, ndim * sizeof(*offsets)),
                        .lengths = arena_copy(&batch->arena, lengths, ndim * sizeof(*lengths)),
                        .bytes = bytes,
                        .place = batch->bytes};
    if (part.offsets == NULL || part.lengths == NULL)
        return FAIL_NOMEM(err, ndim * sizeof(*offsets));
    batch->parts[batch->count++] = part;
    batch->bytes += round_up(bytes, FETCH_PAGE_BYTES);
    batch->payload += bytes;
    return SIDESTEP_OK;
}

/* Can any part of both tensors be read and checked by itself? */
static bool is_ranged(const struct diff *diff, const struct diff_pair *pair)
{
    for (int side = 0; side < 2; side++) {
        const struct metadata_entry *entry = side == 0 ? pair->a : pair->b;
        for (size_t i = 0; i < entry->chunk_count; i++)
            if (find_own_item(diff->readers[side], &entry->chunks[i].storage) == NULL)
                return false;
    }
    return true;
}

/* Add boxes that are one index wide before the dimension that is cut, and whole after it, because
 * such boxes are contiguous. */
static enum sidestep_status add_rows(struct batch *batch, struct diff_pair *pair,
                                     struct sidestep_error *err)
{
    const struct metadata_entry *entry = pair->a;
    int64_t offsets[SIDESTEP_MAX_NDIM] = {0}, lengths[SIDESTEP_MAX_NDIM];
    uint64_t row = sidestep_dtype_size(entry->dtype);
    uint32_t cut = entry->ndim;

    while (cut > 1 && row * (uint64_t)entry->shape[cut - 1] <= DIFF_BATCH_BYTES)
        row *= (uint64_t)entry->shape[--cut];
    cut--;
    for (uint32_t d = 0; d < entry->ndim; d++)
        lengths[d] = d > cut ? entry->shape[d] : 1;
    for (bool more = true; more;) {
        int64_t left = entry->shape[cut] - offsets[cut], most = (int64_t)(DIFF_BATCH_BYTES / row);
        lengths[cut] = left < most ? left : most;
        TRY(add_part(batch, pair, offsets, lengths, err));
        uint32_t d = cut;
        offsets[d] += lengths[d];
        while (d > 0 && offsets[d] == entry->shape[d]) {
            offsets[d--] = 0;
            offsets[d]++;
        }
        more = offsets[d] < entry->shape[d];
    }
    return SIDESTEP_OK;
}

static enum sidestep_status add_tensor(struct batch *batch, struct diff_pair *pair,
                                       struct sidestep_error *err)
{
    const struct metadata_entry *entry = pair->a;
    static const int64_t zeroes[SIDESTEP_MAX_NDIM];
    assert(entry->dtype != SIDESTEP_DTYPE_NONE); /* see diff_compare_stored() */
    if (metadata_tensor_bytes(entry) <= DIFF_BATCH_BYTES)
        return add_part(batch, pair, zeroes, entry->shape, err);
    if (is_ranged(batch->diff, pair))
        return add_rows(batch, pair, err);
    for (size_t i = 0; i < entry->chunk_count; i++) /* each chunk, as a whole */
        TRY(add_part(batch, pair, entry->chunks[i].box.offsets, entry->chunks[i].box.lengths, err));
    return SIDESTEP_OK;
}

static bool needs_reading(const struct diff_pair *pair)
{
    return pair->kind == DIFF_SAME && !pair->by_hash && !pair->other_kind[0] && !pair->a->is_object;
}

static enum sidestep_status compare_tensors(struct batch *batch, struct sidestep_error *err)
{
    struct diff *diff = batch->diff;

    for (size_t i = 0; i < diff->count; i++)
        if (needs_reading(&diff->pairs[i]))
            TRY(add_tensor(batch, &diff->pairs[i], err));
    return flush(batch, err);
}

enum sidestep_status diff_compare_tensors(struct diff *diff, struct sidestep_error *err)
{
    struct batch *batch = memory_new(1, sizeof(*batch));

    if (batch == NULL)
        return FAIL_NOMEM(err, sizeof(*batch));
    for (size_t i = 0; i < diff->count; i++)
        if (needs_reading(&diff->pairs[i]))
            diff->total_bytes += metadata_tensor_bytes(diff->pairs[i].a);
    batch->diff = diff;
    enum sidestep_status status = compare_tensors(batch, err);
    arena_release(&batch->arena);
    free(batch->slices);
    free(batch->buffers[0]);
    free(batch->buffers[1]);
    free(batch);
    return status;
}
