/* SPDX-License-Identifier: BSD-3-Clause */
/* whole_file.c -- see whole_file.h. */
#include "engine/whole_file.h"

#include <string.h>

#include "base/memory.h"
#include "base/owned.h"
#include "commit/commit.h"
#include "format/safetensors.h"

#define ZIP_END_BYTES 22u /* of the record at the end; torch writes no comment behind it */

static const char cut_short[] = " is cut short";

static bool is_safetensors(const char *name)
{
    size_t length = strlen(name);

    return length > 12 && strcmp(name + length - 12, ".safetensors") == 0;
}

/* A zip file begins with a record "PK\3\4", and ends with one "PK\5\6". */
static const char *check_zip(struct store_file *file, uint64_t size)
{
    char begin[4] = "", end[ZIP_END_BYTES] = "";

    if (size < sizeof(begin) ||
        store_file_read_at(file, begin, sizeof(begin), 0, NULL) != SIDESTEP_OK)
        return size < sizeof(begin) ? cut_short : " cannot be read";
    if (memcmp(begin, "PK\3\4", sizeof(begin)) != 0)
        return NULL; /* an old torch's, or a pickle */
    if (size < sizeof(end) ||
        store_file_read_at(file, end, sizeof(end), size - sizeof(end), NULL) != SIDESTEP_OK)
        return size < sizeof(end) ? cut_short : " cannot be read";
    return memcmp(end, "PK\5\6", 4) == 0 ? NULL : cut_short;
}

/* By its header, as who loads it reads that. */
static enum sidestep_status check_safetensors(struct store_file *file, uint64_t size,
                                              const char **problem, struct sidestep_error *err)
{
    struct source source = commit_file_source(file, size);
    OWNED_ARENA arena = {0};
    struct safetensors header;

    switch (safetensors_read(&source, &arena, &header, err)) {
    case SIDESTEP_OK:
    case SIDESTEP_EUNSUPPORTED: /* of tensors that we do not have: that is no damage */
        *problem = NULL;
        return SIDESTEP_OK;
    case SIDESTEP_ENOMEM:
        return SIDESTEP_ENOMEM;
    case SIDESTEP_ECORRUPT:
        *problem = " is cut short or damaged";
        return SIDESTEP_OK;
    default:
        *problem = " cannot be read";
        return SIDESTEP_OK;
    }
}

enum sidestep_status whole_file_check(struct store_dir *dir, const char *name, const char **problem,
                                      struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;
    struct store_stat stat;

    enum sidestep_status status = store_file_open(dir, name, 0, &file, NULL);
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, strlen(name));
    *problem = status == SIDESTEP_ENOTFOUND ? " is missing" : " cannot be read";
    if (status != SIDESTEP_OK || store_file_stat(file, &stat, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    *problem = " is empty";
    if (stat.size == 0)
        return SIDESTEP_OK;
    if (is_safetensors(name))
        return check_safetensors(file, stat.size, problem, err);
    *problem = check_zip(file, stat.size);
    return SIDESTEP_OK;
}
