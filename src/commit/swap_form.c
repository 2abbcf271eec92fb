/* SPDX-License-Identifier: BSD-3-Clause */
/* swap_form.c -- the swap form of the protocol (commit.h), step by step: a new directory, which
 * gets its name when it is whole. */
#include "commit/files_steps.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit_marker.h"
#include "commit/extra_files.h"
#include "commit/sweep.h"

#define BEGIN_TRIES 16u /* a try fails only if another process sweeps at that moment */

/* ---- 1 begin */

/* Open the saving directory, and create a locked marker in it. ENOTFOUND: another process
 * swept the directory before the lock was acquired. */
static enum sidestep_status open_saving(struct commit *commit, const char *name,
                                        struct sidestep_error *err)
{
    assert(commit_is_coordinator(commit) && commit->dir == NULL &&
           commit->files.marker == NULL); /* I3 */
    TRY(store_dir_open(commit->store, commit->parent, name, &commit->dir, err));
    TRY(store_dir_stat(commit->dir, &commit->dir_identity, err));
    TRY(commit_marker_create(commit, err));
    if (commit_owns_name(commit, name))
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ENOTFOUND, "'%s' was removed by another process", name);
}

/* Go on in the saving directory that a dead process left, if there is one. Then commit->dir is that
 * directory. */
static enum sidestep_status adopt_saving(struct commit *commit, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    char name[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, name);
    enum sidestep_status status =
        store_dir_open(commit->store, commit->parent, name, &commit->dir, &why);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    if (status == SIDESTEP_OK)
        status = store_dir_stat(commit->dir, &commit->dir_identity, &why);
    if (status == SIDESTEP_OK)
        status = commit_marker_adopt(commit, &why);
    if (status == SIDESTEP_OK && commit_owns_name(commit, name))
        return SIDESTEP_OK;
    store_file_discard(TAKE(commit->files.marker));
    store_dir_close(TAKE(commit->dir));
    if (status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND) /* it was swept */
        return SIDESTEP_OK;
    error_wrap(&why, "go on in '%s', beside '%s'", name, commit->path);
    return error_copy(err, &why);
}

/* Make the saving directory and its marker. A sweep may remove the directory while it has no locked
 * marker, because then it looks like that of a dead process. So try again. */
static enum sidestep_status make_saving(struct commit *commit, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_ENOTFOUND;
    char name[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, name);
    for (unsigned i = 0; status == SIDESTEP_ENOTFOUND && i < BEGIN_TRIES; i++) {
        store_file_discard(TAKE(commit->files.marker));
        store_dir_close(TAKE(commit->dir));
        status = store_dir_make(commit->parent, name, err);
        if (status != SIDESTEP_EEXISTS) /* only this save has the name, so an answer was lost */
            TRY(status);
        status = open_saving(commit, name, err);
    }
    return status;
}

/* Remove what a failed begin made. Nobody else knows of it yet. */
static void undo_begin(struct commit *commit)
{
    char name[FILE_NAME_BYTES];

    assert(commit_is_coordinator(commit) && (commit->files.marker == NULL || commit->dir != NULL));
    if (commit->files.marker != NULL) {
        file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
        (void)store_unlink(commit->dir, name, NULL);
    }
    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, name);
    (void)store_dir_remove(commit->parent, name, NULL);
}

static enum sidestep_status begin(struct commit *commit, struct sidestep_error *err)
{
    assert(!commit->files.in_place && commit->dir == NULL);
    if (commit->request.resumes)
        TRY(adopt_saving(commit, err));
    if (commit->request.run_id[0] == '\0') /* an adopted directory is locked, and stays */
        sweep_one_off(commit->store, commit->parent, commit->name);
    if (commit->dir != NULL)
        return SIDESTEP_OK;
    enum sidestep_status status = make_saving(commit, err);
    if (status != SIDESTEP_OK)
        undo_begin(commit);
    return status;
}

/* Is the directory of rank 0 visible? */
static enum sidestep_status try_join(struct commit *commit, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];

    assert(!commit_is_coordinator(commit) && commit->dir == NULL);
    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, name);
    return store_dir_open(commit->store, commit->parent, name, &commit->dir, err);
}

/* ---- 2 shards, 3 seal and vote */

static void shard_names(const struct commit *commit UNUSED, uint32_t rank, uint32_t shard,
                        char written[FILE_NAME_BYTES], char final[FILE_NAME_BYTES])
{
    file_name_format(FILE_NAME_PART, "", rank, shard, written);
    file_name_format(FILE_NAME_SHARD, "", rank, shard, final);
}

/* The files of this rank go to the trash, with the directory. */
static void retract(struct commit *commit UNUSED)
{
}

/* ---- 5 publish */

static enum sidestep_status publish_in_saving(struct commit *commit,
                                              struct commit_contents *contents,
                                              struct sidestep_error *err)
{
    char tmp[FILE_NAME_BYTES];

    assert(!commit->files.in_place);
    files_unlink_votes(commit);
    TRY(extra_files_drop(commit, contents, err));
    TRY(files_write_records(commit, contents, err));
    if (contents->manifest.extra_count != 0) {
        /* A sweep knows the files under their own names by the manifest. */
        TRY(store_dir_sync(commit->dir, err));
        TRY(extra_files_place(commit, contents, err));
    }
    if (commit->group.count == 0) {
        file_name_format(FILE_NAME_METADATA_TMP, commit->save_id, 0, 0, tmp);
        TRY(store_rename(commit->dir, tmp, commit->dir, FILE_NAME_METADATA, STORE_REPLACE, err));
    }
    TRY(store_dir_sync(commit->dir, err));
    return store_dir_sync(commit->parent, err);
}

/* ---- 6 commit */

/* The rename failed, and NAME is not the directory of this save. Find out why. */
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

static enum sidestep_status publish_and_commit(struct commit *commit,
                                               struct commit_contents *contents,
                                               enum commit_outcome *outcome,
                                               struct sidestep_error *err)
{
    char saving[FILE_NAME_BYTES];

    TRY(publish_in_saving(commit, contents, err));
    TRY(commit_check_guard(commit, err));
    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, saving);
    assert(commit_is_coordinator(commit) && !commit->files.in_place); /* I3 */
    /* rename(2) replaces at most an empty directory. */
    enum sidestep_status status =
        store_rename_new(commit->parent, saving, commit->parent, commit->name, err);
    if (status != SIDESTEP_OK && !commit_owns_name(commit, commit->name)) { /* I7 */
        if (status == SIDESTEP_EEXISTS && commit->group.count == 0 && !commit->request.resumes)
            return files_finish_in_name(commit, contents, outcome, err);
        return explain_rename(commit, saving, status, outcome, err);
    }
    TRY(files_confirm(commit, outcome, err));
    files_remove_marker(commit);
    return SIDESTEP_OK;
}

static void abort_save(struct commit *commit, const struct sidestep_error *why)
{
    char saving[FILE_NAME_BYTES], trash[FILE_NAME_BYTES];

    assert(commit_is_coordinator(commit));
    store_dir_close(TAKE(commit->files.spare));
    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, saving);
    file_name_format(FILE_NAME_TRASH, commit->save_id, 0, 0, trash);
    files_write_outcome(commit, commit->parent, why);
    if (sweep_move_to_trash(commit->parent, saving, commit->save_id, NULL) == SIDESTEP_OK)
        (void)sweep_empty_trash(commit->parent, trash, NULL, NULL);
}

/* ---- 7 learn */

static enum sidestep_status check_aborted(struct commit *commit, struct sidestep_error *err)
{
    return files_read_outcome(commit, commit->parent, err);
}

static void remove_outcome(struct commit *commit)
{
    files_unlink_outcome(commit, commit->parent);
}

/* May the directory ${name} in the parent be the one that this rank holds? Also true if storage
 * does not answer. */
static bool may_be_dir_of_save(struct commit *commit, const char *name)
{
    struct store_stat stat;
    enum sidestep_status status = store_stat(commit->parent, name, &stat, NULL);

    assert(!commit->files.in_place && commit->parent != NULL);
    return status != SIDESTEP_ENOTFOUND &&
           (status != SIDESTEP_OK || (stat.inode == commit->dir_identity.inode &&
                                      stat.device == commit->dir_identity.device));
}

/* Open NAME, which may be another directory than the one this rank holds. Only the path follows a
 * symbolic link. */
static enum sidestep_status open_name(struct commit *commit, struct store_dir **dir)
{
    enum sidestep_status status =
        store_dir_open(commit->store, commit->parent, commit->name, dir, NULL);

    return status == SIDESTEP_EUNSAFE ? store_dir_open(commit->store, NULL, commit->path, dir, NULL)
                                      : status;
}

/* Does the directory that this rank holds say that the save is committed, wherever it is now?  A
 * program may have given the checkpoint another name since, or another save may have replaced it.
 * Whoever removes a save unlinks .metadata before the marker, so this is proof (I4). */
static bool is_committed_elsewhere(struct commit *commit)
{
    return commit->dir != NULL && commit->group.count == 0 &&
           files_learn(commit, commit->dir, NULL) == COMMIT_COMMITTED;
}

/* Use the directory that this rank holds, if it is NAME or committed. The path may lead elsewhere
 * by now; then rank 0 reports UNKNOWN and leaves its marker. */
static enum commit_outcome learn_from_name(struct commit *commit, struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;

    if (commit_owns_name(commit, commit->name))
        return files_learn(commit, commit->dir, err);
    if (is_committed_elsewhere(commit))
        return COMMIT_COMMITTED;
    enum sidestep_status status = open_name(commit, &dir);
    if (status == SIDESTEP_OK)
        return files_learn(commit, dir, err);
    return status == SIDESTEP_ENOTFOUND ? commit_judge_identity(commit, 0, err) : COMMIT_UNDECIDED;
}

static enum commit_outcome poll_outcome(struct commit *commit, struct sidestep_error *err)
{
    char saving[FILE_NAME_BYTES];

    assert(!commit_is_coordinator(commit));
    if (check_aborted(commit, err) != SIDESTEP_OK)
        return COMMIT_ABORTED;
    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, saving);
    if (may_be_dir_of_save(commit, saving))
        return COMMIT_UNDECIDED;
    return commit_explain(commit, learn_from_name(commit, err), err);
}

const struct commit_form commit_form_swap = {.open = files_open,
                                             .look = files_look,
                                             .begin = begin,
                                             .try_join = try_join,
                                             .shard_names = shard_names,
                                             .seal = files_seal,
                                             .vote_yes = files_vote_yes,
                                             .vote_for = files_vote_for,
                                             .vote_no = files_vote_no,
                                             .retract = retract,
                                             .count_votes = files_count_votes,
                                             .read_failure = files_read_failure,
                                             .has_marker = files_has_marker,
                                             .publish = publish_and_commit,
                                             .abort = abort_save,
                                             .check_aborted = check_aborted,
                                             .poll_outcome = poll_outcome,
                                             .remove_outcome = remove_outcome,
                                             .close = files_close};
