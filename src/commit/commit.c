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
#include "commit/form.h"
#include "object/object.h"

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
    return error_copy(err, &why);
}

/* Names of sidestep's own files cannot be those of checkpoints. */
static enum sidestep_status check_name(const struct commit *commit, struct sidestep_error *err)
{
    if (file_name_parse(commit->name).kind != FILE_NAME_NONE ||
        strcmp(commit->name, FILE_NAME_SERIES_DIR) == 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is a name that sidestep keeps for itself",
                    commit->name);
    return SIDESTEP_OK;
}

static enum sidestep_status open_files(struct commit *commit, const char *path,
                                       struct sidestep_error *err)
{
    OWNED char *parent = NULL;
    OWNED_DIR *name = NULL;
    struct store_traits traits;

    assert(commit->store != NULL && commit->parent == NULL && commit->dir == NULL);
    commit->form = &commit_form_files;
    TRY(location_check(path, err));
    TRY(split_path(commit, path, &parent, err));
    TRY(check_name(commit, err));
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

enum sidestep_status commit_open(struct commit *commit, const char *path,
                                 struct sidestep_error *err)
{
    if (object_store_client(commit->store) == NULL)
        return open_files(commit, path, err);
    TRY(commit_open_objects(commit, path, err));
    return check_name(commit, err);
}

enum sidestep_status commit_begin(struct commit *commit, const uint8_t save_id[SAVE_ID_BYTES],
                                  struct sidestep_error *err)
{
    assert(commit->rank == 0 && commit->parent != NULL);
    commit_set_save_id(commit, save_id);
    commit->began_at = (int64_t)time(NULL);
    return commit->form->begin(commit, err);
}

enum sidestep_status commit_begin_export(struct commit *commit,
                                         const uint8_t save_id[SAVE_ID_BYTES],
                                         struct sidestep_error *err)
{
    commit->is_export = true;
    return commit_begin(commit, save_id, err);
}

enum sidestep_status commit_join(struct commit *commit, struct sidestep_error *err)
{
    uint64_t start = clock_now(commit->clock);
    struct backoff backoff = {.max_ms = COMMIT_POLL_MAX_MS};

    assert(commit->parent != NULL && commit->save_id[0] != '\0');
    if (commit->dir != NULL)
        return SIDESTEP_OK; /* this is rank 0, which made it */
    for (;;) {
        enum sidestep_status status = commit->form->try_join(commit, err);
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
    if (commit->form != NULL)
        commit->form->close(commit);
    store_dir_close(TAKE(commit->dir));
    store_dir_close(TAKE(commit->spare));
    store_dir_close(TAKE(commit->parent));
}

bool commit_is_pending(const struct commit *commit)
{
    return commit->form->has_marker(commit);
}

enum sidestep_status commit_check_aborted(struct commit *commit, struct sidestep_error *err)
{
    return commit->form->check_aborted(commit, err);
}

void commit_retract(struct commit *commit)
{
    commit->form->retract(commit);
}

void commit_vote_no(struct commit *commit, const struct sidestep_error *why)
{
    if (commit->dir != NULL)
        commit->form->vote_no(commit, why);
}

enum sidestep_status commit_vote_yes(struct commit *commit, struct sidestep_error *err)
{
    assert(commit->dir != NULL);
    return commit->form->vote_yes(commit, err);
}

enum sidestep_status commit_publish(struct commit *commit, struct commit_contents *contents,
                                    enum commit_outcome *outcome, struct sidestep_error *err)
{
    assert(commit->rank == 0 && commit->dir != NULL);
    *outcome = COMMIT_ABORTED;
    assert(contents->manifest.world_size == commit->world_size); /* I5: all votes are counted */
    enum sidestep_status status = commit->form->publish(commit, contents, outcome, err);
    assert((status == SIDESTEP_OK) == (*outcome == COMMIT_COMMITTED)); /* I4 */
    TRACE(commit, "save %s: outcome %d", commit->save_id, (int)*outcome);
    if (status != SIDESTEP_OK) {
        if (err != NULL)
            err->status = (int32_t)status;
        error_wrap(err, "commit");
    }
    return status;
}

void commit_abort(struct commit *commit, const struct sidestep_error *why)
{
    if (commit->dir != NULL)
        commit->form->abort(commit, why);
}

enum commit_outcome commit_poll_outcome(struct commit *commit, struct sidestep_error *err)
{
    return commit->form->poll_outcome(commit, err);
}

void commit_remove_outcome(struct commit *commit)
{
    if (commit->form != NULL) /* else it was never opened */
        commit->form->remove_outcome(commit);
}
