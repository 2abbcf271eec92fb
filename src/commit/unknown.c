/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unknown.c -- saves whose files somebody moves, and saves whose outcome is unknown: the look at
 * the path, and the sentences that say what is known, where to look and what to do next.
 */
#include <string.h>

#include "base/owned.h"
#include "commit/commit.h"

static bool is_same_dir(struct store_dir *a, struct store_dir *b)
{
    struct store_stat of_a, of_b;

    return store_dir_stat(a, &of_a, NULL) == SIDESTEP_OK &&
           store_dir_stat(b, &of_b, NULL) == SIDESTEP_OK && of_a.inode == of_b.inode &&
           of_a.device == of_b.device;
}

/* Where ${dir} is now; false: nobody knows. */
static bool find_dir(struct store_dir *dir, char path[COMMIT_PATH_BYTES])
{
    OWNED_DIR *found = NULL;

    return store_dir_path(dir, path, COMMIT_PATH_BYTES, NULL) == SIDESTEP_OK &&
           store_dir_open(dir->store, NULL, path, &found, NULL) == SIDESTEP_OK &&
           is_same_dir(dir, found);
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
    struct sidestep_error why = {.rank = -1};
    OWNED_DIR *now = NULL;

    store_dir_close(TAKE(commit->spare)); /* so that there is a descriptor */
    enum sidestep_status status = store_dir_open(commit->store, NULL, path, &now, &why);
    if (status == SIDESTEP_OK && is_same_dir(dir, now))
        return SIDESTEP_OK;
    if (status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND || status == SIDESTEP_EUNSAFE)
        return report_moved(dir, path, holds, err);
    error_wrap(&why,
               "all was written and is durable, but it cannot be seen whether '%s' leads to it; "
               "look there, or repeat the call",
               path);
    error_copy(err, &why);
    return SIDESTEP_EUNKNOWN;
}

enum sidestep_status commit_report_gone(const struct commit *commit, struct sidestep_error *err)
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
