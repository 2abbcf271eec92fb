/* SPDX-License-Identifier: BSD-3-Clause */
/* footer_check.c -- checks a footer before it is written, and after it was read. */
#include <string.h>

#include "base/base.h"
#include "format/footer_layout.h"
#include "model/model.h"

/* In files, the number of a dtype is its position in SIDESTEP_DTYPE_MAP.  This list may only grow
 * at its end. */
_Static_assert(SIDESTEP_FLOAT64 == 1 && SIDESTEP_BOOL == 12 && SIDESTEP_COMPLEX32 == 16 &&
                   SIDESTEP_FLOAT8_E8M0FNU == 21 && SIDESTEP_BCOMPLEX32 == 28,
               "numbers of dtypes are part of the format");

#define FAIL_ITEM(item, status, err, fmt, ...)                                                     \
    FAIL(err, status, "'%s': " fmt, display_name((item)->name).text, ##__VA_ARGS__)

static enum sidestep_status check_name(const struct footer_item *item, enum sidestep_status status,
                                       struct sidestep_error *err)
{
    size_t length = strlen(item->name);

    if (length == 0 || length > SIDESTEP_MAX_NAME)
        return FAIL(err, status, "a name of %zu bytes (1 to %d are allowed)", length,
                    SIDESTEP_MAX_NAME);
    if (!utf8_is_valid(item->name, length))
        return FAIL(err, status, "a name is not UTF-8");
    if (item->path_length == 0 || item->path_length > SIDESTEP_MAX_PATH_ITEMS)
        return FAIL_ITEM(item, status, err, "a path of %u items (1 to %d are allowed)",
                         item->path_length, SIDESTEP_MAX_PATH_ITEMS);
    for (uint32_t i = 0; i < item->path_length; i++) {
        const char *key = item->path[i].key;
        size_t key_length = key != NULL ? strlen(key) : 0;
        if (key_length > SIDESTEP_MAX_NAME)
            return FAIL_ITEM(item, status, err, "a key of %zu bytes in its path (at most %d)",
                             key_length, SIDESTEP_MAX_NAME);
        if (!utf8_is_valid(key, key_length))
            return FAIL_ITEM(item, status, err, "key %u of its path is not UTF-8", i);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status check_tensor(const struct footer_item *item,
                                         enum sidestep_status status, struct sidestep_error *err)
{
    size_t item_bytes = sidestep_dtype_size(item->dtype);
    struct sidestep_error why;
    uint64_t end;

    if (item->dtype == SIDESTEP_DTYPE_NONE)
        return FAIL_ITEM(item, status, err, "a tensor without a dtype");
    if (item_bytes == 0)
        return FAIL_ITEM(item, SIDESTEP_EUNSUPPORTED, err,
                         "dtype number %d is newer than this library", (int)item->dtype);
    if (item->ndim > SIDESTEP_MAX_NDIM || item->box.ndim != item->ndim)
        return FAIL_ITEM(item, status, err, "%u dimensions, and %u of its box (at most %d)",
                         item->ndim, item->box.ndim, SIDESTEP_MAX_NDIM);
    if (box_check(&item->box, item->shape, item_bytes, &why) != SIDESTEP_OK)
        return FAIL_ITEM(item, status, err, "%s", why.message);
    uint64_t raw_bytes = box_volume(&item->box) * item_bytes;
    if (item->raw_bytes != raw_bytes)
        return FAIL_ITEM(item, status, err, "%llu bytes of data, but its box has %llu",
                         (unsigned long long)item->raw_bytes, (unsigned long long)raw_bytes);
    if (item->transform != 0)
        return item->data_offset > FOOTER_MAX_ENVELOPE_BYTES || item->data_bytes != item->bytes
                   ? FAIL_ITEM(item, status, err,
                               "a transformed tensor has %llu bytes of data in %llu, and a head of "
                               "%llu",
                               (unsigned long long)item->data_bytes,
                               (unsigned long long)item->bytes,
                               (unsigned long long)item->data_offset)
                   : SIDESTEP_OK;
    if (item->data_offset > UINT32_MAX || !checked_add(item->data_offset, item->data_bytes, &end) ||
        end > item->bytes)
        return FAIL_ITEM(item, status, err, "data at %llu + %llu lie outside its %llu bytes",
                         (unsigned long long)item->data_offset,
                         (unsigned long long)item->data_bytes, (unsigned long long)item->bytes);
    if (item->bytes - item->data_bytes > FOOTER_MAX_ENVELOPE_BYTES)
        return FAIL_ITEM(item, status, err,
                         "an archive of %llu bytes around its data (at most %llu)",
                         (unsigned long long)(item->bytes - item->data_bytes),
                         (unsigned long long)FOOTER_MAX_ENVELOPE_BYTES);
    return SIDESTEP_OK;
}

static enum sidestep_status check_object(const struct footer_item *item,
                                         enum sidestep_status status, struct sidestep_error *err)
{
    if (item->dtype != SIDESTEP_DTYPE_NONE || item->ndim != 0 || item->requires_grad)
        return FAIL_ITEM(item, status, err, "an object with dtype, shape or requires_grad");
    if (item->data_offset != 0 || item->data_bytes != item->bytes || item->envelope_hash != 0)
        return FAIL_ITEM(item, status, err, "the data of an object are not the whole object");
    return SIDESTEP_OK;
}

static enum sidestep_status check_hashes(const struct footer_item *item,
                                         enum sidestep_status status, struct sidestep_error *err)
{
    uint64_t blocks = hash_block_count(item->data_bytes);

    if (item->transform == 0 && item->raw_bytes != item->data_bytes)
        return FAIL_ITEM(item, status, err, "%llu bytes stored for %llu, without a transform",
                         (unsigned long long)item->data_bytes, (unsigned long long)item->raw_bytes);
    if (item->block_count != blocks)
        return FAIL_ITEM(item, status, err, "%llu block hashes, but %llu bytes have %llu",
                         (unsigned long long)item->block_count,
                         (unsigned long long)item->data_bytes, (unsigned long long)blocks);
    if (item->transform != 0)
        return SIDESTEP_OK; /* ${raw_hash} covers the raw data, whose hashes are not stored */
    if (!hash128_equal(hash_block_list(item->blocks, (size_t)item->block_count), item->raw_hash))
        return FAIL_ITEM(item, status, err, "its hash does not match its block hashes");
    return SIDESTEP_OK;
}

/* ${*begin}: the first byte that the item may use.  Set to the end of the item. */
static enum sidestep_status check_item(const struct footer *footer, size_t i, uint64_t *begin,
                                       uint64_t end, enum sidestep_status status,
                                       struct sidestep_error *err)
{
    const struct footer_item *item = &footer->items[i];
    uint64_t item_end;

    TRY(check_name(item, status, err));
    if (item->transform > footer->transform_count)
        return FAIL_ITEM(item, SIDESTEP_EUNSUPPORTED, err,
                         "transform number %u is newer than this library", item->transform);
    if (item->offset < *begin)
        return FAIL_ITEM(item, status, err,
                         "starts at %llu, before the end of the previous item (%llu)",
                         (unsigned long long)item->offset, (unsigned long long)*begin);
    if (!checked_add(item->offset, item->bytes, &item_end) || item_end > end)
        return FAIL_ITEM(item, status, err, "%llu + %llu lie outside the %llu bytes of all items",
                         (unsigned long long)item->offset, (unsigned long long)item->bytes,
                         (unsigned long long)end);
    if (item->offset - *begin > FOOTER_MAX_GAP_BYTES)
        return FAIL_ITEM(item, status, err, "a gap of %llu bytes before it (at most %llu)",
                         (unsigned long long)(item->offset - *begin),
                         (unsigned long long)FOOTER_MAX_GAP_BYTES);
    TRY(item->is_object ? check_object(item, status, err) : check_tensor(item, status, err));
    TRY(check_hashes(item, status, err));
    *begin = item_end;
    return SIDESTEP_OK;
}

enum sidestep_status footer_check_header(const struct footer *footer, enum sidestep_status status,
                                         struct sidestep_error *err)
{
    uint64_t unknown = footer->required_features & ~(uint64_t)FOOTER_KNOWN_REQUIRED;

    if (unknown != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "feature bit %d is required, and newer than this library",
                    __builtin_ctzll(unknown));
    if (footer->world_size == 0 || footer->world_size > SIDESTEP_MAX_RANKS ||
        footer->rank >= footer->world_size)
        return FAIL(err, status, "rank %u of %u ranks (at most %d)", footer->rank,
                    footer->world_size, SIDESTEP_MAX_RANKS);
    if (footer->shard >= footer->shard_count)
        return FAIL(err, status, "shard %u of %u", footer->shard, footer->shard_count);
    return SIDESTEP_OK;
}

static enum sidestep_status check_transforms(const struct footer *footer,
                                             enum sidestep_status status,
                                             struct sidestep_error *err)
{
    if (footer->transform_count > FOOTER_MAX_TRANSFORMS)
        return FAIL(err, status, "%zu transforms (at most %u)", footer->transform_count,
                    FOOTER_MAX_TRANSFORMS);
    for (size_t i = 0; i < footer->transform_count; i++) {
        size_t length = strlen(footer->transforms[i]);
        if (length == 0 || length > FOOTER_MAX_TRANSFORM_BYTES ||
            !utf8_is_valid(footer->transforms[i], length))
            return FAIL(err, status, "transform %zu has no name (UTF-8, 1 to %u bytes)", i + 1,
                        FOOTER_MAX_TRANSFORM_BYTES);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status check_extras(const struct footer *footer, enum sidestep_status status,
                                         struct sidestep_error *err)
{
    OWNED_EXTRA_FILE_NAMES names = {0};

    if (footer->extra_count > SIDESTEP_MAX_FILES)
        return FAIL(err, status, "%zu extra files (at most %u)", footer->extra_count,
                    SIDESTEP_MAX_FILES);
    if (footer->extra_count != 0 && footer->shard != 0)
        return FAIL(err, status, "extra files in shard %u", footer->shard);
    for (size_t i = 0; i < footer->extra_count; i++) {
        const struct extra_file *file = &footer->extras[i];
        if (file->rank != footer->rank || file->stored != NULL)
            return FAIL(err, status, "file %zu is of rank %u", i, file->rank);
        TRY(extra_file_check(file, status, err));
        TRY(extra_file_names_add(&names, file, status, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status footer_check(const struct footer *footer, uint64_t end,
                                  enum sidestep_status status, struct sidestep_error *err)
{
    uint64_t begin = 0;

    TRY(footer_check_header(footer, status, err));
    TRY(check_transforms(footer, status, err));
    TRY(check_extras(footer, status, err));
    if (footer->count > FOOTER_MAX_ITEMS)
        return FAIL(err, status, "%zu items (at most %llu)", footer->count,
                    (unsigned long long)FOOTER_MAX_ITEMS);
    for (size_t i = 0; i < footer->count; i++)
        TRY(check_item(footer, i, &begin, end, status, err));
    if (end - begin > FOOTER_MAX_GAP_BYTES)
        return FAIL(err, status, "a gap of %llu bytes after the last item (at most %llu)",
                    (unsigned long long)(end - begin), (unsigned long long)FOOTER_MAX_GAP_BYTES);
    return SIDESTEP_OK;
}
