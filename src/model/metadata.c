/* SPDX-License-Identifier: BSD-3-Clause */
/* metadata.c -- finds entries and chunks of metadata; see metadata.h. */
#include "model/metadata.h"

#include "model/display.h"

void metadata_release(struct metadata *metadata)
{
    hash_table_release(&metadata->names);
    chunk_table_release(&metadata->chunks);
    arena_release(&metadata->arena);
    *metadata = (struct metadata){0};
}

enum sidestep_status metadata_index_names(struct metadata *metadata, struct sidestep_error *err)
{
    hash_table_release(&metadata->names);
    for (size_t i = 0; i < metadata->count; i++) {
        size_t existing;
        TRY(hash_table_insert(&metadata->names, metadata->entries[i].name, i, &existing, err));
        if (existing != SIZE_MAX)
            return FAIL(err, SIDESTEP_ECORRUPT, "'%s' appears twice in the metadata",
                        metadata->entries[i].name);
    }
    return SIDESTEP_OK;
}

enum sidestep_status metadata_index_chunks(struct metadata *metadata, struct sidestep_error *err)
{
    chunk_table_release(&metadata->chunks);
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        for (size_t c = 0; c < entry->chunk_count; c++) {
            size_t existing;
            TRY(chunk_table_insert(&metadata->chunks, metadata, i, c, &existing, err));
            if (existing != SIZE_MAX)
                return FAIL(err, SIDESTEP_ECORRUPT,
                            "tensor '%s': chunks %zu and %zu are both at %s",
                            display_name(entry->name).text, existing, c,
                            display_shape(entry->ndim, entry->chunks[c].box.offsets).text);
        }
    }
    return SIDESTEP_OK;
}

const struct metadata_entry *metadata_find(const struct metadata *metadata, const char *name)
{
    size_t i = hash_table_find(&metadata->names, name);

    return i != SIZE_MAX ? &metadata->entries[i] : NULL;
}

uint64_t metadata_tensor_bytes(const struct metadata_entry *entry)
{
    const struct box whole = {.ndim = entry->ndim, .lengths = entry->shape};

    return box_volume(&whole) * sidestep_dtype_size(entry->dtype);
}
