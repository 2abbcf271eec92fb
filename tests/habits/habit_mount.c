/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * habit_mount.c -- shows a directory of this machine as storage with habits: a FUSE file system.
 *
 *      habit_mount BACKING MOUNTPOINT [HABIT...]
 *
 * Stays in the foreground until it is unmounted or ended. One thread, so that counted habits
 * ("lost=3") are repeatable. Two mounts of one directory are two hosts that share it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "habits/mount.h"

struct habits habits;
static char *mount_options = (char *)"-ofsname=habits,subtype=habits";

static uint64_t id_of(const struct node *node)
{
    return (uint64_t)(uintptr_t)node;
}

/* This host changed ${name} in ${parent}. */
static void changed(struct node *parent, const char *name)
{
    memory_changed(id_of(parent), name, habits.remember_stubbornly);
    node_refresh(parent);
}

/* The same, of a change that a client repeats when no answer comes: is it lost? (NFS marks requests
 * to create, so that their repeats succeed.) */
static bool is_lost(struct node *parent, const char *name)
{
    static unsigned changes;

    changed(parent, name);
    return ++changes == habits.lost;
}

static void lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry;
    int failed = node_find(node_of(parent), name, &entry);

    if (failed != 0)
        fuse_reply_err(req, failed);
    else
        fuse_reply_entry(req, &entry);
}

static void forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
    node_forget(node_of(ino), lookups);
    fuse_reply_none(req);
}

static void get_attributes(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    struct stat st;
    int failed = node_stat(node_of(ino), &st);

    (void)info;
    if (failed != 0)
        fuse_reply_err(req, failed);
    else
        fuse_reply_attr(req, &st, 0);
}

/* ---- names */

static void make_directory(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct node *in = node_of(parent);
    int failed = node_check(in);

    if (failed == 0)
        failed = mkdirat(in->fd, name, mode) != 0 ? errno : 0;
    if (failed == 0 && is_lost(in, name))
        failed = EEXIST;
    if (failed != 0)
        fuse_reply_err(req, failed);
    else
        lookup(req, parent, name);
}

static void create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                   struct fuse_file_info *info)
{
    struct node *in = node_of(parent);
    struct fuse_entry_param entry;
    int failed = node_check(in), fd = -1;

    if (failed == 0) {
        fd = openat(in->fd, name, (info->flags & ~(O_DIRECT | O_APPEND)) | O_CREAT | O_CLOEXEC,
                    mode);
        failed = fd < 0 ? errno : 0;
        changed(in, name);
    }
    if (failed == 0)
        failed = node_find(in, name, &entry);
    if (failed == 0) {
        files_created(req, &entry, fd, info);
        return;
    }
    if (fd >= 0)
        (void)close(fd);
    fuse_reply_err(req, failed);
}

/* An open file keeps its bytes under a name that nobody looks for. */
static int rename_silly(struct node *in, const char *name, struct node *node)
{
    static unsigned number;

    snprintf(node->silly_name, sizeof(node->silly_name), ".nfs%020x", ++number);
    if (renameat(in->fd, name, in->fd, node->silly_name) != 0)
        return errno;
    node->silly_parent = dup(in->fd);
    return 0;
}

static void unlink_name(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct node *in = node_of(parent);
    struct fuse_entry_param entry;
    int failed = node_check(in);

    if (failed == 0 && habits.silly && node_find(in, name, &entry) == 0) {
        struct node *node = node_of(entry.ino);
        bool is_open = node->opened != 0 && entry.attr.st_nlink == 1;
        failed = is_open                          ? rename_silly(in, name, node)
                 : unlinkat(in->fd, name, 0) != 0 ? errno
                                                  : 0;
        node_forget(node, 1);
    } else if (failed == 0) {
        failed = unlinkat(in->fd, name, 0) != 0 ? errno : 0;
    }
    if (failed == 0 && is_lost(in, name))
        failed = ENOENT;
    fuse_reply_err(req, failed);
}

static void remove_directory(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct node *in = node_of(parent);
    int failed = node_check(in);

    if (failed == 0)
        failed = unlinkat(in->fd, name, AT_REMOVEDIR) != 0 ? errno : 0;
    if (failed == 0 && is_lost(in, name))
        failed = ENOENT;
    fuse_reply_err(req, failed);
}

static bool is_filled_directory(struct node *in, const char *name)
{
    int fd = openat(in->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), count = 0;
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;

    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        closedir(directory);
    return count > 2;
}

static int refuse_rename(struct node *in, const char *name, unsigned flags)
{
    if (habits.no_rename)
        return ENOSYS;
    if (habits.no_flags && flags != 0)
        return EINVAL;
    return habits.no_dir_rename && is_filled_directory(in, name) ? EMFILE : 0;
}

static void rename_name(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                        const char *new_name, unsigned flags)
{
    struct node *from = node_of(parent), *to = node_of(new_parent);
    int failed = refuse_rename(from, name, flags);

    if (failed == 0)
        failed = renameat2(from->fd, name, to->fd, new_name, flags) != 0 ? errno : 0;
    if (failed == 0) {
        changed(to, new_name);
        failed = is_lost(from, name) ? ENOENT : 0;
    }
    fuse_reply_err(req, failed);
}

static void link_name(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    struct node *in = node_of(parent);
    char path[64];
    int failed = habits.no_link ? ENOSYS : 0;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", node_of(ino)->fd);
    if (failed == 0)
        failed = linkat(AT_FDCWD, path, in->fd, name, AT_SYMLINK_FOLLOW) != 0 ? errno : 0;
    node_refresh(node_of(ino));
    if (failed == 0 && is_lost(in, name))
        failed = EEXIST;
    if (failed != 0)
        fuse_reply_err(req, failed);
    else
        lookup(req, parent, name);
}

/* ---- directories */

static void open_directory(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    struct node *node = node_of(ino);
    int failed = node_check(node);
    int fd = failed == 0 ? openat(node->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;

    info->fh = (uint64_t)(uintptr_t)directory;
    if (directory == NULL)
        fuse_reply_err(req, failed != 0 ? failed : errno);
    else
        fuse_reply_open(req, info);
}

static void read_directory(fuse_req_t req, fuse_ino_t ino, size_t size, off_t at,
                           struct fuse_file_info *info)
{
    DIR *directory = (DIR *)(uintptr_t)info->fh;
    const struct dirent *entry;
    char *to = malloc(size);
    size_t used = 0;

    (void)ino;
    if (to == NULL) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    if (at == 0)
        rewinddir(directory);
    else
        seekdir(directory, at);
    while ((entry = readdir(directory)) != NULL) {
        struct stat st = {.st_ino = entry->d_ino, .st_mode = (mode_t)entry->d_type << 12};
        size_t bytes =
            fuse_add_direntry(req, to + used, size - used, entry->d_name, &st, telldir(directory));
        if (bytes > size - used)
            break;
        used += bytes;
    }
    fuse_reply_buf(req, to, used);
    free(to);
}

static void close_directory(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    (void)ino;
    closedir((DIR *)(uintptr_t)info->fh);
    fuse_reply_err(req, 0);
}

static void sync_directory(fuse_req_t req, fuse_ino_t ino, int data_only,
                           struct fuse_file_info *info)
{
    int failed = node_check(node_of(ino));

    (void)data_only;
    if (failed == 0 && habits.no_dir_sync)
        failed = EINVAL;
    if (failed == 0)
        failed = fsync(dirfd((DIR *)(uintptr_t)info->fh)) != 0 ? errno : 0;
    fuse_reply_err(req, failed);
}

static void stat_file_system(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs fs;

    if (fstatvfs(node_of(ino)->fd, &fs) != 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_statfs(req, &fs);
}

static int serve(const char *mountpoint, const struct fuse_lowlevel_ops *calls)
{
    char *arguments[] = {(char *)"habit_mount", mount_options};
    struct fuse_args args = FUSE_ARGS_INIT(2, arguments);
    struct fuse_session *session = fuse_session_new(&args, calls, sizeof(*calls), NULL);

    if (session == NULL || fuse_set_signal_handlers(session) != 0 ||
        fuse_session_mount(session, mountpoint) != 0)
        return 1;
    int failed = fuse_session_loop(session);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    fuse_opt_free_args(&args);
    return failed != 0;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    struct fuse_lowlevel_ops calls = {
        .lookup = lookup,
        .forget = forget,
        .getattr = get_attributes,
        .setattr = files_setattr,
        .mkdir = make_directory,
        .create = create,
        .unlink = unlink_name,
        .rmdir = remove_directory,
        .rename = rename_name,
        .link = link_name,
        .open = files_open,
        .read = files_read,
        .write = files_write,
        .flush = files_flush,
        .release = files_release,
        .fsync = files_fsync,
        .opendir = open_directory,
        .readdir = read_directory,
        .releasedir = close_directory,
        .fsyncdir = sync_directory,
        .statfs = stat_file_system,
        .getlk = files_getlk,
        .setlk = files_setlk,
    };

    for (int i = 3; i < argc; i++)
        if (strncmp(argv[i], "-o", 2) == 0)
            mount_options = argv[i];
        else if (!habits_parse(&habits, argv[i]))
            argc = 0;
    if (argc < 3) {
        fprintf(stderr, "habit_mount BACKING MOUNTPOINT [-oOPTIONS] [HABIT...]; habits:\n");
        habits_list();
        return 2;
    }
    if (habits.local_locks) /* the kernel of each host does them */
        calls.getlk = NULL, calls.setlk = NULL;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(0);
    node_root(argv[1]);
    return serve(argv[2], &calls);
}
