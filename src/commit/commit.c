/* SPDX-License-Identifier: BSD-3-Clause */
/* commit.c -- step 1 of the protocol (commit.h): rank 0 begins a save, and the other ranks join
 * it. */
#include "commit/commit.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "commit/commit_marker.h"
#include "commit/sweep.h"

#define BEGIN_TRIES 16u /* a try is lost only if somebody sweeps at that moment */

void commit_set_save_id(struct commit *commit, const uint8_t save_id[SAVE_ID_BYTES])
{
    memcpy(commit->save_id_bytes, save_id, SAVE_ID_BYTES);
    hash_to_hex(save_id, SAVE_ID_BYTES, commit->save_id);
}

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
    else
        status =
            FAIL(err, SIDESTEP_ENOTFOUND, "the directory '%s' does not exist; make it first", path);
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
    error_copy(err, &why);
    return status;
}

enum sidestep_status commit_open(struct commit *commit, const char *path,
                                 struct sidestep_error *err)
{
    OWNED char *parent = NULL;
    OWNED_DIR *name = NULL;
    struct store_traits traits;

    TRY(location_check(path, err));
    TRY(split_path(commit, path, &parent, err));
    if (file_name_parse(commit->name).kind != FILE_NAME_NONE ||
        strcmp(commit->name, FILE_NAME_SERIES_DIR) == 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is a name that sidestep keeps for itself",
                    commit->name);
    TRY(open_parent(commit, parent, err));
    TRY(store_dir_traits(commit->parent, &traits, err));
    commit->is_volatile = traits.is_volatile;
    TRY(store_dir_open(commit->store, NULL, parent, &commit->spare, err));
    /* NAME may be a mount point, or a link to other storage. */
    if (store_dir_open(commit->store, NULL, commit->path, &name, NULL) == SIDESTEP_OK) {
        TRY(store_dir_traits(name, &traits, err));
        commit->is_volatile = traits.is_volatile;
    }
    return SIDESTEP_OK;
}

/* Choose swap or in-place form: does NAME exist? Opens it if it is a directory, or a link to
 * one. */
static enum sidestep_status choose_form(struct commit *commit, struct sidestep_error *err)
{
    struct store_stat stat;
    enum sidestep_status status = store_stat(commit->parent, commit->name, &stat, err);

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
    TRY(store_dir_stat(commit->dir, &commit->dir_identity, err));
    return commit_marker_create(commit, err);
}

/* Remove what a failed begin made. Nobody else knows of it yet. */
static void undo_begin(struct commit *commit)
{
    char name[FILE_NAME_BYTES];

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
    commit->began_at = (int64_t)time(NULL);
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

enum sidestep_status commit_begin(struct commit *commit, const uint8_t save_id[SAVE_ID_BYTES],
                                  struct sidestep_error *err)
{
    assert(commit->rank == 0 && commit->parent != NULL);
    commit_set_save_id(commit, save_id);
    TRY(choose_form(commit, err));
    return begin_chosen(commit, err);
}

enum sidestep_status commit_begin_export(struct commit *commit,
                                         const uint8_t save_id[SAVE_ID_BYTES],
                                         struct sidestep_error *err)
{
    assert(commit->rank == 0 && commit->parent != NULL);
    commit_set_save_id(commit, save_id);
    commit->in_place = false;
    return begin_chosen(commit, err);
}

/* Try once: is the directory of rank 0, or its marker in NAME, visible? */
static enum sidestep_status try_join(struct commit *commit, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    if (!commit->in_place) {
        file_name_format(FILE_NAME_SAVING, commit->save_id, 0, 0, name);
        return store_dir_open(commit->store, commit->parent, name, &commit->dir, err);
    }
    TRY(store_dir_open(commit->store, NULL, commit->path, &commit->dir, err));
    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
    return store_stat(commit->dir, name, &stat, err);
}

enum sidestep_status commit_join(struct commit *commit, struct sidestep_error *err)
{
    uint64_t start = clock_now(commit->clock);
    struct backoff backoff = {.max_ms = COMMIT_POLL_MAX_MS};

    if (commit->dir != NULL)
        return SIDESTEP_OK; /* this is rank 0, which made it */
    for (;;) {
        enum sidestep_status status = try_join(commit, err);
        if (status == SIDESTEP_OK)
            return store_dir_stat(commit->dir, &commit->dir_identity, err);
        enum sidestep_status aborted = commit_check_aborted(commit, err); /* made, then removed */
        store_dir_close(TAKE(commit->dir));
        if (aborted != SIDESTEP_OK)
            return aborted;
        if (status != SIDESTEP_ENOTFOUND && commit->spare == NULL)
            return status;
        if (status != SIDESTEP_ENOTFOUND) { /* without ${dir} it could not report its failure */
            store_dir_close(TAKE(commit->spare));
            continue;
        }
        if (clock_now(commit->clock) - start > commit->timeout_ns)
            return FAIL(err, SIDESTEP_ETIMEDOUT,
                        "rank %u does not see the directory that rank 0 made for '%s': is its "
                        "parent directory shared between the hosts?",
                        commit->rank, commit->path);
        backoff_sleep(&backoff, commit->clock);
    }
}

void commit_close(struct commit *commit)
{
    store_file_discard(TAKE(commit->marker));
    store_dir_close(TAKE(commit->dir));
    store_dir_close(TAKE(commit->spare));
    store_dir_close(TAKE(commit->parent));
}
