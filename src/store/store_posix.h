/* SPDX-License-Identifier: BSD-3-Clause */
/* store_posix.h -- declares what the source files of the POSIX store share. */
#ifndef STORE_STORE_POSIX_H
#define STORE_STORE_POSIX_H

#include <sys/stat.h>

#include "store/store.h"

struct store_posix_dir {
    struct store_dir base;
    int fd;
    char name[]; /* the argument of dir_open(), for messages */
};

static inline int store_posix_fd(const struct store_dir *dir)
{
    return ((const struct store_posix_dir *)(const void *)dir)->fd;
}

/* EUNSAFE: ${name} is not one component: it is empty, "." or "..", or has a slash. */
enum sidestep_status store_posix_check_name(const char *name, struct sidestep_error *err);
/* Fail: ${name} was not made in ${at}, or not removed; errno says why.  If this process may not
 * write to ${at}, the message names ${at}. */
enum sidestep_status store_posix_fail_change(struct store_dir *at, const char *what,
                                             const char *name, struct sidestep_error *err);
void store_posix_fill_stat(const struct stat *from, struct store_stat *to);

/* store_posix_beneath.c: open a relative path with ${flags}, as open(2), but never leave ${dir_fd},
 * neither by ".." nor by a symbolic link.  Returns the descriptor, or -1 with errno (ELOOP: there
 * is a symbolic link). */
int store_posix_open_beneath(int dir_fd, const char *path, int flags);
/* The same for a reader, after ELOOP: follow symbolic links, wherever they lead, to a regular file.
 * ENOENT: one leads nowhere. EISDIR, ENXIO: it is no regular file, and was not opened. */
int store_posix_open_followed(int dir_fd, const char *path, int flags);

/* store_posix_mount.c: set ${type} to the type of the mount that ${fd} is in, "fuse.sshfs"; do
 * not change it if the kernel does not tell. */
void store_posix_mount_type(int fd, char *type, size_t room);

/* store_posix_file.c: refuse a range that off_t cannot express, with the kernel's errno. */
bool store_posix_is_too_large(uint64_t offset, uint64_t bytes);
/* The file operations of struct store_ops. */
enum sidestep_status store_posix_file_create(struct store_dir *at, const char *name, uint32_t flags,
                                             struct store_file **out, struct sidestep_error *err);
enum sidestep_status store_posix_file_open(struct store_dir *at, const char *name, uint32_t flags,
                                           struct store_file **out, struct sidestep_error *err);
enum sidestep_status store_posix_file_allocate(struct store_file *file, uint64_t bytes,
                                               struct sidestep_error *err);
enum sidestep_status store_posix_file_write_at(struct store_file *file, const void *from,
                                               size_t bytes, uint64_t offset,
                                               struct sidestep_error *err);
enum sidestep_status store_posix_file_read_at(struct store_file *file, void *to, size_t bytes,
                                              uint64_t offset, struct sidestep_error *err);
enum sidestep_status store_posix_file_truncate(struct store_file *file, uint64_t bytes,
                                               struct sidestep_error *err);
enum sidestep_status store_posix_file_sync(struct store_file *file, struct sidestep_error *err);
enum sidestep_status store_posix_file_stat(struct store_file *file, struct store_stat *out,
                                           struct sidestep_error *err);
int store_posix_file_async_fd(struct store_file *file, const void *memory, size_t bytes,
                              uint64_t offset, bool is_write);
enum sidestep_status store_posix_file_async_end(struct store_file *file, void *memory, size_t bytes,
                                                uint64_t offset, bool is_write, int result,
                                                struct sidestep_error *err);
size_t store_posix_file_alignment(struct store_file *file);
enum sidestep_status store_posix_file_lock(struct store_file *file, bool exclusive,
                                           struct sidestep_error *err);
enum sidestep_status store_posix_file_is_locked(struct store_file *file, bool *is_locked,
                                                struct sidestep_error *err);
enum sidestep_status store_posix_file_close(struct store_file *file, struct sidestep_error *err);
void store_posix_file_discard(struct store_file *file);

/* store_posix_lock.c: does another descriptor hold a lock on the file of ${fd}? */
enum sidestep_status store_posix_lock_is_held(int fd, const char *name, bool *is_locked,
                                              struct sidestep_error *err);
/* Lock ${fd}.  A child made by fork() closes it. */
enum sidestep_status store_posix_lock_acquire(int fd, const char *name, bool exclusive,
                                              struct sidestep_error *err);
/* Call it before a locked ${fd} is closed, so that children do not close its number later. */
void store_posix_lock_untrack(int fd);

#endif
