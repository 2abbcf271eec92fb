/* SPDX-License-Identifier: BSD-3-Clause */
/* file_probe.c -- reads the first and last bytes of a file; see file_probe.h. */
#include "catalog/file_probe.h"

#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "format/format.h"

#define FORM_BYTES 10u    /* from the beginning, enough to recognize safetensors */
#define ZIP_END_BYTES 22u /* of the record at the end; torch writes no comment after it */

bool file_probe_may_hold_tensors(const char *name)
{
    static const char *const endings[] = {".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pkl"};

    for (size_t i = 0; i < ARRAY_LENGTH(endings); i++)
        if (file_name_has_suffix(name, endings[i]))
            return true;
    return false;
}

enum sidestep_status file_probe_format(struct store_file *file, uint64_t size,
                                       enum file_probe_format *format, struct sidestep_error *err)
{
    uint8_t begin[FORM_BYTES] = {0};

    *format = FILE_PROBE_EMPTY;
    if (size == 0)
        return SIDESTEP_OK;
    TRY(store_file_read_at(file, begin, (size_t)min_u64(size, sizeof(begin)), 0, err));
    if (safetensors_has_header(begin, size) || safetensors_has_truncated_header(begin, size))
        *format = FILE_PROBE_SAFETENSORS;
    else if (memcmp(begin, "PK\3\4", 4) == 0)
        *format = FILE_PROBE_ZIP;
    else
        *format = begin[0] == 0x80 && begin[1] >= 2 && begin[1] <= 5 ? FILE_PROBE_PICKLE
                                                                     : FILE_PROBE_OTHER;
    return SIDESTEP_OK;
}

static const char truncated[] = " is truncated";
static const char pointer[] = " is a pointer of Git LFS or git-annex: the file has not arrived";

/* A zip file begins with a record "PK\3\4", and ends with one "PK\5\6". */
static enum sidestep_status check_zip(struct store_file *file, uint64_t size, const char **problem,
                                      struct sidestep_error *err)
{
    char begin[4] = "", end[ZIP_END_BYTES] = "";

    *problem = truncated;
    if (size < sizeof(begin))
        return SIDESTEP_OK;
    TRY(store_file_read_at(file, begin, sizeof(begin), 0, err));
    if (memcmp(begin, "PK\3\4", sizeof(begin)) != 0) {
        const struct source source = small_file_source(file, size);
        /* Otherwise a pickle, or of torch before 1.6. */
        *problem = pointer_file_check(&source, NULL) != SIDESTEP_OK ? pointer : NULL;
        return SIDESTEP_OK;
    }
    if (size < sizeof(end))
        return SIDESTEP_OK;
    TRY(store_file_read_at(file, end, sizeof(end), size - sizeof(end), err));
    if (memcmp(end, "PK\5\6", 4) == 0)
        *problem = NULL;
    return SIDESTEP_OK;
}

/* Check safetensors by the header, as a load reads it. */
static enum sidestep_status check_safetensors(struct store_file *file, uint64_t size,
                                              const char **problem, struct sidestep_error *err)
{
    struct source source = small_file_source(file, size);
    OWNED_ARENA arena = {0};
    struct safetensors header;

    enum sidestep_status status = safetensors_read_header(&source, &arena, &header, err);
    *problem = status == SIDESTEP_ECORRUPT ? " is truncated or damaged" : NULL;
    if (status == SIDESTEP_ECORRUPT && pointer_file_check(&source, NULL) != SIDESTEP_OK)
        *problem = pointer;
    /* A tensor whose dtype sidestep does not know is not damage. */
    return status == SIDESTEP_ECORRUPT || status == SIDESTEP_EUNSUPPORTED ? SIDESTEP_OK : status;
}

static enum sidestep_status check_open(struct store_file *file, const char *name,
                                       const char **problem, struct sidestep_error *err)
{
    struct store_stat stat;

    TRY(store_file_stat(file, &stat, err));
    *problem = " is empty";
    if (stat.size == 0)
        return SIDESTEP_OK;
    return file_name_has_suffix(name, ".safetensors")
               ? check_safetensors(file, stat.size, problem, err)
               : check_zip(file, stat.size, problem, err);
}

enum sidestep_status file_probe_check(struct store_dir *dir, const char *name, const char **problem,
                                      struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;

    *problem = NULL;
    enum sidestep_status status = store_file_open_to_read(dir, name, 0, &file, err);
    if (status == SIDESTEP_OK)
        return check_open(file, name, problem, err);
    if (status == SIDESTEP_ENOTFOUND)
        *problem = " is missing";
    return *problem != NULL ? SIDESTEP_OK : status;
}
