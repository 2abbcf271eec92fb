/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_file.c -- acquires the lock of a file and checks that its name still leads to it; see
 * lock_file.h. */
#include "commit/lock_file.h"

#include <assert.h>

#include "base/base.h"
#include "commit/commit.h"

#define POLL_MAX_MS 50u

enum sidestep_status lock_file_acquire(struct store_dir *dir, const char *name,
                                       struct store_file *file, struct sidestep_error *err)
{
    struct store_stat locked, named;

    assert(file != NULL);
    TRY(store_file_lock(file, true, err));
    TRY(store_file_stat(file, &locked, err));
    TRY(store_stat(dir, name, &named, err));
    if (locked.inode == named.inode && locked.device == named.device)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ENOTFOUND, "'%s' was replaced by another file", name);
}

static enum sidestep_status report_swept(const char *name, struct sidestep_error *err)
{
    return FAIL(err, SIDESTEP_ELOCKED, "'%s' was removed by another process", name);
}

static enum sidestep_status open_file(struct store_dir *dir, const char *name,
                                      enum lock_file_kind kind, struct store_file **out,
                                      struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status = store_file_create(dir, name, 0, out, &why);

    if (status == SIDESTEP_EEXISTS && kind == LOCK_FILE_SHARED) {
        status = store_file_open(dir, name, STORE_WRITE, out, &why);
        if (status == SIDESTEP_ENOTFOUND)
            return report_swept(name, err);
    }
    return status == SIDESTEP_OK ? status : error_copy(err, &why);
}

/* Make one attempt. ELOCKED: try again. */
static enum sidestep_status try_lock(struct store_dir *dir, const char *name,
                                     enum lock_file_kind kind, struct store_file **file,
                                     struct sidestep_error *err)
{
    if (*file == NULL)
        TRY(open_file(dir, name, kind, file, err));
    enum sidestep_status status = lock_file_acquire(dir, name, *file, err);
    if (status != SIDESTEP_ENOTFOUND)
        return status;
    store_file_discard(TAKE(*file));
    return report_swept(name, err);
}

static enum sidestep_status wait_for_lock(struct commit *commit, struct store_dir *dir,
                                          const char *name, enum lock_file_kind kind,
                                          struct store_file **file, struct sidestep_error *err)
{
    struct backoff backoff = {.max_ms = POLL_MAX_MS};
    uint64_t began = clock_now(commit->clock);

    for (;;) {
        struct sidestep_error why = {.rank = -1};
        enum sidestep_status status = try_lock(dir, name, kind, file, &why);
        if (status == SIDESTEP_OK)
            return SIDESTEP_OK;
        if (status != SIDESTEP_ELOCKED ||
            clock_now(commit->clock) - began > commit->request.timeout_ns)
            return error_copy(err, &why);
        TRY(commit_check_wanted(commit, err));
        backoff_sleep(&backoff, commit->clock);
    }
}

enum sidestep_status lock_file_create(struct commit *commit, struct store_dir *dir,
                                      const char *name, enum lock_file_kind kind,
                                      struct store_file **out, struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;
    enum sidestep_status status = wait_for_lock(commit, dir, name, kind, &file, err);

    assert(*out == NULL);
    if (status == SIDESTEP_OK || status == SIDESTEP_EUNSUPPORTED)
        *out = TAKE(file);
    else if (file != NULL && kind == LOCK_FILE_NEW)
        (void)store_unlink(dir, name, NULL);
    return status;
}
