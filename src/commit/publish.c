/* SPDX-License-Identifier: BSD-3-Clause */
/* publish.c -- steps 5 and 6 of the protocol (commit.h): rank 0 publishes and commits, or
 * aborts. */
#include "commit/commit.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit_marker.h"
#include "commit/files_form.h"
#include "commit/small_file.h"
#include "commit/sweep.h"
#include "format/format.h"

enum sidestep_status commit_encode_records(struct commit_contents *contents,
                                           struct buffer *metadata, struct buffer *manifest,
                                           struct sidestep_error *err)
{
    TRY(dcp_metadata_write(metadata, &contents->metadata, err));
    contents->manifest.metadata_bytes = metadata->length;
    hash_sha256(metadata->bytes, metadata->length, contents->manifest.metadata_sha256);
    return manifest_encode(&contents->manifest, manifest, err);
}

/* Write the manifest and .metadata.<id>, and sync their contents. The caller syncs the names. */
static enum sidestep_status write_records(struct commit *commit, struct commit_contents *contents,
                                          struct sidestep_error *err)
{
    OWNED_BUFFER metadata = {0}, manifest = {0};
    char name[FILE_NAME_BYTES], tmp[FILE_NAME_BYTES];

    TRY(commit_encode_records(contents, &metadata, &manifest, err));
    file_name_format(FILE_NAME_MANIFEST, commit->save_id, 0, 0, name);
    TRY(small_file_write(commit->dir, name, manifest.bytes, manifest.length, err));
    file_name_format(FILE_NAME_METADATA_TMP, commit->save_id, 0, 0, tmp);
    return small_file_write(commit->dir, tmp, metadata.bytes, metadata.length, err);
}

static void unlink_votes(struct commit *commit)
{
    char name[FILE_NAME_BYTES];

    assert(commit->rank == 0);
    for (uint32_t rank = 0; rank < commit->world_size; rank++) {
        file_name_format(FILE_NAME_VOTE, commit->save_id, rank, 0, name);
        (void)store_unlink(commit->dir, name, NULL);
    }
}

/* The name is durable. The other ranks learn that when the marker is gone (I4). */
static void remove_marker(struct commit *commit)
{
    char name[FILE_NAME_BYTES];

    assert(commit->rank == 0 && commit->marker != NULL);
    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
    (void)store_unlink(commit->dir, name, NULL);
    store_file_discard(TAKE(commit->marker));
}

/* ---- swap form ---- */

static enum sidestep_status rename_to_name(struct commit *commit, const char *saving,
                                           struct sidestep_error *err)
{
    assert(commit->rank == 0 && !commit->in_place); /* I3 */
    enum sidestep_status status =
        store_rename(commit->parent, saving, commit->parent, commit->name, STORE_NOREPLACE, err);
    if (status == SIDESTEP_EUNSUPPORTED) /* rename(2) replaces only an empty directory */
        status =
            store_rename(commit->parent, saving, commit->parent, commit->name, STORE_REPLACE, err);
    return status;
}

static enum sidestep_status swap_publish(struct commit *commit, struct commit_contents *contents,
                                         struct sidestep_error *err)
{
    char tmp[FILE_NAME_BYTES];

    assert(!commit->in_place);
    unlink_votes(commit);
    TRY(write_records(commit, contents, err));
    file_name_format(FILE_NAME_METADATA_TMP, commit->save_id, 0, 0, tmp);
    TRY(store_rename(commit->dir, tmp, commit->dir, FILE_NAME_METADATA, STORE_REPLACE, err));
    TRY(store_dir_sync(commit->dir, err));
    return store_dir_sync(commit->parent, err);
}

static enum sidestep_status finish_in_name(struct commit *commit, struct commit_contents *contents,
                                           enum commit_outcome *outcome,
                                           struct sidestep_error *err);

/* The rename failed, and NAME is not the directory that we wrote. Find out why. */
static enum sidestep_status explain_rename(struct commit *commit, const char *saving,
                                           enum sidestep_status status,
                                           enum commit_outcome *outcome, struct sidestep_error *err)
{
    assert(status != SIDESTEP_OK && *outcome == COMMIT_ABORTED);
    if (status == SIDESTEP_ENOTFOUND)
        return commit_report_removed(commit, err);
    if (commit_owns_name(commit, saving))
        return status;
    *outcome = COMMIT_UNKNOWN;
    return commit_report_unsure(commit, err);
}

/* The checkpoint has its name. Make that durable and check the path before reporting COMMITTED
 * (I4). */
static enum sidestep_status confirm(struct commit *commit, enum commit_outcome *outcome,
                                    struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;
    char manifest[FILE_NAME_BYTES];

    assert(commit->dir != NULL && *outcome == COMMIT_ABORTED);
    *outcome = COMMIT_UNKNOWN;
    if (commit->in_place)
        status = store_dir_sync(commit->dir, err);
    if (status == SIDESTEP_OK)
        status = store_dir_sync(commit->parent, err);
    if (status != SIDESTEP_OK)
        return commit_report_unsynced(commit, err);
    file_name_format(FILE_NAME_MANIFEST, commit->save_id, 0, 0, manifest);
    TRY(commit_check_path(commit, commit->dir, commit->path, manifest, err));
    *outcome = COMMIT_COMMITTED;
    return SIDESTEP_OK;
}

static enum sidestep_status swap_commit(struct commit *commit, struct commit_contents *contents,
                                        enum commit_outcome *outcome, struct sidestep_error *err)
{
    char saving[FILE_NAME_BYTES];

    TRY(commit_check_guard(commit, err));
    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, saving);
    enum sidestep_status status = rename_to_name(commit, saving, err);
    if (status != SIDESTEP_OK && !commit_owns_name(commit, commit->name)) { /* I7 */
        if (status == SIDESTEP_EEXISTS)
            return finish_in_name(commit, contents, outcome, err);
        return explain_rename(commit, saving, status, outcome, err);
    }
    TRY(confirm(commit, outcome, err));
    remove_marker(commit);
    return SIDESTEP_OK;
}

/* ---- in place ---- */

/* May .metadata be that of this save, although the exchange failed? Also true if storage does not
 * answer. */
static bool may_be_named(struct commit *commit)
{
    uint64_t identity;

    return commit_read_identity(commit->dir, &identity, NULL) != SIDESTEP_OK ||
           identity == commit_identity(commit->save_id);
}

static enum sidestep_status in_place_commit(struct commit *commit, struct commit_contents *contents,
                                            enum commit_outcome *outcome,
                                            struct sidestep_error *err)
{
    assert(commit->in_place && *outcome == COMMIT_ABORTED);
    TRY(write_records(commit, contents, err));
    TRY(store_dir_sync(commit->dir, err));
    enum sidestep_status status = commit_exchange_metadata(commit, err);
    if (status != SIDESTEP_OK && may_be_named(commit)) { /* I7 */
        *outcome = COMMIT_UNKNOWN;
        return status == SIDESTEP_EUNKNOWN ? status : commit_report_unsure(commit, err);
    }
    TRY(status);
    TRY(confirm(commit, outcome, err));
    unlink_votes(commit);
    remove_marker(commit);
    sweep_replaced_files(commit->dir, commit->save_id);
    return SIDESTEP_OK;
}

/* ---- NAME appeared while the swap form was under way ---- */

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

/*
 * Finish in NAME, which appeared during the save: a person ran `mkdir` on the target, or put a file
 * there. That directory stays, and the checkpoint is finished in it, in place. The saving directory
 * keeps its name until the commit, so that the other ranks see the save as undecided.
 */
static enum sidestep_status finish_in_name(struct commit *commit, struct commit_contents *contents,
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
        status = in_place_commit(&in_name, contents, outcome, err);
    if (status != SIDESTEP_OK && *outcome == COMMIT_ABORTED && in_name.dir != NULL)
        sweep_save_files(in_name.dir, commit->save_id);
    store_file_discard(in_name.marker);
    store_dir_close(in_name.dir);
    store_dir_close(in_name.spare);
    if (status == SIDESTEP_OK)
        (void)discard_saving(commit); /* on failure a later sweep removes it */
    return status;
}

enum sidestep_status files_publish(struct commit *commit, struct commit_contents *contents,
                                   enum commit_outcome *outcome, struct sidestep_error *err)
{
    if (commit->in_place)
        return in_place_commit(commit, contents, outcome, err);
    TRY(swap_publish(commit, contents, err));
    return swap_commit(commit, contents, outcome, err);
}

void files_abort(struct commit *commit, const struct sidestep_error *why)
{
    char name[FILE_NAME_BYTES], saving[FILE_NAME_BYTES], trash[FILE_NAME_BYTES];
    enum sidestep_status status = SIDESTEP_OK;

    assert(commit->rank == 0);
    store_dir_close(TAKE(commit->spare));
    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, saving);
    file_name_format(FILE_NAME_TRASH, commit->save_id, 0, 0, trash);
    file_name_format(FILE_NAME_OUTCOME, commit->save_id, 0, 0, name);
    if (!commit->in_place)
        status = sweep_move_to_trash(commit->parent, saving, commit->save_id, NULL);
    /* Before the files are removed, so that a rank that misses them finds the reason. */
    struct store_dir *dir = commit->in_place ? commit->dir : commit->parent;
    if (small_file_write(dir, name, why->message, strlen(why->message), NULL) != SIDESTEP_OK)
        (void)commit_marker_link(commit, dir, name);
    if (commit->in_place)
        sweep_save_files(commit->dir, commit->save_id);
    else if (status == SIDESTEP_OK)
        (void)sweep_empty_trash(commit->parent, trash, NULL, NULL);
}
