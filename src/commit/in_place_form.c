/* SPDX-License-Identifier: BSD-3-Clause */
/* in_place_form.c -- the in-place form of the protocol (commit.h), step by step: NAME exists, and
 * its .metadata is exchanged. */
#include "commit/files_steps.h"

#include <assert.h>

#include "base/base.h"
#include "commit/commit_marker.h"
#include "commit/extra_files.h"
#include "commit/sweep.h"

/* ---- 1 begin */

/* Remove what a failed begin made. Nobody else knows of it yet. */
static void undo_begin(struct commit *commit)
{
    char name[FILE_NAME_BYTES];

    assert(commit_is_coordinator(commit));
    if (commit->files.marker == NULL)
        return;
    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
    (void)store_unlink(commit->dir, name, NULL);
}

static enum sidestep_status begin(struct commit *commit, struct sidestep_error *err)
{
    assert(commit->files.in_place && commit->dir != NULL);
    /* Sweep before the marker exists, so that the sweep does not take it for a leftover. */
    if (sweep_in_place(commit->parent, commit->dir))
        return FAIL(err, SIDESTEP_EEXISTS,
                    "'%s' is a part of a checkpoint, and parts are not replaced; save to another "
                    "path, or delete it first",
                    commit->path);
    if (commit->request.run_id[0] == '\0')
        sweep_one_off(commit->store, commit->parent, commit->name);
    enum sidestep_status status = store_dir_stat(commit->dir, &commit->dir_identity, err);
    if (status == SIDESTEP_OK)
        status = commit_marker_create(commit, err);
    if (status != SIDESTEP_OK)
        undo_begin(commit);
    return status;
}

/* Is the marker of rank 0 visible in NAME? */
static enum sidestep_status try_join(struct commit *commit, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    assert(!commit_is_coordinator(commit) && commit->dir == NULL);
    TRY(store_dir_open(commit->store, NULL, commit->path, &commit->dir, err));
    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
    return store_stat(commit->dir, name, &stat, err);
}

/* ---- 2 shards, 3 seal and vote */

/* Names contain the save id, so that two saves cannot mix. */
static void shard_names(const struct commit *commit, uint32_t rank, uint32_t shard,
                        char written[FILE_NAME_BYTES], char final[FILE_NAME_BYTES])
{
    file_name_format(FILE_NAME_PART, commit->save_id, rank, shard, written);
    file_name_format(FILE_NAME_SHARD, commit->save_id, rank, shard, final);
}

/* Has rank 0 aborted without the vote of this rank, and begun to sweep? It writes the outcome file
 * before it sweeps, and removes the marker after that. */
static bool has_aborted(const struct commit *commit)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    assert(commit->files.in_place && commit->dir != NULL);
    file_name_format(FILE_NAME_OUTCOME, commit->save_id, 0, 0, name);
    return store_stat(commit->dir, name, &stat, NULL) == SIDESTEP_OK ||
           !commit_has_marker(commit, commit->dir);
}

static void vote_no(struct commit *commit, const struct sidestep_error *why)
{
    if (!has_aborted(commit))
        files_vote_no(commit, why);
}

static void retract(struct commit *commit)
{
    char name[FILE_NAME_BYTES], part[FILE_NAME_BYTES], final[FILE_NAME_BYTES];

    assert(!commit_is_coordinator(commit)); /* rank 0 sweeps */
    if (commit->dir == NULL)
        return;
    for (uint32_t shard = 0; shard < commit->shards; shard++) {
        shard_names(commit, commit->rank, shard, part, final);
        (void)store_unlink(commit->dir, part, NULL);
        (void)store_unlink(commit->dir, final, NULL);
    }
    for (uint32_t number = 0; number < commit->extras; number++) {
        file_name_format(FILE_NAME_EXTRA, commit->save_id, commit->rank, number, name);
        (void)store_unlink(commit->dir, name, NULL);
    }
    if (!has_aborted(commit)) /* rank 0 sweeps after it has read the vote of this rank */
        return;
    file_name_format(FILE_NAME_VOTE, commit->save_id, commit->rank, 0, name);
    (void)store_unlink(commit->dir, name, NULL);
    file_name_format(FILE_NAME_FAILED, commit->save_id, commit->rank, 0, name);
    (void)store_unlink(commit->dir, name, NULL);
}

/* ---- 5 publish, 6 commit */

/* May .metadata be that of this save, although the exchange failed? Also true if storage does not
 * answer. */
static bool may_be_named(struct commit *commit)
{
    uint64_t identity;

    return commit_read_identity(commit->dir, &identity, NULL) != SIDESTEP_OK ||
           identity == commit_identity(commit->save_id);
}

static enum sidestep_status publish_and_commit(struct commit *commit,
                                               struct commit_contents *contents,
                                               enum commit_outcome *outcome,
                                               struct sidestep_error *err)
{
    assert(commit->files.in_place && *outcome == COMMIT_ABORTED);
    TRY(extra_files_drop(commit, contents, err));
    TRY(extra_files_keep_names(commit->save_id, contents, err));
    TRY(files_write_records(commit, contents, err));
    TRY(store_dir_sync(commit->dir, err));
    enum sidestep_status status = commit_exchange_metadata(commit, err);
    if (status != SIDESTEP_OK && may_be_named(commit)) { /* I7 */
        *outcome = COMMIT_UNKNOWN;
        return status == SIDESTEP_EUNKNOWN ? status : commit_report_unsure(commit, err);
    }
    TRY(status);
    if (store_dir_sync(commit->dir, err) != SIDESTEP_OK) {
        *outcome = COMMIT_UNKNOWN;
        return commit_report_unsynced(commit, err);
    }
    TRY(files_confirm(commit, outcome, err));
    files_unlink_votes(commit);
    files_remove_marker(commit);
    sweep_replaced_files(commit->dir, commit->save_id);
    extra_files_link(commit->dir, &contents->manifest);
    return SIDESTEP_OK;
}

static void abort_save(struct commit *commit, const struct sidestep_error *why)
{
    assert(commit_is_coordinator(commit));
    store_dir_close(TAKE(commit->files.spare));
    files_write_outcome(commit, commit->dir, why);
    sweep_save_files(commit->dir, commit->save_id);
}

/* ---- 7 learn */

static enum sidestep_status check_aborted(struct commit *commit, struct sidestep_error *err)
{
    return files_read_outcome(commit, commit->dir, err);
}

static void remove_outcome(struct commit *commit)
{
    files_unlink_outcome(commit, commit->dir);
}

static enum commit_outcome poll_outcome(struct commit *commit, struct sidestep_error *err)
{
    assert(!commit_is_coordinator(commit));
    if (check_aborted(commit, err) != SIDESTEP_OK)
        return COMMIT_ABORTED;
    return commit_explain(commit, files_learn(commit, commit->dir, err), err);
}

const struct commit_form commit_form_in_place = {.open = files_open,
                                                 .look = files_look,
                                                 .begin = begin,
                                                 .try_join = try_join,
                                                 .shard_names = shard_names,
                                                 .seal = files_seal,
                                                 .vote_yes = files_vote_yes,
                                                 .vote_for = files_vote_for,
                                                 .vote_no = vote_no,
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
