/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metadata_tool.c -- runs the library's pickle and `.metadata` code as a filter, for tests in
 * Python that compare it with Python's own pickle and with torch.
 *
 * Reads requests from stdin until its end: one letter, a length (u32, little-endian), and a pickle
 * of that length. Answers each on stdout with a status (u32), a length (u32) and bytes: the
 * message of an error, or
 *      v: the value, as JSON (see value_json.h)
 *      w: the value, written again
 *      m: the metadata, written again
 *      j: the metadata, as JSON
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/dcp_metadata.h"
#include "format/pickle.h"
#include "support/value_json.h"

static void put_numbers(struct buffer *out, uint32_t ndim, const int64_t *numbers)
{
    buffer_put_u8(out, '[');
    for (uint32_t i = 0; i < ndim; i++)
        buffer_printf(out, "%s%" PRId64, i != 0 ? "," : "", numbers[i]);
    buffer_put_u8(out, ']');
}

/* [file, offset, length, transform] */
static void put_storage(struct buffer *out, const struct metadata_storage *storage)
{
    buffer_put_u8(out, '[');
    value_json_put_text(out, storage->file);
    buffer_printf(out, ",%" PRIu64 ",%" PRIu64 ",", storage->offset, storage->length);
    value_json_put_text(out, storage->transform);
    buffer_put_u8(out, ']');
}

/* [name, path, storage] or
 * [name, path, dtype, requires_grad, shape, [[offsets, lengths, storage], ...]] */
static void put_entry(struct buffer *out, const struct metadata_entry *entry)
{
    buffer_put_u8(out, '[');
    value_json_put_text(out, entry->name);
    buffer_put_text(out, ",[");
    for (uint32_t i = 0; i < entry->path_length; i++) {
        buffer_put_text(out, i != 0 ? "," : "");
        if (entry->path[i].key != NULL)
            value_json_put_text(out, entry->path[i].key);
        else
            buffer_printf(out, "%" PRId64, entry->path[i].index);
    }
    buffer_put_text(out, "],");
    if (entry->is_object) {
        put_storage(out, &entry->storage);
        buffer_put_u8(out, ']');
        return;
    }
    value_json_put_text(out, entry->dtype_name);
    buffer_put_text(out, entry->requires_grad ? ",true," : ",false,");
    put_numbers(out, entry->ndim, entry->shape);
    buffer_put_text(out, ",[");
    for (size_t i = 0; i < entry->chunk_count; i++) {
        const struct metadata_chunk *chunk = &entry->chunks[i];
        buffer_put_text(out, i != 0 ? ",[" : "[");
        put_numbers(out, chunk->box.ndim, chunk->box.offsets);
        buffer_put_u8(out, ',');
        put_numbers(out, chunk->box.ndim, chunk->box.lengths);
        buffer_put_u8(out, ',');
        put_storage(out, &chunk->storage);
        buffer_put_u8(out, ']');
    }
    buffer_put_text(out, "]]");
}

/* [checkpoint_id, save_id, [entry, ...]] */
static void put_metadata(struct buffer *out, const struct metadata *metadata)
{
    buffer_put_u8(out, '[');
    value_json_put_text(out, metadata->checkpoint_id);
    buffer_put_u8(out, ',');
    value_json_put_text(out, metadata->save_id);
    buffer_put_text(out, ",[");
    for (size_t i = 0; i < metadata->count; i++) {
        buffer_put_text(out, i != 0 ? "," : "");
        put_entry(out, &metadata->entries[i]);
    }
    buffer_put_text(out, "]]");
}

static enum sidestep_status answer_value(char request, const void *bytes, size_t length,
                                         struct buffer *out, struct sidestep_error *err)
{
    OWNED_ARENA arena = {0};
    struct pickle_node *root;
    struct sidestep_value *value;

    TRY(pickle_parse(&arena, bytes, length, NULL, &root, err));
    TRY(pickle_to_value(root, &value, err));
    enum sidestep_status status = SIDESTEP_OK;
    if (request == 'w')
        status = pickle_write_value(out, value, err);
    else
        value_json_put(out, value);
    sidestep_value_free(&value);
    return status;
}

static enum sidestep_status answer(char request, const void *bytes, size_t length,
                                   struct buffer *out, struct sidestep_error *err)
{
    OWNED_METADATA metadata = {0};

    if (request == 'v' || request == 'w')
        return answer_value(request, bytes, length, out, err);
    TRY(dcp_metadata_read(bytes, length, &metadata, err));
    if (request == 'm')
        return dcp_metadata_write(out, &metadata, err);
    put_metadata(out, &metadata);
    return buffer_check(out, err);
}

static bool serve(void)
{
    char request;
    uint32_t header[2];

    if (fread(&request, 1, 1, stdin) != 1)
        return false;
    if (fread(&header[0], sizeof(header[0]), 1, stdin) != 1)
        return false;
    void *bytes = malloc(header[0] + 1u);
    if (bytes == NULL || fread(bytes, 1, header[0], stdin) != header[0]) {
        free(bytes);
        return false;
    }
    OWNED_BUFFER out = {0};
    struct sidestep_error err = {0};
    enum sidestep_status status = answer(request, bytes, header[0], &out, &err);
    free(bytes);
    const void *reply = status == SIDESTEP_OK ? (const void *)out.bytes : err.message;
    header[0] = status;
    header[1] = (uint32_t)(status == SIDESTEP_OK ? out.length : strlen(err.message));
    return fwrite(header, sizeof(header), 1, stdout) == 1 &&
           fwrite(reply, 1, header[1], stdout) == header[1] && fflush(stdout) == 0;
}

int main(void)
{
    while (serve())
        ;
    return ferror(stdin) || ferror(stdout);
}
