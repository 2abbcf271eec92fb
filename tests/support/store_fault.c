/* SPDX-License-Identifier: BSD-3-Clause */
/* store_fault.c -- a store that wraps another one and injects faults. */
#include "support/store_fault.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/fault.h"
#include "base/memory.h"

struct fault_store {
    struct store base;
    struct store *inner;
    atomic_bool says_free;
    atomic_ullong free_bytes;
};
struct fault_dir {
    struct store_dir base;
    struct store_dir *inner;
};
struct fault_file {
    struct store_file base;
    struct store_file *inner;
};

#define INJECT(op, name)                                                                           \
    do {                                                                                           \
        if (fault_hit("store." op))                                                                \
            return FAIL_SYS(err, op " '%s' (injected)", name);                                     \
    } while (0)
#define INJECT_REPLY(op, name)                                                                     \
    do {                                                                                           \
        if (fault_hit("store." op ".reply"))                                                       \
            return FAIL_SYS(err, op " '%s' (injected: done, but the reply was lost)", name);       \
    } while (0)

static struct store_dir *inner_dir(struct store_dir *dir)
{
    return ((struct fault_dir *)(void *)dir)->inner;
}
static struct store_file *inner_file(struct store_file *file)
{
    return ((struct fault_file *)(void *)file)->inner;
}

static enum sidestep_status dir_open(struct store *store, struct store_dir *at, const char *name,
                                     struct store_dir **out, struct sidestep_error *err)
{
    INJECT("dir_open", name);
    struct fault_dir *dir = memory_new(1, sizeof(*dir));
    if (dir == NULL)
        return FAIL_NOMEM(err, sizeof(*dir));
    dir->base.store = store;
    enum sidestep_status status =
        store_dir_open(((struct fault_store *)(void *)store)->inner,
                       at != NULL ? inner_dir(at) : NULL, name, &dir->inner, err);
    if (status != SIDESTEP_OK)
        free(dir);
    else
        *out = &dir->base;
    return status;
}

static void dir_close(struct store_dir *dir)
{
    store_dir_close(inner_dir(dir));
    free(dir);
}

static enum sidestep_status dir_make(struct store_dir *at, const char *name,
                                     struct sidestep_error *err)
{
    INJECT("dir_make", name);
    TRY(store_dir_make(inner_dir(at), name, err));
    INJECT_REPLY("dir_make", name);
    return SIDESTEP_OK;
}

static enum sidestep_status dir_remove(struct store_dir *at, const char *name,
                                       struct sidestep_error *err)
{
    INJECT("dir_remove", name);
    TRY(store_dir_remove(inner_dir(at), name, err));
    INJECT_REPLY("dir_remove", name);
    return SIDESTEP_OK;
}

static enum sidestep_status dir_list(struct store_dir *dir,
                                     bool (*each)(void *context, const char *name), void *context,
                                     struct sidestep_error *err)
{
    INJECT("dir_list", "");
    return store_dir_list(inner_dir(dir), each, context, err);
}

static enum sidestep_status dir_sync(struct store_dir *dir, struct sidestep_error *err)
{
    INJECT("dir_sync", "");
    return store_dir_sync(inner_dir(dir), err);
}

static enum sidestep_status dir_stat(struct store_dir *dir, struct store_stat *out,
                                     struct sidestep_error *err)
{
    INJECT("dir_stat", "");
    return store_dir_stat(inner_dir(dir), out, err);
}

static enum sidestep_status dir_traits(struct store_dir *dir, struct store_traits *out,
                                       struct sidestep_error *err)
{
    struct fault_store *store = (struct fault_store *)(void *)dir->store;

    INJECT("dir_traits", "");
    TRY(store_dir_traits(inner_dir(dir), out, err));
    if (atomic_load(&store->says_free)) {
        out->has_free_bytes = true;
        out->free_bytes = atomic_load(&store->free_bytes);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status dir_path(struct store_dir *dir, char *path, size_t bytes,
                                     struct sidestep_error *err)
{
    INJECT("dir_path", "");
    return store_dir_path(inner_dir(dir), path, bytes, err);
}

static enum sidestep_status name_stat(struct store_dir *at, const char *name,
                                      struct store_stat *out, struct sidestep_error *err)
{
    INJECT("stat", name);
    return store_stat(inner_dir(at), name, out, err);
}

static enum sidestep_status name_rename(struct store_dir *from_dir, const char *from,
                                        struct store_dir *to_dir, const char *to,
                                        enum store_rename_mode mode, struct sidestep_error *err)
{
    INJECT("rename", from);
    TRY(store_rename(inner_dir(from_dir), from, inner_dir(to_dir), to, mode, err));
    INJECT_REPLY("rename", from);
    return SIDESTEP_OK;
}

static enum sidestep_status name_unlink(struct store_dir *at, const char *name,
                                        struct sidestep_error *err)
{
    INJECT("unlink", name);
    TRY(store_unlink(inner_dir(at), name, err));
    INJECT_REPLY("unlink", name);
    return SIDESTEP_OK;
}

static enum sidestep_status name_link(struct store_dir *from_dir, const char *from,
                                      struct store_dir *to_dir, const char *to,
                                      struct sidestep_error *err)
{
    INJECT("link", from);
    TRY(store_link(inner_dir(from_dir), from, inner_dir(to_dir), to, err));
    INJECT_REPLY("link", from);
    return SIDESTEP_OK;
}

static struct fault_file *file_new(struct store *store, struct sidestep_error *err)
{
    struct fault_file *file = memory_new(1, sizeof(*file));

    if (file != NULL)
        file->base.store = store;
    else
        (void)FAIL_NOMEM(err, sizeof(*file));
    return file;
}

static enum sidestep_status file_create(struct store_dir *at, const char *name, uint32_t flags,
                                        struct store_file **out, struct sidestep_error *err)
{
    INJECT("file_create", name);
    struct fault_file *file = file_new(at->store, err);
    if (file == NULL)
        return SIDESTEP_ENOMEM;
    enum sidestep_status status = store_file_create(inner_dir(at), name, flags, &file->inner, err);
    if (status == SIDESTEP_OK && fault_hit("store.file_create.reply")) {
        status = FAIL_SYS(err, "file_create '%s' (injected: done, but the reply was lost)", name);
        store_file_discard(file->inner);
    }
    if (status != SIDESTEP_OK)
        free(file);
    else
        *out = &file->base;
    return status;
}

static enum sidestep_status file_open(struct store_dir *at, const char *name, uint32_t flags,
                                      struct store_file **out, struct sidestep_error *err)
{
    INJECT("file_open", name);
    struct fault_file *file = file_new(at->store, err);
    if (file == NULL)
        return SIDESTEP_ENOMEM;
    enum sidestep_status status = store_file_open(inner_dir(at), name, flags, &file->inner, err);
    if (status != SIDESTEP_OK)
        free(file);
    else
        *out = &file->base;
    return status;
}

static enum sidestep_status file_allocate(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err)
{
    INJECT("file_allocate", "");
    return store_file_allocate(inner_file(file), bytes, err);
}

static enum sidestep_status file_write_at(struct store_file *file, const void *from, size_t bytes,
                                          uint64_t offset, struct sidestep_error *err)
{
    if (fault_hit("store.file_write_at")) {
        int sys_errno = errno;
        (void)store_file_write_at(inner_file(file), from, bytes / 2, offset, NULL);
        errno = sys_errno;
        return FAIL_SYS(err, "file_write_at of %zu bytes (injected: half arrived)", bytes);
    }
    return store_file_write_at(inner_file(file), from, bytes, offset, err);
}

static enum sidestep_status file_read_at(struct store_file *file, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    INJECT("file_read_at", "");
    return store_file_read_at(inner_file(file), to, bytes, offset, err);
}

static enum sidestep_status file_truncate(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err)
{
    INJECT("file_truncate", "");
    return store_file_truncate(inner_file(file), bytes, err);
}

static enum sidestep_status file_sync(struct store_file *file, struct sidestep_error *err)
{
    INJECT("file_sync", "");
    return store_file_sync(inner_file(file), err);
}

static enum sidestep_status file_stat(struct store_file *file, struct store_stat *out,
                                      struct sidestep_error *err)
{
    INJECT("file_stat", "");
    return store_file_stat(inner_file(file), out, err);
}

static int file_async_fd(struct store_file *file, const void *memory, size_t bytes, uint64_t offset,
                         bool is_write)
{
    struct store_file *inner = inner_file(file);
    const struct store_ops *ops = inner->store->ops;

    return ops->file_async_fd != NULL ? ops->file_async_fd(inner, memory, bytes, offset, is_write)
                                      : -1;
}

/* An asynchronous request fails at its end, like the synchronous calls. */
static enum sidestep_status file_async_end(struct store_file *file, void *memory, size_t bytes,
                                           uint64_t offset, bool is_write, int result,
                                           struct sidestep_error *err)
{
    struct store_file *inner = inner_file(file);

    if (is_write)
        INJECT("file_write_at", "a file");
    else
        INJECT("file_read_at", "a file");
    return inner->store->ops->file_async_end(inner, memory, bytes, offset, is_write, result, err);
}

static size_t file_alignment(struct store_file *file)
{
    return store_file_alignment(inner_file(file));
}

static enum sidestep_status file_lock(struct store_file *file, bool exclusive,
                                      struct sidestep_error *err)
{
    INJECT("file_lock", "");
    return store_file_lock(inner_file(file), exclusive, err);
}

static enum sidestep_status file_is_locked(struct store_file *file, bool *is_locked,
                                           struct sidestep_error *err)
{
    INJECT("file_is_locked", "");
    return store_file_is_locked(inner_file(file), is_locked, err);
}

static void file_discard(struct store_file *file)
{
    store_file_discard(inner_file(file));
    free(file);
}

static enum sidestep_status file_close(struct store_file *file, struct sidestep_error *err)
{
    if (fault_hit("store.file_close")) {
        enum sidestep_status status = FAIL_SYS(err, "file_close (injected)");
        file_discard(file);
        return status;
    }
    enum sidestep_status status = store_file_close(inner_file(file), err);
    free(file);
    return status;
}

static const struct store_ops fault_ops = {
    .name = "fault",
    .dir_open = dir_open,
    .dir_close = dir_close,
    .dir_make = dir_make,
    .dir_remove = dir_remove,
    .dir_list = dir_list,
    .dir_sync = dir_sync,
    .dir_stat = dir_stat,
    .dir_traits = dir_traits,
    .dir_path = dir_path,
    .stat = name_stat,
    .rename = name_rename,
    .unlink = name_unlink,
    .link = name_link,
    .file_create = file_create,
    .file_open = file_open,
    .file_allocate = file_allocate,
    .file_write_at = file_write_at,
    .file_read_at = file_read_at,
    .file_truncate = file_truncate,
    .file_sync = file_sync,
    .file_stat = file_stat,
    .file_alignment = file_alignment,
    .file_async_fd = file_async_fd,
    .file_async_end = file_async_end,
    .file_lock = file_lock,
    .file_is_locked = file_is_locked,
    .file_close = file_close,
    .file_discard = file_discard,
};

struct store *store_fault_new(struct store *inner)
{
    struct fault_store *store = memory_new(1, sizeof(*store));

    if (store == NULL)
        return NULL;
    store->base.ops = &fault_ops;
    store->inner = inner;
    return &store->base;
}

void store_fault_set_free_bytes(struct store *store, uint64_t bytes)
{
    atomic_store(&((struct fault_store *)(void *)store)->free_bytes, bytes);
    atomic_store(&((struct fault_store *)(void *)store)->says_free, true);
}

void store_fault_free(struct store **store)
{
    free(*store);
    *store = NULL;
}
