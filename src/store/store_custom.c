/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_custom.c -- see store_custom.h: wraps the handles of the program's store, and calls its
 * functions.
 *
 * Some promises of store.h need no help from the program's store.  This file checks names, and lets
 * requests of 0 bytes succeed.  If the store lacks an optional function, the call fails, or does
 * nothing if that is safe.
 */
#include "store/store_custom.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "store/store_posix.h"

_Static_assert(sizeof(struct sidestep_store) == 200, "a function was added: handle it below");

struct custom {
    struct store base;
    struct sidestep_store theirs;
    char name[32];
};
struct custom_dir {
    struct store_dir base;
    void *theirs;
};
struct custom_file {
    struct store_file base;
    void *theirs;
    bool writable;
    bool lockable; /* may be locked exclusively */
    char name[];   /* for messages */
};

static const struct sidestep_store *theirs_of(const struct store *store)
{
    return &((const struct custom *)store)->theirs;
}
static void *dir_of(struct store_dir *dir)
{
    return dir != NULL ? ((struct custom_dir *)dir)->theirs : NULL;
}
static void *file_of(struct store_file *file)
{
    return ((struct custom_file *)file)->theirs;
}

/* Call a function of the program's store. */
#define CALL_THEIRS(store, function, err, ...)                                                     \
    ({                                                                                             \
        const struct sidestep_store *theirs_ = theirs_of(store);                                   \
        struct sidestep_error why_ = {.rank = -1};                                                 \
        enum sidestep_status status_ = theirs_->function(theirs_->context, __VA_ARGS__, &why_);    \
        error_from_callback("the store", theirs_->name, #function, status_, &why_, err);           \
    })

/* The same for a function of a file, with the file's name in errors. */
#define CALL_THEIRS_OF_FILE(file, function, err, ...)                                              \
    WRAP(CALL_THEIRS((file)->store, function, err, file_of(file), ##__VA_ARGS__), err, "'%s'",     \
         ((struct custom_file *)(file))->name)

static void convert_stat(const struct sidestep_store_stat *from, struct store_stat *to)
{
    *to = (struct store_stat){.kind = from->kind == SIDESTEP_STORE_FILE        ? STORE_FILE
                                      : from->kind == SIDESTEP_STORE_DIRECTORY ? STORE_DIRECTORY
                                                                               : STORE_OTHER,
                              .size = from->size,
                              .stored = from->stored,
                              .device = from->device,
                              .inode = from->inode,
                              .modified = from->modified,
                              .modified_ns =
                                  (uint64_t)from->modified * 1000000000u + from->modified_ns};
}

/* ---- directories */

static enum sidestep_status dir_open(struct store *store, struct store_dir *at, const char *name,
                                     struct store_dir **out, struct sidestep_error *err)
{
    OWNED struct custom_dir *dir = memory_new(1, sizeof(*dir));

    if (dir == NULL)
        return FAIL_NOMEM(err, sizeof(*dir));
    if (at != NULL)
        TRY(store_posix_check_name(name, err));
    dir->base.store = store;
    TRY(CALL_THEIRS(store, dir_open, err, dir_of(at), name, &dir->theirs));
    *out = &TAKE(dir)->base;
    return SIDESTEP_OK;
}

static void dir_close(struct store_dir *dir)
{
    theirs_of(dir->store)->dir_close(theirs_of(dir->store)->context, dir_of(dir));
    free(dir);
}

static enum sidestep_status dir_make(struct store_dir *at, const char *name,
                                     struct sidestep_error *err)
{
    TRY(store_posix_check_name(name, err));
    return CALL_THEIRS(at->store, dir_make, err, dir_of(at), name);
}

static enum sidestep_status dir_remove(struct store_dir *at, const char *name,
                                       struct sidestep_error *err)
{
    TRY(store_posix_check_name(name, err));
    return CALL_THEIRS(at->store, dir_remove, err, dir_of(at), name);
}

static enum sidestep_status unlink_name(struct store_dir *at, const char *name,
                                        struct sidestep_error *err)
{
    TRY(store_posix_check_name(name, err));
    return CALL_THEIRS(at->store, unlink, err, dir_of(at), name);
}

static enum sidestep_status dir_list(struct store_dir *dir,
                                     bool (*each)(void *context, const char *name), void *context,
                                     struct sidestep_error *err)
{
    return CALL_THEIRS(dir->store, dir_list, err, dir_of(dir), each, context);
}

static enum sidestep_status dir_sync(struct store_dir *dir, struct sidestep_error *err)
{
    return CALL_THEIRS(dir->store, dir_sync, err, dir_of(dir));
}

static enum sidestep_status dir_stat(struct store_dir *dir, struct store_stat *out,
                                     struct sidestep_error *err)
{
    struct sidestep_store_stat stat = {0};

    TRY(CALL_THEIRS(dir->store, dir_stat, err, dir_of(dir), &stat));
    convert_stat(&stat, out);
    return SIDESTEP_OK;
}

static enum sidestep_status dir_traits(struct store_dir *dir, struct store_traits *out,
                                       struct sidestep_error *err)
{
    struct sidestep_store_traits traits = {0};

    if (theirs_of(dir->store)->dir_traits != NULL)
        TRY(CALL_THEIRS(dir->store, dir_traits, err, dir_of(dir), &traits));
    *out = (struct store_traits){.is_volatile = traits.is_volatile != 0,
                                 .is_network = traits.is_network != 0,
                                 .has_free_bytes = traits.has_free_bytes != 0,
                                 .free_bytes = traits.free_bytes};
    const char *type = traits.type_name[0] != '\0' ? traits.type_name : theirs_of(dir->store)->name;
    memcpy(out->type_name, type, strnlen(type, sizeof(out->type_name) - 1));
    return SIDESTEP_OK;
}

static enum sidestep_status stat_name(struct store_dir *at, const char *name,
                                      struct store_stat *out, struct sidestep_error *err)
{
    struct sidestep_store_stat stat = {0};

    TRY(store_posix_check_name(name, err));
    TRY(CALL_THEIRS(at->store, stat, err, dir_of(at), name, &stat));
    convert_stat(&stat, out);
    return SIDESTEP_OK;
}

static enum sidestep_status rename_name(struct store_dir *from_dir, const char *from,
                                        struct store_dir *to_dir, const char *to,
                                        enum store_rename_mode mode, struct sidestep_error *err)
{
    static const enum sidestep_store_rename modes[] = {
        [STORE_REPLACE] = SIDESTEP_STORE_REPLACE,
        [STORE_NOREPLACE] = SIDESTEP_STORE_NOREPLACE,
        [STORE_EXCHANGE] = SIDESTEP_STORE_EXCHANGE,
    };

    TRY(store_posix_check_name(from, err));
    TRY(store_posix_check_name(to, err));
    return CALL_THEIRS(from_dir->store, rename, err, dir_of(from_dir), from, dir_of(to_dir), to,
                       modes[mode]);
}

static enum sidestep_status link_name(struct store_dir *from_dir, const char *from,
                                      struct store_dir *to_dir, const char *to,
                                      struct sidestep_error *err)
{
    if (theirs_of(from_dir->store)->link == NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "the store '%s' has no hard links",
                    theirs_of(from_dir->store)->name);
    TRY(store_posix_check_name(from, err));
    TRY(store_posix_check_name(to, err));
    return CALL_THEIRS(from_dir->store, link, err, dir_of(from_dir), from, dir_of(to_dir), to);
}

/* ---- files */

static enum sidestep_status file_create(struct store_dir *at, const char *name, uint32_t flags,
                                        struct store_file **out, struct sidestep_error *err)
{
    OWNED struct custom_file *file = memory_new(1, sizeof(*file) + strlen(name) + 1);

    (void)flags; /* the program's store does not know O_DIRECT, nor caches */
    if (file == NULL)
        return FAIL_NOMEM(err, sizeof(*file) + strlen(name) + 1);
    TRY(store_posix_check_name(name, err));
    memcpy(file->name, name, strlen(name) + 1);
    file->base.store = at->store;
    file->writable = true;
    file->lockable = true;
    TRY(CALL_THEIRS(at->store, file_create, err, dir_of(at), name, &file->theirs));
    *out = &TAKE(file)->base;
    return SIDESTEP_OK;
}

/* Check each component of a relative path. */
static enum sidestep_status check_path(const char *path, struct sidestep_error *err)
{
    char name[256];

    do {
        size_t length = strcspn(path, "/");
        if (length >= sizeof(name))
            return FAIL(err, SIDESTEP_EUNSAFE, "'%.100s...' is not a name", path);
        memcpy(name, path, length);
        name[length] = '\0';
        TRY(store_posix_check_name(name, err));
        path += length;
    } while (*path++ == '/');
    return SIDESTEP_OK;
}

static enum sidestep_status file_open(struct store_dir *at, const char *name, uint32_t flags,
                                      struct store_file **out, struct sidestep_error *err)
{
    OWNED struct custom_file *file = memory_new(1, sizeof(*file) + strlen(name) + 1);

    if (file == NULL)
        return FAIL_NOMEM(err, sizeof(*file) + strlen(name) + 1);
    TRY(check_path(name, err));
    memcpy(file->name, name, strlen(name) + 1);
    file->base.store = at->store;
    file->lockable = (flags & STORE_WRITE) != 0;
    TRY(CALL_THEIRS(at->store, file_open, err, dir_of(at), name, &file->theirs));
    *out = &TAKE(file)->base;
    return SIDESTEP_OK;
}

/* EIO: the file was opened for reading. */
static enum sidestep_status check_writable(const struct store_file *file,
                                           struct sidestep_error *err)
{
    const struct custom_file *custom = (const struct custom_file *)file;

    if (custom->writable)
        return SIDESTEP_OK;
    return error_set(err, SIDESTEP_EIO, EBADF, HERE, "change '%s'", custom->name);
}

static enum sidestep_status file_allocate(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err)
{
    if (store_posix_is_too_large(bytes, 0))
        return FAIL_SYS(err, "no file can be that large");
    if (theirs_of(file->store)->file_allocate == NULL)
        return SIDESTEP_OK;
    return CALL_THEIRS_OF_FILE(file, file_allocate, err, bytes);
}

static enum sidestep_status file_write_at(struct store_file *file, const void *from, size_t bytes,
                                          uint64_t offset, struct sidestep_error *err)
{
    TRY(check_writable(file, err));
    if (store_posix_is_too_large(offset, bytes))
        return FAIL_SYS(err, "no file can be that large");
    if (bytes == 0)
        return SIDESTEP_OK;
    return CALL_THEIRS_OF_FILE(file, file_write_at, err, from, bytes, offset);
}

static enum sidestep_status file_read_at(struct store_file *file, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    if (store_posix_is_too_large(offset, bytes))
        return FAIL(err, SIDESTEP_ECORRUPT, "read '%s': no file is that large",
                    ((struct custom_file *)file)->name);
    if (bytes == 0)
        return SIDESTEP_OK;
    return CALL_THEIRS_OF_FILE(file, file_read_at, err, to, bytes, offset);
}

static enum sidestep_status file_truncate(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err)
{
    TRY(check_writable(file, err));
    if (store_posix_is_too_large(bytes, 0))
        return FAIL_SYS(err, "no file can be that large");
    return CALL_THEIRS_OF_FILE(file, file_truncate, err, bytes);
}

static enum sidestep_status file_sync(struct store_file *file, struct sidestep_error *err)
{
    return CALL_THEIRS_OF_FILE(file, file_sync, err);
}

static enum sidestep_status file_stat(struct store_file *file, struct store_stat *out,
                                      struct sidestep_error *err)
{
    struct sidestep_store_stat stat = {0};

    TRY(CALL_THEIRS_OF_FILE(file, file_stat, err, &stat));
    convert_stat(&stat, out);
    return SIDESTEP_OK;
}

static size_t file_alignment(struct store_file *file)
{
    (void)file;
    return 0;
}

static enum sidestep_status file_lock(struct store_file *file, bool exclusive,
                                      struct sidestep_error *err)
{
    if (theirs_of(file->store)->file_lock == NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "the store '%s' has no locks",
                    theirs_of(file->store)->name);
    if (exclusive && !((struct custom_file *)file)->lockable)
        return error_set(err, SIDESTEP_EIO, EBADF, HERE, "lock '%s'",
                         ((struct custom_file *)file)->name);
    return CALL_THEIRS_OF_FILE(file, file_lock, err, exclusive);
}

static enum sidestep_status file_is_locked(struct store_file *file, bool *is_locked,
                                           struct sidestep_error *err)
{
    (void)is_locked;
    return FAIL(err, SIDESTEP_EUNSUPPORTED, "the store '%s' cannot tell who holds a lock",
                theirs_of(file->store)->name);
}

static enum sidestep_status file_close(struct store_file *file, struct sidestep_error *err)
{
    enum sidestep_status status = CALL_THEIRS_OF_FILE(file, file_close, err);

    free(file);
    return status;
}

static void file_discard(struct store_file *file)
{
    (void)file_close(file, NULL);
}

static const struct store_ops ops = {.name = "custom",
                                     .dir_open = dir_open,
                                     .dir_close = dir_close,
                                     .dir_make = dir_make,
                                     .dir_remove = dir_remove,
                                     .dir_list = dir_list,
                                     .dir_sync = dir_sync,
                                     .dir_stat = dir_stat,
                                     .dir_traits = dir_traits,
                                     .stat = stat_name,
                                     .rename = rename_name,
                                     .unlink = unlink_name,
                                     .link = link_name,
                                     .file_create = file_create,
                                     .file_open = file_open,
                                     .file_allocate = file_allocate,
                                     .file_write_at = file_write_at,
                                     .file_read_at = file_read_at,
                                     .file_truncate = file_truncate,
                                     .file_sync = file_sync,
                                     .file_stat = file_stat,
                                     .file_alignment = file_alignment,
                                     .file_lock = file_lock,
                                     .file_is_locked = file_is_locked,
                                     .file_close = file_close,
                                     .file_discard = file_discard};

/* ---- the store */

static bool is_complete(const struct sidestep_store *s)
{
    return s->name != NULL && s->dir_open != NULL && s->dir_close != NULL && s->dir_make != NULL &&
           s->dir_remove != NULL && s->dir_list != NULL && s->dir_sync != NULL &&
           s->dir_stat != NULL && s->stat != NULL && s->rename != NULL && s->unlink != NULL &&
           s->file_create != NULL && s->file_open != NULL && s->file_write_at != NULL &&
           s->file_read_at != NULL && s->file_truncate != NULL && s->file_sync != NULL &&
           s->file_stat != NULL && s->file_close != NULL;
}

enum sidestep_status store_custom_new(const struct sidestep_store *theirs, struct store **out,
                                      struct sidestep_error *err)
{
    OWNED struct custom *custom = memory_new(1, sizeof(*custom));

    if (custom == NULL)
        return FAIL_NOMEM(err, sizeof(*custom));
    TRY(options_copy(&custom->theirs, sizeof(custom->theirs), theirs, "store", err));
    if (!is_complete(&custom->theirs))
        return FAIL(err, SIDESTEP_EINVAL, "the store '%.100s' lacks a function or a name",
                    custom->theirs.name != NULL ? custom->theirs.name : "");
    memcpy(custom->name, custom->theirs.name,
           strnlen(custom->theirs.name, sizeof(custom->name) - 1));
    custom->theirs.name = custom->name;
    custom->base.ops = &ops;
    *out = &TAKE(custom)->base;
    return SIDESTEP_OK;
}

void store_custom_free(struct store **store)
{
    free(*store);
    *store = NULL;
}
