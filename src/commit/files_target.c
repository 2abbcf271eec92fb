/* SPDX-License-Identifier: BSD-3-Clause */
/* files_target.c -- step 1 of the protocol on file systems: resolves the path of a save, opens its
 * parent, and chooses between swap and in place; see files_steps.h. */
#include "commit/files_steps.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

/* Store ${path}, absolute and without trailing slashes, in commit->path, and its last component in
 * commit->name. ${*parent} gets the rest. */
static enum sidestep_status split_path(struct commit *commit, const char *path, char **parent,
                                       struct sidestep_error *err)
{
    char cwd[COMMIT_PATH_BYTES] = "";
    OWNED char *real = NULL;
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        length--;
    if ((length >= 1 && path[length - 1] == '.' && (length == 1 || path[length - 2] == '/')) ||
        (length >= 2 && strncmp(path + length - 2, "..", 2) == 0 &&
         (length == 2 || path[length - 3] == '/'))) {
        real = realpath(path, NULL);
        if (real == NULL)
            return FAIL_SYS(err, "resolve '%s'", path);
        path = real;
        length = strlen(real);
    }
    if (length == 0 || (length == 1 && path[0] == '/'))
        return FAIL(err, SIDESTEP_EINVAL, "'%s' cannot be a checkpoint", path);
    if (path[0] != '/' && getcwd(cwd, sizeof(cwd) - 1) == NULL)
        return FAIL_SYS(err, "getcwd");
    int used = snprintf(commit->path, sizeof(commit->path), "%s%s%.*s", cwd,
                        path[0] != '/' && strcmp(cwd, "/") != 0 ? "/" : "", (int)length, path);
    char *slash = strrchr(commit->path, '/');
    if (used < 0 || (size_t)used >= sizeof(commit->path) || slash == NULL ||
        strlen(slash + 1) >= sizeof(commit->name))
        return error_set(err, SIDESTEP_EINVAL, ENAMETOOLONG, HERE, "'%s'", path);
    snprintf(commit->name, sizeof(commit->name), "%s", slash + 1);
    assert(commit->name[0] != '\0');
    *slash = '\0';
    *parent = memory_strdup(commit->path[0] != '\0' ? commit->path : "/");
    *slash = '/';
    return *parent != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, length);
}

/* Report the first directory on the way to ${parent}, an absolute path, that cannot be opened. */
static enum sidestep_status report_missing(struct commit *commit, const char *parent,
                                           struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;
    struct sidestep_error why = {0};
    char path[COMMIT_PATH_BYTES];
    size_t length = 0;

    while (status == SIDESTEP_OK && parent[length] != '\0') {
        OWNED_DIR *dir = NULL;
        length += 1 + strcspn(parent + length + 1, "/");
        snprintf(path, sizeof(path), "%.*s", (int)length, parent);
        status = store_dir_open(commit->store, NULL, path, &dir, &why);
    }
    if (why.sys_errno == ENOTDIR)
        status =
            FAIL(err, SIDESTEP_ENOTFOUND,
                 "'%s' is not a directory, so nothing can lie below it; choose another path", path);
    else if (commit_is_coordinator(commit))
        status =
            FAIL(err, SIDESTEP_ENOTFOUND, "the directory '%s' does not exist; make it first", path);
    else
        status = FAIL(err, SIDESTEP_ENOTFOUND,
                      "the directory '%s' does not exist; make it first, or, if it does exist for "
                      "rank 0, choose a path on a file system that all hosts mount, or "
                      "s3://BUCKET/PREFIX",
                      path);
    if (err != NULL)
        err->sys_errno = why.sys_errno;
    return status;
}

static enum sidestep_status open_parent(struct commit *commit, const char *parent,
                                        struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status =
        store_dir_open(commit->store, NULL, parent, &commit->parent, &why);

    if (status == SIDESTEP_OK)
        return SIDESTEP_OK;
    if (status == SIDESTEP_ENOTFOUND)
        return report_missing(commit, parent, err);
    error_wrap(&why, "open the parent directory");
    return error_copy(err, &why);
}

enum sidestep_status files_open(struct commit *commit, const char *path, struct sidestep_error *err)
{
    OWNED char *parent = NULL;
    OWNED_DIR *name = NULL;
    struct store_traits traits;

    TRY(location_check(path, err));
    TRY(split_path(commit, path, &parent, err));
    TRY(commit_check_name(commit, err));
    TRY(open_parent(commit, parent, err));
    TRY(store_dir_traits(commit->parent, &traits, err));
    commit->files.is_volatile = traits.is_volatile;
    TRY(store_dir_open(commit->store, NULL, parent, &commit->files.spare, err));
    /* NAME may be a mount point, or a link to other storage. */
    if (store_dir_open(commit->store, NULL, commit->path, &name, NULL) == SIDESTEP_OK) {
        TRY(store_dir_traits(name, &traits, err));
        commit->files.is_volatile = traits.is_volatile;
    }
    return SIDESTEP_OK;
}

enum sidestep_status files_look(struct commit *commit, struct sidestep_error *err)
{
    struct store_stat stat;

    assert(commit->dir == NULL);
    commit->files.in_place = false;
    if (commit->files.is_export) /* always a new directory */
        return SIDESTEP_OK;
    enum sidestep_status status = store_stat(commit->parent, commit->name, &stat, err);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    TRY(status);
    if (stat.kind == STORE_FILE)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' is a file", commit->path);
    if (commit->group.count != 0) /* only the swap form makes parts */
        return FAIL(err, SIDESTEP_EEXISTS,
                    "'%s' is there already; if it is a part of a save that has just failed on "
                    "another node, save again: that replaces it",
                    commit->path);
    if (commit->request.resumes)
        return commit->request.no_replace
                   ? FAIL(err, SIDESTEP_EEXISTS, "'%s' is there already, and stays", commit->path)
                   : SIDESTEP_OK;
    status = store_dir_open(commit->store, NULL, commit->path, &commit->dir, err);
    if (status == SIDESTEP_ENOTFOUND)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' is there, but is not a directory", commit->path);
    TRY(status);
    commit->files.in_place = true;
    TRY(commit_read_identity(commit->dir, &commit->previous, err));
    if (commit->previous != 0 && commit->request.no_replace)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' holds a checkpoint already", commit->path);
    return SIDESTEP_OK;
}
