/* SPDX-License-Identifier: BSD-3-Clause */
/* pointer_file.c -- see pointer_file.h. */
#include "format/pointer_file.h"

#include <string.h>

static const struct {
    const char *begin; /* of the pointer, by the specifications of both programs */
    const char *keeper;
    const char *advice;
} pointers[] = {
    {"version https://git-lfs.github.com/spec/", "Git LFS", "git lfs pull"},
    {"version https://hawser.github.com/spec/", "Git LFS", "git lfs pull"},
    {"/annex/objects/", "git-annex", "git annex get"},
};

enum sidestep_status pointer_file_check_bytes(const void *bytes, size_t length,
                                              struct sidestep_error *err)
{
    for (size_t i = 0; i < ARRAY_LENGTH(pointers) && length <= POINTER_FILE_MAX_BYTES; i++) {
        size_t begin = strlen(pointers[i].begin);
        if (length >= begin && memcmp(bytes, pointers[i].begin, begin) == 0)
            return FAIL(err, SIDESTEP_EUNCOMMITTED,
                        "it is a pointer of %s, and the file itself has not arrived: '%s' gets it",
                        pointers[i].keeper, pointers[i].advice);
    }
    return SIDESTEP_OK;
}

enum sidestep_status pointer_file_check(const struct source *source, struct sidestep_error *err)
{
    uint8_t bytes[POINTER_FILE_MAX_BYTES];

    if (source->length > sizeof(bytes) ||
        source_read(source, bytes, (size_t)source->length, 0, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    return pointer_file_check_bytes(bytes, (size_t)source->length, err);
}
