/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * learn.c -- step 7 of the protocol (commit.h): the other ranks read the outcome of a save.
 *
 * They read it from storage: from the outcome file that rank 0 left, or from names and ids.
 */
#include "commit/commit.h"

#include <assert.h>

#include "base/base.h"
#include "commit/commit_marker.h"
#include "commit/files_form.h"

/* The directory of the outcome file: the parent of the saving directory, or NAME. */
static struct store_dir *outcome_dir(const struct commit *commit)
{
    return commit->in_place ? commit->dir : commit->parent;
}

enum sidestep_status files_check_aborted(struct commit *commit, struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    char name[FILE_NAME_BYTES];

    if (outcome_dir(commit) == NULL)
        return SIDESTEP_OK;
    file_name_format(FILE_NAME_OUTCOME, commit->save_id, 0, 0, name);
    if (commit_read_reason(outcome_dir(commit), name, &why, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    if (why.message[0] != '\0')
        return FAIL(err, SIDESTEP_EABORTED, "%s", why.message);
    return FAIL(err, SIDESTEP_EABORTED, "rank 0 gave up save %s of '%s', and could not write why",
                commit->save_id, commit->path);
}

void files_remove_outcome(struct commit *commit)
{
    char name[FILE_NAME_BYTES];

    assert(commit->rank == 0);
    if (outcome_dir(commit) == NULL)
        return;
    file_name_format(FILE_NAME_OUTCOME, commit->save_id, 0, 0, name);
    (void)store_unlink(outcome_dir(commit), name, NULL);
}

/* May the directory ${name} in the parent be the one that this rank holds? Also true if storage
 * does not answer. */
static bool may_be_our_dir(struct commit *commit, const char *name)
{
    struct store_stat stat;
    enum sidestep_status status = store_stat(commit->parent, name, &stat, NULL);

    assert(!commit->in_place && commit->parent != NULL);
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

/* ${dir} is NAME: what does its .metadata say about this save? */
static enum commit_outcome learn_from(struct commit *commit, struct store_dir *dir,
                                      struct sidestep_error *err)
{
    uint64_t identity = 0;

    /* Look for the marker first. Once it is gone, what .metadata says is durable (I4). */
    if (commit_has_marker(commit, dir))
        return COMMIT_UNDECIDED;
    if (commit_read_identity(dir, &identity, NULL) != SIDESTEP_OK)
        return COMMIT_UNDECIDED; /* storage does not answer: ask again */
    return commit_judge_identity(commit, identity, err);
}

/* Use the directory that this rank holds, if it is NAME. The path may lead elsewhere by now; then
 * rank 0 reports UNKNOWN and leaves its marker. */
static enum commit_outcome learn_from_name(struct commit *commit, struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;

    if (commit->in_place || commit_owns_name(commit, commit->name))
        return learn_from(commit, commit->dir, err);
    enum sidestep_status status = open_name(commit, &dir);
    if (status == SIDESTEP_OK)
        return learn_from(commit, dir, err);
    return status == SIDESTEP_ENOTFOUND ? COMMIT_ABORTED : COMMIT_UNDECIDED;
}

enum commit_outcome files_poll_outcome(struct commit *commit, struct sidestep_error *err)
{
    char saving[FILE_NAME_BYTES];

    assert(commit->rank != 0);
    if (commit_check_aborted(commit, err) != SIDESTEP_OK)
        return COMMIT_ABORTED;
    file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, saving);
    if (!commit->in_place && may_be_our_dir(commit, saving))
        return COMMIT_UNDECIDED;
    enum commit_outcome outcome = learn_from_name(commit, err);
    /* Rank 0's reason may have become visible meanwhile. */
    if (outcome == COMMIT_ABORTED && commit_check_aborted(commit, err) == SIDESTEP_OK)
        commit_report_given_up(commit, err);
    return outcome;
}
