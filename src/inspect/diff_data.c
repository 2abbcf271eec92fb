/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diff_data.c -- compares tensors: by the hashes in the footers, or in stretches, which several
 * threads read from both checkpoints, with every byte verified.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"
#include "inspect/diff.h"
#include "load/load.h"

#define STRETCH_BYTES ((uint64_t)4 << 20) /* a multiple of every element size */

/* What the threads compare. */
struct comparison {
    struct diff *diff;
    struct tensor_reader *readers[2];
    size_t *pairs;    /* the numbers of those that are read */
    uint64_t *starts; /* of each of these: the number of stretches before it; and of all */
    size_t count;
    _Atomic uint64_t next;
    atomic_bool stop;
    struct {
        struct lock lock LOCK_KIND(STATS); /* also of the sums of the pairs, and of done_bytes */
        struct sidestep_error err GUARDED_BY(&lock);
    } shared;
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

/* The item that stores a chunk, if sidestep wrote it; else NULL.  Its footer has the hash. */
static enum sidestep_status find_own_item(struct reader *reader, const struct metadata_entry *entry,
                                          const struct metadata_chunk *chunk,
                                          const struct footer_item **out,
                                          struct sidestep_error *err)
{
    struct reader_item item = {0};

    if (reader->has_manifest)
        TRY(WRAP(reader_locate_item(reader, entry, &chunk->storage, &chunk->box, NULL, &item, err),
                 err, "checkpoint '%s'", reader->path));
    *out = item.footer;
    return SIDESTEP_OK;
}

enum sidestep_status diff_compare_hashes(struct diff *diff, struct diff_pair *pair,
                                         struct sidestep_error *err)
{
    OWNED const struct metadata_chunk **a = NULL, **b = NULL;
    const struct footer_item *x, *y;

    if (pair->a->chunk_count != pair->b->chunk_count)
        return SIDESTEP_OK;
    TRY(sort_chunks(pair->a, &a, err));
    TRY(sort_chunks(pair->b, &b, err));
    for (size_t i = 0; i < pair->a->chunk_count; i++) {
        TRY(find_own_item(diff->readers[0], pair->a, a[i], &x, err));
        TRY(find_own_item(diff->readers[1], pair->b, b[i], &y, err));
        if (x == NULL || y == NULL || a[i]->box.ndim != b[i]->box.ndim ||
            !box_equal(&a[i]->box, &b[i]->box) || x->raw_bytes != y->raw_bytes ||
            !hash128_equal(x->raw_hash, y->raw_hash))
            return SIDESTEP_OK;
    }
    pair->by_hash = true;
    return SIDESTEP_OK;
}

/* ---- stretches */

static bool needs_reading(const struct diff_pair *pair)
{
    return pair->kind == DIFF_SAME && !pair->by_hash && !pair->other_kind[0] && !pair->a->is_object;
}

/* Add what differs in a stretch, whose first element has number ${begin} in the tensor. */
static void add_sum(struct diff_pair *pair, const struct tensor_difference *sum, uint64_t begin)
{
    if (sum->count == 0)
        return;
    pair->kind = DIFF_DATA;
    pair->sum.count += sum->count;
    pair->sum.first = min_u64(pair->sum.first, begin + sum->first);
    /* If one max_abs is NaN, all are: the dtype is not a number. */
    if (!(pair->sum.max_abs >= sum->max_abs))
        pair->sum.max_abs = sum->max_abs;
    if (!(pair->sum.max_rel >= sum->max_rel))
        pair->sum.max_rel = sum->max_rel;
}

/* Read a stretch of entry ${pair->a} or ${pair->b}. */
static enum sidestep_status read_side(struct comparison *c, int side,
                                      const struct metadata_entry *entry, uint64_t begin,
                                      uint64_t bytes, uint8_t *to, struct sidestep_error *err)
{
    static const int64_t zeros[SIDESTEP_MAX_NDIM];
    const struct box box = {.ndim = entry->ndim, .offsets = zeros, .lengths = entry->shape};
    const struct reader *reader = c->diff->readers[side];

    return WRAP(tensor_reader_read(c->readers[side], (size_t)(entry - reader->metadata.entries),
                                   &box, begin, bytes, to, err),
                err, "checkpoint '%s'", reader->path);
}

static enum sidestep_status compare_stretch(struct comparison *c, size_t at, uint64_t i,
                                            uint8_t *buffers, struct sidestep_error *err)
{
    const struct sidestep_diff_options *options = c->diff->options;
    struct diff_pair *pair = &c->diff->pairs[c->pairs[at]];
    uint64_t begin = (i - c->starts[at]) * STRETCH_BYTES;
    uint64_t bytes = min_u64(STRETCH_BYTES, metadata_tensor_bytes(pair->a) - begin);
    uint64_t size = sidestep_dtype_size(pair->a->dtype);
    struct tensor_difference sum = TENSOR_DIFFERENCE_INIT;

    if (options->cancel != NULL && *options->cancel)
        return FAIL(err, SIDESTEP_ECANCELLED, "interrupted");
    TRY(read_side(c, 0, pair->a, begin, bytes, buffers, err));
    TRY(read_side(c, 1, pair->b, begin, bytes, buffers + STRETCH_BYTES, err));
    tensor_difference_add(&sum, pair->a->dtype, buffers, buffers + STRETCH_BYTES, 0, bytes / size);
    lock_acquire(&c->shared.lock);
    add_sum(pair, &sum, begin / size);
    c->diff->done_bytes += bytes;
    if (options->on_progress != NULL)
        options->on_progress(options->context, c->diff->done_bytes, c->diff->total_bytes);
    lock_release(&c->shared.lock);
    return SIDESTEP_OK;
}

static void compare_stretches(void *context)
{
    struct comparison *c = context;
    struct sidestep_error why = {0};
    OWNED uint8_t *buffers = memory_new(2 * STRETCH_BYTES, 1);
    enum sidestep_status status =
        buffers != NULL ? SIDESTEP_OK : FAIL_NOMEM(&why, 2 * STRETCH_BYTES);
    size_t at = 0;

    for (uint64_t i; status == SIDESTEP_OK && !atomic_load(&c->stop) &&
                     (i = atomic_fetch_add(&c->next, 1)) < c->starts[c->count];) {
        while (c->starts[at + 1] <= i)
            at++;
        status = compare_stretch(c, at, i, buffers, &why);
    }
    if (status == SIDESTEP_OK)
        return;
    lock_acquire(&c->shared.lock);
    if (!atomic_exchange(&c->stop, true))
        c->shared.err = why;
    lock_release(&c->shared.lock);
}

/* List the stretches, and open the files that they are read from. */
static enum sidestep_status prepare(struct comparison *c, struct sidestep_error *err)
{
    struct diff *diff = c->diff;

    c->pairs = memory_new(diff->count, sizeof(*c->pairs));
    c->starts = memory_new(diff->count + 1, sizeof(*c->starts));
    if (c->pairs == NULL || c->starts == NULL)
        return FAIL_NOMEM(err, diff->count * sizeof(*c->starts));
    for (size_t i = 0; i < diff->count; i++) {
        if (!needs_reading(&diff->pairs[i]))
            continue;
        uint64_t bytes = metadata_tensor_bytes(diff->pairs[i].a);
        diff->total_bytes += bytes;
        c->pairs[c->count++] = i;
        c->starts[c->count] = c->starts[c->count - 1] + (bytes + STRETCH_BYTES - 1) / STRETCH_BYTES;
    }
    for (int side = 0; side < 2; side++) {
        struct reader *reader = diff->readers[side];
        OWNED bool *wanted = memory_new(reader->metadata.count, sizeof(*wanted));
        if (wanted == NULL)
            return FAIL_NOMEM(err, reader->metadata.count);
        for (size_t k = 0; k < c->count; k++) {
            const struct diff_pair *pair = &diff->pairs[c->pairs[k]];
            wanted[(side == 0 ? pair->a : pair->b) - reader->metadata.entries] = true;
        }
        TRY(WRAP(tensor_reader_open(reader, wanted, diff->threads, &c->readers[side], err), err,
                 "checkpoint '%s'", reader->path));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status compare_tensors(struct comparison *c, struct sidestep_error *err)
{
    TRY(prepare(c, err));
    workers_run(c->diff->workers, compare_stretches, c);
    lock_alone(&c->shared.lock);
    if (atomic_load(&c->stop)) {
        error_copy(err, &c->shared.err);
        return (enum sidestep_status)c->shared.err.status;
    }
    for (int side = 0; side < 2; side++)
        TRY(WRAP(tensor_reader_finish(c->readers[side], err), err, "checkpoint '%s'",
                 c->diff->paths[side]));
    return SIDESTEP_OK;
}

enum sidestep_status diff_compare_tensors(struct diff *diff, struct sidestep_error *err)
{
    struct comparison c = {.diff = diff};

    lock_init(&c.shared.lock, LOCK_STATS);
    enum sidestep_status status = compare_tensors(&c, err);
    for (int side = 0; side < 2; side++)
        tensor_reader_free(&c.readers[side]);
    lock_destroy(&c.shared.lock);
    free(c.pairs);
    free(c.starts);
    return status;
}
