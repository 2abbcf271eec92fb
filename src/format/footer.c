/* SPDX-License-Identifier: BSD-3-Clause */
/* footer.c -- write the footer of a shard: see footer.h, and docs/FORMAT.md for the bytes. */
#include "format/footer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "format/footer_layout.h"
#include "model/path.h"

static bool box_is_whole(const struct footer_item *item)
{
    for (uint32_t i = 0; i < item->ndim; i++)
        if (item->box.offsets[i] != 0 || item->box.lengths[i] != item->shape[i])
            return false;
    return true;
}

uint8_t footer_item_flags(const struct footer_item *item)
{
    uint64_t bits = 0; /* of all numbers; an offset or length is never above its shape */
    uint8_t flags = item->is_object ? FOOTER_FLAG_OBJECT : 0;
    unsigned width = 0;

    for (uint32_t i = 0; i < item->ndim; i++)
        bits |= (uint64_t)item->shape[i];
    while (width < 3 && bits >> (8u << width) != 0)
        width++;
    flags |= (uint8_t)(width << FOOTER_FLAG_WIDTH_SHIFT);
    if (item->requires_grad)
        flags |= FOOTER_FLAG_REQUIRES_GRAD;
    if (!item->is_object && box_is_whole(item))
        flags |= FOOTER_FLAG_WHOLE;
    if (path_spells(item->name, item->path, item->path_length))
        flags |= FOOTER_FLAG_JOINED;
    return flags;
}

/* Stored as an index of a list; an integer key is stored as the text that stock torch sees. */
static bool is_index(const struct sidestep_path_item *item)
{
    return item->key == NULL && !path_is_integer(item);
}

static uint64_t dimension_bytes(uint8_t flags)
{
    return (uint64_t)1 << ((flags & FOOTER_FLAG_WIDTH_MASK) >> FOOTER_FLAG_WIDTH_SHIFT);
}

/* Of the item's part of the text area. */
static uint64_t item_text_bytes(const struct footer_item *item)
{
    uint8_t flags = footer_item_flags(item);
    uint64_t rows = (flags & FOOTER_FLAG_WHOLE) != 0 ? 1 : 3;
    char decimal[PATH_DECIMAL_BYTES];
    uint64_t bytes = rows * item->ndim * dimension_bytes(flags) + strlen(item->name) + 1;

    bytes += (uint64_t)2 * item->path_length;
    if ((flags & FOOTER_FLAG_JOINED) != 0)
        return bytes;
    for (uint32_t i = 0; i < item->path_length; i++)
        bytes += is_index(&item->path[i]) ? 8 : strlen(path_text(&item->path[i], decimal)) + 1;
    return bytes;
}

struct footer_sizes {
    uint64_t text_bytes; /* a multiple of 8 */
    uint64_t blocks;
    uint64_t int_keys;        /* items that have any */
    uint64_t transform_bytes; /* of the names */
    uint64_t extension_bytes;
    uint64_t total; /* footer and trailer */
};
static struct footer_sizes measure(const struct footer *footer)
{
    struct footer_sizes sizes = {0};

    for (size_t i = 0; i < footer->count; i++) {
        sizes.text_bytes += item_text_bytes(&footer->items[i]);
        sizes.blocks += footer->items[i].block_count;
        sizes.int_keys += path_integers(footer->items[i].path, footer->items[i].path_length) != 0;
    }
    for (size_t i = 0; i < footer->transform_count; i++)
        sizes.transform_bytes += strlen(footer->transforms[i]) + 1;
    if (sizes.int_keys != 0)
        sizes.extension_bytes += FOOTER_PART_HEADER_BYTES + FOOTER_INT_KEYS_BYTES * sizes.int_keys;
    if (sizes.transform_bytes != 0)
        sizes.extension_bytes += FOOTER_PART_HEADER_BYTES + sizes.transform_bytes;
    sizes.text_bytes = round_up(sizes.text_bytes, 8);
    sizes.total = FOOTER_HEADER_BYTES + (uint64_t)FOOTER_RECORD_BYTES * footer->count +
                  sizes.text_bytes + 8 * sizes.blocks + sizes.extension_bytes +
                  FOOTER_TRAILER_BYTES;
    return sizes;
}

uint64_t footer_encoded_bytes(const struct footer *footer)
{
    return measure(footer).total;
}

static void put_header(const struct footer *footer, const struct footer_sizes *sizes,
                       struct buffer *out)
{
    uint64_t required = footer->required_features & ~(uint64_t)FOOTER_REQUIRED_TRANSFORMS;
    uint64_t optional = footer->optional_features & ~(uint64_t)FOOTER_SET_BY_ENCODE;

    if (sizes->int_keys != 0)
        optional |= FOOTER_OPTIONAL_INT_KEYS;
    if (sizes->transform_bytes != 0) {
        required |= FOOTER_REQUIRED_TRANSFORMS;
        optional |= FOOTER_OPTIONAL_TRANSFORMS;
    }
    buffer_put(out, FOOTER_MAGIC, FOOTER_MAGIC_BYTES);
    buffer_put_u32le(out, FOOTER_VERSION);
    buffer_put_u32le(out, footer->world_size);
    buffer_put_u64le(out, required);
    buffer_put_u64le(out, optional);
    buffer_put_u32le(out, footer->shard_count);
    buffer_put_u32le(out, (uint32_t)sizes->extension_bytes);
    buffer_put_u64le(out, footer->count);
    buffer_put_u64le(out, sizes->text_bytes);
    buffer_put_u64le(out, sizes->blocks);
}

static void put_record(const struct footer_item *item, struct buffer *out)
{
    buffer_put_u64le(out, item->offset);
    buffer_put_u64le(out, item->bytes);
    buffer_put_u64le(out, item->data_bytes);
    buffer_put_u64le(out, item->raw_bytes);
    buffer_put_u64le(out, item->envelope_hash);
    buffer_put_u64le(out, item->raw_hash.low);
    buffer_put_u64le(out, item->raw_hash.high);
    buffer_put_u32le(out, (uint32_t)item->data_offset);
    buffer_put_u32le(out, item->transform);
    buffer_put_u16le(out, (uint16_t)strlen(item->name));
    buffer_put_u8(out, footer_item_flags(item));
    buffer_put_u8(out, (uint8_t)item->dtype);
    buffer_put_u8(out, (uint8_t)item->ndim);
    buffer_put_u8(out, (uint8_t)item->path_length);
    buffer_put_u16le(out, 0);
}

static void put_dimensions(const int64_t *numbers, uint32_t ndim, uint64_t width,
                           struct buffer *out)
{
    for (uint32_t i = 0; i < ndim; i++)
        for (uint64_t k = 0; k < width; k++)
            buffer_put_u8(out, (uint8_t)((uint64_t)numbers[i] >> (8 * k)));
}

static void put_path(const struct sidestep_path_item *path, bool joined, struct buffer *out)
{
    char decimal[PATH_DECIMAL_BYTES];
    uint16_t index_bit = is_index(path) ? FOOTER_PATH_INDEX : 0;
    const char *text = path_text(path, decimal);

    if (joined) {
        buffer_put_u16le(out, (uint16_t)(index_bit | strlen(text)));
    } else if (is_index(path)) {
        buffer_put_u16le(out, FOOTER_PATH_INDEX);
        buffer_put_u64le(out, (uint64_t)path->index);
    } else {
        buffer_put_u16le(out, (uint16_t)strlen(text));
        buffer_put(out, text, strlen(text) + 1);
    }
}

static void put_text(const struct footer_item *item, struct buffer *out)
{
    uint8_t flags = footer_item_flags(item);
    uint64_t width = dimension_bytes(flags);

    put_dimensions(item->shape, item->ndim, width, out);
    if ((flags & FOOTER_FLAG_WHOLE) == 0) {
        put_dimensions(item->box.offsets, item->ndim, width, out);
        put_dimensions(item->box.lengths, item->ndim, width, out);
    }
    buffer_put(out, item->name, strlen(item->name) + 1);
    for (uint32_t i = 0; i < item->path_length; i++)
        put_path(&item->path[i], (flags & FOOTER_FLAG_JOINED) != 0, out);
}

static void put_int_keys(const struct footer *footer, const struct footer_sizes *sizes,
                         struct buffer *out)
{
    buffer_put_u32le(out, FOOTER_INT_KEYS_BIT);
    buffer_put_u32le(out, (uint32_t)(FOOTER_INT_KEYS_BYTES * sizes->int_keys));
    for (size_t i = 0; i < footer->count; i++) {
        uint64_t integers = path_integers(footer->items[i].path, footer->items[i].path_length);

        if (integers == 0)
            continue;
        buffer_put_u32le(out, (uint32_t)i);
        buffer_put_u64le(out, integers);
    }
}

static void put_transforms(const struct footer *footer, const struct footer_sizes *sizes,
                           struct buffer *out)
{
    buffer_put_u32le(out, FOOTER_TRANSFORMS_BIT);
    buffer_put_u32le(out, (uint32_t)sizes->transform_bytes);
    for (size_t i = 0; i < footer->transform_count; i++)
        buffer_put(out, footer->transforms[i], strlen(footer->transforms[i]) + 1);
}

/* The footer lies in ${out} from ${start} to its end. */
static void put_trailer(const struct footer *footer, size_t start, struct buffer *out)
{
    size_t footer_bytes = out->length - start;
    uint64_t footer_hash = hash_block(out->bytes + start, footer_bytes);

    buffer_put(out, FOOTER_TRAILER_MAGIC, FOOTER_MAGIC_BYTES);
    buffer_put(out, footer->save_id, SAVE_ID_BYTES);
    buffer_put_u32le(out, footer->rank);
    buffer_put_u32le(out, footer->shard);
    buffer_put_u64le(out, footer_bytes);
    buffer_put_u64le(out, footer_hash);
    buffer_put_u64le(out, footer->layout_digest);
    buffer_put_u64le(out,
                     hash_block(out->bytes + start + footer_bytes, FOOTER_TRAILER_HASHED_BYTES));
}

enum sidestep_status footer_encode(const struct footer *footer, uint64_t file_offset,
                                   struct buffer *out, struct sidestep_error *err)
{
    enum sidestep_status status = footer_check(footer, file_offset, SIDESTEP_EINVAL, err);

    if (status != SIDESTEP_OK) {
        error_wrap(err, "footer of rank %u, shard %u", footer->rank, footer->shard);
        return status;
    }
    struct footer_sizes sizes = measure(footer);
    if (sizes.total - FOOTER_TRAILER_BYTES > FOOTER_MAX_BYTES)
        return FAIL(err, SIDESTEP_EINVAL,
                    "footer of rank %u, shard %u: %llu bytes (at most %llu): use more shards",
                    footer->rank, footer->shard, (unsigned long long)sizes.total,
                    (unsigned long long)FOOTER_MAX_BYTES);
    size_t start = out->length;
    if (buffer_extend(out, (size_t)sizes.total) == NULL) /* one allocation, and no other failure */
        return buffer_check(out, err);
    out->length = start;

    put_header(footer, &sizes, out);
    for (size_t i = 0; i < footer->count; i++)
        put_record(&footer->items[i], out);
    for (size_t i = 0; i < footer->count; i++)
        put_text(&footer->items[i], out);
    while ((out->length - start) % 8 != 0)
        buffer_put_u8(out, 0);
    for (size_t i = 0; i < footer->count; i++)
        for (uint64_t k = 0; k < footer->items[i].block_count; k++)
            buffer_put_u64le(out, footer->items[i].blocks[k]);
    if (sizes.int_keys != 0)
        put_int_keys(footer, &sizes, out);
    if (sizes.transform_bytes != 0)
        put_transforms(footer, &sizes, out);
    put_trailer(footer, start, out);
    assert(out->length - start == sizes.total);
    return SIDESTEP_OK;
}
