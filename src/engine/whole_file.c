/* SPDX-License-Identifier: BSD-3-Clause */
/* whole_file.c -- see whole_file.h. */
#include "engine/whole_file.h"

#include <jansson.h>
#include <string.h>

#include "base/memory.h"
#include "base/owned.h"

#define ZIP_END_BYTES 22u /* of the record at the end; torch writes no comment behind it */
#define SAFETENSORS_MAX_HEADER ((uint64_t)32 << 20) /* that of 100,000 tensors has 15 MiB */

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

/* Where the last tensor ends, from the beginning of the data; false: it is no header. */
static bool data_end(json_t *header, uint64_t *end)
{
    const char *name;
    json_t *tensor;

    *end = 0;
    if (!json_is_object(header))
        return false;
    json_object_foreach(header, name, tensor)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        const json_t *place = json_array_get(json_object_get(tensor, "data_offsets"), 1);
        if (!json_is_integer(place) || json_integer_value(place) < 0)
            return false;
        if ((uint64_t)json_integer_value(place) > *end)
            *end = (uint64_t)json_integer_value(place);
    }
    return true;
}

/* Eight bytes of length, a header of JSON, the data. */
static enum sidestep_status check_safetensors(struct store_file *file, uint64_t size,
                                              const char **problem, struct sidestep_error *err)
{
    uint8_t bytes[8];
    uint64_t length = 0, end;

    *problem = cut_short;
    if (size < sizeof(bytes))
        return SIDESTEP_OK;
    if (store_file_read_at(file, bytes, sizeof(bytes), 0, NULL) != SIDESTEP_OK) {
        *problem = " cannot be read";
        return SIDESTEP_OK;
    }
    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    if (length > SAFETENSORS_MAX_HEADER || length > size - sizeof(bytes))
        return SIDESTEP_OK;
    OWNED char *text = memory_new(length + 1, 1);
    if (text == NULL)
        return FAIL_NOMEM(err, length + 1);
    if (store_file_read_at(file, text, length, sizeof(bytes), NULL) != SIDESTEP_OK) {
        *problem = " cannot be read";
        return SIDESTEP_OK;
    }
    json_t *header = json_loadb(text, length, 0, NULL);
    if (!data_end(header, &end))
        *problem = " has no header that can be read";
    else if (end <= size - sizeof(bytes) - length)
        *problem = NULL;
    json_decref(header);
    return SIDESTEP_OK;
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
