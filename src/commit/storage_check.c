/* SPDX-License-Identifier: BSD-3-Clause */
/* storage_check.c -- tries in small what a save does; see storage_check.h. */
#include "commit/storage_check.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "commit/commit.h"

#define PAGE 4096u

/* Programs that mount an object store as a file system. Their calls succeed, but do not have the
 * effect that a save relies on, and a trial does not show that. */
static const struct {
    const char *type_name;
    const char *why;
} object_mounts[] = {
    {"fuse.rclone", "rclone uploads a file when it has been closed, not when it is synced, and "
                    "renames a directory file by file"},
    {"fuse.gcsfuse", "gcsfuse renames a directory object by object"},
    {"fuse.s3fs", "s3fs renames a directory object by object"},
    {"fuse.goofys", "goofys renames a directory object by object"},
    {"fuse.geesefs", "geesefs renames a directory object by object"},
    {"fuse.blobfuse2", "blobfuse2 renames a directory object by object"},
    {"fuse.mountpoint-s3", "Mountpoint for S3 only appends to files, and renames none"},
};

/* The steps of a trial, in order, and their names in a message. */
enum trial_step {
    TRIAL_MAKE,
    TRIAL_WRITE,
    TRIAL_CUT,
    TRIAL_READ,
    TRIAL_RENAME_FILE,
    TRIAL_RENAME_DIRECTORY,
};
static const char *const step_names[] = {
    [TRIAL_MAKE] = "make files and directories",
    [TRIAL_WRITE] = "write at any place of a file",
    [TRIAL_CUT] = "change the length of a file",
    [TRIAL_READ] = "read a file while it is written",
    [TRIAL_RENAME_FILE] = "rename a file",
    [TRIAL_RENAME_DIRECTORY] = "rename a directory that holds files",
};

/* A trial in ${at}. Its names are those of a save with a new id. So what a kill leaves is swept
 * like a dead save. */
struct trial {
    struct store_dir *at;
    struct store_dir *dir; /* where the file is: ${at}, or ${saving} in it */
    char saving[FILE_NAME_BYTES], trash[FILE_NAME_BYTES];
    char part[FILE_NAME_BYTES], shard[FILE_NAME_BYTES];
    enum trial_step step;
};

/* Does the error show that the storage cannot do this? It may also be a missing right, a lack of
 * space or memory, or a fault. */
static bool is_refusal(enum trial_step step, const struct sidestep_error *why)
{
    switch (why->sys_errno) {
    case ENOSYS:
    case EOPNOTSUPP:
    case EINVAL:
        return true;
    case EPERM:
    case EBADF:
        return step != TRIAL_MAKE; /* without it, permission is missing */
    case EMFILE:
        return step == TRIAL_RENAME_DIRECTORY; /* otherwise it is a limit of this process */
    default:
        return why->status == SIDESTEP_EUNSUPPORTED;
    }
}

static enum sidestep_status name_trial(struct trial *trial, struct sidestep_error *err)
{
    uint8_t id[SAVE_ID_BYTES];
    char hex[SAVE_ID_HEX];

    TRY(random_bytes(id, sizeof(id), err));
    hash_to_hex(id, sizeof(id), hex);
    file_name_format(FILE_NAME_SAVING, hex, 0, 0, trial->saving);
    file_name_format(FILE_NAME_TRASH, hex, 0, 0, trial->trash);
    file_name_format(FILE_NAME_PART, hex, 0, 0, trial->part);
    file_name_format(FILE_NAME_SHARD, hex, 0, 0, trial->shard);
    return SIDESTEP_OK;
}

/* Write as a shard is written: the end first, then the rest, then the length. */
static enum sidestep_status try_bytes(struct trial *trial, struct store_file *file,
                                      struct sidestep_error *err)
{
    static const uint8_t bytes[PAGE] = {'s', 'i', 'd', 'e', 's', 't', 'e', 'p'};
    uint8_t back[PAGE];

    trial->step = TRIAL_WRITE;
    TRY(store_file_write_at(file, bytes, PAGE, PAGE, err));
    TRY(store_file_write_at(file, bytes, PAGE, 0, err));
    trial->step = TRIAL_CUT;
    TRY(store_file_truncate(file, 3 * PAGE, err));
    TRY(store_file_truncate(file, 2 * PAGE, err));
    TRY(store_file_sync(file, err));
    trial->step = TRIAL_READ;
    for (unsigned page = 0; page < 2; page++) {
        TRY(store_file_read_at(file, back, PAGE, page * PAGE, err));
        if (memcmp(back, bytes, PAGE) != 0)
            return FAIL(err, SIDESTEP_EUNSUPPORTED, "other bytes are read than were written");
    }
    return SIDESTEP_OK;
}

static enum sidestep_status try_file(struct trial *trial, struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;

    assert(trial->dir != NULL);
    TRY(store_file_create(trial->dir, trial->part, 0, &file, err));
    TRY(try_bytes(trial, file, err));
    TRY(store_file_close(TAKE(file), err));
    trial->step = TRIAL_RENAME_FILE;
    return store_rename_new(trial->dir, trial->part, trial->dir, trial->shard, err);
}

/* Rename a directory that holds a file, and check that it still holds it. */
static enum sidestep_status try_directory(struct trial *trial, struct sidestep_error *err)
{
    OWNED_DIR *renamed = NULL;
    struct store_stat stat;

    trial->step = TRIAL_RENAME_DIRECTORY;
    TRY(store_rename_new(trial->at, trial->saving, trial->at, trial->trash, err));
    TRY(store_dir_open(trial->at->store, trial->at, trial->trash, &renamed, err));
    if (store_stat(renamed, trial->shard, &stat, err) != SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EUNSUPPORTED, "they are gone afterwards");
}

/* Remove a directory of the trial by its name, because a handle need not follow a rename. */
static enum sidestep_status remove_directory(const struct trial *trial, const char *name,
                                             struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;
    enum sidestep_status status = store_dir_open(trial->at->store, trial->at, name, &dir, err);

    if (status != SIDESTEP_OK)
        return status;
    (void)store_unlink(dir, trial->part, NULL);
    (void)store_unlink(dir, trial->shard, NULL);
    return store_dir_remove(trial->at, name, err);
}

/* Remove what a trial made. ENOMEM: something is still there, which a sweep removes. Other failures
 * do not matter here. */
static enum sidestep_status remove_trial(struct trial *trial, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};

    if (trial->dir == trial->at) {
        (void)store_unlink(trial->dir, trial->part, NULL);
        (void)store_unlink(trial->dir, trial->shard, NULL);
        return SIDESTEP_OK;
    }
    store_dir_close(TAKE(trial->dir));
    if (remove_directory(trial, trial->saving, &why) == SIDESTEP_ENOMEM ||
        remove_directory(trial, trial->trash, &why) == SIDESTEP_ENOMEM)
        return error_copy(err, &why);
    return SIDESTEP_OK;
}

static enum sidestep_status run_trial(struct trial *trial, bool in_place,
                                      struct sidestep_error *err)
{
    if (in_place) {
        trial->dir = trial->at;
        return try_file(trial, err);
    }
    assert(trial->dir == NULL);
    TRY(store_dir_make(trial->at, trial->saving, err));
    TRY(store_dir_open(trial->at->store, trial->at, trial->saving, &trial->dir, err));
    TRY(try_file(trial, err));
    return try_directory(trial, err);
}

static enum sidestep_status check_type(struct store_dir *dir, struct sidestep_error *err)
{
    struct store_traits traits;

    if (store_dir_traits(dir, &traits, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    for (size_t i = 0; i < ARRAY_LENGTH(object_mounts); i++)
        if (strcmp(traits.type_name, object_mounts[i].type_name) == 0)
            return FAIL(err, SIDESTEP_EUNSUPPORTED, "%s", object_mounts[i].why);
    return SIDESTEP_OK;
}

enum sidestep_status storage_check(struct store_dir *dir, bool in_place, struct sidestep_error *err)
{
    struct trial trial = {.at = dir};
    struct sidestep_error why = {.rank = -1};

    if (dir->store->ops->layout != STORE_OF_DIRECTORIES)
        return SIDESTEP_OK;
    TRY(check_type(dir, err));
    TRY(name_trial(&trial, err));
    enum sidestep_status status = run_trial(&trial, in_place, &why);
    bool is_judged = status != SIDESTEP_OK && is_refusal(trial.step, &why);
    TRY(remove_trial(&trial, err));
    if (status == SIDESTEP_ENOMEM)
        return error_copy(err, &why);
    if (!is_judged)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EUNSUPPORTED, "it cannot %s (%s)", step_names[trial.step],
                why.sys_errno != 0 ? ERRNO_TEXT(why.sys_errno) : why.message);
}

enum sidestep_status storage_check_network(struct store_dir *dir, bool in_place,
                                           struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    struct store_traits traits;

    if (store_dir_traits(dir, &traits, NULL) != SIDESTEP_OK || !traits.is_network)
        return SIDESTEP_OK;
    enum sidestep_status status = storage_check(dir, in_place, &why);
    if (status != SIDESTEP_EUNSUPPORTED)
        return status == SIDESTEP_OK ? status : error_copy(err, &why);
    return FAIL(err, SIDESTEP_EUNSUPPORTED,
                "this storage (%s) cannot keep a checkpoint whole: %s; nothing was saved, and "
                "nothing was lost: save to the object store itself, as s3://BUCKET/PREFIX, or to a "
                "file system that hosts share (NFS, Lustre, ...); `sidestep doctor DIRECTORY` "
                "tells whether one is suitable",
                traits.type_name, why.message);
}

enum sidestep_status storage_check_commit(struct commit *commit, struct sidestep_error *err)
{
    struct store_dir *dir = commit->files.in_place ? commit->dir : commit->parent;
    struct store_traits traits;
    struct store_stat stat;

    if (commit->store->ops->layout != STORE_OF_DIRECTORIES ||
        store_dir_traits(dir, &traits, NULL) != SIDESTEP_OK || !traits.is_network ||
        store_dir_stat(dir, &stat, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    uint64_t id = (stat.inode * 2 + commit->files.in_place) ^ (stat.device << 32);
    if (commit->request.checked != NULL && *commit->request.checked == id)
        return SIDESTEP_OK;
    TRY(storage_check_network(dir, commit->files.in_place, err));
    if (commit->request.checked != NULL)
        *commit->request.checked = id;
    return SIDESTEP_OK;
}
