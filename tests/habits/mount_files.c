/* SPDX-License-Identifier: BSD-3-Clause */
/* mount_files.c -- the calls on files of a mount with habits; see mount.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "habits/mount.h"

/* An open file. */
struct handle {
    int fd;
    bool was_written;
    bool is_dirty; /* written since the last sync */
};

static struct handle *handle_of(const struct fuse_file_info *info)
{
    return (struct handle *)(uintptr_t)info->fh;
}

static int open_node(struct node *node, int flags)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", node->fd);
    return open(path, (flags & ~(O_NOFOLLOW | O_DIRECT | O_APPEND)) | O_CLOEXEC);
}

static bool keep_handle(struct node *node, int fd, struct fuse_file_info *info)
{
    struct handle *handle = calloc(1, sizeof(*handle));

    if (handle == NULL)
        return false;
    handle->fd = fd;
    info->fh = (uint64_t)(uintptr_t)handle;
    node->opened++;
    node_refresh(node);
    return true;
}

void files_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    struct node *node = node_of(ino);
    int failed = node_check(node), fd;

    if (failed != 0) {
        fuse_reply_err(req, failed);
        return;
    }
    fd = open_node(node, info->flags);
    if (fd < 0 || !keep_handle(node, fd, info))
        fuse_reply_err(req, errno);
    else
        fuse_reply_open(req, info);
}

void files_created(fuse_req_t req, struct fuse_entry_param *entry, int fd,
                   struct fuse_file_info *info)
{
    if (keep_handle(node_of(entry->ino), fd, info))
        fuse_reply_create(req, entry, info);
    else
        fuse_reply_err(req, ENOMEM);
}

void files_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t at, struct fuse_file_info *info)
{
    int failed = node_check(node_of(ino));
    char *to = malloc(size != 0 ? size : 1);
    ssize_t n = failed == 0 && to != NULL ? pread(handle_of(info)->fd, to, size, at) : -1;

    if (n < 0)
        fuse_reply_err(req, failed != 0 ? failed : errno);
    else
        fuse_reply_buf(req, to, (size_t)n);
    free(to);
}

/* What does ${handle} refuse? */
static int refuse_write(const struct handle *handle, off_t at)
{
    struct stat st;

    if (!habits.append_only)
        return 0;
    return fstat(handle->fd, &st) == 0 && st.st_size == at ? 0 : EPERM;
}

void files_write(fuse_req_t req, fuse_ino_t ino, const char *from, size_t size, off_t at,
                 struct fuse_file_info *info)
{
    struct node *node = node_of(ino);
    struct handle *handle = handle_of(info);
    int failed = node_check(node);

    if (failed == 0)
        failed = refuse_write(handle, at);
    ssize_t n = failed == 0 ? pwrite(handle->fd, from, size, at) : -1;
    handle->was_written = handle->is_dirty = true;
    node_refresh(node);
    if (n < 0)
        fuse_reply_err(req, failed != 0 ? failed : errno);
    else
        fuse_reply_write(req, (size_t)n);
}

void files_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    static unsigned closed;
    struct handle *handle = handle_of(info);

    (void)ino;
    bool fails = handle->was_written && ++closed == habits.close_error;
    if (fails && handle->is_dirty && ftruncate(handle->fd, 0) != 0) /* unsynced: never arrived */
        fuse_reply_err(req, errno);
    else
        fuse_reply_err(req, fails ? EDQUOT : 0);
}

/* The last handle of a file that this host removed: now it goes. */
static void remove_silly(struct node *node)
{
    (void)unlinkat(node->silly_parent, node->silly_name, 0);
    (void)close(node->silly_parent);
    node->silly_parent = -1;
}

void files_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    struct node *node = node_of(ino);
    struct handle *handle = handle_of(info);

    (void)close(handle->fd);
    free(handle);
    if (--node->opened == 0 && node->silly_parent >= 0)
        remove_silly(node);
    fuse_reply_err(req, 0);
}

void files_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *info)
{
    int failed = node_check(node_of(ino));

    (void)data_only;
    if (failed == 0)
        failed = fsync(handle_of(info)->fd) != 0 ? errno : 0;
    handle_of(info)->is_dirty = false;
    fuse_reply_err(req, failed);
}

static int set_size(struct node *node, const struct fuse_file_info *info, off_t size)
{
    struct stat st;
    int fd = info != NULL ? handle_of(info)->fd : open_node(node, O_WRONLY), failed = 0;

    if (fd < 0 || fstat(fd, &st) != 0)
        return errno;
    if (habits.append_only && size != 0 && size != st.st_size)
        failed = EPERM;
    else if (ftruncate(fd, size) != 0)
        failed = errno;
    if (info == NULL)
        (void)close(fd);
    return failed;
}

void files_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *to, int which,
                   struct fuse_file_info *info)
{
    struct node *node = node_of(ino);
    struct stat now;
    char path[64];
    int failed = node_check(node);

    snprintf(path, sizeof(path), "/proc/self/fd/%d", node->fd);
    if (failed == 0 && (which & FUSE_SET_ATTR_SIZE) != 0)
        failed = set_size(node, info, to->st_size);
    if (failed == 0 && (which & FUSE_SET_ATTR_MODE) != 0 && chmod(path, to->st_mode) != 0)
        failed = errno;
    node_refresh(node);
    if (failed == 0)
        failed = node_stat(node, &now);
    if (failed != 0)
        fuse_reply_err(req, failed);
    else
        fuse_reply_attr(req, &now, 0);
}

/* On the handle's own description, as each host's server does it: so two mounts see each other's
 * locks, and the last close ends them. */
static int lock_backing(const struct fuse_file_info *info, int command, struct flock *lock)
{
    if (habits.no_locks)
        return ENOSYS;
    lock->l_pid = 0;
    return fcntl(handle_of(info)->fd, command, lock) != 0 ? errno : 0;
}

void files_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info, struct flock *lock)
{
    int failed = node_check(node_of(ino));

    if (failed == 0)
        failed = lock_backing(info, F_OFD_GETLK, lock);
    if (lock->l_pid < 0)
        lock->l_pid = 0;
    if (failed != 0)
        fuse_reply_err(req, failed);
    else
        fuse_reply_lock(req, lock);
}

void files_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info, struct flock *lock,
                 int sleep)
{
    int failed = node_check(node_of(ino));

    (void)sleep; /* sidestep never waits for a lock */
    fuse_reply_err(req, failed != 0 ? failed : lock_backing(info, F_OFD_SETLK, lock));
}
