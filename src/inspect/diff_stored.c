/* SPDX-License-Identifier: BSD-3-Clause */
/* diff_stored.c -- compares tensors that only PyTorch can decode, by the bytes that are stored. */
#include <string.h>

#include "base/base.h"
#include "inspect/diff.h"

#define SLICE_BYTES ((uint64_t)1 << 20)

static enum sidestep_status locate(const struct diff *diff, int side,
                                   const struct metadata_entry *entry,
                                   const struct metadata_chunk *chunk, struct reader_item *item,
                                   struct sidestep_error *err)
{
    struct reader *reader = diff->readers[side];
    struct sidestep_error why = {0};
    enum sidestep_status status =
        reader_locate_item(reader, entry, &chunk->storage, &chunk->box, NULL, item, &why);

    if (status == SIDESTEP_OK || item->is_other_kind)
        return SIDESTEP_OK;
    error_wrap(&why, "checkpoint '%s'", reader->path);
    return error_copy(err, &why);
}

/* Set pair->other_kind.  All chunks of a tensor are of one kind. */
static enum sidestep_status find_kinds(const struct diff *diff, struct diff_pair *pair,
                                       struct sidestep_error *err)
{
    const struct metadata_entry *entries[2] = {pair->a, pair->b};

    for (int side = 0; side < 2; side++) {
        const struct reader *reader = diff->readers[side];
        const struct metadata_entry *entry = entries[side];
        struct reader_item item;
        bool is_stock = !reader->has_manifest && reader->foreign == NULL;

        if (!is_stock || entry->chunk_count == 0) {
            pair->other_kind[side] = entry->dtype == SIDESTEP_DTYPE_NONE;
            continue;
        }
        TRY(locate(diff, side, entry, &entry->chunks[0], &item, err));
        pair->other_kind[side] = item.is_other_kind;
    }
    return SIDESTEP_OK;
}

static const struct metadata_chunk *find_box(const struct metadata_entry *entry,
                                             const struct box *box)
{
    for (size_t i = 0; i < entry->chunk_count; i++)
        if (box_equal(&entry->chunks[i].box, box))
            return &entry->chunks[i];
    return NULL;
}

static enum sidestep_status read_slice(const struct diff *diff, int side,
                                       const struct reader_item *item, uint64_t at, uint8_t *to,
                                       uint64_t bytes, struct sidestep_error *err)
{
    return WRAP(source_read(&item->file->source, to, bytes, item->offset + at, err), err,
                "checkpoint '%s': file '%s'", diff->readers[side]->path, item->file->name);
}

static enum sidestep_status compare_items(struct diff *diff, const struct reader_item *a,
                                          const struct reader_item *b, bool *same,
                                          struct sidestep_error *err)
{
    OWNED uint8_t *x = memory_new(SLICE_BYTES, 1), *y = memory_new(SLICE_BYTES, 1);

    *same = a->bytes == b->bytes;
    if (x == NULL || y == NULL)
        return FAIL_NOMEM(err, 2 * SLICE_BYTES);
    for (uint64_t at = 0; *same && at < a->bytes; at += SLICE_BYTES) {
        uint64_t bytes = min_u64(SLICE_BYTES, a->bytes - at);
        if (diff->options->cancel != NULL && *diff->options->cancel)
            return FAIL(err, SIDESTEP_ECANCELLED, "interrupted");
        TRY(read_slice(diff, 0, a, at, x, bytes, err));
        TRY(read_slice(diff, 1, b, at, y, bytes, err));
        diff->done_bytes += bytes;
        *same = memcmp(x, y, bytes) == 0;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status compare_chunks(struct diff *diff, struct diff_pair *pair,
                                           struct sidestep_error *err)
{
    bool same = true;

    for (size_t i = 0; same && i < pair->a->chunk_count; i++) {
        const struct metadata_chunk *chunk = &pair->a->chunks[i];
        const struct metadata_chunk *other = find_box(pair->b, &chunk->box);
        struct reader_item a, b;
        if (other == NULL)
            return FAIL(err, SIDESTEP_EUNSUPPORTED,
                        "'%s' is cut in two ways, and only PyTorch can decode it",
                        display_name(pair->a->name).text);
        TRY(locate(diff, 0, pair->a, chunk, &a, err));
        TRY(locate(diff, 1, pair->b, other, &b, err));
        TRY(compare_items(diff, &a, &b, &same, err));
    }
    pair->kind = same ? DIFF_SAME : DIFF_VALUE;
    return SIDESTEP_OK;
}

enum sidestep_status diff_compare_stored(struct diff *diff, struct diff_pair *pair,
                                         struct sidestep_error *err)
{
    TRY(find_kinds(diff, pair, err));
    if (pair->other_kind[0] != pair->other_kind[1])
        pair->kind = DIFF_KIND;
    else if (pair->other_kind[0])
        return compare_chunks(diff, pair, err);
    return SIDESTEP_OK;
}
