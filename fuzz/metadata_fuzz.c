/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metadata_fuzz.c -- feeds any `.metadata` to the parser. An accepted one must be consistent, must
 * mean the same after it was written and read again, and must not change if it is merged with
 * itself.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "format/dcp_metadata.h"
#include "format/file_name.h"

#include "../tests/support/metadata_show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static void expect_storage(const struct metadata_storage *storage)
{
    expect(storage->file != NULL && file_name_is_beneath(storage->file, strlen(storage->file)));
    expect(storage->length <= INT64_MAX - storage->offset);
}

static void expect_sound(struct metadata *metadata)
{
    struct sidestep_error err;

    for (size_t i = 0; i < metadata->count; i++) {
        struct metadata_entry *entry = &metadata->entries[i];
        size_t item_bytes = sidestep_dtype_size(entry->dtype);
        expect(metadata_find(metadata, entry->name) == entry);
        expect(utf8_is_valid(entry->name, strlen(entry->name)));
        if (entry->is_object)
            expect_storage(&entry->storage);
        for (size_t c = 0; c < entry->chunk_count; c++) {
            const struct metadata_chunk *chunk = &entry->chunks[c];
            expect_storage(&chunk->storage);
            expect(chunk->box.ndim == entry->ndim);
            expect(box_check(&chunk->box, entry->shape, item_bytes != 0 ? item_bytes : 1, &err) ==
                   SIDESTEP_OK);
        }
        /* This is what is written then. */
        if (entry->path_length == 0) {
            struct sidestep_path_item *path = arena_new(&metadata->arena, 1, sizeof(*path));
            if (path == NULL)
                abort();
            path->key = entry->name;
            entry->path = path;
            entry->path_length = 1;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    OWNED_METADATA metadata = {0};
    OWNED_METADATA again = {0};
    OWNED_METADATA merged = {0};
    OWNED_BUFFER out = {0};
    struct sidestep_error err;

    if (dcp_metadata_read(data, size, &metadata, &err) != SIDESTEP_OK)
        return 0;
    expect_sound(&metadata);
    expect(dcp_metadata_write(&out, &metadata, &err) == SIDESTEP_OK);
    expect(dcp_metadata_read(out.bytes, out.length, &again, &err) == SIDESTEP_OK);
    expect(dcp_metadata_merge(&merged, &metadata, &err) == SIDESTEP_OK);
    expect(dcp_metadata_merge(&merged, &again, &err) == SIDESTEP_OK);
    OWNED_BUFFER shown = metadata_show(&metadata);
    OWNED_BUFFER shown_again = metadata_show(&again);
    OWNED_BUFFER shown_merged = metadata_show(&merged);
    expect(strcmp((char *)shown.bytes, (char *)shown_again.bytes) == 0);
    expect(strcmp((char *)shown.bytes, (char *)shown_merged.bytes) == 0);
    return 0;
}
