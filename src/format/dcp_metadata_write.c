/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dcp_metadata_write.c -- see dcp_metadata.h: writes `.metadata` for torch 2.4 and later, with
 * protocol 4 in one frame.
 *
 * It writes each name once, and a chunk's offsets once for both of their places.  It fills each
 * MetadataIndex before it becomes a key, because the dict hashes it then.
 */
#include "format/dcp_metadata.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "format/dcp_writer.h"
#include "model/model.h"

#define BATCH 1000u
#define NOT_WRITTEN UINT32_MAX

/* ---------------------------------------------------------------- state_dict_metadata */

/* Write a TensorProperties.  Its state is (dtype, layout, requires_grad, memory format,
 * pin_memory). */
static enum sidestep_status put_properties(struct dcp_writer *w, const struct metadata_entry *entry)
{
    const char *name = sidestep_dtype_name(entry->dtype);
    uint32_t *state = name != NULL ? &w->states[entry->dtype][entry->requires_grad] : NULL;

    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_get_constant(w, DCP_MEMO_PROPERTIES_CLASS);
    dcp_writer_op(w, OP_EMPTY_TUPLE);
    dcp_writer_op(w, OP_NEWOBJ);
    if (state != NULL && *state != NOT_WRITTEN) {
        dcp_writer_get_memo(w, *state);
        dcp_writer_op(w, OP_BUILD);
        return SIDESTEP_OK;
    }
    name = name != NULL ? name : entry->dtype_name;
    dcp_writer_op(w, OP_MARK);
    dcp_writer_get_constant(w, DCP_MEMO_TORCH);
    TRY(dcp_writer_text(w, name, strlen(name)));
    dcp_writer_op(w, OP_STACK_GLOBAL);
    dcp_writer_get_constant(w, DCP_MEMO_STRIDED);
    dcp_writer_op(w, entry->requires_grad ? OP_NEWTRUE : OP_NEWFALSE);
    dcp_writer_get_constant(w, DCP_MEMO_CONTIGUOUS);
    dcp_writer_op(w, OP_NEWFALSE);
    dcp_writer_op(w, OP_TUPLE);
    if (state != NULL)
        *state = dcp_writer_memoize(w);
    dcp_writer_op(w, OP_BUILD);
    return SIDESTEP_OK;
}

static enum sidestep_status put_chunks(struct dcp_writer *w, const struct metadata_entry *entry,
                                       uint32_t *offsets)
{
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_op(w, OP_EMPTY_LIST);
    for (size_t c = 0; c < entry->chunk_count; c++) {
        const struct box *box = &entry->chunks[c].box;
        TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES +
                                      2 * dcp_writer_max_size_bytes(box->ndim)));
        if (c % BATCH == 0)
            dcp_writer_op(w, OP_MARK);
        dcp_writer_begin_object(w, DCP_MEMO_CHUNK);
        dcp_writer_get_constant(w, DCP_MEMO_OFFSETS);
        dcp_writer_size(w, box->ndim, box->offsets);
        offsets[c] = dcp_writer_memoize(w);
        dcp_writer_get_constant(w, DCP_MEMO_SIZES);
        dcp_writer_size(w, box->ndim, box->lengths);
        dcp_writer_end_object(w);
        if (c % BATCH == BATCH - 1 || c + 1 == entry->chunk_count)
            dcp_writer_op(w, OP_APPENDS);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status put_tensor(struct dcp_writer *w, const struct metadata_entry *entry,
                                       uint32_t *offsets)
{
    dcp_writer_begin_object(w, DCP_MEMO_TENSOR);
    dcp_writer_get_constant(w, DCP_MEMO_PROPERTIES);
    TRY(put_properties(w, entry));
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES + dcp_writer_max_size_bytes(entry->ndim)));
    dcp_writer_get_constant(w, DCP_MEMO_SIZE);
    dcp_writer_size(w, entry->ndim, entry->shape);
    dcp_writer_get_constant(w, DCP_MEMO_CHUNKS);
    TRY(put_chunks(w, entry, offsets));
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_end_object(w);
    return SIDESTEP_OK;
}

static enum sidestep_status put_entries(struct dcp_writer *w, const struct metadata *metadata)
{
    size_t chunk = 0;

    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_get_constant(w, DCP_MEMO_STATE_DICT_METADATA);
    dcp_writer_op(w, OP_EMPTY_DICT);
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
        if (i % BATCH == 0)
            dcp_writer_op(w, OP_MARK);
        TRY(dcp_writer_text(w, entry->name, strlen(entry->name)));
        w->names[i] = dcp_writer_memoize(w);
        if (entry->is_object) {
            dcp_writer_get_constant(w, DCP_MEMO_OBJECT);
            dcp_writer_op(w, OP_EMPTY_TUPLE);
            dcp_writer_op(w, OP_NEWOBJ);
        } else {
            TRY(put_tensor(w, entry, w->offsets + chunk));
            chunk += entry->chunk_count;
        }
        if (i % BATCH == BATCH - 1 || i + 1 == metadata->count)
            dcp_writer_op(w, OP_SETITEMS);
    }
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- planner_data */

static enum sidestep_status put_path(struct dcp_writer *w, const struct metadata *metadata,
                                     size_t i)
{
    const struct metadata_entry *entry = &metadata->entries[i];
    char decimal[PATH_ITEM_DECIMAL_BYTES];

    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    if (entry->path_length == 0) {
        dcp_writer_get_memo(w, w->names[i]);
        dcp_writer_op(w, OP_TUPLE1);
        return SIDESTEP_OK;
    }
    dcp_writer_op(w, OP_MARK);
    for (uint32_t k = 0; k < entry->path_length; k++) {
        const struct sidestep_path_item *item = &entry->path[k];
        if (item->key != NULL) {
            TRY(dcp_writer_cached_text(w, item->key));
            continue;
        }
        if (path_item_is_int_key(item)) {
            const char *text = path_item_text(item, decimal);
            TRY(dcp_writer_text(w, text, strlen(text)));
            continue;
        }
        TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
        if (item->index >= 0) {
            dcp_writer_int(w, (uint64_t)item->index);
        } else {
            dcp_writer_op(w, OP_LONG1);
            dcp_writer_op(w, 8);
            dcp_writer_le(w, (uint64_t)item->index, 8);
        }
    }
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_op(w, OP_TUPLE);
    return SIDESTEP_OK;
}

static enum sidestep_status put_planner_data(struct dcp_writer *w, const struct metadata *metadata)
{
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_get_constant(w, DCP_MEMO_PLANNER_DATA);
    dcp_writer_op(w, OP_EMPTY_DICT);
    for (size_t i = 0; i < metadata->count; i++) {
        TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
        if (i % BATCH == 0)
            dcp_writer_op(w, OP_MARK);
        dcp_writer_get_memo(w, w->names[i]);
        TRY(put_path(w, metadata, i));
        if (i % BATCH == BATCH - 1 || i + 1 == metadata->count)
            dcp_writer_op(w, OP_SETITEMS);
    }
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- sidestep_int_keys */

static enum sidestep_status put_positions(struct dcp_writer *w, uint64_t positions)
{
    TRY(dcp_writer_reserve(w, 2 + SIDESTEP_MAX_PATH_ITEMS * DCP_WRITER_MAX_INT_BYTES));
    dcp_writer_op(w, OP_MARK);
    for (; positions != 0; positions &= positions - 1)
        dcp_writer_int(w, (uint64_t)__builtin_ctzll(positions));
    dcp_writer_op(w, OP_TUPLE);
    return SIDESTEP_OK;
}

/* Write which items of paths are integer keys, for each name with any.  torch keeps an
 * attribute that it does not know. */
static enum sidestep_status put_int_keys(struct dcp_writer *w, const struct metadata *metadata)
{
    size_t count = 0;

    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        uint64_t positions = path_int_keys(entry->path, entry->path_length);
        if (positions == 0)
            continue;
        TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
        if (count == 0) {
            dcp_writer_short_text(w, DCP_METADATA_INT_KEYS);
            dcp_writer_op(w, OP_EMPTY_DICT);
        } else if (count % BATCH == 0) {
            dcp_writer_op(w, OP_SETITEMS);
        }
        if (count++ % BATCH == 0)
            dcp_writer_op(w, OP_MARK);
        dcp_writer_get_memo(w, w->names[i]);
        TRY(put_positions(w, positions));
    }
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    if (count != 0)
        dcp_writer_op(w, OP_SETITEMS);
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- storage_data */

static enum sidestep_status put_transforms(struct dcp_writer *w, const char *names)
{
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_get_constant(w, DCP_MEMO_TRANSFORMS);
    dcp_writer_op(w, OP_EMPTY_LIST);
    dcp_writer_op(w, OP_MARK);
    for (size_t length; *names != '\0'; names += length + (names[length] == ',')) {
        length = strcspn(names, ",");
        TRY(dcp_writer_text(w, names, length));
    }
    dcp_writer_op(w, OP_APPENDS);
    return SIDESTEP_OK;
}

static enum sidestep_status put_storage(struct dcp_writer *w, const struct metadata_entry *entry,
                                        const struct metadata_storage *storage)
{
    if (storage->file == NULL)
        return FAIL(w->err, SIDESTEP_EINVAL, "'%s' is not stored anywhere",
                    display_name(entry->name).text);
    dcp_writer_begin_object(w, DCP_MEMO_STORAGE_INFO);
    dcp_writer_get_constant(w, DCP_MEMO_RELATIVE_PATH);
    TRY(dcp_writer_cached_text(w, storage->file));
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_get_constant(w, DCP_MEMO_OFFSET);
    dcp_writer_int(w, storage->offset);
    dcp_writer_get_constant(w, DCP_MEMO_LENGTH);
    dcp_writer_int(w, storage->length);
    if (storage->transform != NULL)
        TRY(put_transforms(w, storage->transform));
    dcp_writer_end_object(w);
    return SIDESTEP_OK;
}

/* Counts the pairs of a dict, which are written in batches. */
struct batch {
    size_t total;
    size_t done;
};

static void begin_pair(struct dcp_writer *w, struct batch *batch)
{
    if (batch->done % BATCH == 0)
        dcp_writer_op(w, OP_MARK);
}

static void end_pair(struct dcp_writer *w, struct batch *batch)
{
    if (++batch->done % BATCH == 0 || batch->done == batch->total)
        dcp_writer_op(w, OP_SETITEMS);
}

static enum sidestep_status put_object_storage(struct dcp_writer *w,
                                               const struct metadata *metadata, size_t i,
                                               struct batch *batch)
{
    const struct metadata_entry *entry = &metadata->entries[i];

    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    begin_pair(w, batch);
    dcp_writer_begin_object(w, DCP_MEMO_INDEX_CLASS);
    dcp_writer_get_constant(w, DCP_MEMO_FQN);
    dcp_writer_get_memo(w, w->names[i]);
    dcp_writer_get_constant(w, DCP_MEMO_INDEX);
    dcp_writer_op(w, OP_NONE);
    dcp_writer_end_object(w);
    TRY(put_storage(w, entry, &entry->storage));
    end_pair(w, batch);
    return SIDESTEP_OK;
}

static enum sidestep_status put_tensor_storage(struct dcp_writer *w,
                                               const struct metadata *metadata, size_t i,
                                               const uint32_t *offsets, struct batch *batch)
{
    const struct metadata_entry *entry = &metadata->entries[i];

    for (size_t c = 0; c < entry->chunk_count; c++) {
        TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
        begin_pair(w, batch);
        dcp_writer_begin_object(w, DCP_MEMO_INDEX_CLASS);
        dcp_writer_get_constant(w, DCP_MEMO_FQN);
        dcp_writer_get_memo(w, w->names[i]);
        dcp_writer_get_constant(w, DCP_MEMO_INDEX);
        dcp_writer_int(w, c);
        dcp_writer_get_constant(w, DCP_MEMO_OFFSET);
        dcp_writer_get_memo(w, offsets[c]);
        dcp_writer_end_object(w);
        TRY(put_storage(w, entry, &entry->chunks[c].storage));
        end_pair(w, batch);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status put_storage_data(struct dcp_writer *w, const struct metadata *metadata,
                                             size_t items)
{
    struct batch batch = {.total = items};
    size_t chunk = 0;

    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_get_constant(w, DCP_MEMO_STORAGE_DATA);
    dcp_writer_op(w, OP_EMPTY_DICT);
    for (size_t i = 0; i < metadata->count; i++) {
        if (metadata->entries[i].is_object) {
            TRY(put_object_storage(w, metadata, i, &batch));
            continue;
        }
        TRY(put_tensor_storage(w, metadata, i, w->offsets + chunk, &batch));
        chunk += metadata->entries[i].chunk_count;
    }
    assert(batch.done == items);
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- the whole pickle */

#define SAVE_ID_KEY "save_id"

static enum sidestep_status put_storage_meta(struct dcp_writer *w, const struct metadata *metadata)
{
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_get_constant(w, DCP_MEMO_STORAGE_META);
    dcp_writer_begin_object(w, DCP_MEMO_STORAGE_META_CLASS);
    dcp_writer_short_text(w, "checkpoint_id");
    TRY(dcp_writer_text_or_none(w, metadata->checkpoint_id));
    dcp_writer_short_text(w, SAVE_ID_KEY);
    TRY(dcp_writer_text_or_none(w, metadata->save_id));
    dcp_writer_short_text(w, "load_id");
    dcp_writer_op(w, OP_NONE);
    dcp_writer_short_text(w, "modules");
    dcp_writer_op(w, OP_EMPTY_LIST);
    dcp_writer_end_object(w);
    return SIDESTEP_OK;
}

static enum sidestep_status put_metadata(struct dcp_writer *w, const struct metadata *metadata,
                                         size_t items)
{
    size_t start = w->out->length, frame_bytes;

    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_op(w, OP_PROTO);
    dcp_writer_op(w, 4);
    dcp_writer_op(w, OP_FRAME); /* its length is filled in at the end */
    dcp_writer_le(w, 0, 8);
    TRY(dcp_writer_prologue(w));
    dcp_writer_begin_object(w, DCP_MEMO_METADATA);
    TRY(put_entries(w, metadata));
    TRY(put_planner_data(w, metadata));
    TRY(put_storage_data(w, metadata, items));
    TRY(put_storage_meta(w, metadata));
    TRY(put_int_keys(w, metadata));
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_short_text(w, "version");
    dcp_writer_short_text(w, "1.0.0");
    dcp_writer_end_object(w);
    dcp_writer_op(w, OP_STOP);
    w->out->length = (size_t)(w->at - w->out->bytes);
    frame_bytes = w->out->length - start - 11;
    for (unsigned i = 0; i < 8; i++)
        w->out->bytes[start + 3 + i] = (uint8_t)(frame_bytes >> (8 * i));
    return SIDESTEP_OK;
}

enum sidestep_status dcp_metadata_write(struct buffer *out, const struct metadata *metadata,
                                        struct sidestep_error *err)
{
    struct dcp_writer w = {.out = out, .err = err};
    size_t before = out->length, chunks = 0, objects = 0;

    for (size_t i = 0; i < metadata->count; i++) {
        objects += metadata->entries[i].is_object;
        chunks += metadata->entries[i].is_object ? 0 : metadata->entries[i].chunk_count;
    }
    OWNED uint32_t *memo = memory_new(metadata->count + chunks, sizeof(*memo));
    OWNED struct dcp_cached_text *words = memory_new(DCP_WRITER_CACHE_SLOTS, sizeof(*words));
    if (memo == NULL || words == NULL)
        return FAIL_NOMEM(err, (metadata->count + chunks) * sizeof(*memo));
    w.names = memo;
    w.offsets = memo + metadata->count;
    w.words = words;
    memset(w.states, 0xff, sizeof(w.states)); /* NOT_WRITTEN */
    enum sidestep_status status = put_metadata(&w, metadata, objects + chunks);
    if (status != SIDESTEP_OK)
        out->length = before;
    return status;
}

bool dcp_metadata_end_has_save_id(const void *end, size_t length, const char *save_id)
{
    uint8_t wanted[2 + sizeof(SAVE_ID_KEY) + 2 + UINT8_MAX];
    size_t key = sizeof(SAVE_ID_KEY) - 1, id = strlen(save_id);
    struct dcp_writer w = {.at = wanted};

    assert(id != 0 && id <= UINT8_MAX);
    dcp_writer_short_text(&w, SAVE_ID_KEY);
    dcp_writer_short_text(&w, save_id);
    assert((size_t)(w.at - wanted) == 2 + key + 2 + id);
    return length != 0 && memmem(end, length, wanted, (size_t)(w.at - wanted)) != NULL;
}
