/* SPDX-License-Identifier: BSD-3-Clause */
/* small_file.c -- reads, hashes and writes small files; see small_file.h. */
#include "commit/small_file.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"

static enum sidestep_status open_file(struct store_dir *dir, const char *name, uint32_t flags,
                                      uint64_t max, struct store_file **file, uint64_t *length,
                                      struct sidestep_error *err)
{
    struct store_stat stat;

    TRY(store_file_open_to_read(dir, name, flags, file, err));
    TRY(store_file_stat(*file, &stat, err));
    if (stat.size > max)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s' has %llu bytes, more than the limit of %llu",
                    name, (unsigned long long)stat.size, (unsigned long long)max);
    *length = stat.size;
    return SIDESTEP_OK;
}

enum sidestep_status small_file_read(struct store_dir *dir, const char *name, uint32_t flags,
                                     uint64_t max, struct buffer *out, struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;
    uint64_t length;

    if (STORE_OPS_OF(dir)->file_get != NULL)
        return STORE_OPS_OF(dir)->file_get(dir, name, max, out, err);
    TRY(open_file(dir, name, flags, max, &file, &length, err));
    uint8_t *to = buffer_extend(out, length);
    TRY(buffer_check(out, err));
    return length != 0 ? store_file_read_at(file, to, length, 0, err) : SIDESTEP_OK;
}

enum sidestep_status small_file_hash(struct store_dir *dir, const char *name, uint32_t flags,
                                     uint64_t max, uint64_t *length,
                                     uint8_t sha256[HASH_SHA256_BYTES], struct buffer *text,
                                     struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;
    OWNED_BUFFER own = {0};
    struct buffer *whole = text != NULL ? text : &own;

    /* An object can be replaced between two requests, but not within one. */
    if (STORE_OPS_OF(dir)->file_get != NULL) {
        TRY(STORE_OPS_OF(dir)->file_get(dir, name, max, whole, err));
        *length = whole->length;
    } else {
        TRY(open_file(dir, name, flags, max, &file, length, err));
        struct source source = small_file_source(file, *length);
        if (text == NULL || *length > SMALL_FILE_SHORT_BYTES)
            return hash_sha256_source(&source, sha256, err);
        uint8_t *to = buffer_extend(whole, *length);
        TRY(buffer_check(whole, err));
        if (*length != 0)
            TRY(source_read(&source, to, *length, 0, err));
    }
    hash_sha256(whole->bytes, whole->length, sha256);
    return SIDESTEP_OK;
}

enum sidestep_status small_file_write(struct store_dir *dir, const char *name, const void *bytes,
                                      size_t length, struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;

    TRY(store_file_create(dir, name, 0, &file, err));
    TRY(store_file_write_at(file, bytes, length, 0, err));
    TRY(store_file_sync(file, err));
    return store_file_close(TAKE(file), err);
}

enum sidestep_status small_file_write_record(struct store_dir *dir, enum file_name_kind kind,
                                             const char *save_id, const struct buffer *bytes,
                                             struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];

    if (bytes->length == 0)
        return SIDESTEP_OK;
    file_name_format(kind, save_id, 0, 0, name);
    return small_file_write(dir, name, bytes->bytes, bytes->length, err);
}

static enum sidestep_status write_and_rename(struct store_dir *dir, const char *name,
                                             const char *tmp, const void *bytes, size_t length,
                                             struct sidestep_error *err)
{
    TRY(small_file_write(dir, tmp, bytes, length, err));
    return store_rename(dir, tmp, dir, name, STORE_REPLACE, err);
}

enum sidestep_status small_file_replace(struct store_dir *dir, const char *name, const char *tmp,
                                        const void *bytes, size_t length,
                                        struct sidestep_error *err)
{
    if (STORE_OPS_OF(dir)->file_put != NULL)
        return STORE_OPS_OF(dir)->file_put(dir, name, bytes, length, err);
    assert(strcmp(name, tmp) != 0);
    (void)store_unlink(dir, tmp, NULL);
    enum sidestep_status status = write_and_rename(dir, name, tmp, bytes, length, err);
    if (status != SIDESTEP_OK) {
        (void)store_unlink(dir, tmp, NULL);
        return status;
    }
    return store_dir_sync(dir, err);
}

static enum sidestep_status source_file_read_at(const struct source *source, void *to, size_t bytes,
                                                uint64_t offset, struct sidestep_error *err)
{
    return store_file_read_at((struct store_file *)source->context, to, bytes, offset, err);
}

struct source small_file_source(struct store_file *file, uint64_t length)
{
    return (struct source){.length = length, .read_at = source_file_read_at, .context = file};
}
