/* SPDX-License-Identifier: BSD-3-Clause */
/* reader.c -- opens a checkpoint and checks its files against each other; see reader.h. */
#include "checkpoint/reader_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/missing.h"
#include "commit/commit.h"
#include "checkpoint/foreign.h"
#include "format/format.h"
#include "object/object.h"

/* Where a directory is found without its path. */
struct reader_place {
    struct store_dir *parent;
    const char *name;
};

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

static bool opens_all(const struct reader *r)
{
    return (r->flags & (READER_ALL | READER_TOLERANT)) != 0;
}

/* Hash .metadata. Its text is kept if it is short, or will be parsed. */
static enum sidestep_status hash_metadata(struct reader *r, bool *is_there,
                                          struct sidestep_error *err)
{
    struct buffer *text = &r->metadata_text;
    uint32_t flags = r->flags & STORE_DROP_CACHE;
    enum sidestep_status status =
        opens_all(r)
            ? small_file_read(r->dir, FILE_NAME_METADATA, flags, DCP_METADATA_MAX_BYTES, text, err)
            : small_file_hash(r->dir, FILE_NAME_METADATA, flags, DCP_METADATA_MAX_BYTES,
                              &r->metadata_bytes, r->metadata_sha256, text, err);

    *is_there = status != SIDESTEP_ENOTFOUND;
    if (!*is_there)
        return SIDESTEP_OK;
    TRY(WRAP(status, err, FILE_NAME_METADATA));
    if (opens_all(r)) {
        r->metadata_bytes = text->length;
        hash_sha256(text->bytes, text->length, r->metadata_sha256);
    }
    memcpy(r->manifest_sha256, r->metadata_sha256, sizeof(r->manifest_sha256));
    r->record_bytes = r->metadata_bytes;
    return SIDESTEP_OK;
}

/* The manifest was decoded. */
static void set_manifest(struct reader *r, const struct buffer *text)
{
    hash_sha256(text->bytes, text->length, r->manifest_sha256);
    r->record_bytes = r->manifest.metadata_bytes + text->length;
    r->has_manifest = true;
}

/* Find the manifest that lists this .metadata, if there is one. */
static void find_manifest(struct reader *r)
{
    if (referenced_files_find_manifest(r->dir, r->metadata_sha256, r->metadata_bytes, &r->arena,
                                       &r->manifest, &r->manifest_text) &&
        r->manifest.file_count != 0) {
        set_manifest(r, &r->manifest_text);
        return;
    }
    r->manifest = (struct manifest){0};
    buffer_release(&r->manifest_text);
}

static enum sidestep_status parse_metadata(struct reader *r, struct sidestep_error *err)
{
    struct buffer *text = &r->metadata_text;
    uint8_t sha256[HASH_SHA256_BYTES];

    if (text->length == 0) {
        TRY(small_file_read(r->dir, FILE_NAME_METADATA, 0, DCP_METADATA_MAX_BYTES, text, err));
        hash_sha256(text->bytes, text->length, sha256);
        if (memcmp(sha256, r->metadata_sha256, sizeof(sha256)) != 0)
            return FAIL(err, SIDESTEP_ECORRUPT, "it was replaced while it was being read");
    }
    TRY(pointer_file_check_bytes(text->bytes, text->length, err));
    enum sidestep_status status = dcp_metadata_read(text->bytes, text->length, &r->metadata, err);
    /* Sidestep can read each .metadata that it wrote, so this one was changed. Without this check,
     * a flipped bit would pass for a newer format. */
    if (status == SIDESTEP_EUNSUPPORTED && !r->has_manifest && is_unlisted_metadata(r))
        status = FAIL(err, SIDESTEP_ECORRUPT, "it is not the one that the manifest lists");
    return status;
}

/* Decode the text of the manifest, and check that it belongs to the metadata, which was parsed. */
static enum sidestep_status decode_manifest(struct reader *r, struct sidestep_error *err)
{
    const struct buffer *text = &r->manifest_text;

    TRY(manifest_decode(text->bytes, text->length, &r->arena, &r->manifest, err));
    if (strcmp(r->manifest.save_id, r->metadata.save_id) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "it belongs to save %s", r->manifest.save_id);
    if (r->manifest.metadata_bytes != r->metadata_bytes ||
        memcmp(r->manifest.metadata_sha256, r->metadata_sha256, HASH_SHA256_BYTES) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "it lists another %s", FILE_NAME_METADATA);
    set_manifest(r, text);
    return SIDESTEP_OK;
}

/* Read the manifest of the save that the metadata names, if it is one of sidestep. */
static enum sidestep_status read_manifest(struct reader *r, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];

    if (!file_name_is_save_id(r->metadata.save_id))
        return SIDESTEP_OK;
    file_name_format(FILE_NAME_MANIFEST, r->metadata.save_id, 0, 0, name);
    enum sidestep_status status = small_file_read(r->dir, name, r->flags & STORE_DROP_CACHE,
                                                  MANIFEST_MAX_BYTES, &r->manifest_text, err);
    if (status == SIDESTEP_ENOTFOUND)
        return FAIL(err, SIDESTEP_ECORRUPT, "its manifest '%s' is missing", name);
    if (status == SIDESTEP_OK)
        status = decode_manifest(r, err);
    return WRAP(status, err, "manifest '%s'", name);
}

/* Take the metadata from the index of chunks, if that is possible. */
static bool take_index(struct reader *r, const struct reader_wanted *wanted,
                       struct reader_records *records)
{
    struct buffer *stored = records != NULL ? &records->chunks : NULL;

    if (!r->has_manifest || r->manifest.index.bytes == 0)
        return false;
    bool taken = reader_take_index(r, wanted, stored, NULL) == SIDESTEP_OK;
    if (!taken && stored != NULL)
        buffer_release(stored);
    return taken;
}

/* Give the records that were read to the caller. */
static void give_records(struct reader *r, struct reader_records *records)
{
    records->has_index = r->has_index;
    records->manifest = r->manifest_text;
    r->manifest_text = (struct buffer){0};
    if (r->has_index)
        return;
    records->chunks = r->metadata_text;
    r->metadata_text = (struct buffer){0};
}

/* Read what follows from .metadata, of which the hash is known. */
static enum sidestep_status read_records(struct reader *r, const struct reader_wanted *wanted,
                                         struct reader_records *records, struct sidestep_error *err)
{
    if (!opens_all(r))
        find_manifest(r);
    if (!take_index(r, wanted, records))
        TRY(WRAP(parse_metadata(r, err), err, FILE_NAME_METADATA));
    if (!r->has_manifest)
        TRY(read_manifest(r, err));
    if (r->has_manifest && records != NULL)
        give_records(r, records);
    return SIDESTEP_OK;
}

/* Take the records that another rank has read. */
static enum sidestep_status take_records(struct reader *r, const struct reader_wanted *wanted,
                                         struct reader_records *records, struct sidestep_error *err)
{
    const struct buffer *manifest = &records->manifest, *metadata = &records->chunks;

    TRY(manifest_decode(manifest->bytes, manifest->length, &r->arena, &r->manifest, err));
    set_manifest(r, manifest);
    return records->has_index
               ? reader_take_index(r, wanted, &records->chunks, err)
               : dcp_metadata_read(metadata->bytes, metadata->length, &r->metadata, err);
}

void reader_records_release(struct reader_records *records)
{
    buffer_release(&records->manifest);
    buffer_release(&records->chunks);
    records->has_index = false;
}

/* ---- files */

/* Add a file, unless it is there already. ${*i}: its number; before, that of a file that it may be.
 */
static enum sidestep_status add_file(struct reader *r, const char *name, size_t *i,
                                     struct sidestep_error *err)
{
    size_t existing;

    if (*i < r->file_count && r->files[*i].name == name)
        return SIDESTEP_OK;
    *i = hash_table_find(&r->file_names, name);
    if (*i != SIZE_MAX)
        return SIDESTEP_OK;
    TRY(hash_table_insert(&r->file_names, name, r->file_count, &existing, err));
    *i = r->file_count++;
    r->files[*i].name = name;
    return SIDESTEP_OK;
}

/* Add the file of an item; ${*at} as ${*i} of add_file(). Without a manifest, the file must reach
 * to the end of its items: a torch that is killed leaves truncated files. */
static enum sidestep_status add_storage(struct reader *r, const char *name,
                                        const struct metadata_storage *storage, size_t *at,
                                        struct sidestep_error *err)
{
    uint64_t end;

    if (storage->file == NULL)
        return SIDESTEP_OK;
    TRY(add_file(r, storage->file, at, err));
    if (!checked_add(storage->offset, storage->length, &end))
        end = UINT64_MAX;
    if (!r->has_manifest && end > r->files[*at].bytes) {
        r->files[*at].bytes = end;
        r->files[*at].last = name;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status list_files(struct reader *r, struct sidestep_error *err)
{
    size_t max_files = r->manifest.file_count, at = 0;

    for (size_t i = 0; i < r->metadata.count; i++)
        max_files += r->metadata.entries[i].is_object ? 1 : r->metadata.entries[i].chunk_count;
    r->files = memory_new(max_files, sizeof(*r->files));
    if (r->files == NULL)
        return FAIL_NOMEM(err, max_files * sizeof(*r->files));
    for (size_t i = 0; i < r->manifest.file_count; i++) {
        TRY(add_file(r, r->manifest.files[i].name, &at, err));
        r->files[at].bytes = r->manifest.files[i].bytes;
    }
    for (size_t i = 0; i < r->metadata.count; i++) {
        const struct metadata_entry *entry = &r->metadata.entries[i];
        if (entry->is_object)
            TRY(add_storage(r, entry->name, &entry->storage, &at, err));
        for (size_t c = 0; c < entry->chunk_count; c++)
            TRY(add_storage(r, entry->name, &entry->chunks[c].storage, &at, err));
    }
    if (r->has_manifest && r->file_count != r->manifest.file_count)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "%s names the file '%s', which the manifest does not list", FILE_NAME_METADATA,
                    r->files[r->manifest.file_count].name);
    return SIDESTEP_OK;
}

/* Hold a shared lock on .metadata, or on the manifest of a part, if it can be taken. */
static void lock_metadata(struct reader *r)
{
    char name[FILE_NAME_BYTES] = FILE_NAME_METADATA;
    struct store_file *file = NULL;

    if (r->store->ops->layout == STORE_OF_KEYS) /* object stores have no locks */
        return;
    if ((r->flags & READER_PARTS) != 0)
        referenced_files_find_lock(r->dir, name);
    if (store_file_open(r->dir, name, 0, &file, NULL) != SIDESTEP_OK)
        return;
    if (store_file_lock(file, false, NULL) == SIDESTEP_OK)
        r->shared_lock = file;
    else
        store_file_discard(file);
}

/* Open the directory, from ${place} or by its path.  If the path is that of a file that may be of
 * another format, there is none. */
static enum sidestep_status open_dir(struct reader *r, const struct reader_place *place,
                                     struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    enum sidestep_status status =
        place != NULL ? store_dir_open(r->store, place->parent, place->name, &r->dir, &why)
                      : named_dir_open(r->store, r->path, &r->dir, &why);

    if (status == SIDESTEP_OK) {
        if ((r->flags & READER_SHARED_LOCK) != 0)
            lock_metadata(r);
    } else if ((r->flags & READER_FOREIGN) == 0 || why.sys_errno != ENOTDIR) {
        return error_copy(err, &why);
    }
    return SIDESTEP_OK;
}

/* Check all files; or, if files are opened late, open a few, or compare the sizes of many. */
static enum sidestep_status check_files(struct reader *r, struct sidestep_error *err)
{
    if (r->opens_late && r->file_count > READER_MAX_FOOTERS)
        return reader_check_sizes(r, 0, r->file_count, err);
    for (size_t i = 0; i < r->file_count; i++)
        TRY(reader_file_check(r, i, r->flags, err));
    return r->has_manifest && !r->opens_late ? reader_check_items(r, err) : SIDESTEP_OK;
}

/* Is it a part, and are parts asked for? */
static bool find_part(struct reader *r)
{
    if ((r->flags & READER_PARTS) == 0 || r->dir == NULL ||
        !referenced_files_find_part(r->dir, &r->arena, &r->manifest))
        return false;
    r->has_manifest = true;
    return true;
}

/* Make the metadata of a part from the footers of its files, which are checked first. */
static enum sidestep_status open_part(struct reader *r, struct sidestep_error *err)
{
    OWNED_METADATA_BUILDER builder = {.out = &r->metadata};

    TRY(list_files(r, err));
    for (size_t i = 0; i < r->file_count; i++) {
        TRY(reader_file_check(r, i, r->flags, err));
        if (r->files[i].problem == NULL)
            TRY(commit_metadata_add(&builder, &r->files[i].footer, r->files[i].name, err));
    }
    TRY(commit_metadata_finish(&builder, err));
    return arena_copy_text(&r->metadata.arena, r->manifest.save_id, &r->metadata.save_id, err);
}

/* ${wanted}: NULL: take everything, and check the data files. */
static enum sidestep_status open_once(struct reader *r, const struct reader_place *place,
                                      const struct reader_wanted *wanted,
                                      struct reader_records *records, struct sidestep_error *err)
{
    const struct reader_wanted everything = {0};
    bool is_given = records != NULL && records->manifest.length != 0, is_foreign = false;
    bool has_metadata = true;

    TRY(open_dir(r, place, err));
    if (is_given)
        TRY(take_records(r, wanted, records, err));
    else if (r->dir != NULL)
        TRY(hash_metadata(r, &has_metadata, err));
    if (r->dir == NULL || (!has_metadata && (r->flags & READER_FOREIGN) != 0))
        TRY(foreign_open(r, r->flags, &is_foreign, err));
    if (is_foreign)
        return SIDESTEP_OK;
    if (!has_metadata && find_part(r))
        return open_part(r, err);
    if (!has_metadata)
        TRY(read_rank_local(r, err));
    else if (!is_given)
        TRY(read_records(r, wanted != NULL ? wanted : &everything, records, err));
    r->opens_late = !opens_all(r);
    buffer_release(&r->manifest_text);
    buffer_release(&r->metadata_text);
    TRY(list_files(r, err));
    return wanted != NULL ? SIDESTEP_OK : check_files(r, err);
}

void reader_close(struct reader **reader)
{
    struct reader *r = *reader;

    if (r == NULL)
        return;
    *reader = NULL;
    for (size_t i = 0; i < r->file_count; i++)
        store_file_discard(r->files[i].file);
    store_file_discard(r->shared_lock);
    store_dir_close(r->dir);
    foreign_free(&r->foreign);
    hash_table_release(&r->file_names);
    metadata_release(&r->metadata);
    buffer_release(&r->manifest_text);
    buffer_release(&r->metadata_text);
    arena_release(&r->arena);
    buffer_release(&r->manifest_text);
    free(r->files);
    free(r->path);
    free(r);
}

static enum sidestep_status reader_new(struct store *store, const char *path, uint32_t flags,
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
    const char *id = r->has_manifest ? r->manifest.save_id : r->metadata.save_id;
    uint64_t before = id != NULL ? commit_identity(id) : 0;
    uint64_t now = 0;

    return before != 0 && store_dir_open(r->store, NULL, r->path, &dir, NULL) == SIDESTEP_OK &&
           commit_read_identity(dir, &now, NULL) == SIDESTEP_OK && now != before;
}

static enum sidestep_status open_reader(struct store *store, const struct reader_place *place,
                                        const char *path, uint32_t flags,
                                        const struct reader_wanted *wanted,
                                        struct reader_records *records, struct reader **out,
                                        struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;
    bool is_given = records != NULL && records->manifest.length != 0;

    *out = NULL;
    for (unsigned attempt = 0; attempt < READER_TRIES; attempt++) {
        struct reader *r = NULL;
        TRY(reader_new(store, path, flags, &r, err));
        status = open_once(r, attempt == 0 ? place : NULL, wanted, records, err);
        if (status == SIDESTEP_OK) {
            *out = r;
            return SIDESTEP_OK;
        }
        bool again = !is_given && was_replaced(r);
        reader_close(&r);
        if (!again)
            break;
        if (records != NULL)
            reader_records_release(records);
    }
    return status;
}

enum sidestep_status reader_open(struct store *store, const char *path, uint32_t flags,
                                 struct reader **out, struct sidestep_error *err)
{
    return open_reader(store, NULL, path, flags, NULL, NULL, out, err);
}

enum sidestep_status reader_open_in(struct store_dir *parent, const char *name, const char *path,
                                    uint32_t flags, struct reader **out, struct sidestep_error *err)
{
    const struct reader_place place = {parent, name};

    return open_reader(parent->store, &place, path, flags, NULL, NULL, out, err);
}

enum sidestep_status reader_open_to_load(struct store *store, const char *path, uint32_t flags,
                                         const struct reader_wanted *wanted,
                                         struct reader_records *records, struct reader **out,
                                         struct sidestep_error *err)
{
    return open_reader(store, NULL, path, flags & ~(uint32_t)READER_ALL, wanted, records, out, err);
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
