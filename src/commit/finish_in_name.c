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
#include "commit/sweep.h"

static enum sidestep_status move_shards(struct commit *commit, struct store_dir *into,
                                        struct commit_contents *contents,
                                        struct sidestep_error *err)
{
    assert(!commit->in_place && into != commit->dir);
    for (size_t i = 0; i < contents->manifest.file_count; i++) {
        struct manifest_file *row = &contents->manifest.files[i];
        const struct footer *footer = &contents->footers[i];
        char name[FILE_NAME_BYTES];

        file_name_format(FILE_NAME_SHARD, commit->save_id, footer->rank, footer->shard, name);
        enum sidestep_status status =
            store_rename(commit->dir, row->name, into, name, STORE_NOREPLACE, err);
        if (status == SIDESTEP_EUNSUPPORTED)
            status = store_rename(commit->dir, row->name, into, name, STORE_REPLACE, err);
        TRY(status);
        TRY(arena_copy_text(&contents->arena, name, &row->name, err));
    }
    return store_dir_sync(into, err);
}

/* Build the metadata again, with the new names of the shards. */
static enum sidestep_status rename_in_metadata(struct commit *commit,
                                               struct commit_contents *contents,
                                               struct sidestep_error *err)
{
    struct metadata metadata = {0};
    const char **names = arena_new(&contents->arena, contents->manifest.file_count, sizeof(*names));

    if (names == NULL)
        return FAIL_NOMEM(err, contents->manifest.file_count * sizeof(*names));
    for (size_t i = 0; i < contents->manifest.file_count; i++)
        names[i] = contents->manifest.files[i].name;
    enum sidestep_status status = commit_metadata_from_footers_checked(
        contents->footers, names, contents->manifest.file_count, &metadata, err);
    if (status != SIDESTEP_OK) {
        metadata_release(&metadata);
        return status;
    }
    metadata.save_id = commit->save_id;
    metadata.checkpoint_id = commit->path;
    metadata_release(&contents->metadata);
    contents->metadata = metadata;
    return SIDESTEP_OK;
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

    assert(!commit->in_place && *outcome == COMMIT_ABORTED);
    in_name.in_place = true;
    in_name.dir = NULL;
    in_name.marker = NULL;
    commit->spare = NULL; /* ${in_name} owns it now */
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
        status = rename_in_metadata(commit, contents, err);
    if (status == SIDESTEP_OK)
        status = commit_form_of(&in_name)->publish(&in_name, contents, outcome, err);
    if (status != SIDESTEP_OK && *outcome == COMMIT_ABORTED && in_name.dir != NULL)
        sweep_save_files(in_name.dir, commit->save_id);
    store_file_discard(in_name.marker);
    store_dir_close(in_name.dir);
    store_dir_close(in_name.spare);
    if (status == SIDESTEP_OK)
        (void)discard_saving(commit); /* on failure a later sweep removes it */
    return status;
}
