/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_extra.c -- finds, checks and reads the extra files of a checkpoint; see reader.h. */
#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/reader.h"
#include "commit/commit.h"

const struct extra_file *reader_find_extra(const struct reader *r, const char *name)
{
    for (size_t i = 0; i < r->manifest.extra_count; i++)
        if (strcmp(r->manifest.extras[i].name, name) == 0)
            return &r->manifest.extras[i];
    return NULL;
}

/* ${*kind}: of damage, as in struct sidestep_problem. */
static enum sidestep_status open_extra(const struct reader *r, const struct extra_file *file,
                                       struct store_file **out, const char **kind,
                                       struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    struct store_stat stat;

    enum sidestep_status status =
        store_file_open_to_read(r->dir, extra_file_stored(file), 0, out, &why);
    *kind = "missing"; /* a file that the manifest lists and that is not there is damage */
    if (status == SIDESTEP_ENOTFOUND)
        return FAIL(err, SIDESTEP_ECORRUPT, "it is missing");
    *kind = NULL;
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    TRY(store_file_stat(*out, &stat, err));
    *kind = stat.size != file->bytes ? "size" : NULL;
    if (*kind != NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "it has %" PRIu64 " bytes instead of %" PRIu64,
                    stat.size, file->bytes);
    return SIDESTEP_OK;
}

static enum sidestep_status check_hash(const struct extra_file *file,
                                       const uint8_t sha256[HASH_SHA256_BYTES],
                                       struct sidestep_error *err)
{
    if (memcmp(sha256, file->sha256, HASH_SHA256_BYTES) == 0)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "its bytes do not match their hash");
}

enum sidestep_status reader_check_extra(const struct reader *r, const struct extra_file *file,
                                        bool contents, const char **kind,
                                        struct sidestep_error *err)
{
    uint8_t sha256[HASH_SHA256_BYTES];
    OWNED_FILE *opened = NULL;

    *kind = NULL;
    if (file->is_alias)
        return SIDESTEP_OK; /* it has no bytes, and only other readers look for it */
    TRY(open_extra(r, file, &opened, kind, err));
    if (!contents)
        return SIDESTEP_OK;
    struct source source = small_file_source(opened, file->bytes);
    TRY(hash_sha256_source(&source, sha256, err));
    return check_hash(file, sha256, err);
}

enum sidestep_status reader_check_extras(const struct reader *r, struct sidestep_error *err)
{
    const char *kind;

    for (size_t i = 0; i < r->manifest.extra_count; i++)
        TRY(WRAP(reader_check_extra(r, &r->manifest.extras[i], false, &kind, err), err, "file '%s'",
                 r->manifest.extras[i].name));
    return SIDESTEP_OK;
}

enum sidestep_status reader_read_extra(const struct reader *r, const struct extra_file *file,
                                       void **bytes, struct sidestep_error *err)
{
    OWNED void *owned = memory_resize(NULL, file->bytes, 1);
    uint8_t sha256[HASH_SHA256_BYTES];
    OWNED_FILE *opened = NULL;
    const char *kind;

    if (owned == NULL)
        return FAIL_NOMEM(err, file->bytes);
    TRY(open_extra(r, file, &opened, &kind, err));
    if (file->bytes != 0)
        TRY(store_file_read_at(opened, owned, file->bytes, 0, err));
    hash_sha256(owned, file->bytes, sha256);
    TRY(check_hash(file, sha256, err));
    *bytes = TAKE(owned);
    return SIDESTEP_OK;
}
