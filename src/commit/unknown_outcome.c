/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unknown_outcome.c -- checks where a committed path leads, and reports what is known of a save
 * whose files were moved or whose outcome is unknown.
 */
#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "commit/form.h"

/* Is ${path} the directory ${dir}? Fails if storage does not answer. */
static enum sidestep_status compare(struct store_dir *dir, const char *path, bool *is_same,
                                    struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    struct store_stat held, found;
    OWNED_DIR *now = NULL;
    enum sidestep_status status = store_dir_open(dir->store, NULL, path, &now, &why);

    *is_same = false;
    if (status == SIDESTEP_ENOTFOUND || status == SIDESTEP_EUNSAFE)
        return SIDESTEP_OK;
    if (status == SIDESTEP_OK)
        status = store_dir_stat(dir, &held, &why);
    if (status == SIDESTEP_OK)
        status = store_dir_stat(now, &found, &why);
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    *is_same = held.inode == found.inode && held.device == found.device;
    return SIDESTEP_OK;
}

/* Find out where ${dir} is now. False: it cannot be found. */
static bool find_dir(struct store_dir *dir, char path[COMMIT_PATH_BYTES])
{
    bool is_same = false;

    return store_dir_path(dir, path, COMMIT_PATH_BYTES, NULL) == SIDESTEP_OK &&
           compare(dir, path, &is_same, NULL) == SIDESTEP_OK && is_same;
}

static enum sidestep_status report_moved(struct store_dir *dir, const char *path, const char *holds,
                                         struct sidestep_error *err)
{
    char now[COMMIT_PATH_BYTES];

    if (find_dir(dir, now))
        return FAIL(err, SIDESTEP_EUNKNOWN,
                    "all was written and is durable, but in '%s': '%s', or a directory above it, "
                    "was renamed or replaced meanwhile; move it back, or repeat the call",
                    now, path);
    return FAIL(err, SIDESTEP_EUNKNOWN,
                "all was written, but '%s', or a directory above it, was renamed, replaced or "
                "removed meanwhile: look for the directory that holds '%s', or repeat the call",
                path, holds);
}

enum sidestep_status commit_check_path(struct commit *commit, struct store_dir *dir,
                                       const char *path, const char *holds,
                                       struct sidestep_error *err)
{
    bool is_same;

    assert(dir != NULL);
    store_dir_close(TAKE(commit->files.spare)); /* so that a descriptor is free */
    if (compare(dir, path, &is_same, err) == SIDESTEP_OK)
        return is_same ? SIDESTEP_OK : report_moved(dir, path, holds, err);
    error_wrap(
        err,
        "all was written and is durable, but storage does not tell whether '%s' leads to it; "
        "look there, or repeat the call",
        path);
    if (err != NULL)
        err->status = SIDESTEP_EUNKNOWN;
    return SIDESTEP_EUNKNOWN;
}

enum sidestep_status commit_report_removed(const struct commit *commit, struct sidestep_error *err)
{
    return FAIL(err, SIDESTEP_EABORTED,
                "what was being written for '%s' was renamed or removed during the save, by "
                "another process or by hand; nothing was committed, save again",
                commit->path);
}

enum sidestep_status commit_report_unsynced(const struct commit *commit, struct sidestep_error *err)
{
    error_wrap(err,
               "'%s' holds the whole checkpoint, which can be loaded, but the storage has not "
               "confirmed it, so a power loss may undo this save; check the storage, and save "
               "again",
               commit->path);
    return SIDESTEP_EUNKNOWN;
}

enum sidestep_status commit_report_unsure(const struct commit *commit, struct sidestep_error *err)
{
    error_wrap(err,
               "the storage reported an error, but the commit may have taken effect; verify '%s' "
               "to see whether it holds save %s, or save again",
               commit->path, commit->save_id);
    return SIDESTEP_EUNKNOWN;
}

enum commit_outcome commit_judge_identity(const struct commit *commit, uint64_t identity,
                                          struct sidestep_error *err)
{
    if (identity == commit_identity(commit->save_id))
        return COMMIT_COMMITTED;
    if (identity != 0 && identity == commit->previous) {
        (void)FAIL(err, SIDESTEP_EABORTED, "rank 0 gave up save %s of '%s'", commit->save_id,
                   commit->path);
        return COMMIT_ABORTED;
    }
    (void)FAIL(err, SIDESTEP_EUNKNOWN,
               "'%s' holds %s now; save %s may have been committed and then %s, or not: save again "
               "if it is still wanted",
               commit->path, identity == 0 ? "no checkpoint" : "another save", commit->save_id,
               identity == 0 ? "deleted" : "replaced");
    return COMMIT_UNKNOWN;
}

enum commit_outcome commit_explain(struct commit *commit, enum commit_outcome outcome,
                                   struct sidestep_error *err)
{
    bool has_ended = outcome == COMMIT_ABORTED || outcome == COMMIT_UNKNOWN;

    return has_ended && commit_check_aborted(commit, err) != SIDESTEP_OK ? COMMIT_ABORTED : outcome;
}
