/* SPDX-License-Identifier: BSD-3-Clause */
/* referenced_files.c -- finds the manifest of a .metadata, or parses .metadata; see
 * referenced_files.h. */
#include "commit/referenced_files.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "commit/name_list.h"
#include "commit/small_file.h"
#include "format/format.h"

void referenced_files_release(struct referenced_files *referenced)
{
    hash_table_release(&referenced->files);
    metadata_release(&referenced->metadata);
    arena_release(&referenced->arena);
    *referenced = (struct referenced_files){0};
}

/* Read manifest ${name}, if it is one and can be read. */
static bool read_manifest(struct store_dir *dir, const char *name, struct arena *arena,
                          struct manifest *manifest, struct buffer *text)
{
    return file_name_parse(name).kind == FILE_NAME_MANIFEST &&
           small_file_read(dir, name, 0, MANIFEST_MAX_BYTES, text, NULL) == SIDESTEP_OK &&
           manifest_decode(text->bytes, text->length, arena, manifest, NULL) == SIDESTEP_OK &&
           strcmp(file_name_parse(name).save_id, manifest->save_id) == 0;
}

bool referenced_files_find_manifest(struct store_dir *dir, const uint8_t sha256[HASH_SHA256_BYTES],
                                    uint64_t bytes, struct arena *arena, struct manifest *manifest,
                                    struct buffer *text)
{
    OWNED_NAMES struct name_list names = {0};

    if (name_list_read(dir, &names, NULL) != SIDESTEP_OK)
        return false;
    for (size_t i = 0; i < names.count; i++) {
        OWNED_BUFFER read = {0};
        if (!read_manifest(dir, names.names[i], arena, manifest, &read) ||
            manifest->metadata_bytes != bytes ||
            memcmp(manifest->metadata_sha256, sha256, HASH_SHA256_BYTES) != 0)
            continue;
        if (text != NULL) {
            *text = read;
            read = (struct buffer){0};
        }
        return true;
    }
    return false;
}

static enum sidestep_status add_file(struct referenced_files *referenced, const char *file)
{
    size_t existing;

    return file != NULL ? hash_table_insert(&referenced->files, file, 0, &existing, NULL)
                        : SIDESTEP_OK;
}

static enum sidestep_status add_listed(struct referenced_files *referenced,
                                       const struct manifest *manifest)
{
    assert(referenced->save_id == NULL && referenced->metadata.count == 0);
    referenced->is_listed = true;
    TRY(arena_copy_text(&referenced->arena, manifest->save_id, &referenced->save_id, NULL));
    for (size_t i = 0; i < manifest->file_count; i++)
        TRY(add_file(referenced, manifest->files[i].name));
    for (size_t i = 0; i < manifest->extra_count; i++)
        TRY(add_file(referenced, extra_file_stored(&manifest->extras[i])));
    return SIDESTEP_OK;
}

static enum sidestep_status add_copy(struct referenced_files *referenced, const char *file)
{
    if (file == NULL || hash_table_find(&referenced->files, file) != SIZE_MAX)
        return SIDESTEP_OK;
    const char *copy = arena_strndup(&referenced->arena, file, strlen(file));
    return copy != NULL ? add_file(referenced, copy) : SIDESTEP_ENOMEM;
}

enum sidestep_status referenced_files_take(const struct metadata *metadata,
                                           struct referenced_files *out)
{
    const char *save_id = metadata->save_id;

    *out = (struct referenced_files){0};
    if (save_id != NULL &&
        (out->save_id = arena_strndup(&out->arena, save_id, strlen(save_id))) == NULL)
        return SIDESTEP_ENOMEM;
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        TRY(add_copy(out, entry->storage.file));
        for (size_t c = 0; c < entry->chunk_count; c++)
            TRY(add_copy(out, entry->chunks[c].storage.file));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status add_stored(struct referenced_files *referenced)
{
    assert(!referenced->is_listed && referenced->save_id == NULL);
    referenced->save_id = referenced->metadata.save_id;
    for (size_t i = 0; i < referenced->metadata.count; i++) {
        const struct metadata_entry *entry = &referenced->metadata.entries[i];
        TRY(add_file(referenced, entry->storage.file));
        for (size_t c = 0; c < entry->chunk_count; c++)
            TRY(add_file(referenced, entry->chunks[c].storage.file));
    }
    return SIDESTEP_OK;
}

bool referenced_files_find_part(struct store_dir *dir, struct arena *arena,
                                struct manifest *manifest)
{
    OWNED_NAMES struct name_list names = {0};
    size_t found = 0;

    if (name_list_read(dir, &names, NULL) != SIDESTEP_OK)
        return false;
    for (size_t i = 0; i < names.count; i++) {
        OWNED_BUFFER read = {0};
        struct manifest one;
        if (strcmp(names.names[i], FILE_NAME_METADATA) == 0)
            return false;
        if (!read_manifest(dir, names.names[i], arena, &one, &read) || one.part.rank_count == 0)
            continue;
        *manifest = one;
        found++;
    }
    return found == 1;
}

void referenced_files_find_lock(struct store_dir *dir, char name[FILE_NAME_BYTES])
{
    OWNED_ARENA arena = {0};
    struct manifest manifest;
    struct store_stat stat;

    snprintf(name, FILE_NAME_BYTES, FILE_NAME_METADATA);
    if (store_stat(dir, FILE_NAME_METADATA, &stat, NULL) == SIDESTEP_ENOTFOUND &&
        referenced_files_find_part(dir, &arena, &manifest))
        file_name_format(FILE_NAME_MANIFEST, manifest.save_id, 0, 0, name);
}

bool referenced_files_has_metadata(struct store *store, struct store_dir *parent, const char *name)
{
    OWNED_DIR *dir = NULL;
    struct store_stat stat;

    return store_dir_open(store, parent, name, &dir, NULL) == SIDESTEP_OK &&
           store_stat(dir, FILE_NAME_METADATA, &stat, NULL) == SIDESTEP_OK;
}

enum sidestep_status referenced_files_parse(struct store_dir *dir, const struct buffer *bytes,
                                            struct referenced_files *out)
{
    uint8_t sha256[HASH_SHA256_BYTES];
    struct manifest manifest;

    *out = (struct referenced_files){0};
    hash_sha256(bytes->bytes, bytes->length, sha256);
    if (referenced_files_find_manifest(dir, sha256, bytes->length, &out->arena, &manifest, NULL))
        return add_listed(out, &manifest);
    TRY(dcp_metadata_read(bytes->bytes, bytes->length, &out->metadata, NULL));
    return add_stored(out);
}

enum sidestep_status referenced_files_read(struct store_dir *dir, const char *name,
                                           struct referenced_files *out)
{
    OWNED_BUFFER bytes = {0};
    uint8_t sha256[HASH_SHA256_BYTES];
    uint64_t length;
    struct manifest manifest;

    *out = (struct referenced_files){0};
    TRY(small_file_hash(dir, name, 0, DCP_METADATA_MAX_BYTES, &length, sha256, NULL, NULL));
    if (referenced_files_find_manifest(dir, sha256, length, &out->arena, &manifest, NULL))
        return add_listed(out, &manifest);
    TRY(small_file_read(dir, name, 0, DCP_METADATA_MAX_BYTES, &bytes, NULL));
    TRY(dcp_metadata_read(bytes.bytes, bytes.length, &out->metadata, NULL));
    return add_stored(out);
}

enum sidestep_status referenced_files_read_any(struct store_dir *dir, struct referenced_files *out)
{
    enum sidestep_status status = referenced_files_read(dir, FILE_NAME_METADATA, out);
    struct manifest manifest;

    if (status != SIDESTEP_ENOTFOUND || !referenced_files_find_part(dir, &out->arena, &manifest))
        return status;
    return add_listed(out, &manifest);
}

bool referenced_files_was_replaced(struct store_dir *parent, const char *name, const char *save_id)
{
    OWNED_REFERENCED_FILES now = {0};
    OWNED_DIR *dir = NULL;

    return store_dir_open(parent->store, parent, name, &dir, NULL) == SIDESTEP_OK &&
           referenced_files_read_any(dir, &now) == SIDESTEP_OK &&
           (now.save_id == NULL || strcmp(now.save_id, save_id) != 0);
}
