/* SPDX-License-Identifier: BSD-3-Clause */
/* fetch_item.c -- see fetch_item.h. */
#include "engine/fetch_item.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/owned.h"
#include "engine/place.h"

#define STREAM_BYTES ((uint64_t)4 << 20)

static enum sidestep_status fetch_object(const struct reader_item *item, struct state_entry *entry,
                                         struct sidestep_error *err)
{
    OWNED void *bytes = NULL;
    struct sidestep_value *value = NULL;
    size_t length = 0;

    TRY(reader_item_bytes(item, &bytes, &length, err));
    if (item->footer == NULL && item->object == NULL) {
        struct source source = source_over_memory(bytes, length);
        TRY(archive_check(&source, 0, length, err));
    }
    /* Bytes that are no archive are legal: sidestep_state_dict_add_bytes() takes any. */
    enum sidestep_status status = archive_object_read(bytes, length, &value, NULL);
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, length);
    if (status != SIDESTEP_OK)
        value = NULL;
    state_entry_set_object(entry, value, TAKE(bytes), length);
    return SIDESTEP_OK;
}

static enum sidestep_status place(const struct load_plan_chunk *chunk, uint64_t begin,
                                  uint64_t length, uint8_t *bytes, struct devices *devices,
                                  struct sidestep_error *err)
{
    for (size_t t = 0; t < chunk->target_count; t++)
        TRY(place_bytes(devices, &chunk->box, begin, length, bytes, chunk->targets[t], err));
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

/* A plain tensor: in pieces, with its CRC over all of them. */
static enum sidestep_status stream_tensor(const struct reader_item *item,
                                          const struct load_plan_chunk *chunk,
                                          struct devices *devices, struct sidestep_error *err)
{
    uint64_t most = min_u64(STREAM_BYTES, item->data_bytes);
    OWNED uint8_t *buffer = memory_new(most, 1);
    uint32_t crc = 0;

    if (buffer == NULL)
        return FAIL_NOMEM(err, most);
    for (uint64_t at = 0; at < item->data_bytes; at += most) {
        uint64_t length = min_u64(most, item->data_bytes - at);
        TRY(source_read(&item->file->source, buffer, length, item->data_offset + at, err));
        crc = hash_crc32(crc, buffer, length);
        TRY(place(chunk, at, length, buffer, devices, err));
    }
    return check_crc(item->has_crc, item->data_crc, crc, err);
}

/* Strided, swapped, lazily conjugated ...: make it plain in memory, then place it. */
static enum sidestep_status place_odd(const struct archive_tensor *tensor, uint8_t *storage,
                                      const struct load_plan_chunk *chunk, struct devices *devices,
                                      struct sidestep_error *err)
{
    size_t size = sidestep_dtype_size(tensor->dtype);
    struct box_memory from = {.box = chunk->box,
                              .strides = tensor->strides,
                              .data = storage + tensor->storage_offset * size,
                              .item_bytes = size};

    TRY(check_crc(tensor->has_crc, tensor->data_crc, hash_crc32(0, storage, tensor->data_bytes),
                  err));
    archive_tensor_resolve(tensor, storage, tensor->data_bytes / size);
    for (size_t t = 0; t < chunk->target_count; t++)
        TRY(place_box(devices, &from, chunk->targets[t], err));
    return SIDESTEP_OK;
}

static enum sidestep_status whole_tensor(const struct reader_item *item,
                                         const struct load_plan_chunk *chunk,
                                         struct devices *devices, struct sidestep_error *err)
{
    struct archive_tensor tensor;

    TRY(reader_item_tensor(item, chunk->entry, &chunk->box, &tensor, err));
    TRY(reader_item_fits(item, tensor.data_bytes, err));
    OWNED uint8_t *storage = memory_new(tensor.data_bytes, 1);
    if (storage == NULL)
        return FAIL_NOMEM(err, tensor.data_bytes);
    if (tensor.data_bytes != 0)
        TRY(source_read(&item->file->source, storage, tensor.data_bytes,
                        item->offset + tensor.data_offset, err));
    return place_odd(&tensor, storage, chunk, devices, err);
}

uint8_t *fetch_plain_target(const struct load_plan_chunk *chunk)
{
    const struct state_entry *target = chunk->target_count == 1 ? chunk->targets[0] : NULL;

    if (target == NULL || target->on_device != 0 || !box_equal(&target->box, &chunk->box) ||
        !box_is_row_major(target->ndim, target->box.lengths, target->strides))
        return NULL;
    return target->data;
}

static enum sidestep_status place_block(void *context, uint64_t begin, const uint8_t *bytes,
                                        uint64_t length, struct sidestep_error *err)
{
    const struct fetch_placing *placing = context;

    /* Which are only read. */
    return place(placing->chunk, begin, length, (void *)(uintptr_t)bytes, placing->devices, err);
}

struct reader_place fetch_place_decoded(const struct fetch_placing *placing)
{
    return (struct reader_place){.put = place_block,
                                 .context = (void *)(uintptr_t)placing,
                                 .plain = fetch_plain_target(placing->chunk)};
}

/* One of ours: as it is decoded. */
static enum sidestep_status decoded_tensor(const struct reader_item *item,
                                           const struct load_plan_chunk *chunk,
                                           struct devices *devices, struct sidestep_error *err)
{
    struct fetch_placing placing = {.chunk = chunk, .devices = devices};
    struct reader_place to = fetch_place_decoded(&placing);

    return reader_item_decode(item, &to, err);
}

static enum sidestep_status transformed_tensor(const struct reader_item *item,
                                               const struct load_plan_chunk *chunk,
                                               struct devices *devices, struct sidestep_error *err)
{
    OWNED uint8_t *bytes = NULL;
    void *decoded = NULL;
    size_t length = 0;
    struct archive_tensor tensor;

    TRY(reader_item_bytes(item, &decoded, &length, err));
    bytes = decoded;
    struct source source = source_over_memory(bytes, length);
    TRY(archive_tensor_read(&source, 0, length, &tensor, err));
    TRY(reader_check_tensor(&tensor, chunk->entry, &chunk->box, err));
    return place_odd(&tensor, bytes + tensor.data_offset, chunk, devices, err);
}

enum sidestep_status fetch_item(const struct reader_item *item, const struct load_plan_chunk *chunk,
                                struct devices *devices, struct sidestep_error *err)
{
    if (chunk->entry->is_object)
        return fetch_object(item, chunk->targets[0], err);
    if (item->transform != NULL && item->footer != NULL)
        return decoded_tensor(item, chunk, devices, err);
    if (item->transform != NULL)
        return transformed_tensor(item, chunk, devices, err);
    return item->ranged ? stream_tensor(item, chunk, devices, err)
                        : whole_tensor(item, chunk, devices, err);
}
