/* SPDX-License-Identifier: BSD-3-Clause */
/* sweep_in_place.c -- see sweep.h: files of dead saves inside a checkpoint's own directory, and
 * what a replaced checkpoint leaves there. */
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/owned.h"
#include "commit/commit.h"
#include "commit/name_list.h"
#include "commit/sweep.h"
#include "format/dcp_metadata.h"

/* Metadata of ${name} in ${dir}; false if there is none, or it cannot be read. */
static bool read_metadata(struct store_dir *dir, const char *name, struct metadata *out)
{
    OWNED_BUFFER bytes = {0};

    return commit_read_file(dir, name, 0, DCP_METADATA_MAX_BYTES, &bytes, NULL) == SIDESTEP_OK &&
           dcp_metadata_read(bytes.bytes, bytes.length, out, NULL) == SIDESTEP_OK;
}

static enum sidestep_status add_file(struct table *files, const struct metadata_storage *storage)
{
    size_t existing;

    return storage->file != NULL ? table_insert(files, storage->file, 0, &existing, NULL)
                                 : SIDESTEP_OK;
}

/* The set of files that a checkpoint is made of. */
static enum sidestep_status files_of(const struct metadata *metadata, struct table *files)
{
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        TRY(add_file(files, &entry->storage));
        for (size_t c = 0; c < entry->chunk_count; c++)
            TRY(add_file(files, &entry->chunks[c].storage));
    }
    return SIDESTEP_OK;
}

static void unlink_unless(struct store_dir *dir, const char *file, const struct table *keep)
{
    if (file != NULL && strchr(file, '/') == NULL && table_find(keep, file) == SIZE_MAX)
        (void)store_unlink(dir, file, NULL);
}

/* Unlink the files that a manifest of ours lists, and itself.  It knows more than the metadata
 * does: shards without items. */
static void unlink_listed(struct store_dir *dir, const char *save_id, const struct table *keep)
{
    OWNED_BUFFER bytes = {0};
    OWNED_ARENA arena = {0};
    struct manifest manifest;
    char name[NAMES_MAX];

    names_format(NAMES_MANIFEST, save_id, 0, 0, name);
    if (commit_read_file(dir, name, 0, MANIFEST_MAX_BYTES, &bytes, NULL) == SIDESTEP_OK &&
        manifest_decode(bytes.bytes, bytes.length, &arena, &manifest, NULL) == SIDESTEP_OK)
        for (size_t i = 0; i < manifest.file_count; i++)
            unlink_unless(dir, manifest.files[i].name, keep);
    (void)store_unlink(dir, name, NULL);
}

/* Unlink the files that ${old} names and ${keep} does not. */
static void unlink_files(struct store_dir *dir, const struct metadata *old,
                         const struct table *keep)
{
    uint8_t id[SAVE_ID_BYTES];

    for (size_t i = 0; i < old->count; i++) {
        const struct metadata_entry *entry = &old->entries[i];
        unlink_unless(dir, entry->storage.file, keep);
        for (size_t c = 0; c < entry->chunk_count; c++)
            unlink_unless(dir, entry->chunks[c].storage.file, keep);
    }
    if (old->save_id != NULL && strlen(old->save_id) == SAVE_ID_HEX - 1 &&
        hash_from_hex(old->save_id, SAVE_ID_BYTES, id))
        unlink_listed(dir, old->save_id, keep);
}

static bool has_id(const struct metadata *metadata, const char *save_id)
{
    return metadata->save_id != NULL && strcmp(metadata->save_id, save_id) == 0;
}

void sweep_replaced(struct store_dir *dir, const char *save_id)
{
    OWNED_METADATA current = {0};
    OWNED_METADATA old = {0};
    OWNED_TABLE keep = {0};
    char tmp[NAMES_MAX];
    struct store_stat stat;

    names_format(NAMES_META_TMP, save_id, 0, 0, tmp);
    if (store_stat(dir, tmp, &stat, NULL) != SIDESTEP_OK ||
        !read_metadata(dir, NAMES_METADATA, &current) || !has_id(&current, save_id) ||
        files_of(&current, &keep) != SIDESTEP_OK)
        return; /* nothing came out, or ours is not in: nothing is known to be garbage */
    if (read_metadata(dir, tmp, &old) && !has_id(&old, save_id))
        unlink_files(dir, &old, &keep);
    (void)store_unlink(dir, tmp, NULL);
    (void)store_dir_sync(dir, NULL);
}

void sweep_save_files(struct store_dir *dir, const char *save_id)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_METADATA current = {0};
    char mark[NAMES_MAX];
    struct store_stat stat;
    bool found = store_stat(dir, NAMES_METADATA, &stat, NULL) == SIDESTEP_OK;

    if (found && (!read_metadata(dir, NAMES_METADATA, &current) || has_id(&current, save_id)))
        return; /* it is the checkpoint, or we cannot tell that it is not */
    if (name_list_read(dir, &names, NULL) != SIDESTEP_OK)
        return;
    for (size_t i = 0; i < names.count; i++) {
        struct names_parsed parsed = names_parse(names.names[i]);
        if (strcmp(parsed.save_id, save_id) == 0 && parsed.kind != NAMES_PENDING &&
            parsed.kind != NAMES_OUTCOME && parsed.kind != NAMES_SAVING &&
            parsed.kind != NAMES_TRASH && parsed.kind != NAMES_BAD)
            (void)store_unlink(dir, names.names[i], NULL);
    }
    names_format(NAMES_PENDING, save_id, 0, 0, mark);
    (void)store_unlink(dir, mark, NULL);
}

/* Take the lock of a mark in NAME: true if its owner is dead. */
static bool owner_is_dead(struct store_dir *dir, const char *mark_name, struct store_file **mark)
{
    struct commit_mark text;
    struct store_traits traits;
    char host[sizeof(text.host)] = "";

    (void)gethostname(host, sizeof(host) - 1);
    return store_file_open(dir, mark_name, STORE_WRITE, mark, NULL) == SIDESTEP_OK &&
           commit_mark_read(*mark, &text, NULL) == SIDESTEP_OK &&
           store_dir_traits(dir, &traits, NULL) == SIDESTEP_OK &&
           (!traits.is_network || strcmp(host, text.host) == 0) &&
           store_file_lock(*mark, true, NULL) == SIDESTEP_OK;
}

void sweep_in_place(struct store_dir *dir)
{
    OWNED_NAMES struct name_list names = {0};

    if (name_list_read(dir, &names, NULL) != SIDESTEP_OK)
        return;
    for (size_t i = 0; i < names.count; i++) {
        struct names_parsed parsed = names_parse(names.names[i]);
        OWNED_FILE *mark = NULL;
        if (parsed.kind == NAMES_META_TMP)
            sweep_replaced(dir, parsed.save_id);
        if (parsed.kind != NAMES_PENDING || !owner_is_dead(dir, names.names[i], &mark))
            continue;
        sweep_save_files(dir, parsed.save_id);
        /* Committed, but killed before it was said: what is seen may not be durable yet. */
        if (store_dir_sync(dir, NULL) == SIDESTEP_OK)
            (void)store_unlink(dir, names.names[i], NULL);
    }
}
