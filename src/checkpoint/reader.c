/* SPDX-License-Identifier: BSD-3-Clause */
/* reader.c -- opens a checkpoint and checks its files against each other; see reader.h. */
#include "checkpoint/reader_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/missing.h"
#include "commit/commit.h"
#include "checkpoint/foreign.h"
#include "format/format.h"
#include "object/object.h"

#define READER_TRIES 5u

static enum sidestep_status explain_missing(struct reader *r, struct sidestep_error *err)
{
    enum sidestep_status status = missing_metadata_error(r->dir, err);

    if (status == SIDESTEP_ENOTFOUND)
        named_dir_explain(r->store, r->path, err);
    return status;
}

/* Read the rank-local metadata of a save without collectives: `__0.metadata`, `__1.metadata` ... */
static enum sidestep_status read_rank_local(struct reader *r, struct sidestep_error *err)
{
    for (uint32_t rank = 0; rank < SIDESTEP_MAX_RANKS; rank++) {
        OWNED_BUFFER bytes = {0};
        OWNED_METADATA part = {0};
        char name[FILE_NAME_BYTES];

        snprintf(name, sizeof(name), "__%u.metadata", rank);
        enum sidestep_status status =
            small_file_read(r->dir, name, 0, DCP_METADATA_MAX_BYTES, &bytes, err);
        if (status == SIDESTEP_ENOTFOUND && rank != 0)
            break;
        if (status == SIDESTEP_ENOTFOUND)
            return explain_missing(r, err);
        if (status == SIDESTEP_OK)
            status = dcp_metadata_read(bytes.bytes, bytes.length, &part, err);
        if (status == SIDESTEP_OK)
            status = dcp_metadata_merge(&r->metadata, &part, err);
        r->record_bytes += bytes.length;
        TRY(WRAP(status, err, "%s", name));
    }
    return SIDESTEP_OK;
}

/* Are there manifests, but none that lists this .metadata? */
static bool is_unlisted_metadata(const struct reader *r)
{
    OWNED_NAMES struct name_list names = {0};
    size_t manifests = 0;

    if (name_list_read(r->dir, &names, NULL) != SIDESTEP_OK)
        return false;
    for (size_t i = 0; i < names.count; i++) {
        OWNED_BUFFER bytes = {0};
        OWNED_ARENA arena = {0};
        struct manifest manifest;
        if (file_name_parse(names.names[i]).kind != FILE_NAME_MANIFEST ||
            small_file_read(r->dir, names.names[i], 0, MANIFEST_MAX_BYTES, &bytes, NULL) !=
                SIDESTEP_OK ||
            manifest_decode(bytes.bytes, bytes.length, &arena, &manifest, NULL) != SIDESTEP_OK)
            continue;
        manifests++;
        if (memcmp(manifest.metadata_sha256, r->manifest_sha256, HASH_SHA256_BYTES) == 0)
            return false;
    }
    return manifests != 0;
}

enum sidestep_status reader_find_listed(struct reader *r, uint32_t flags,
                                        struct sidestep_error *err)
{
    OWNED_ARENA arena = {0};
    struct manifest manifest;
    uint64_t bytes;

    TRY(small_file_hash(r->dir, FILE_NAME_METADATA, flags & STORE_DROP_CACHE,
                        DCP_METADATA_MAX_BYTES, &bytes, r->manifest_sha256, err));
    r->manifest.metadata_bytes = r->record_bytes = bytes;
    r->is_listed = referenced_files_find_manifest(r->dir, r->manifest_sha256, bytes, &arena,
                                                  &manifest, &r->manifest_text) &&
                   manifest.file_count != 0;
    /* With STORE_DROP_CACHE, reader_read_manifest() reads it again from the medium. */
    if (!r->is_listed || (flags & STORE_DROP_CACHE) != 0)
        buffer_release(&r->manifest_text);
    if (!r->is_listed)
        return SIDESTEP_OK;
    return arena_copy_text(&r->metadata.arena, manifest.save_id, &r->metadata.save_id, err);
}

static enum sidestep_status parse_metadata(struct reader *r, uint32_t flags,
                                           struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};

    TRY(small_file_read(r->dir, FILE_NAME_METADATA, flags & STORE_DROP_CACHE,
                        DCP_METADATA_MAX_BYTES, &bytes, err));
    hash_sha256(bytes.bytes, bytes.length, r->manifest_sha256);
    r->manifest.metadata_bytes = r->record_bytes = bytes.length;
    TRY(pointer_file_check_bytes(bytes.bytes, bytes.length, err));
    enum sidestep_status status = dcp_metadata_read(bytes.bytes, bytes.length, &r->metadata, err);
    /* Sidestep can read each .metadata that it wrote, so this one was changed. Without this check,
     * a flipped bit would pass for a newer format. */
    if (status == SIDESTEP_EUNSUPPORTED && is_unlisted_metadata(r))
        status = FAIL(err, SIDESTEP_ECORRUPT, "it is not the one that the manifest lists");
    return status;
}

static enum sidestep_status read_metadata(struct reader *r, uint32_t flags,
                                          struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    if ((flags & (READER_PARSE_METADATA | READER_TOLERANT)) == 0)
        status = reader_find_listed(r, flags, err);
    if (status == SIDESTEP_OK && !r->is_listed)
        status = parse_metadata(r, flags, err);
    if (status == SIDESTEP_ENOTFOUND)
        return read_rank_local(r, err);
    return WRAP(status, err, FILE_NAME_METADATA);
}

/* Decode ${text} as the manifest of ${r}. ${name} is for messages. */
static enum sidestep_status decode_manifest(struct reader *r, const struct buffer *text,
                                            const char *name, struct sidestep_error *err)
{
    enum sidestep_status status =
        manifest_decode(text->bytes, text->length, &r->arena, &r->manifest, err);

    hash_sha256(text->bytes, text->length, r->manifest_sha256);
    r->record_bytes += text->length;
    r->has_manifest = true;
    return WRAP(status, err, "manifest '%s'", name);
}

enum sidestep_status reader_take_manifest(struct reader *r, const struct buffer *text,
                                          struct sidestep_error *err)
{
    TRY(decode_manifest(r, text, "that rank 0 read", err));
    r->is_listed = true;
    r->record_bytes += r->manifest.metadata_bytes;
    return arena_copy_text(&r->metadata.arena, r->manifest.save_id, &r->metadata.save_id, err);
}

enum sidestep_status reader_read_manifest(struct reader *r, uint32_t flags,
                                          struct sidestep_error *err)
{
    struct buffer *text = &r->manifest_text;
    enum sidestep_status status = SIDESTEP_OK;
    char name[FILE_NAME_BYTES];
    uint64_t metadata_bytes = r->manifest.metadata_bytes;
    uint8_t metadata_sha256[HASH_SHA256_BYTES];

    if (!file_name_is_save_id(r->metadata.save_id))
        return SIDESTEP_OK;
    memcpy(metadata_sha256, r->manifest_sha256, sizeof(metadata_sha256));
    file_name_format(FILE_NAME_MANIFEST, r->metadata.save_id, 0, 0, name);
    if (text->length == 0)
        status = small_file_read(r->dir, name, flags, MANIFEST_MAX_BYTES, text, err);
    if (status == SIDESTEP_ENOTFOUND)
        return FAIL(err, SIDESTEP_ECORRUPT, "its manifest '%s' is missing", name);
    TRY(WRAP(status, err, "manifest '%s'", name));
    TRY(decode_manifest(r, text, name, err));
    if (strcmp(r->manifest.save_id, r->metadata.save_id) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "manifest '%s': it belongs to save %s", name,
                    r->manifest.save_id);
    if (r->manifest.metadata_bytes != metadata_bytes ||
        memcmp(r->manifest.metadata_sha256, metadata_sha256, HASH_SHA256_BYTES) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "manifest '%s': it lists another %s", name,
                    FILE_NAME_METADATA);
    return SIDESTEP_OK;
}

/* Add a file, unless it is there already. ${*i}: its number. */
static enum sidestep_status add_file(struct reader *r, const char *name, size_t *i,
                                     struct sidestep_error *err)
{
    size_t existing;

    *i = hash_table_find(&r->file_names, name);
    if (*i != SIZE_MAX)
        return SIDESTEP_OK;
    TRY(hash_table_insert(&r->file_names, name, r->file_count, &existing, err));
    *i = r->file_count++;
    r->files[*i].name = name;
    return SIDESTEP_OK;
}

/* Add the file of an item. Without a manifest, the file must reach to the end of its items: a torch
 * that is killed leaves truncated files. */
static enum sidestep_status add_storage(struct reader *r, const char *name,
                                        const struct metadata_storage *storage,
                                        struct sidestep_error *err)
{
    uint64_t end;
    size_t i;

    if (storage->file == NULL)
        return SIDESTEP_OK;
    TRY(add_file(r, storage->file, &i, err));
    if (!checked_add(storage->offset, storage->length, &end))
        end = UINT64_MAX;
    if (!r->has_manifest && end > r->files[i].bytes) {
        r->files[i].bytes = end;
        r->files[i].last = name;
    }
    return SIDESTEP_OK;
}

enum sidestep_status reader_list_files(struct reader *r, struct sidestep_error *err)
{
    size_t max_files = r->manifest.file_count;

    for (size_t i = 0; i < r->metadata.count; i++)
        max_files += r->metadata.entries[i].is_object ? 1 : r->metadata.entries[i].chunk_count;
    r->files = memory_new(max_files, sizeof(*r->files));
    if (r->files == NULL)
        return FAIL_NOMEM(err, max_files * sizeof(*r->files));
    for (size_t i = 0, at; i < r->manifest.file_count; i++) {
        TRY(add_file(r, r->manifest.files[i].name, &at, err));
        r->files[at].bytes = r->manifest.files[i].bytes;
    }
    for (size_t i = 0; i < r->metadata.count; i++) {
        const struct metadata_entry *entry = &r->metadata.entries[i];
        if (entry->is_object)
            TRY(add_storage(r, entry->name, &entry->storage, err));
        for (size_t c = 0; c < entry->chunk_count; c++)
            TRY(add_storage(r, entry->name, &entry->chunks[c].storage, err));
    }
    if (r->has_manifest && r->file_count != r->manifest.file_count)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "%s names the file '%s', which the manifest does not list", FILE_NAME_METADATA,
                    r->files[r->manifest.file_count].name);
    return SIDESTEP_OK;
}

/* Build the metadata from the footers, which were checked. */
static enum sidestep_status gather_metadata(struct reader *r, struct sidestep_error *err)
{
    OWNED struct footer *footers = memory_new(r->file_count, sizeof(*footers));
    OWNED const char **names = memory_new(r->file_count, sizeof(*names));

    if (footers == NULL || names == NULL)
        return FAIL_NOMEM(err, r->file_count * (sizeof(*footers) + sizeof(*names)));
    for (size_t i = 0; i < r->file_count; i++) {
        footers[i] = r->files[i].footer;
        names[i] = r->files[i].name;
    }
    enum sidestep_status status =
        commit_metadata_from_footers(footers, names, r->file_count, &r->metadata, err);
    if (status == SIDESTEP_EDISAGREE) {
        status = SIDESTEP_ECORRUPT;
        if (err != NULL)
            err->status = SIDESTEP_ECORRUPT;
    }
    return status;
}

enum sidestep_status reader_take_footers(struct reader *r, struct sidestep_error *err)
{
    for (size_t i = 0; i < r->file_count; i++)
        TRY(reader_file_check(r, i, r->flags, err));
    r->opens_late = false;
    return gather_metadata(r, err);
}

void reader_take_lease(struct reader *r)
{
    struct store_file *file = NULL;

    if (r->store->ops->layout == STORE_OF_KEYS) /* object stores have no locks */
        return;
    if (store_file_open(r->dir, FILE_NAME_METADATA, 0, &file, NULL) != SIDESTEP_OK)
        return;
    if (store_file_lock(file, false, NULL) == SIDESTEP_OK)
        r->lease = file;
    else
        store_file_discard(file);
}

static enum sidestep_status open_once(struct reader *r, const struct reader_share *share,
                                      struct sidestep_error *err)
{
    uint32_t flags = r->flags;
    bool foreign = false;

    if ((flags & READER_FOREIGN) != 0)
        TRY(foreign_open(r, flags, &foreign, err));
    if (foreign)
        return SIDESTEP_OK;
    TRY(named_dir_open(r->store, r->path, &r->dir, err));
    if ((flags & READER_SHARED_LOCK) != 0)
        reader_take_lease(r);
    TRY(read_metadata(r, flags, err));
    TRY(reader_read_manifest(r, flags & STORE_DROP_CACHE, err));
    buffer_release(&r->manifest_text); /* for the other ranks of reader_open_listed() only */
    r->opens_late = reader_is_late(r);
    if (r->opens_late && r->is_listed &&
        reader_take_index(r, NULL, false, NULL, NULL) != SIDESTEP_OK)
        r->opens_late = false; /* the footers say the same */
    TRY(reader_list_files(r, err));
    TRY(reader_open_share(r, share, err));
    if (r->opens_late)
        return SIDESTEP_OK;
    if (r->is_listed)
        return gather_metadata(r, err);
    return r->has_manifest ? reader_check_chunks(r, err) : SIDESTEP_OK;
}

void reader_close(struct reader **reader)
{
    struct reader *r = *reader;

    if (r == NULL)
        return;
    *reader = NULL;
    for (size_t i = 0; i < r->file_count; i++)
        store_file_discard(r->files[i].file);
    store_file_discard(r->lease);
    store_dir_close(r->dir);
    foreign_free(&r->foreign);
    hash_table_release(&r->file_names);
    metadata_release(&r->metadata);
    arena_release(&r->arena);
    buffer_release(&r->manifest_text);
    free(r->files);
    free(r->path);
    free(r);
}

enum sidestep_status reader_new(struct store *store, const char *path, uint32_t flags,
                                struct reader **out, struct sidestep_error *err)
{
    *out = memory_new(1, sizeof(**out));
    if (*out == NULL)
        return FAIL_NOMEM(err, sizeof(**out));
    (*out)->store = store;
    (*out)->flags = flags;
    (*out)->queue = (struct store_queue_config){.ring = (flags & READER_IO_URING) != 0,
                                                .depth = READER_QUEUE_DEPTH};
    (*out)->path = memory_strdup(path);
    if ((*out)->path != NULL) { /* without a trailing slash, because file names are appended */
        (*out)->path[object_url_trimmed(path)] = '\0';
        return SIDESTEP_OK;
    }
    reader_close(out);
    return FAIL_NOMEM(err, strlen(path));
}

/* Does the path lead to another save now? */
static bool was_replaced(const struct reader *r)
{
    OWNED_DIR *dir = NULL;
    uint64_t before = r->metadata.save_id != NULL ? commit_identity(r->metadata.save_id) : 0;
    uint64_t now = 0;

    return before != 0 && store_dir_open(r->store, NULL, r->path, &dir, NULL) == SIDESTEP_OK &&
           commit_read_identity(dir, &now, NULL) == SIDESTEP_OK && now != before;
}

enum sidestep_status reader_open(struct store *store, const char *path, uint32_t flags,
                                 struct reader **out, struct sidestep_error *err)
{
    return reader_open_with_others(store, path, flags, &(struct reader_share){0, 1}, out, err);
}

enum sidestep_status reader_open_with_others(struct store *store, const char *path, uint32_t flags,
                                             const struct reader_share *share, struct reader **out,
                                             struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    *out = NULL;
    for (unsigned attempt = 0; attempt < READER_TRIES; attempt++) {
        struct reader *r = NULL;
        TRY(reader_new(store, path, flags, &r, err));
        status = open_once(r, share, err);
        if (status == SIDESTEP_OK) {
            *out = r;
            return SIDESTEP_OK;
        }
        bool again = was_replaced(r);
        reader_close(&r);
        if (!again)
            break;
    }
    return status;
}

bool reader_status_is_damage(enum sidestep_status status)
{
    switch (status) {
    case SIDESTEP_ECORRUPT:
    case SIDESTEP_EUNSAFE:
    case SIDESTEP_EUNCOMMITTED:
    case SIDESTEP_ENOTFOUND:
    case SIDESTEP_EUNSUPPORTED:
        return true;
    default:
        return false;
    }
}
