/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * finish_in_name.c -- step 6 of the swap form, when NAME appeared during the save: a person ran
 * `mkdir` on the target, or put a file there.
 *
 * That directory stays, and the checkpoint is finished in it, in place. The saving directory keeps
 * its name until the commit, so that the other ranks see the save as undecided.
 */
#include "commit/files_steps.h"

#include <assert.h>

#include "base/base.h"
#include "commit/commit_marker.h"
#include "commit/extra_files.h"
#include "commit/sweep.h"

/* Give shard ${row} the name that it has in place. */
static enum sidestep_status move_shard(struct commit *commit, struct store_dir *into,
                                       struct commit_contents *contents, struct manifest_file *row,
                                       struct sidestep_error *err)
{
    struct file_name shard = file_name_parse(row->name);
    char name[FILE_NAME_BYTES];

    assert(shard.kind == FILE_NAME_SHARD);
    file_name_format(FILE_NAME_SHARD, commit->save_id, shard.rank, shard.shard, name);
    TRY(store_rename_new(commit->dir, row->name, into, name, err));
    return arena_copy_text(&contents->arena, name, &row->name, err);
}

static void rename_storage(const struct hash_table *rows, const struct manifest *manifest,
                           struct metadata_storage *storage)
{
    size_t at = hash_table_find(rows, storage->file);

    assert(at < manifest->file_count);
    storage->file = manifest->files[at].name;
}

/* Give each item the new name of its file in ${manifest}. ${rows}: the rows, by old names. */
static void rename_in_metadata(struct metadata *metadata, const struct hash_table *rows,
                               const struct manifest *manifest)
{
    for (size_t i = 0; i < metadata->count; i++) {
        struct metadata_entry *entry = &metadata->entries[i];
        if (entry->is_object)
            rename_storage(rows, manifest, &entry->storage);
        for (size_t c = 0; c < entry->chunk_count; c++)
            rename_storage(rows, manifest, &entry->chunks[c].storage);
    }
}

static enum sidestep_status move_shards(struct commit *commit, struct store_dir *into,
                                        struct commit_contents *contents,
                                        struct sidestep_error *err)
{
    struct manifest *manifest = &contents->manifest;
    OWNED_HASH_TABLE rows = {0};
    size_t existing;

    assert(!commit->files.in_place && into != commit->dir);
    for (size_t i = 0; i < manifest->file_count; i++) {
        TRY(hash_table_insert(&rows, manifest->files[i].name, i, &existing, err));
        assert(existing == SIZE_MAX);
        TRY(move_shard(commit, into, contents, &manifest->files[i], err));
    }
    rename_in_metadata(&contents->metadata, &rows, manifest);
    TRY(extra_files_move(commit, into, contents, err));
    return store_dir_sync(into, err);
}

static enum sidestep_status discard_saving(struct commit *commit)
{
    char saving[FILE_NAME_BYTES], trash[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, saving);
    file_name_format(FILE_NAME_TRASH, commit->save_id, 0, 0, trash);
    TRY(sweep_move_to_trash(commit->parent, saving, commit->save_id, NULL));
    return sweep_empty_trash(commit->parent, trash, NULL, NULL);
}

enum sidestep_status files_finish_in_name(struct commit *commit, struct commit_contents *contents,
                                          enum commit_outcome *outcome, struct sidestep_error *err)
{
    struct commit in_name = *commit;

    assert(!commit->files.in_place && *outcome == COMMIT_ABORTED);
    in_name.files.in_place = true;
    in_name.dir = NULL;
    in_name.files.marker = NULL;
    commit->files.spare = NULL; /* ${in_name} owns it now */
    enum sidestep_status status =
        store_dir_open(commit->store, NULL, commit->path, &in_name.dir, err);
    if (status == SIDESTEP_OK)
        status = store_dir_stat(in_name.dir, &in_name.dir_identity, err);
    if (status == SIDESTEP_OK)
        status = commit_check_replaceable(&in_name, err);
    if (status == SIDESTEP_OK)
        status = commit_marker_create(&in_name, err);
    if (status == SIDESTEP_OK)
        status = move_shards(commit, in_name.dir, contents, err);
    if (status == SIDESTEP_OK)
        status = commit_form_of(&in_name)->publish(&in_name, contents, outcome, err);
    if (status != SIDESTEP_OK && *outcome == COMMIT_ABORTED && in_name.dir != NULL)
        sweep_save_files(in_name.dir, commit->save_id);
    store_file_discard(in_name.files.marker);
    store_dir_close(in_name.dir);
    store_dir_close(in_name.files.spare);
    if (status == SIDESTEP_OK)
        (void)discard_saving(commit); /* on failure a later sweep removes it */
    return status;
}
