/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_fuzz.c -- feeds any item of a data file to the parser; or, if the input is not a zip,
 * the pickle in an item, because a fuzzer rarely changes a pickle without breaking the CRCs.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/owned.h"
#include "format/archive.h"
#include "model/box.h"

#define MAX_PLAIN_BYTES 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Read a tensor that was accepted as a load does: every element must be there. */
static void gather(const struct archive_tensor *tensor, const uint8_t *bytes, size_t size)
{
    static const int64_t zeroes[SIDESTEP_MAX_NDIM];
    int64_t strides[SIDESTEP_MAX_NDIM];
    struct box box = {.ndim = tensor->ndim, .offsets = zeroes, .lengths = tensor->shape};
    size_t item = sidestep_dtype_size(tensor->dtype);
    uint64_t elements = box_volume(&box);

    assert(tensor->data_offset <= size && tensor->data_bytes <= size - tensor->data_offset);
    if (elements == 0 || elements * item > MAX_PLAIN_BYTES)
        return;
    OWNED uint8_t *storage = memory_new(tensor->data_bytes, 1);
    OWNED uint8_t *plain = memory_new(elements, item);
    assert(storage != NULL && plain != NULL);
    memcpy(storage, bytes + tensor->data_offset, tensor->data_bytes);
    box_row_major_strides(tensor->ndim, tensor->shape, strides);
    struct box_memory from = {.box = box,
                              .strides = tensor->strides,
                              .data = storage + tensor->storage_offset * item,
                              .item_bytes = item};
    struct box_memory to = {.box = box, .strides = strides, .data = plain, .item_bytes = item};
    box_copy(&from, &to);
    archive_tensor_resolve(tensor, plain, elements);
}

static void read_archive(const uint8_t *bytes, size_t size)
{
    struct source source = source_from_memory(bytes, size);
    struct archive_tensor tensor;
    struct sidestep_value *value = NULL;
    struct sidestep_error err = {0};

    (void)archive_check(&source, 0, size, &err);
    if (archive_tensor_read(&source, 0, size, &tensor, &err) == SIDESTEP_OK)
        gather(&tensor, bytes, size);
    enum sidestep_status status = archive_object_read(bytes, size, &value, &err);
    assert((status == SIDESTEP_OK) == (value != NULL));
    sidestep_value_free(&value);
}

struct part {
    const char *name;
    const void *data;
    uint32_t size;
};

static void put_fields(struct buffer *zip, const struct part *part)
{
    for (int i = 0; i < 4; i++) /* versions or flags, method, time, date; no CRC */
        buffer_put_u16le(zip, 0);
    buffer_put_u16le(zip, 0);
    buffer_put_u32le(zip, 0);
    buffer_put_u32le(zip, part->size);
    buffer_put_u32le(zip, part->size);
    buffer_put_u16le(zip, (uint16_t)strlen(part->name));
    buffer_put_u16le(zip, 0);
}

/* Write an archive without CRCs. */
static void wrap(struct buffer *zip, const struct part *parts, uint16_t count)
{
    uint32_t offsets[8];

    for (uint16_t i = 0; i < count; i++) {
        offsets[i] = (uint32_t)zip->length;
        buffer_put_u32le(zip, 0x04034b50);
        put_fields(zip, &parts[i]);
        buffer_put_text(zip, parts[i].name);
        buffer_put(zip, parts[i].data, parts[i].size);
    }
    size_t start = zip->length;
    for (uint16_t i = 0; i < count; i++) {
        buffer_put_u32le(zip, 0x02014b50);
        buffer_put_u16le(zip, 0);
        put_fields(zip, &parts[i]);
        for (int zeroes = 0; zeroes < 5; zeroes++)
            buffer_put_u16le(zip, 0);
        buffer_put_u32le(zip, offsets[i]);
        buffer_put_text(zip, parts[i].name);
    }
    size_t end = zip->length;
    buffer_put_u32le(zip, 0x06054b50);
    buffer_put_u32le(zip, 0);
    buffer_put_u16le(zip, count);
    buffer_put_u16le(zip, count);
    buffer_put_u32le(zip, (uint32_t)(end - start));
    buffer_put_u32le(zip, (uint32_t)start);
    buffer_put_u16le(zip, 0);
    assert(!zip->failed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t storage[48];

    read_archive(data, size);
    if (size >= 2 && memcmp(data, "PK", 2) == 0)
        return 0;
    const struct part parts[] = {{"a/data.pkl", data, (uint32_t)size},
                                 {"a/data/0", storage, sizeof(storage)},
                                 {"a/byteorder", "big", 3},
                                 {"a/version", "3", 1}};
    OWNED_BUFFER zip = {0};
    wrap(&zip, parts, ARRAY_LENGTH(parts));
    read_archive(zip.bytes, zip.length);
    return 0;
}
