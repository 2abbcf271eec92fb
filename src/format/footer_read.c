/* SPDX-License-Identifier: BSD-3-Clause */
/* footer_read.c -- see footer.h: reads the footer and the trailer of a shard, which are not
 * trusted. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/footer_layout.h"
#include "model/model.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "block hashes are used as they lie in the file");

/* Bytes that are read with the trailer.  Most footers are shorter, so one request is enough. */
#define FOOTER_TAIL_BYTES ((size_t)32 << 10)

#define FAIL_FORMAT(err, ...) FAIL(err, SIDESTEP_ECORRUPT, __VA_ARGS__)

static enum sidestep_status trailer_parse(const uint8_t bytes[FOOTER_TRAILER_BYTES],
                                          uint64_t file_bytes, struct footer_trailer *out,
                                          struct sidestep_error *err)
{
    uint8_t repaired[FOOTER_TRAILER_BYTES];
    struct cursor c = cursor_from_memory(bytes, FOOTER_TRAILER_BYTES);
    bool has_magic =
        memcmp(cursor_take(&c, FOOTER_MAGIC_BYTES), FOOTER_TRAILER_MAGIC, FOOTER_MAGIC_BYTES) == 0;

    memcpy(out->save_id, cursor_take(&c, SAVE_ID_BYTES), SAVE_ID_BYTES);
    out->rank = cursor_u32le(&c);
    out->shard = cursor_u32le(&c);
    out->footer_bytes = cursor_u64le(&c);
    out->footer_hash = cursor_u64le(&c);
    out->layout_digest = cursor_u64le(&c);

    /* A flipped bit in the magic must not make the file look like one of torch.  So compute the
     * hash with the right magic. */
    memcpy(repaired, bytes, sizeof(repaired));
    memcpy(repaired, FOOTER_TRAILER_MAGIC, FOOTER_MAGIC_BYTES);
    bool hash_fits = hash_block(repaired, FOOTER_TRAILER_HASHED_BYTES) == cursor_u64le(&c);
    if (!has_magic && !hash_fits)
        return FAIL(err, SIDESTEP_ENOTFOUND, "the file does not end with a trailer of sidestep");
    if (!has_magic || !hash_fits)
        return FAIL_FORMAT(err, "trailer: the bytes do not match their hash");
    if (out->footer_bytes < FOOTER_HEADER_BYTES || out->footer_bytes > FOOTER_MAX_BYTES ||
        out->footer_bytes > file_bytes - FOOTER_TRAILER_BYTES)
        return FAIL_FORMAT(err, "trailer: a footer of %" PRIu64 " bytes in a file of %" PRIu64,
                           out->footer_bytes, file_bytes);
    return SIDESTEP_OK;
}

/* Read the last ${bytes} of the file, and parse the trailer at their end. */
static enum sidestep_status tail_load(const struct source *file, uint8_t *tail, size_t bytes,
                                      struct footer_trailer *out, struct sidestep_error *err)
{
    if (file->length < FOOTER_TRAILER_BYTES)
        return FAIL(err, SIDESTEP_ENOTFOUND,
                    "the file does not end with a trailer of sidestep (it has %" PRIu64 " bytes)",
                    file->length);
    TRY(source_read(file, tail, bytes, file->length - bytes, err));
    return trailer_parse(tail + bytes - FOOTER_TRAILER_BYTES, file->length, out, err);
}

enum sidestep_status footer_trailer_read(const struct source *file, struct footer_trailer *out,
                                         struct sidestep_error *err)
{
    uint8_t bytes[FOOTER_TRAILER_BYTES];

    return tail_load(file, bytes, sizeof(bytes), out, err);
}

/* The rest of each area of a footer, which is not read yet. */
struct areas {
    struct arena *arena;
    struct cursor records;
    struct cursor text;
    const uint64_t *blocks;
    uint64_t blocks_left;
    struct cursor extensions;
};

static void *areas_new(struct areas *areas, size_t count, size_t size, struct sidestep_error *err)
{
    void *block = arena_new(areas->arena, count, size);

    if (block == NULL)
        FAIL_NOMEM(err, count * size);
    return block;
}

static void read_dimensions(struct cursor *text, uint32_t ndim, unsigned width, int64_t *out)
{
    for (uint32_t i = 0; i < ndim; i++)
        out[i] = (int64_t)cursor_le(text, width);
}

static enum sidestep_status read_box(struct areas *areas, uint8_t flags, struct footer_item *item,
                                     struct sidestep_error *err)
{
    unsigned width = 1u << ((flags & FOOTER_FLAG_WIDTH_MASK) >> FOOTER_FLAG_WIDTH_SHIFT);
    bool whole = (flags & FOOTER_FLAG_WHOLE_TENSOR) != 0;
    int64_t *numbers = areas_new(areas, (size_t)item->ndim * (whole ? 2 : 3), sizeof(int64_t), err);

    if (numbers == NULL)
        return SIDESTEP_ENOMEM;
    item->shape = numbers;
    item->box.ndim = item->ndim;
    item->box.offsets = numbers + item->ndim;
    item->box.lengths = whole ? numbers : numbers + (size_t)2 * item->ndim;
    read_dimensions(&areas->text, item->ndim, width, numbers);
    if (!whole)
        read_dimensions(&areas->text, (uint32_t)2 * item->ndim, width, numbers + item->ndim);
    return SIDESTEP_OK;
}

/* Read ${length} bytes and a NUL from the text area.  NULL: the text is cut off, or has a NUL. */
static const char *read_string(struct areas *areas, size_t length)
{
    const uint8_t *bytes = cursor_take(&areas->text, length + 1);

    if (bytes == NULL || memchr(bytes, '\0', length + 1) != bytes + length)
        return NULL;
    return (const char *)bytes;
}

/* Read a path whose items are the parts of the name.  ${parts} is a copy of the name, which is cut
 * into the texts of the items. */
static bool read_joined_path(struct areas *areas, struct cursor parts, uint32_t count,
                             struct sidestep_path_item *path)
{
    for (uint32_t i = 0; i < count; i++) {
        uint16_t tag = cursor_u16le(&areas->text);
        char *text = (char *)(uintptr_t)cursor_take(&parts, tag & FOOTER_PATH_LENGTH);
        char *end = (char *)(uintptr_t)cursor_take(&parts, 1); /* the '.', or the NUL at the end */
        if (text == NULL || end == NULL)
            return false;
        *end = '\0';
        if ((tag & FOOTER_PATH_INDEX) != 0)
            path[i].index = strtoll(text, NULL, 10);
        else
            path[i].key = text;
    }
    return cursor_remaining(&parts) == 0;
}

static bool read_listed_path(struct areas *areas, uint32_t count, struct sidestep_path_item *path)
{
    for (uint32_t i = 0; i < count; i++) {
        uint16_t tag = cursor_u16le(&areas->text);
        if (tag == FOOTER_PATH_INDEX)
            path[i].index = (int64_t)cursor_u64le(&areas->text);
        else if ((tag & FOOTER_PATH_INDEX) != 0 || (path[i].key = read_string(areas, tag)) == NULL)
            return false;
    }
    return true;
}

static enum sidestep_status read_path(struct areas *areas, uint8_t flags, size_t name_bytes,
                                      struct footer_item *item, struct sidestep_error *err)
{
    struct sidestep_path_item *path = areas_new(areas, item->path_length, sizeof(*path), err);
    bool is_valid;

    if (path == NULL)
        return SIDESTEP_ENOMEM;
    item->path = path;
    if ((flags & FOOTER_FLAG_PATH_IS_NAME) != 0) {
        char *parts = areas_new(areas, name_bytes + 1, 1, err);
        if (parts == NULL)
            return SIDESTEP_ENOMEM;
        memcpy(parts, item->name, name_bytes);
        is_valid = read_joined_path(areas, cursor_from_memory(parts, name_bytes + 1),
                                    item->path_length, path);
    } else {
        is_valid = read_listed_path(areas, item->path_length, path);
    }
    return is_valid && !areas->text.overrun ? SIDESTEP_OK : FAIL_FORMAT(err, "a path is malformed");
}

static enum sidestep_status read_item(struct areas *areas, struct footer_item *item,
                                      struct sidestep_error *err)
{
    struct cursor *c = &areas->records;

    item->offset = cursor_u64le(c);
    item->bytes = cursor_u64le(c);
    item->data_bytes = cursor_u64le(c);
    item->raw_bytes = cursor_u64le(c);
    item->envelope_hash = cursor_u64le(c);
    item->raw_hash.low = cursor_u64le(c);
    item->raw_hash.high = cursor_u64le(c);
    item->data_offset = cursor_u32le(c);
    item->transform = cursor_u32le(c);
    size_t name_bytes = cursor_u16le(c);
    uint8_t flags = cursor_u8(c);
    item->dtype = (enum sidestep_dtype)cursor_u8(c);
    item->ndim = cursor_u8(c);
    item->path_length = cursor_u8(c);
    bool reserved = cursor_u16le(c) != 0;

    item->is_object = (flags & FOOTER_FLAG_OBJECT) != 0;
    item->requires_grad = (flags & FOOTER_FLAG_REQUIRES_GRAD) != 0;
    if (reserved || item->ndim > SIDESTEP_MAX_NDIM || item->path_length > SIDESTEP_MAX_PATH_ITEMS)
        return FAIL_FORMAT(err, "%u dimensions, %u items in its path", item->ndim,
                           item->path_length);
    TRY(read_box(areas, flags, item, err));
    item->name = read_string(areas, name_bytes);
    if (item->name == NULL)
        return FAIL_FORMAT(err, "its shape or name is cut off");
    TRY(read_path(areas, flags, name_bytes, item, err));
    if (footer_item_flags(item) != flags)
        return FAIL_FORMAT(err, "flags 0x%02x instead of 0x%02x", flags, footer_item_flags(item));

    item->block_count = hash_block_count(item->data_bytes);
    item->blocks = areas->blocks;
    if (item->block_count > areas->blocks_left)
        return FAIL_FORMAT(err, "%" PRIu64 " bytes of data, but no hashes for them",
                           item->data_bytes);
    areas->blocks += item->block_count;
    areas->blocks_left -= item->block_count;
    return SIDESTEP_OK;
}

/* Read the header at ${c} into ${out}, and find the areas after it. */
static enum sidestep_status read_header(struct cursor *c, struct footer *out, struct areas *areas,
                                        struct sidestep_error *err)
{
    const uint8_t *magic = cursor_take(c, FOOTER_MAGIC_BYTES);

    if (magic == NULL || memcmp(magic, FOOTER_MAGIC, FOOTER_MAGIC_BYTES) != 0)
        return FAIL_FORMAT(err, "it does not begin with its magic");
    uint32_t version = cursor_u32le(c);
    out->world_size = cursor_u32le(c);
    out->required_features = cursor_u64le(c);
    out->optional_features = cursor_u64le(c);
    out->shard_count = cursor_u32le(c);
    uint64_t extension_bytes = cursor_u32le(c);
    uint64_t count = cursor_u64le(c);
    uint64_t text_bytes = cursor_u64le(c);
    uint64_t blocks = cursor_u64le(c);
    uint64_t room = cursor_remaining(c);

    if (version > FOOTER_VERSION)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "version %u is newer than this library", version);
    if (version == 0)
        return FAIL_FORMAT(err, "version 0");
    /* A required feature may change anything after the header, so check features first. */
    TRY(footer_check_header(out, SIDESTEP_ECORRUPT, err));
    if (extension_bytes != 0 && out->optional_features == 0)
        return FAIL_FORMAT(err, "there are extensions, but no feature that uses them");
    if (count > FOOTER_MAX_ITEMS || text_bytes % 8 != 0 || text_bytes > room || blocks > room / 8 ||
        count * FOOTER_RECORD_BYTES + text_bytes + blocks * 8 + extension_bytes != room)
        return FAIL_FORMAT(err,
                           "%" PRIu64 " items, %" PRIu64 " bytes of text and %" PRIu64
                           " hashes do not make %" PRIu64 " bytes",
                           count, text_bytes, blocks, room);
    size_t record_bytes = (size_t)count * FOOTER_RECORD_BYTES;
    areas->records = cursor_from_memory(cursor_take(c, record_bytes), record_bytes);
    areas->text = cursor_from_memory(cursor_take(c, (size_t)text_bytes), (size_t)text_bytes);
    /* Aligned: all sizes before it are multiples of 8, and so is the address of the first byte. */
    areas->blocks = (const void *)cursor_take(c, (size_t)blocks * 8);
    areas->blocks_left = blocks;
    areas->extensions =
        cursor_from_memory(cursor_take(c, (size_t)extension_bytes), (size_t)extension_bytes);
    out->count = (size_t)count;
    return SIDESTEP_OK;
}

/* Find the extension of feature ${bit}.  False: there is none, or extensions are damaged, or one
 * belongs to no feature of ${features}, or two belong to one. */
static bool find_extension(struct cursor extensions, uint64_t features, uint32_t bit,
                           struct cursor *extension)
{
    bool found = false;

    while (cursor_remaining(&extensions) != 0) {
        uint32_t feature = cursor_u32le(&extensions);
        size_t bytes = cursor_u32le(&extensions);
        const uint8_t *start = cursor_take(&extensions, bytes);

        if (start == NULL || feature >= 64 || (features >> feature & 1) == 0)
            return false;
        features &= ~((uint64_t)1 << feature);
        if (feature == bit) {
            *extension = cursor_from_memory(start, bytes);
            found = true;
        }
    }
    return found;
}

/* Read which keys are integers.  Accepts only what footer_encode() writes. */
static enum sidestep_status read_int_keys(struct cursor extensions, struct footer *out,
                                          struct sidestep_error *err)
{
    uint64_t next = 0; /* the smallest number that the next item may have */
    struct cursor extension = {0};

    if (!find_extension(extensions, out->optional_features, FOOTER_INT_KEYS_BIT, &extension) ||
        cursor_remaining(&extension) == 0)
        return FAIL_FORMAT(err, "the list of integer keys is malformed");
    while (cursor_remaining(&extension) != 0) {
        uint64_t number = cursor_u32le(&extension), integers = cursor_u64le(&extension);

        if (extension.overrun || number < next || number >= out->count || integers == 0)
            return FAIL_FORMAT(err, "the list of integer keys is malformed");
        const struct footer_item *item = &out->items[number];
        /* The path is in our arena; it is const only for others. */
        if (!path_set_int_keys((struct sidestep_path_item *)(uintptr_t)item->path,
                               item->path_length, integers))
            return FAIL_FORMAT(err, "'%s': integer keys 0x%" PRIx64 " that its path does not have",
                               item->name, integers);
        next = number + 1;
    }
    return SIDESTEP_OK;
}

/* Read the names of transforms.  A NUL follows each. */
static enum sidestep_status read_transforms(struct areas *areas, struct footer *out,
                                            struct sidestep_error *err)
{
    struct cursor extension = {0};

    if (!find_extension(areas->extensions, out->optional_features, FOOTER_TRANSFORMS_BIT,
                        &extension) ||
        cursor_remaining(&extension) == 0)
        return FAIL_FORMAT(err, "the list of transforms is malformed");
    const char **names = areas_new(areas, FOOTER_MAX_TRANSFORMS, sizeof(*names), err);
    if (names == NULL)
        return SIDESTEP_ENOMEM;
    out->transforms = names;
    while (cursor_remaining(&extension) != 0) {
        const char *name = (const char *)extension.bytes + extension.position;
        size_t length = strnlen(name, cursor_remaining(&extension));
        if (cursor_take(&extension, length + 1) == NULL ||
            out->transform_count == FOOTER_MAX_TRANSFORMS)
            return FAIL_FORMAT(err, "the list of transforms is malformed");
        names[out->transform_count++] = name;
    }
    return SIDESTEP_OK;
}

/* Read the next extra file.  False: the list is malformed. */
static bool read_extra(struct cursor *list, uint32_t rank, struct extra_file *out)
{
    uint32_t flags = cursor_u32le(list);

    out->is_alias = (flags & FOOTER_EXTRA_ALIAS) != 0;
    out->first_rank = (flags & FOOTER_EXTRA_FIRST_RANK) != 0;
    out->rank = rank;
    out->bytes = cursor_u64le(list);
    const uint8_t *sha256 = cursor_take(list, HASH_SHA256_BYTES);
    if (sha256 == NULL || (flags & ~(FOOTER_EXTRA_ALIAS | FOOTER_EXTRA_FIRST_RANK)) != 0)
        return false;
    memcpy(out->sha256, sha256, HASH_SHA256_BYTES);
    out->name = (const char *)list->bytes + list->position;
    return cursor_take(list, strnlen(out->name, cursor_remaining(list)) + 1) != NULL;
}

static enum sidestep_status read_extras(struct areas *areas, struct footer *out,
                                        struct sidestep_error *err)
{
    struct extra_file *files = NULL;
    struct cursor list = {0};
    size_t capacity = 0;

    if (!find_extension(areas->extensions, out->optional_features, FOOTER_EXTRAS_BIT, &list) ||
        cursor_remaining(&list) == 0)
        return FAIL_FORMAT(err, "the list of extra files is malformed");
    for (; cursor_remaining(&list) != 0; out->extra_count++) {
        TRY_RESERVE(areas->arena, files, capacity, out->extra_count + 1, err);
        files[out->extra_count] = (struct extra_file){0};
        files[out->extra_count].number = (uint32_t)out->extra_count;
        if (!read_extra(&list, out->rank, &files[out->extra_count]))
            return FAIL_FORMAT(err, "the list of extra files is malformed");
    }
    out->extras = files;
    return SIDESTEP_OK;
}

static enum sidestep_status read_extensions(struct areas *areas, struct footer *out,
                                            struct sidestep_error *err)
{
    bool required = (out->required_features & FOOTER_REQUIRED_TRANSFORMS) != 0;

    if (required != ((out->optional_features & FOOTER_OPTIONAL_TRANSFORMS) != 0))
        return FAIL_FORMAT(err, "transforms without their names");
    if (required)
        TRY(read_transforms(areas, out, err));
    if ((out->optional_features & FOOTER_OPTIONAL_INT_KEYS) != 0)
        TRY(read_int_keys(areas->extensions, out, err));
    if ((out->optional_features & FOOTER_OPTIONAL_EXTRAS) != 0)
        TRY(read_extras(areas, out, err));
    return SIDESTEP_OK;
}

static enum sidestep_status footer_parse(const uint8_t *bytes, size_t length, uint64_t end,
                                         struct arena *arena, struct footer *out,
                                         struct sidestep_error *err)
{
    struct cursor c = cursor_from_memory(bytes, length);
    struct areas areas = {.arena = arena};

    TRY(read_header(&c, out, &areas, err));
    out->items = areas_new(&areas, out->count, sizeof(*out->items), err);
    if (out->items == NULL)
        return SIDESTEP_ENOMEM;
    for (size_t i = 0; i < out->count; i++) {
        enum sidestep_status status = read_item(&areas, &out->items[i], err);
        if (status != SIDESTEP_OK) {
            error_wrap(err, "item %zu", i);
            return status;
        }
    }
    size_t padding = cursor_remaining(&areas.text);
    for (size_t i = 0; i < padding; i++)
        if (padding >= 8 || cursor_u8(&areas.text) != 0)
            return FAIL_FORMAT(err, "bytes follow the text of the last item");
    if (areas.blocks_left != 0)
        return FAIL_FORMAT(err, "%" PRIu64 " hashes belong to no item", areas.blocks_left);
    TRY(read_extensions(&areas, out, err));
    return footer_check(out, end, SIDESTEP_ECORRUPT, err);
}

enum sidestep_status footer_read(const struct source *file, struct arena *arena, struct footer *out,
                                 uint8_t sha256[HASH_SHA256_BYTES], struct sidestep_error *err)
{
    uint8_t tail[FOOTER_TAIL_BYTES];
    size_t tail_bytes = (size_t)min_u64(sizeof(tail), file->length);
    struct footer_trailer trailer;

    *out = (struct footer){0};
    TRY(tail_load(file, tail, tail_bytes, &trailer, err));
    size_t length = (size_t)trailer.footer_bytes;
    uint64_t start = file->length - FOOTER_TRAILER_BYTES - length;
    uint8_t *bytes = arena_new(arena, 1, length + FOOTER_TRAILER_BYTES);
    if (bytes == NULL)
        return FAIL_NOMEM(err, length + FOOTER_TRAILER_BYTES);
    if (length + FOOTER_TRAILER_BYTES <= tail_bytes)
        memcpy(bytes, tail + tail_bytes - FOOTER_TRAILER_BYTES - length,
               length + FOOTER_TRAILER_BYTES);
    else
        TRY(source_read(file, bytes, length + FOOTER_TRAILER_BYTES, start, err));
    if (memcmp(bytes + length, tail + tail_bytes - FOOTER_TRAILER_BYTES, FOOTER_TRAILER_BYTES) != 0)
        return FAIL_FORMAT(err, "trailer: it changed while it was read");
    if (hash_block(bytes, length) != trailer.footer_hash)
        return FAIL_FORMAT(err, "footer: the bytes do not match their hash");
    if (sha256 != NULL)
        hash_sha256(bytes, length + FOOTER_TRAILER_BYTES, sha256);

    memcpy(out->save_id, trailer.save_id, SAVE_ID_BYTES);
    out->rank = trailer.rank;
    out->shard = trailer.shard;
    out->layout_digest = trailer.layout_digest;
    out->begin = start;
    enum sidestep_status status = footer_parse(bytes, length, start, arena, out, err);
    if (status != SIDESTEP_OK) {
        error_wrap(err, "footer");
        *out = (struct footer){0};
    }
    return status;
}
