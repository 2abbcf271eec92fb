/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * safetensors_shards.c -- see safetensors.h: reads where pieces lie in their tensors.  torch's
 * HuggingFaceStorageWriter with save_distributed writes files with pieces of tensors.  Their
 * offsets are a text in the header's metadata, JSON within JSON: {"w": {"saved_offsets": [2, 0]}}.
 */
#include "base/base.h"
#include "format/json_reader.h"
#include "format/safetensors.h"
#include "model/model.h"

#include <string.h>

/* Read the offsets of one tensor.  ${*count}: how many there are. */
static void read_piece(struct json_reader *json, int64_t offsets[SIDESTEP_MAX_NDIM], size_t *count)
{
    *count = SIZE_MAX;
    json_reader_enter(json, '{');
    for (bool first = true; json_reader_next(json, '}', &first);) {
        if (strcmp(json_reader_key(json), "saved_offsets") != 0) {
            json_reader_skip(json);
            continue;
        }
        *count = 0;
        json_reader_enter(json, '[');
        for (bool first_offset = true; json_reader_next(json, ']', &first_offset); ++*count) {
            int64_t offset = json_reader_integer(json);
            if (*count < SIDESTEP_MAX_NDIM)
                offsets[*count] = offset;
        }
    }
}

static enum sidestep_status set_place(struct safetensors_tensor *tensor, const int64_t *offsets,
                                      size_t count, struct arena *arena, struct sidestep_error *err)
{
    bool valid = count == tensor->ndim;
    int64_t end;

    for (size_t i = 0; valid && i < count; i++)
        valid = offsets[i] >= 0 && !__builtin_add_overflow(offsets[i], tensor->shape[i], &end);
    if (!valid)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s' has no valid place in " SAFETENSORS_SHARDS_KEY,
                    display_name(tensor->name).text);
    tensor->place = arena_copy(arena, offsets, count * sizeof(*offsets));
    return tensor->place != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, count * sizeof(*offsets));
}

enum sidestep_status safetensors_read_shard_offsets(const char *text, struct safetensors *all,
                                                    const struct hash_table *names,
                                                    struct arena *arena, struct sidestep_error *err)
{
    char *copy = arena_strndup(arena, text, strlen(text));

    if (copy == NULL)
        return FAIL_NOMEM(err, strlen(text));
    struct json_reader json = json_reader_init(copy);
    json_reader_enter(&json, '{');
    for (bool first = true; json_reader_next(&json, '}', &first);) {
        size_t i = hash_table_find(names, json_reader_key(&json)), count = 0;
        int64_t offsets[SIDESTEP_MAX_NDIM];
        read_piece(&json, offsets, &count);
        if (json.problem == NULL && i != SIZE_MAX)
            TRY(set_place(&all->tensors[i], offsets, count, arena, err));
    }
    json_reader_end(&json);
    if (json.problem != NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "byte %zu of its " SAFETENSORS_SHARDS_KEY ": %s",
                    json.position, json.problem);
    return SIDESTEP_OK;
}
