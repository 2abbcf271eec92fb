/* SPDX-License-Identifier: BSD-3-Clause */
/* fetch_item.c -- reads items that must be read completely; see fetch_item.h. */
#include "load/fetch_item.h"

#include <string.h>

#include "base/base.h"
#include "load/target.h"

#define STREAM_BYTES ((uint64_t)4 << 20)

static enum sidestep_status fetch_object(const struct reader_item *item, struct state_entry *entry,
                                         struct sidestep_error *err)
{
    OWNED void *bytes = NULL;
    struct sidestep_value *value = NULL;
    size_t length = 0;

    TRY(reader_item_read(item, &bytes, &length, err));
    if (item->footer == NULL && item->object == NULL) {
        struct source source = source_from_memory(bytes, length);
        TRY(archive_check(&source, 0, length, err));
    }
    /* An object need not be an archive: sidestep_state_dict_add_bytes() accepts any bytes. */
    enum sidestep_status status = archive_object_read(bytes, length, &value, NULL);
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, length);
    if (status != SIDESTEP_OK)
        value = NULL;
    state_entry_set_object(entry, value, TAKE(bytes), length);
    return SIDESTEP_OK;
}

static enum sidestep_status write_to_targets(const struct load_plan_chunk *chunk, uint64_t begin,
                                             uint64_t length, uint8_t *bytes,
                                             struct devices *devices, struct sidestep_error *err)
{
    for (size_t t = 0; t < chunk->target_count; t++)
        TRY(target_write_bytes(devices, &chunk->box, begin, length, bytes, chunk->targets[t], err));
    return SIDESTEP_OK;
}

static enum sidestep_status check_crc(bool has_crc, uint32_t expected, uint32_t crc,
                                      struct sidestep_error *err)
{
    if (has_crc && crc != expected)
        return FAIL(err, SIDESTEP_ECORRUPT, "the data has CRC32 %08x, the archive says %08x", crc,
                    expected);
    return SIDESTEP_OK;
}

/* ---- views of a storage */

/* A byte range of a storage, in memory. */
struct byte_range {
    uint64_t begin; /* in the file */
    uint64_t end;
    uint8_t *bytes;
};

/* The number of elements that the tensor spans, from its first to its last. */
static uint64_t element_span(const struct archive_tensor *tensor)
{
    uint64_t span = 1;

    for (uint32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] == 0)
            return 0;
        span += (uint64_t)((tensor->shape[i] - 1) * tensor->strides[i]);
    }
    return span;
}

enum sidestep_status fetch_item_byte_range(const struct reader_item *item,
                                           const struct load_plan_chunk *chunk, uint64_t *begin,
                                           uint64_t *end, struct sidestep_error *err)
{
    struct archive_tensor tensor;

    *begin = item->data_offset;
    *end = item->data_offset + item->data_bytes;
    if (item->ranged)
        return SIDESTEP_OK;
    TRY(reader_item_read_archive(item, chunk->entry, &chunk->box, &tensor, err));
    *end = *begin + element_span(&tensor) * sidestep_dtype_size(tensor.dtype);
    return SIDESTEP_OK;
}

/* Convert a tensor (strided, byte-swapped, lazily conjugated ...) in memory, and copy it to the
 * targets. */
static enum sidestep_status write_noncontiguous(const struct archive_tensor *tensor, uint8_t *first,
                                                const struct load_plan_chunk *chunk,
                                                struct devices *devices, struct sidestep_error *err)
{
    struct box_memory from = {.box = chunk->box,
                              .strides = tensor->strides,
                              .data = first,
                              .item_bytes = sidestep_dtype_size(tensor->dtype)};

    archive_tensor_resolve(tensor, first, element_span(tensor));
    for (size_t t = 0; t < chunk->target_count; t++)
        TRY(target_write_box(devices, &from, chunk->targets[t], err));
    return SIDESTEP_OK;
}

/* Allocate a buffer for the byte range that the tensors span that are not row-major. */
static enum sidestep_status allocate_noncontiguous(const struct fetch_views *v,
                                                   struct byte_range *buffered,
                                                   struct sidestep_error *err)
{
    buffered->begin = UINT64_MAX;
    for (size_t i = 0; i < v->count; i++) {
        uint64_t begin, end;

        if (v->items[i].ranged)
            continue;
        TRY(fetch_item_byte_range(&v->items[i], &v->chunks[i], &begin, &end, err));
        buffered->begin = min_u64(buffered->begin, begin);
        buffered->end = max_u64(buffered->end, end);
    }
    if (buffered->begin >= buffered->end)
        return SIDESTEP_OK;
    TRY(reader_item_check_not_sparse(v->items, buffered->end - buffered->begin, err));
    buffered->bytes = memory_new(buffered->end - buffered->begin, 1);
    return buffered->bytes != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, buffered->end - buffered->begin);
}

/* Copy the bytes of each view that are in one range of the storage. */
static enum sidestep_status consume_range(const struct fetch_views *v,
                                          const struct byte_range *piece,
                                          const struct byte_range *buffered,
                                          struct sidestep_error *err)
{
    uint64_t begin = max_u64(piece->begin, buffered->begin),
             end = min_u64(piece->end, buffered->end);

    if (begin < end)
        memcpy(buffered->bytes + (begin - buffered->begin), piece->bytes + (begin - piece->begin),
               end - begin);
    for (size_t i = 0; i < v->count; i++) {
        const struct reader_item *item = &v->items[i];

        begin = max_u64(piece->begin, item->data_offset);
        end = min_u64(piece->end, item->data_offset + item->data_bytes);
        if (item->ranged && begin < end)
            TRY(write_to_targets(&v->chunks[i], begin - item->data_offset, end - begin,
                                 piece->bytes + (begin - piece->begin), v->devices, err));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status stream_storage(const struct fetch_views *v,
                                           const struct byte_range *buffered,
                                           struct sidestep_error *err)
{
    const struct reader_item *item = v->items;
    uint64_t most = min_u64(STREAM_BYTES, item->storage_bytes);
    uint64_t end = item->storage_offset + item->storage_bytes;
    OWNED uint8_t *buffer = memory_new(most, 1);
    uint32_t crc = 0;

    if (buffer == NULL)
        return FAIL_NOMEM(err, most);
    for (uint64_t at = item->storage_offset; at < end; at += most) {
        uint64_t length = min_u64(most, end - at);
        struct byte_range piece = {.begin = at, .end = at + length, .bytes = buffer};

        TRY(source_read(&item->file->source, buffer, length, at, err));
        crc = hash_crc32(crc, buffer, length);
        TRY(consume_range(v, &piece, buffered, err));
    }
    return check_crc(item->has_crc, item->storage_crc, crc, err);
}

static enum sidestep_status write_buffered(const struct fetch_views *v,
                                           const struct byte_range *buffered,
                                           struct sidestep_error *err)
{
    struct archive_tensor tensor;

    for (size_t i = 0; i < v->count; i++) {
        const struct reader_item *item = &v->items[i];
        const struct load_plan_chunk *chunk = &v->chunks[i];

        if (item->ranged || item->data_bytes == 0)
            continue;
        TRY(reader_item_read_archive(item, chunk->entry, &chunk->box, &tensor, err));
        TRY(write_noncontiguous(&tensor, buffered->bytes + (item->data_offset - buffered->begin),
                                chunk, v->devices, err));
    }
    return SIDESTEP_OK;
}

bool fetch_can_merge_views(const struct reader_item *a, const struct reader_item *b)
{
    return a->tensor != NULL && b->tensor != NULL && a->file == b->file &&
           a->storage_offset == b->storage_offset && !a->tensor->swapped && !a->tensor->conjugate &&
           !a->tensor->negative && !b->tensor->conjugate && !b->tensor->negative;
}

enum sidestep_status fetch_views(const struct fetch_views *v, struct sidestep_error *err)
{
    OWNED uint8_t *bytes = NULL;
    struct byte_range buffered = {0};
    enum sidestep_status status = allocate_noncontiguous(v, &buffered, err);

    bytes = buffered.bytes;
    if (status == SIDESTEP_OK)
        status = stream_storage(v, &buffered, err);
    return status == SIDESTEP_OK ? write_buffered(v, &buffered, err) : status;
}

uint8_t *fetch_contiguous_target(const struct load_plan_chunk *chunk)
{
    const struct state_entry *target = chunk->target_count == 1 ? chunk->targets[0] : NULL;

    if (target == NULL || target->on_device != 0 || target->shares_memory ||
        !box_equal(&target->box, &chunk->box) ||
        !box_is_row_major(target->ndim, target->box.lengths, target->strides))
        return NULL;
    return target->data;
}

static enum sidestep_status write_block(void *context, uint64_t begin, const uint8_t *bytes,
                                        uint64_t length, struct sidestep_error *err)
{
    const struct fetch_sink *sink = context;

    /* The cast is safe: the bytes are only read. */
    return write_to_targets(sink->chunk, begin, length, (void *)(uintptr_t)bytes, sink->devices,
                            err);
}

struct reader_sink fetch_sink_as_reader_sink(const struct fetch_sink *sink)
{
    return (struct reader_sink){.put = write_block,
                                .context = (void *)(uintptr_t)sink,
                                .plain = fetch_contiguous_target(sink->chunk)};
}

/* An item that sidestep wrote: write the data to the targets as it is decoded. */
static enum sidestep_status fetch_decoded(const struct reader_item *item,
                                          const struct load_plan_chunk *chunk,
                                          struct devices *devices, struct sidestep_error *err)
{
    struct fetch_sink sink = {.chunk = chunk, .devices = devices};
    struct reader_sink to = fetch_sink_as_reader_sink(&sink);

    return reader_item_decode(item, &to, err);
}

static enum sidestep_status fetch_transformed(const struct reader_item *item,
                                              const struct load_plan_chunk *chunk,
                                              struct devices *devices, struct sidestep_error *err)
{
    OWNED uint8_t *bytes = NULL;
    void *decoded = NULL;
    size_t length = 0;
    struct archive_tensor tensor;

    TRY(reader_item_read(item, &decoded, &length, err));
    bytes = decoded;
    struct source source = source_from_memory(bytes, length);
    TRY(archive_tensor_read(&source, 0, length, &tensor, err));
    TRY(reader_check_tensor(&tensor, chunk->entry, &chunk->box, err));
    TRY(check_crc(tensor.has_crc, tensor.data_crc,
                  hash_crc32(0, bytes + tensor.data_offset, tensor.data_bytes), err));
    return write_noncontiguous(&tensor,
                               bytes + tensor.data_offset +
                                   tensor.storage_offset * sidestep_dtype_size(tensor.dtype),
                               chunk, devices, err);
}

enum sidestep_status fetch_item(const struct reader_item *item, const struct load_plan_chunk *chunk,
                                struct devices *devices, struct sidestep_error *err)
{
    if (chunk->entry->is_object)
        return fetch_object(item, chunk->targets[0], err);
    if (item->transform != NULL && item->footer != NULL)
        return fetch_decoded(item, chunk, devices, err);
    if (item->transform != NULL)
        return fetch_transformed(item, chunk, devices, err);
    const struct fetch_views views = {
        .items = item, .chunks = chunk, .count = 1, .devices = devices};
    return fetch_views(&views, err);
}
