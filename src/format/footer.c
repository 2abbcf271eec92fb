/* SPDX-License-Identifier: BSD-3-Clause */
/* footer.c -- see footer.h: writes the footer of a shard. */
#include "format/footer.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "base/base.h"
#include "format/footer_layout.h"
#include "model/model.h"

uint8_t footer_item_flags(const struct footer_item *item)
{
    uint64_t bits = 0; /* of all numbers: offsets and lengths never exceed the shape */
    uint8_t flags = item->is_object ? FOOTER_FLAG_OBJECT : 0;
    unsigned width = 0;

    for (uint32_t i = 0; i < item->ndim; i++)
        bits |= (uint64_t)item->shape[i];
    while (width < 3 && bits >> (8u << width) != 0)
        width++;
    flags |= (uint8_t)(width << FOOTER_FLAG_WIDTH_SHIFT);
    if (item->requires_grad)
        flags |= FOOTER_FLAG_REQUIRES_GRAD;
    if (!item->is_object && box_is_whole(&item->box, item->shape))
        flags |= FOOTER_FLAG_WHOLE_TENSOR;
    if (path_matches_name(item->name, item->path, item->path_length))
        flags |= FOOTER_FLAG_PATH_IS_NAME;
    return flags;
}

/* Is it stored as an index of a list?  An integer key is stored as the text that torch reads. */
static bool is_index(const struct sidestep_path_item *item)
{
    return item->key == NULL && !path_item_is_int_key(item);
}

static uint64_t dimension_bytes(uint8_t flags)
{
    return (uint64_t)1 << ((flags & FOOTER_FLAG_WIDTH_MASK) >> FOOTER_FLAG_WIDTH_SHIFT);
}

/* The bytes that an item has in the text area. */
static uint64_t item_text_bytes(const struct footer_item *item)
{
    uint8_t flags = footer_item_flags(item);
    uint64_t rows = (flags & FOOTER_FLAG_WHOLE_TENSOR) != 0 ? 1 : 3;
    char decimal[PATH_ITEM_DECIMAL_BYTES];
    uint64_t bytes = rows * item->ndim * dimension_bytes(flags) + strlen(item->name) + 1;

    bytes += (uint64_t)2 * item->path_length;
    if ((flags & FOOTER_FLAG_PATH_IS_NAME) != 0)
        return bytes;
    for (uint32_t i = 0; i < item->path_length; i++)
        bytes += is_index(&item->path[i]) ? 8 : strlen(path_item_text(&item->path[i], decimal)) + 1;
    return bytes;
}

struct footer_sizes {
    uint64_t text_bytes; /* a multiple of 8 */
    uint64_t blocks;
    uint64_t int_keys;        /* items with integer keys */
    uint64_t transform_bytes; /* of the names */
    uint64_t extras_bytes;    /* of the list of extra files */
    uint64_t extension_bytes;
    uint64_t total; /* of the footer and the trailer */
};
static struct footer_sizes measure(const struct footer *footer)
{
    struct footer_sizes sizes = {0};

    for (size_t i = 0; i < footer->count; i++) {
        sizes.text_bytes += item_text_bytes(&footer->items[i]);
        sizes.blocks += footer->items[i].block_count;
        sizes.int_keys += path_int_keys(footer->items[i].path, footer->items[i].path_length) != 0;
    }
    for (size_t i = 0; i < footer->transform_count; i++)
        sizes.transform_bytes += strlen(footer->transforms[i]) + 1;
    if (sizes.int_keys != 0)
        sizes.extension_bytes +=
            FOOTER_EXTENSION_HEADER_BYTES + FOOTER_INT_KEYS_BYTES * sizes.int_keys;
    if (sizes.transform_bytes != 0)
        sizes.extension_bytes += FOOTER_EXTENSION_HEADER_BYTES + sizes.transform_bytes;
    for (size_t i = 0; i < footer->extra_count; i++)
        sizes.extras_bytes += FOOTER_EXTRA_BYTES + strlen(footer->extras[i].name);
    if (sizes.extras_bytes != 0)
        sizes.extension_bytes += FOOTER_EXTENSION_HEADER_BYTES + sizes.extras_bytes;
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

/* Where the next bytes of each area go.  One pass over the items writes all areas. */
struct areas {
    uint8_t *records;
    uint8_t *text;
    uint8_t *blocks;
};

static void put_le(uint8_t **at, uint64_t value, size_t bytes)
{
    uint64_t little = htole64(value);

    memcpy(*at, &little, bytes);
    *at += bytes;
}

static void put_bytes(uint8_t **at, const void *bytes, size_t length)
{
    memcpy(*at, bytes, length);
    *at += length;
}

static void put_header(const struct footer *footer, const struct footer_sizes *sizes, uint8_t **at)
{
    uint64_t required = footer->required_features & ~(uint64_t)FOOTER_REQUIRED_TRANSFORMS;
    uint64_t optional = footer->optional_features & ~(uint64_t)FOOTER_ENCODER_FEATURES;

    if (sizes->int_keys != 0)
        optional |= FOOTER_OPTIONAL_INT_KEYS;
    if (sizes->transform_bytes != 0) {
        required |= FOOTER_REQUIRED_TRANSFORMS;
        optional |= FOOTER_OPTIONAL_TRANSFORMS;
    }
    if (sizes->extras_bytes != 0)
        optional |= FOOTER_OPTIONAL_EXTRAS;
    put_bytes(at, FOOTER_MAGIC, FOOTER_MAGIC_BYTES);
    put_le(at, FOOTER_VERSION, 4);
    put_le(at, footer->world_size, 4);
    put_le(at, required, 8);
    put_le(at, optional, 8);
    put_le(at, footer->shard_count, 4);
    put_le(at, sizes->extension_bytes, 4);
    put_le(at, footer->count, 8);
    put_le(at, sizes->text_bytes, 8);
    put_le(at, sizes->blocks, 8);
}

static void put_record(const struct footer_item *item, size_t name_bytes, uint8_t flags,
                       uint8_t **at)
{
    put_le(at, item->offset, 8);
    put_le(at, item->bytes, 8);
    put_le(at, item->data_bytes, 8);
    put_le(at, item->raw_bytes, 8);
    put_le(at, item->envelope_hash, 8);
    put_le(at, item->raw_hash.low, 8);
    put_le(at, item->raw_hash.high, 8);
    put_le(at, item->data_offset, 4);
    put_le(at, item->transform, 4);
    put_le(at, name_bytes, 2);
    put_le(at, flags, 1);
    put_le(at, (uint8_t)item->dtype, 1);
    put_le(at, item->ndim, 1);
    put_le(at, item->path_length, 1);
    put_le(at, 0, 2);
}

static void put_dimensions(const int64_t *numbers, uint32_t ndim, uint64_t width, uint8_t **at)
{
    for (uint32_t i = 0; i < ndim; i++)
        put_le(at, (uint64_t)numbers[i], width);
}

static void put_path(const struct sidestep_path_item *path, bool joined, uint8_t **at)
{
    char decimal[PATH_ITEM_DECIMAL_BYTES];
    uint16_t index_bit = is_index(path) ? FOOTER_PATH_INDEX : 0;
    const char *text = path_item_text(path, decimal);

    if (joined) {
        put_le(at, index_bit | strlen(text), 2);
    } else if (is_index(path)) {
        put_le(at, FOOTER_PATH_INDEX, 2);
        put_le(at, (uint64_t)path->index, 8);
    } else {
        put_le(at, strlen(text), 2);
        put_bytes(at, text, strlen(text) + 1);
    }
}

static void put_text(const struct footer_item *item, size_t name_bytes, uint8_t flags, uint8_t **at)
{
    uint64_t width = dimension_bytes(flags);

    put_dimensions(item->shape, item->ndim, width, at);
    if ((flags & FOOTER_FLAG_WHOLE_TENSOR) == 0) {
        put_dimensions(item->box.offsets, item->ndim, width, at);
        put_dimensions(item->box.lengths, item->ndim, width, at);
    }
    put_bytes(at, item->name, name_bytes + 1);
    for (uint32_t i = 0; i < item->path_length; i++)
        put_path(&item->path[i], (flags & FOOTER_FLAG_PATH_IS_NAME) != 0, at);
}

static void put_item(const struct footer_item *item, struct areas *areas)
{
    uint8_t flags = footer_item_flags(item);
    size_t name_bytes = strlen(item->name);

    put_record(item, name_bytes, flags, &areas->records);
    put_text(item, name_bytes, flags, &areas->text);
    for (uint64_t k = 0; k < item->block_count; k++)
        put_le(&areas->blocks, item->blocks[k], 8);
}

static void put_int_keys(const struct footer *footer, const struct footer_sizes *sizes,
                         uint8_t **at)
{
    put_le(at, FOOTER_INT_KEYS_BIT, 4);
    put_le(at, FOOTER_INT_KEYS_BYTES * sizes->int_keys, 4);
    for (size_t i = 0; i < footer->count; i++) {
        uint64_t integers = path_int_keys(footer->items[i].path, footer->items[i].path_length);

        if (integers == 0)
            continue;
        put_le(at, i, 4);
        put_le(at, integers, 8);
    }
}

static void put_transforms(const struct footer *footer, const struct footer_sizes *sizes,
                           uint8_t **at)
{
    put_le(at, FOOTER_TRANSFORMS_BIT, 4);
    put_le(at, sizes->transform_bytes, 4);
    for (size_t i = 0; i < footer->transform_count; i++)
        put_bytes(at, footer->transforms[i], strlen(footer->transforms[i]) + 1);
}

static void put_extras(const struct footer *footer, const struct footer_sizes *sizes, uint8_t **at)
{
    put_le(at, FOOTER_EXTRAS_BIT, 4);
    put_le(at, sizes->extras_bytes, 4);
    for (size_t i = 0; i < footer->extra_count; i++) {
        const struct extra_file *file = &footer->extras[i];

        put_le(at,
               (file->is_alias ? FOOTER_EXTRA_ALIAS : 0) |
                   (file->first_rank ? FOOTER_EXTRA_FIRST_RANK : 0),
               4);
        put_le(at, file->bytes, 8);
        put_bytes(at, file->sha256, HASH_SHA256_BYTES);
        put_bytes(at, file->name, strlen(file->name) + 1);
    }
}

/* Write the footer without the trailer to ${start}, and return its end. */
static uint8_t *put_footer(const struct footer *footer, const struct footer_sizes *sizes,
                           uint8_t *start)
{
    struct areas areas = {.records = start};

    put_header(footer, sizes, &areas.records);
    areas.text = areas.records + FOOTER_RECORD_BYTES * footer->count;
    uint8_t *blocks = areas.text + sizes->text_bytes;
    areas.blocks = blocks;
    for (size_t i = 0; i < footer->count; i++)
        put_item(&footer->items[i], &areas);
    assert(areas.records == blocks - sizes->text_bytes && areas.text <= blocks);
    memset(areas.text, 0, (size_t)(blocks - areas.text));
    if (sizes->int_keys != 0)
        put_int_keys(footer, sizes, &areas.blocks);
    if (sizes->transform_bytes != 0)
        put_transforms(footer, sizes, &areas.blocks);
    if (sizes->extras_bytes != 0)
        put_extras(footer, sizes, &areas.blocks);
    return areas.blocks;
}

/* Write the trailer to ${at}, after the footer that begins at ${start}, and return its end. */
static uint8_t *put_trailer(const struct footer *footer, const uint8_t *start, uint8_t *at)
{
    size_t footer_bytes = (size_t)(at - start);
    const uint8_t *trailer = at;

    put_bytes(&at, FOOTER_TRAILER_MAGIC, FOOTER_MAGIC_BYTES);
    put_bytes(&at, footer->save_id, SAVE_ID_BYTES);
    put_le(&at, footer->rank, 4);
    put_le(&at, footer->shard, 4);
    put_le(&at, footer_bytes, 8);
    put_le(&at, hash_block(start, footer_bytes), 8);
    put_le(&at, footer->layout_digest, 8);
    put_le(&at, hash_block(trailer, FOOTER_TRAILER_HASHED_BYTES), 8);
    return at;
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
    uint8_t *start = buffer_extend(out, (size_t)sizes.total);
    if (start == NULL)
        return buffer_check(out, err);
    uint8_t *end = put_trailer(footer, start, put_footer(footer, &sizes, start));
    assert((uint64_t)(end - start) == sizes.total);
    (void)end;
    return SIDESTEP_OK;
}
