/* SPDX-License-Identifier: BSD-3-Clause */
/* files_form.c -- the two forms of the protocol on file systems, swap and in place: the table, and
 * step 1 (commit.h). The other steps are in seal.c, publish.c and learn.c. */
#include "commit/files_form.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit_marker.h"
#include "commit/sweep.h"

#define BEGIN_TRIES 16u /* a try is lost only if somebody sweeps at that moment */

/* Choose swap or in-place form: does NAME exist? Opens it if it is a directory, or a link to
 * one. */
static enum sidestep_status choose_form(struct commit *commit, struct sidestep_error *err)
{
    struct store_stat stat;
    enum sidestep_status status = store_stat(commit->parent, commit->name, &stat, err);

    assert(commit->dir == NULL);
    commit->in_place = false;
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    TRY(status);
    if (stat.kind == STORE_FILE)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' is a file", commit->path);
    status = store_dir_open(commit->store, NULL, commit->path, &commit->dir, err);
    if (status == SIDESTEP_ENOTFOUND)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' is there, but is no directory", commit->path);
    TRY(status);
    commit->in_place = true;
    TRY(commit_read_identity(commit->dir, &commit->previous, err));
    if (commit->previous != 0 && commit->no_replace)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' holds a checkpoint already", commit->path);
    return SIDESTEP_OK;
}

/* Open the saving directory, and create a locked marker in it. ENOTFOUND: somebody swept the
 * directory before the lock was taken. */
static enum sidestep_status make_saving(struct commit *commit, const char *name,
                                        struct sidestep_error *err)
{
    assert(commit->rank == 0 && commit->dir == NULL && commit->marker == NULL); /* I3 */
    TRY(store_dir_open(commit->store, commit->parent, name, &commit->dir, err));
    TRY(store_dir_stat(commit->dir, &commit->dir_identity, err));
    TRY(commit_marker_create(commit, err));
    if (commit_owns_name(commit, name))
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ENOTFOUND, "'%s' was removed by another process", name);
}

/* Make the saving directory and its marker. A sweep may remove the directory while it has no locked
 * marker, because then it looks like that of a dead process. So try again. */
static enum sidestep_status begin_swap(struct commit *commit, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_ENOTFOUND;
    char name[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, name);
    for (unsigned i = 0; status == SIDESTEP_ENOTFOUND && i < BEGIN_TRIES; i++) {
        store_file_discard(TAKE(commit->marker));
        store_dir_close(TAKE(commit->dir));
        TRY(store_dir_make(commit->parent, name, err));
        status = make_saving(commit, name, err);
    }
    return status;
}

static enum sidestep_status begin_in_place(struct commit *commit, struct sidestep_error *err)
{
    assert(commit->in_place && commit->dir != NULL);
    TRY(store_dir_stat(commit->dir, &commit->dir_identity, err));
    return commit_marker_create(commit, err);
}

/* Remove what a failed begin made. Nobody else knows of it yet. */
static void undo_begin(struct commit *commit)
{
    char name[FILE_NAME_BYTES];

    assert(commit->rank == 0 && (commit->marker == NULL || commit->dir != NULL));
    if (commit->marker != NULL) {
        file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
        (void)store_unlink(commit->dir, name, NULL);
    }
    if (!commit->in_place) {
        file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, name);
        (void)store_dir_remove(commit->parent, name, NULL);
    }
}

/* Begin in the form that was chosen. */
static enum sidestep_status begin_chosen(struct commit *commit, struct sidestep_error *err)
{
    assert(commit->in_place == (commit->dir != NULL));
    /* Before our marker exists, so that the sweep does not take it for a leftover. */
    if (commit->in_place)
        sweep_in_place(commit->parent, commit->dir);
    if (commit->run_id[0] == '\0')
        sweep_one_off(commit->store, commit->parent, commit->name);
    enum sidestep_status status =
        commit->in_place ? begin_in_place(commit, err) : begin_swap(commit, err);
    if (status != SIDESTEP_OK) {
        undo_begin(commit);
        error_wrap(err, "begin");
    }
    return status;
}

static enum sidestep_status files_begin(struct commit *commit, struct sidestep_error *err)
{
    if (commit->is_export) /* always a new directory */
        commit->in_place = false;
    else
        TRY(choose_form(commit, err));
    return begin_chosen(commit, err);
}

/* Try once: is the directory of rank 0, or its marker in NAME, visible? */
static enum sidestep_status files_try_join(struct commit *commit, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    assert(commit->rank != 0 && commit->dir == NULL);
    if (!commit->in_place) {
        file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, name);
        return store_dir_open(commit->store, commit->parent, name, &commit->dir, err);
    }
    TRY(store_dir_open(commit->store, NULL, commit->path, &commit->dir, err));
    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
    return store_stat(commit->dir, name, &stat, err);
}

static void files_shard_names(const struct commit *commit, uint32_t rank, uint32_t shard,
                              char written[FILE_NAME_BYTES], char final[FILE_NAME_BYTES])
{
    /* In the in-place form names contain the save id, so that two saves cannot mix. */
    const char *id = commit->in_place ? commit->save_id : "";

    file_name_format(FILE_NAME_PART, id, rank, shard, written);
    file_name_format(FILE_NAME_SHARD, id, rank, shard, final);
}

static bool files_has_marker(const struct commit *commit)
{
    return commit_has_marker(commit, commit->dir);
}

static void files_close(struct commit *commit)
{
    store_file_discard(TAKE(commit->marker));
}

const struct commit_form commit_form_files = {.begin = files_begin,
                                              .try_join = files_try_join,
                                              .shard_names = files_shard_names,
                                              .seal = files_seal,
                                              .vote_yes = files_vote_yes,
                                              .vote_no = files_vote_no,
                                              .retract = files_retract,
                                              .count_votes = files_count_votes,
                                              .read_failure = files_read_failure,
                                              .has_marker = files_has_marker,
                                              .publish = files_publish,
                                              .abort = files_abort,
                                              .check_aborted = files_check_aborted,
                                              .poll_outcome = files_poll_outcome,
                                              .remove_outcome = files_remove_outcome,
                                              .close = files_close};
