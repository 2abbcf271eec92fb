/* SPDX-License-Identifier: BSD-3-Clause */
/* store_far.c -- delays and fails calls of store_posix(). Handles are those of store_posix(), but
 * belong to another store. */
#include "support/store_far.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/base.h"

static struct store_ops far_ops;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct store_ops *near(void)
{
    return store_posix()->ops;
}

/* Count and delay a call. True: it must fail. */
static bool call(struct store *store)
{
    struct store_far *far = (struct store_far *)(void *)store;
    unsigned number = atomic_fetch_add(&far->calls, 1) + 1;
    bool is_slow = far->slow_of != 0 && number % far->slow_of == 0;
    uint64_t us = is_slow ? far->slow_us : far->call_us;

    (void)nanosleep(&(struct timespec){.tv_sec = (time_t)(us / 1000000),
                                       .tv_nsec = (long)(us % 1000000) * 1000},
                    NULL);
    errno = EIO;
    return far->fails != 0 && number >= far->fails_from && number - far->fails_from < far->fails;
}

#define CALL(store)                                                                                \
    do {                                                                                           \
        if (call(store))                                                                           \
            return FAIL_SYS(err, "a call to storage far away");                                    \
    } while (0)

static enum sidestep_status dir_open(struct store *store, struct store_dir *at, const char *name,
                                     struct store_dir **out, struct sidestep_error *err)
{
    CALL(store);
    return near()->dir_open(store, at, name, out, err);
}
static enum sidestep_status dir_make(struct store_dir *at, const char *name,
                                     struct sidestep_error *err)
{
    CALL(at->store);
    return near()->dir_make(at, name, err);
}
static enum sidestep_status dir_remove(struct store_dir *at, const char *name,
                                       struct sidestep_error *err)
{
    CALL(at->store);
    return near()->dir_remove(at, name, err);
}
static enum sidestep_status dir_list(struct store_dir *dir,
                                     bool (*each)(void *context, const char *name), void *context,
                                     struct sidestep_error *err)
{
    CALL(dir->store);
    atomic_fetch_add(&((struct store_far *)(void *)dir->store)->lists, 1);
    return near()->dir_list(dir, each, context, err);
}
static enum sidestep_status dir_sync(struct store_dir *dir, struct sidestep_error *err)
{
    CALL(dir->store);
    return near()->dir_sync(dir, err);
}
static enum sidestep_status name_stat(struct store_dir *at, const char *name,
                                      struct store_stat *out, struct sidestep_error *err)
{
    CALL(at->store);
    return near()->stat(at, name, out, err);
}
static enum sidestep_status name_rename(struct store_dir *from_dir, const char *from,
                                        struct store_dir *to_dir, const char *to,
                                        enum store_rename_mode mode, struct sidestep_error *err)
{
    CALL(from_dir->store);
    return near()->rename(from_dir, from, to_dir, to, mode, err);
}
static enum sidestep_status name_unlink(struct store_dir *at, const char *name,
                                        struct sidestep_error *err)
{
    CALL(at->store);
    return near()->unlink(at, name, err);
}
static enum sidestep_status name_link(struct store_dir *from_dir, const char *from,
                                      struct store_dir *to_dir, const char *to,
                                      struct sidestep_error *err)
{
    CALL(from_dir->store);
    return near()->link(from_dir, from, to_dir, to, err);
}
static enum sidestep_status file_create(struct store_dir *at, const char *name, uint32_t flags,
                                        struct store_file **out, struct sidestep_error *err)
{
    CALL(at->store);
    return near()->file_create(at, name, flags, out, err);
}
static enum sidestep_status file_open(struct store_dir *at, const char *name, uint32_t flags,
                                      struct store_file **out, struct sidestep_error *err)
{
    CALL(at->store);
    return near()->file_open(at, name, flags, out, err);
}
static enum sidestep_status file_write_at(struct store_file *file, const void *from, size_t bytes,
                                          uint64_t offset, struct sidestep_error *err)
{
    CALL(file->store);
    return near()->file_write_at(file, from, bytes, offset, err);
}
static enum sidestep_status file_read_at(struct store_file *file, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    CALL(file->store);
    return near()->file_read_at(file, to, bytes, offset, err);
}
static enum sidestep_status file_sync(struct store_file *file, struct sidestep_error *err)
{
    CALL(file->store);
    return near()->file_sync(file, err);
}

static void make_ops(void)
{
    far_ops = *near();
    far_ops.name = "far";
    far_ops.dir_open = dir_open;
    far_ops.dir_make = dir_make;
    far_ops.dir_remove = dir_remove;
    far_ops.dir_list = dir_list;
    far_ops.dir_sync = dir_sync;
    far_ops.stat = name_stat;
    far_ops.rename = name_rename;
    far_ops.unlink = name_unlink;
    far_ops.link = name_link;
    far_ops.file_create = file_create;
    far_ops.file_open = file_open;
    far_ops.file_write_at = file_write_at;
    far_ops.file_read_at = file_read_at;
    far_ops.file_sync = file_sync;
}

void store_far_init(struct store_far *far)
{
    (void)pthread_once(&once, make_ops);
    far->store.ops = &far_ops;
}
