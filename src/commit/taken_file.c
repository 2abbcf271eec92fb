/* SPDX-License-Identifier: BSD-3-Clause */
/* taken_file.c -- files of the caller that become extra files of a save; see extra_files.h. */
#include <string.h>

#include "base/base.h"
#include "commit/extra_files.h"
#include "commit/small_file.h"
#include "store/store.h"

/* Open the directory of ${path}, which is of this host also if the checkpoint is in a bucket. */
static enum sidestep_status open_parent(const struct commit *commit, const char *path,
                                        struct store_dir **dir, const char **name,
                                        struct sidestep_error *err)
{
    struct store *host = commit->store->ops->takes_urls ? store_posix() : commit->store;
    const char *slash = strrchr(path, '/');
    OWNED char *parent = NULL;

    if (slash == NULL || slash == path || slash[1] == '\0')
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is not the absolute path of a file in a directory",
                    path);
    size_t length = (size_t)(slash - path);
    if ((parent = memory_new(length + 1, 1)) == NULL)
        return FAIL_NOMEM(err, length + 1);
    memcpy(parent, path, length);
    *name = slash + 1;
    return store_dir_open(host, NULL, parent, dir, err);
}

enum sidestep_status commit_taken_bytes(const struct commit *commit, const char *path,
                                        uint64_t *bytes, struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;
    struct store_stat stat;
    const char *name;

    TRY(open_parent(commit, path, &dir, &name, err));
    TRY(store_stat_to_read(dir, name, &stat, err));
    *bytes = stat.size;
    return SIDESTEP_OK;
}

/* Reads a file, and writes what was read to another one. */
struct copied {
    struct store_file *from;
    struct store_file *to;
};

static enum sidestep_status read_and_write(const struct source *source, void *to, size_t bytes,
                                           uint64_t offset, struct sidestep_error *err)
{
    const struct copied *copied = source->context;

    TRY(store_file_read_at(copied->from, to, bytes, offset, err));
    return store_file_write_at(copied->to, to, bytes, offset, err);
}

static enum sidestep_status copy(struct store_file *from, struct store_dir *dir, const char *name,
                                 uint64_t bytes, uint8_t sha256[HASH_SHA256_BYTES],
                                 struct sidestep_error *err)
{
    OWNED_FILE *to = NULL;

    TRY(store_file_create(dir, name, 0, &to, err));
    struct copied copied = {from, to};
    struct source source = {.length = bytes, .read_at = read_and_write, .context = &copied};
    TRY(hash_sha256_source(&source, sha256, err));
    TRY(store_file_sync(to, err));
    return store_file_close(TAKE(to), err);
}

/* Give the file a second name, unless it is known under others: whoever has these may change it
 * later. False: that was not possible, and there is no second name. */
static bool give_name(struct store_dir *from, const char *last, struct store_dir *to,
                      const char *name)
{
    struct store_stat stat;

    if (from->store != to->store || store_stat(from, last, &stat, NULL) != SIDESTEP_OK ||
        stat.kind != STORE_FILE || stat.links != 1)
        return false;
    if (store_link(from, last, to, name, NULL) == SIDESTEP_OK)
        return true;
    (void)store_unlink(to, name, NULL); /* an answer may have been lost */
    return false;
}

enum sidestep_status commit_extra_take(struct commit *commit, uint32_t number, const char *path,
                                       uint64_t bytes, uint8_t sha256[HASH_SHA256_BYTES],
                                       struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;
    OWNED_FILE *file = NULL;
    struct store_stat stat;
    char name[FILE_NAME_BYTES];
    const char *last;

    commit_extra_name(commit, number, name);
    TRY(open_parent(commit, path, &dir, &last, err));
    TRY(store_file_open_to_read(dir, last, 0, &file, err));
    TRY(store_file_stat(file, &stat, err));
    if (stat.size != bytes)
        return FAIL(err, SIDESTEP_EMISMATCH,
                    "'%s' has %llu bytes now, and had %llu when the save began: nobody may change "
                    "it until the save has ended",
                    path, (unsigned long long)stat.size, (unsigned long long)bytes);
    if (!give_name(dir, last, commit->dir, name))
        return copy(file, commit->dir, name, bytes, sha256, err);
    TRY(store_file_sync(file, err));
    struct source source = small_file_source(file, bytes);
    return hash_sha256_source(&source, sha256, err);
}
