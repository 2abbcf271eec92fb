/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exchange_in_place.c -- the rename that commits in place: .metadata.<id> becomes .metadata.
 *
 * It happens only if .metadata is still what it was when the save began (I9). Saves take turns for
 * the comparison and the rename, by a lock in NAME, so that no save comes between the two steps of
 * another. A program that does not know the lock can still come between, and so can a save on
 * storage without locks. So what the rename took out is compared once more. No second rename
 * undoes the first one. It could bring back a .metadata whose owner has noticed the loss, and has
 * deleted its files.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "commit/lock_file.h"
#include "commit/referenced_files.h"
#include "commit/small_file.h"
#include "format/format.h"
#include "model/model.h"

/* "save <id> (step 12, begun 2026-01-02T03:04:05Z)" */
static struct display_text describe(const char *save_id, int64_t step, const char *verb,
                                    int64_t time)
{
    char number[32] = "";
    struct display_text text;

    if (step >= 0)
        snprintf(number, sizeof(number), "step %lld, ", (long long)step);
    snprintf(text.text, sizeof(text.text), "save %s (%s%s %s)", save_id, number, verb,
             display_time(time).text);
    return text;
}

/* Describe the checkpoint that ${name}, a .metadata in NAME, belongs to. */
static struct display_text describe_other(struct commit *commit, const char *name)
{
    OWNED_ARENA arena = {0};
    struct manifest manifest;
    uint8_t sha256[HASH_SHA256_BYTES];
    uint64_t length;

    if (small_file_hash(commit->dir, name, 0, DCP_METADATA_MAX_BYTES, &length, sha256, NULL,
                        NULL) == SIDESTEP_OK &&
        referenced_files_find_manifest(commit->dir, sha256, length, &arena, &manifest, NULL))
        return describe(manifest.save_id, manifest.step, "saved", manifest.saved_at);
    return (struct display_text){.text = "a checkpoint of another program"};
}

static struct display_text describe_own(const struct commit *commit)
{
    return describe(commit->save_id, commit->request.step, "begun", commit->began_at);
}

static enum sidestep_status refuse(struct commit *commit, struct sidestep_error *err)
{
    return FAIL(err, SIDESTEP_EEXISTS,
                "'%s' holds %s, which was put there after this %s began: it stays, and this one is "
                "not committed; save again if it is to be replaced",
                commit->path, describe_other(commit, FILE_NAME_METADATA).text,
                describe_own(commit).text);
}

enum sidestep_status commit_check_replaceable(struct commit *commit, struct sidestep_error *err)
{
    uint64_t now;

    assert(commit->dir != NULL);
    TRY(commit_read_identity(commit->dir, &now, err));
    if (now == 0 || (now == commit->previous && !commit->request.no_replace))
        return SIDESTEP_OK;
    return refuse(commit, err);
}

/* Acquire the lock. If storage has no locks, this succeeds without one, and only what the rename
 * took out is compared. */
static enum sidestep_status lock_exchange(struct commit *commit, struct store_file **turn,
                                          struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status =
        lock_file_create(commit, commit->dir, FILE_NAME_COMMIT_LOCK, LOCK_FILE_SHARED, turn, &why);

    if (status == SIDESTEP_OK || status == SIDESTEP_EUNSUPPORTED || status == SIDESTEP_EPERM)
        return SIDESTEP_OK;
    if (status == SIDESTEP_ELOCKED)
        error_wrap(&why, "another save of '%s' has not ended its commit for %.1f s", commit->path,
                   (double)commit->request.timeout_ns / 1e9);
    return error_copy(err, &why);
}

static void end_turn(struct commit *commit, struct store_file *turn)
{
    if (turn != NULL)
        (void)store_unlink(commit->dir, FILE_NAME_COMMIT_LOCK, NULL);
    store_file_discard(turn);
}

/* Is .metadata now that of this save? */
static bool is_named(struct commit *commit)
{
    uint64_t identity;

    return commit_read_identity(commit->dir, &identity, NULL) == SIDESTEP_OK &&
           identity == commit_identity(commit->save_id);
}

/*
 * Storage that cannot exchange names, as most network storage cannot: the new .metadata replaces
 * the old one. A copy of the old one gets the name that the exchange would have given it, because
 * it says which files are to be removed. If the copy fails, those files stay.
 */
static enum sidestep_status replace_and_keep_copy(struct commit *commit, const char *tmp,
                                                  bool is_there, struct sidestep_error *err)
{
    OWNED_BUFFER old = {0};
    bool has_copy = is_there && small_file_read(commit->dir, FILE_NAME_METADATA, 0,
                                                DCP_METADATA_MAX_BYTES, &old, NULL) == SIDESTEP_OK;

    enum sidestep_status status =
        store_rename(commit->dir, tmp, commit->dir, FILE_NAME_METADATA, STORE_REPLACE, err);
    /* If the answer of a server is lost, the request is repeated, and then finds no such name. */
    if (status != SIDESTEP_ENOTFOUND || !is_named(commit))
        TRY(status);
    if (has_copy)
        (void)small_file_write(commit->dir, tmp, old.bytes, old.length, NULL);
    return SIDESTEP_OK;
}

/* Compare and rename, while holding the turn. ${*old} is the file that was compared; its inode is 0
 * if there was none. ${*was_exchanged}: ${tmp} is now what the rename took out, if anything. */
static enum sidestep_status compare_and_rename(struct commit *commit, const char *tmp,
                                               struct store_stat *old, bool *was_exchanged,
                                               struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status = store_stat(commit->dir, FILE_NAME_METADATA, old, &why);
    bool is_there = status == SIDESTEP_OK;

    if (!is_there && status != SIDESTEP_ENOTFOUND)
        return error_copy(err, &why);
    TRY(commit_check_replaceable(commit, err));
    TRY(commit_check_guard(commit, err));
    status = store_rename(commit->dir, tmp, commit->dir, FILE_NAME_METADATA,
                          is_there ? STORE_EXCHANGE : STORE_NOREPLACE, err);
    if (status == SIDESTEP_EEXISTS)
        return refuse(commit, err);
    if (status == SIDESTEP_EUNSUPPORTED) {
        *was_exchanged = false;
        status = replace_and_keep_copy(commit, tmp, is_there, err);
    }
    return status;
}

/* Check that the file that is now called ${tmp} is ${old}. EUNKNOWN: it is another file. */
static enum sidestep_status check_taken_out(struct commit *commit, const char *tmp,
                                            const struct store_stat *old,
                                            struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    struct store_stat out;
    enum sidestep_status status = store_stat(commit->dir, tmp, &out, &why);

    if (status == SIDESTEP_ENOTFOUND) /* the rename took nothing out */
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK) {
        error_wrap(&why, "'%s' holds this %s, but what it replaced cannot be read", commit->path,
                   describe_own(commit).text);
        error_copy(err, &why);
        return SIDESTEP_EUNKNOWN;
    }
    if (out.inode == old->inode && out.device == old->device &&
        out.modified_ns == old->modified_ns && out.size == old->size)
        return SIDESTEP_OK;
    return FAIL(
        err, SIDESTEP_EUNKNOWN,
        "'%s' holds this %s, but another process put %s there at the same moment, which this save "
        "did not know; until the next save to this path nothing of that one is deleted: "
        "rename '%s' in it to '%s' to go back to it",
        commit->path, describe_own(commit).text, describe_other(commit, tmp).text, tmp,
        FILE_NAME_METADATA);
}

enum sidestep_status commit_exchange_metadata(struct commit *commit, struct sidestep_error *err)
{
    struct store_file *turn = NULL;
    struct store_stat old = {0};
    bool was_exchanged = true;
    char tmp[FILE_NAME_BYTES];

    assert(commit_is_coordinator(commit) && commit->files.in_place && commit->dir != NULL);
    file_name_format(FILE_NAME_METADATA_TMP, commit->save_id, 0, 0, tmp);
    TRY(lock_exchange(commit, &turn, err));
    enum sidestep_status status = compare_and_rename(commit, tmp, &old, &was_exchanged, err);
    end_turn(commit, turn);
    return status == SIDESTEP_OK && was_exchanged ? check_taken_out(commit, tmp, &old, err)
                                                  : status;
}
