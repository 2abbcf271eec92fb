/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_read.c -- reads archives of any version of torch, or of another writer.
 *
 * It reads data.pkl, the storages, the version and, if there is one, the byte order.  It ignores
 * all other members, as torch does.
 */
#include "format/archive.h"

#include <stdio.h>
#include <string.h>

#include "format/archive_rebuild.h"
#include "format/archive_zip.h"

#define VERSION_MAX 10u /* torch's kMaxSupportedFileFormatVersion */
#define SMALL_BYTES 32u /* of a version or a byte order */
#define KEY_MAX 32u

/* A plain tensor of 64 dimensions needs less than 2 KiB. */
#define TENSOR_PICKLE_BYTES ((uint64_t)1 << 20)

/* The limit for the nodes of a pickle of ${bytes}: more than any real data needs.  Most of a large
 * pickle is text. */
#define NODE_BYTES(bytes)                                                                          \
    (((size_t)256 << 20) + 2 * (size_t)(bytes) + 14 * (size_t)min_u64(bytes, (uint64_t)64 << 20))

static enum sidestep_status check_version(struct archive_zip *zip, struct sidestep_error *err)
{
    /* torch looks for them in this order. */
    const struct archive_member *member = archive_zip_find(zip, ".data/version");
    const uint8_t *text = NULL;
    unsigned version = 0;
    size_t i = 0;

    if (member == NULL)
        member = archive_zip_find(zip, "version");
    if (member == NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: it has no version");
    TRY(archive_zip_load(zip, member, SMALL_BYTES, &text, err));
    for (; i < member->size && i < 4 && text[i] >= '0' && text[i] <= '9'; i++)
        version = version * 10 + (unsigned)(text[i] - '0');
    bool is_number = i != 0 && (i == member->size || (text[i] == '\n' && i + 1 == member->size));
    if (!is_number || version == 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: its version is not a number");
    if (version > VERSION_MAX)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "archive: version %u is newer than %u", version,
                    VERSION_MAX);
    return SIDESTEP_OK;
}

static enum sidestep_status read_byte_order(struct archive_zip *zip, bool *is_big,
                                            struct sidestep_error *err)
{
    const struct archive_member *member = archive_zip_find(zip, "byteorder");
    const uint8_t *text = NULL;

    *is_big = false;
    if (member == NULL)
        return SIDESTEP_OK;
    TRY(archive_zip_load(zip, member, SMALL_BYTES, &text, err));
    *is_big = member->size == 3 && memcmp(text, "big", 3) == 0;
    if (!*is_big && (member->size != 6 || memcmp(text, "little", 6) != 0))
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: its byte order is neither little nor big");
    return SIDESTEP_OK;
}

enum sidestep_status archive_read_byte_order(struct archive_zip *zip, bool *is_big,
                                             struct sidestep_error *err)
{
    TRY(check_version(zip, err));
    return read_byte_order(zip, is_big, err);
}

enum sidestep_status archive_read_pickle(struct archive_zip *zip, uint64_t max_bytes,
                                         struct arena *arena, struct pickle_node **root,
                                         struct sidestep_error *err)
{
    const struct archive_member *member = archive_zip_find(zip, "data.pkl");
    const uint8_t *bytes = NULL;

    if (member == NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: it has no data.pkl");
    TRY(archive_zip_load(zip, member, max_bytes, &bytes, err));
    arena->limit_bytes = NODE_BYTES(member->size);
    return pickle_parse(arena, bytes, (size_t)member->size, NULL, root, err);
}

static enum sidestep_status find_storage(const struct archive_zip *zip,
                                         const struct archive_storage *storage, bool is_big,
                                         struct archive_tensor *tensor, struct sidestep_error *err)
{
    char name[KEY_MAX + sizeof("data/")];

    size_t digits = strspn(storage->key, "0123456789");
    if (digits == 0 || digits > KEY_MAX || storage->key[digits] != '\0')
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: the storage's key is not a number");
    snprintf(name, sizeof(name), "data/%s", storage->key);
    const struct archive_member *member = archive_zip_find(zip, name);
    if (member == NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: it has no %s", name);
    return archive_rebuild_set_data(tensor, storage, member, is_big, err);
}

enum sidestep_status archive_tensor_read(const struct source *source, uint64_t offset,
                                         uint64_t length, struct archive_tensor *out,
                                         struct sidestep_error *err)
{
    OWNED_ARCHIVE_ZIP zip = {0};
    OWNED_ARENA nodes = {0};
    struct pickle_node *root = NULL;
    struct archive_tensor tensor = {0};
    struct archive_storage storage = {0};
    bool is_big = false;

    TRY(archive_zip_open(&zip, source, offset, length, err));
    TRY(archive_read_byte_order(&zip, &is_big, err));
    TRY(archive_read_pickle(&zip, TENSOR_PICKLE_BYTES, &nodes, &root, err));
    TRY(archive_rebuild_parse_tensor(root, &tensor, &storage, err));
    TRY(find_storage(&zip, &storage, is_big, &tensor, err));
    *out = tensor;
    return SIDESTEP_OK;
}

static enum sidestep_status read_object(
    const struct source *source, uint64_t offset, uint64_t length, struct sidestep_value **out,
    enum sidestep_status (*convert)(const struct pickle_node *node, struct sidestep_value **out,
                                    struct sidestep_error *err),
    struct sidestep_error *err)
{
    OWNED_ARCHIVE_ZIP zip = {0};
    OWNED_ARENA nodes = {0};
    struct pickle_node *root = NULL;

    TRY(archive_zip_open(&zip, source, offset, length, err));
    TRY(check_version(&zip, err));
    TRY(archive_read_pickle(&zip, ARCHIVE_MAX_PICKLE_BYTES, &nodes, &root, err));
    return convert(root, out, err);
}

enum sidestep_status archive_object_read_at(const struct source *source, uint64_t offset,
                                            uint64_t length, struct sidestep_value **out,
                                            struct sidestep_error *err)
{
    return read_object(source, offset, length, out, pickle_to_value, err);
}

enum sidestep_status archive_object_read(const void *bytes, size_t length,
                                         struct sidestep_value **out, struct sidestep_error *err)
{
    struct source source = source_from_memory(bytes, length);

    return read_object(&source, 0, length, out, pickle_to_value, err);
}

enum sidestep_status archive_object_read_plain(const void *bytes, size_t length,
                                               struct sidestep_value **out,
                                               struct sidestep_error *err)
{
    struct source source = source_from_memory(bytes, length);

    return read_object(&source, 0, length, out, pickle_to_plain_value, err);
}

static enum sidestep_status check_zip(struct archive_zip *zip, const struct source *source,
                                      uint64_t offset, uint64_t length, struct sidestep_error *err)
{
    bool is_big = false;

    TRY(archive_zip_open(zip, source, offset, length, err));
    TRY(archive_read_byte_order(zip, &is_big, err));
    if (archive_zip_find(zip, "data.pkl") == NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: it has no data.pkl");
    for (size_t i = 0; i < zip->count; i++)
        TRY(archive_zip_verify(zip, &zip->members[i], err));
    return SIDESTEP_OK;
}

enum sidestep_status archive_check(const struct source *source, uint64_t offset, uint64_t length,
                                   struct sidestep_error *err)
{
    OWNED_ARCHIVE_ZIP zip = {0};

    return check_zip(&zip, source, offset, length, err);
}

enum sidestep_status archive_check_file(const struct source *source, struct sidestep_error *err)
{
    OWNED_ARCHIVE_ZIP zip = {.is_large = true};

    return check_zip(&zip, source, 0, source->length, err);
}
