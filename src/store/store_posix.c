/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_posix.c -- does the operations on directories and names of the host's file systems.
 *
 * A handle has a descriptor, so it stays with its directory when that is renamed, and each call
 * resolves one component only.
 */
#include "store/store_posix.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"

#define FUSE 0x65735546u

enum trait { TRAIT_LOCAL, TRAIT_VOLATILE, TRAIT_NETWORK };

/* By f_type of statfs(2).  The numbers are from the kernel's sources. */
static const struct {
    uint32_t type;
    enum trait trait;
    char name[16];
} file_systems[] = {
    {0x0000ef53, TRAIT_LOCAL, "ext4"},     {0x58465342, TRAIT_LOCAL, "xfs"},
    {0x9123683e, TRAIT_LOCAL, "btrfs"},    {0x2fc12fc1, TRAIT_LOCAL, "zfs"},
    {0xf2f52010, TRAIT_LOCAL, "f2fs"},     {0xca451a4e, TRAIT_LOCAL, "bcachefs"},
    {0x794c7630, TRAIT_LOCAL, "overlay"},  {0x01021994, TRAIT_VOLATILE, "tmpfs"},
    {0x858458f6, TRAIT_VOLATILE, "ramfs"}, {0x00006969, TRAIT_NETWORK, "nfs"},
    {0x0bd00bd0, TRAIT_NETWORK, "lustre"}, {FUSE, TRAIT_NETWORK, "fuse"},
    {0x00c36400, TRAIT_NETWORK, "ceph"},   {0x47504653, TRAIT_NETWORK, "gpfs"},
    {0xff534d42, TRAIT_NETWORK, "cifs"},   {0xfe534d42, TRAIT_NETWORK, "smb2"},
    {0x0000517b, TRAIT_NETWORK, "smb"},    {0x19830326, TRAIT_NETWORK, "beegfs"},
    {0x01021997, TRAIT_NETWORK, "9p"},     {0x5346414f, TRAIT_NETWORK, "afs"},
    {0x7461636f, TRAIT_NETWORK, "ocfs2"},  {0x01161970, TRAIT_NETWORK, "gfs2"},
};

enum sidestep_status store_posix_check_name(const char *name, struct sidestep_error *err)
{
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        strchr(name, '/') != NULL)
        return FAIL(err, SIDESTEP_EUNSAFE, "'%s' is not the name of one file", name);
    return SIDESTEP_OK;
}

static uint64_t nanoseconds(struct timespec time)
{
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void store_posix_fill_stat(const struct stat *from, struct store_stat *to)
{
    *to = (struct store_stat){
        .kind = S_ISREG(from->st_mode)   ? STORE_FILE
                : S_ISDIR(from->st_mode) ? STORE_DIRECTORY
                : S_ISLNK(from->st_mode) ? STORE_LINK
                                         : STORE_OTHER,
        .size = (uint64_t)from->st_size,
        .stored = (uint64_t)from->st_blocks * 512,
        .device = from->st_dev,
        .inode = from->st_ino,
        .modified = from->st_mtim.tv_sec,
        .modified_ns = nanoseconds(from->st_mtim),
        .changed_ns = nanoseconds(from->st_ctim),
        .links = (uint32_t)from->st_nlink,
    };
}

static const char *name_of(const struct store_dir *dir)
{
    return ((const struct store_posix_dir *)(const void *)dir)->name;
}

/* The kernel also returns ENOTDIR for a symbolic link to a directory.  Tell the two apart. */
static enum sidestep_status fail_dir_open(int at_fd, const char *name, struct sidestep_error *err)
{
    int sys_errno = errno;
    struct stat st;

    if (sys_errno == ENOTDIR && at_fd != AT_FDCWD &&
        fstatat(at_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
        return error_set(err, SIDESTEP_EUNSAFE, ELOOP, HERE, "'%s' is a symbolic link", name);
    if (sys_errno == ELOOP && at_fd == AT_FDCWD) /* the caller's own path is wrong */
        return error_set(err, SIDESTEP_EINVAL, sys_errno, HERE, "open directory '%s'", name);
    errno = sys_errno;
    return FAIL_SYS(err, "open directory '%s'", name);
}

static enum sidestep_status dir_open(struct store *store, struct store_dir *at, const char *name,
                                     struct store_dir **out, struct sidestep_error *err)
{
    int at_fd = AT_FDCWD, follow = 0;
    size_t bytes = strlen(name) + 1;

    if (at != NULL) {
        TRY(store_posix_check_name(name, err));
        at_fd = store_posix_fd(at);
        follow = O_NOFOLLOW;
    }
    OWNED struct store_posix_dir *dir = memory_new(1, sizeof(*dir) + bytes);
    if (dir == NULL)
        return FAIL_NOMEM(err, sizeof(*dir) + bytes);
    dir->base.store = store;
    memcpy(dir->name, name, bytes);
    dir->fd =
        (int)TEMP_FAILURE_RETRY(openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow));
    if (dir->fd < 0)
        return fail_dir_open(at_fd, name, err);
    *out = &TAKE(dir)->base;
    return SIDESTEP_OK;
}

static void dir_close(struct store_dir *dir)
{
    (void)close(store_posix_fd(dir));
    free(dir);
}

/* If the directory was removed, the kernel appends " (deleted)" to its old path. */
static enum sidestep_status dir_path(struct store_dir *dir, char *path, size_t bytes,
                                     struct sidestep_error *err)
{
    char link[sizeof("/proc/self/fd/-2147483648")];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", store_posix_fd(dir));
    ssize_t length = readlink(link, path, bytes);
    if (length < 0)
        return FAIL_SYS(err, "read '%s'", link);
    if ((size_t)length == bytes)
        return FAIL(err, SIDESTEP_EINVAL, "the path of '%s' has %zu bytes or more", name_of(dir),
                    bytes);
    path[length] = '\0';
    return SIDESTEP_OK;
}

enum sidestep_status store_posix_fail_change(struct store_dir *at, const char *what,
                                             const char *name, struct sidestep_error *err)
{
    int sys_errno = errno;
    char path[512];

    if (error_from_errno(sys_errno) == SIDESTEP_EPERM &&
        faccessat(store_posix_fd(at), ".", W_OK | X_OK, AT_EACCESS) != 0 &&
        dir_path(at, path, sizeof(path), NULL) == SIDESTEP_OK)
        return error_set(err, SIDESTEP_EPERM, sys_errno, HERE,
                         "directory '%s' may not be written to", path);
    errno = sys_errno;
    return FAIL_SYS(err, "%s '%s'", what, name);
}

static enum sidestep_status dir_make(struct store_dir *at, const char *name,
                                     struct sidestep_error *err)
{
    TRY(store_posix_check_name(name, err));
    if (mkdirat(store_posix_fd(at), name, 0777) != 0)
        return store_posix_fail_change(at, "make directory", name, err);
    return SIDESTEP_OK;
}

static enum sidestep_status dir_remove(struct store_dir *at, const char *name,
                                       struct sidestep_error *err)
{
    TRY(store_posix_check_name(name, err));
    if (unlinkat(store_posix_fd(at), name, AT_REMOVEDIR) != 0)
        return store_posix_fail_change(at, "remove directory", name, err);
    return SIDESTEP_OK;
}

static void close_stream(DIR **stream)
{
    if (*stream != NULL)
        (void)closedir(*stream);
}

/* Opens a stream for each call, because all calls would share the offset of the handle's
 * descriptor. */
static enum sidestep_status dir_list(struct store_dir *dir,
                                     bool (*each)(void *context, const char *name), void *context,
                                     struct sidestep_error *err)
{
    OWNED_FD fd = openat(store_posix_fd(dir), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    OWNED_BY(close_stream) DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;

    if (stream == NULL)
        return FAIL_SYS(err, "list directory '%s'", name_of(dir));
    fd = -1; /* the stream owns it */
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (entry == NULL)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            !each(context, entry->d_name))
            return SIDESTEP_OK;
    }
    if (errno != 0)
        return FAIL_SYS(err, "list directory '%s'", name_of(dir));
    return SIDESTEP_OK;
}

static enum trait traits_of(int fd, struct store_traits *out)
{
    struct statfs fs;

    *out = (struct store_traits){.type_name = "unknown"};
    if (fstatfs(fd, &fs) != 0)
        return TRAIT_LOCAL;
    uint32_t type = (uint32_t)fs.f_type;
    snprintf(out->type_name, sizeof(out->type_name), "0x%x", type);
    for (size_t i = 0; i < ARRAY_LENGTH(file_systems); i++) {
        if (file_systems[i].type != type)
            continue;
        memcpy(out->type_name, file_systems[i].name, sizeof(file_systems[i].name));
        if (type == FUSE)
            store_posix_mount_type(fd, out->type_name, sizeof(out->type_name));
        out->is_volatile = file_systems[i].trait == TRAIT_VOLATILE;
        out->is_network = file_systems[i].trait == TRAIT_NETWORK;
        return file_systems[i].trait;
    }
    return TRAIT_LOCAL;
}

static enum sidestep_status dir_traits(struct store_dir *dir, struct store_traits *out,
                                       struct sidestep_error *err)
{
    struct statfs fs;

    if (fstatfs(store_posix_fd(dir), &fs) != 0)
        return FAIL_SYS(err, "statfs of directory '%s'", name_of(dir));
    (void)traits_of(store_posix_fd(dir), out);
    out->is_read_only = faccessat(store_posix_fd(dir), ".", W_OK, AT_EACCESS) != 0 &&
                        error_from_errno(errno) == SIDESTEP_EPERM;
    out->has_free_bytes = fs.f_blocks != 0 && fs.f_bsize > 0;
    if (__builtin_mul_overflow((uint64_t)fs.f_bavail, (uint64_t)fs.f_bsize, &out->free_bytes))
        out->free_bytes = UINT64_MAX;
    return SIDESTEP_OK;
}

static enum sidestep_status dir_sync(struct store_dir *dir, struct sidestep_error *err)
{
    struct store_traits traits;

    if (TEMP_FAILURE_RETRY(fault_hit("posix.dir_sync") ? -1 : fsync(store_posix_fd(dir))) == 0)
        return SIDESTEP_OK;
    int sys_errno = errno;
    /* Servers that make names durable before they reply may not support fsync of a directory. */
    if ((sys_errno == EINVAL || sys_errno == ENOTSUP || sys_errno == EBADF) &&
        traits_of(store_posix_fd(dir), &traits) == TRAIT_NETWORK)
        return SIDESTEP_OK;
    errno = sys_errno;
    return FAIL_SYS(err, "sync directory '%s'", name_of(dir));
}

static enum sidestep_status dir_stat(struct store_dir *dir, struct store_stat *out,
                                     struct sidestep_error *err)
{
    struct stat st;

    if (fstat(store_posix_fd(dir), &st) != 0)
        return FAIL_SYS(err, "stat directory '%s'", name_of(dir));
    store_posix_fill_stat(&st, out);
    return SIDESTEP_OK;
}

static bool is_link_here(struct store_dir *at, const char *name)
{
    char target[2];

    return readlinkat(store_posix_fd(at), name, target, sizeof(target)) == 1 && target[0] == '.';
}

static enum sidestep_status name_stat(struct store_dir *at, const char *name,
                                      struct store_stat *out, struct sidestep_error *err)
{
    struct stat st;

    TRY(store_posix_check_name(name, err));
    if (fstatat(store_posix_fd(at), name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return FAIL_SYS(err, "stat '%s'", name);
    store_posix_fill_stat(&st, out);
    if (S_ISLNK(st.st_mode) && is_link_here(at, name))
        out->kind = STORE_HERE;
    return SIDESTEP_OK;
}

static enum sidestep_status name_rename(struct store_dir *from_dir, const char *from,
                                        struct store_dir *to_dir, const char *to,
                                        enum store_rename_mode mode, struct sidestep_error *err)
{
    static const unsigned mode_flags[] = {
        [STORE_REPLACE] = 0,
        [STORE_NOREPLACE] = RENAME_NOREPLACE,
        [STORE_EXCHANGE] = RENAME_EXCHANGE,
    };
    int from_fd = store_posix_fd(from_dir), to_fd = store_posix_fd(to_dir), failed;

    TRY(store_posix_check_name(from, err));
    TRY(store_posix_check_name(to, err));
    if (mode == STORE_REPLACE)
        failed = renameat(from_fd, from, to_fd, to);
    else
        failed = fault_hit("posix.renameat2")
                     ? -1
                     : renameat2(from_fd, from, to_fd, to, mode_flags[mode]);
    if (failed == 0)
        return SIDESTEP_OK;
    if (errno == EXDEV || (mode != STORE_REPLACE && (errno == EINVAL || errno == ENOSYS)))
        return error_set(err, SIDESTEP_EUNSUPPORTED, errno, HERE, "rename '%s' to '%s'%s", from, to,
                         mode == STORE_NOREPLACE  ? " without replacing"
                         : mode == STORE_EXCHANGE ? " in exchange"
                                                  : "");
    return FAIL_SYS(err, "rename '%s' to '%s'", from, to);
}

static enum sidestep_status name_unlink(struct store_dir *at, const char *name,
                                        struct sidestep_error *err)
{
    TRY(store_posix_check_name(name, err));
    if (unlinkat(store_posix_fd(at), name, 0) != 0)
        return store_posix_fail_change(at, "unlink", name, err);
    return SIDESTEP_OK;
}

/* Make a symbolic link to the directory itself. */
static enum sidestep_status link_here(struct store_dir *dir, const char *name,
                                      struct sidestep_error *err)
{
    if (symlinkat(".", store_posix_fd(dir), name) == 0)
        return SIDESTEP_OK;
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS)
        return error_set(err, SIDESTEP_EUNSUPPORTED, errno, HERE, "symbolic link '%s'", name);
    return FAIL_SYS(err, "symbolic link '%s'", name);
}

static enum sidestep_status name_link(struct store_dir *from_dir, const char *from,
                                      struct store_dir *to_dir, const char *to,
                                      struct sidestep_error *err)
{
    struct store_stat st;

    TRY(store_posix_check_name(to, err));
    if (strcmp(from, ".") == 0)
        return link_here(to_dir, to, err);
    TRY(name_stat(from_dir, from, &st, err));
    if (st.kind != STORE_FILE)
        return FAIL(err, SIDESTEP_EUNSAFE, "link '%s': not a regular file", from);
    if (!fault_hit("posix.link") &&
        linkat(store_posix_fd(from_dir), from, store_posix_fd(to_dir), to, 0) == 0)
        return SIDESTEP_OK;
    if (errno == EXDEV || errno == EMLINK || errno == EOPNOTSUPP || errno == ENOSYS)
        return error_set(err, SIDESTEP_EUNSUPPORTED, errno, HERE, "link '%s' as '%s'", from, to);
    return FAIL_SYS(err, "link '%s' as '%s'", from, to);
}

struct store *store_posix(void)
{
    static const struct store_ops ops = {
        .name = "posix",
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
        .file_create = store_posix_file_create,
        .file_open = store_posix_file_open,
        .file_allocate = store_posix_file_allocate,
        .file_write_at = store_posix_file_write_at,
        .file_read_at = store_posix_file_read_at,
        .file_truncate = store_posix_file_truncate,
        .file_sync = store_posix_file_sync,
        .file_stat = store_posix_file_stat,
        .file_alignment = store_posix_file_alignment,
        .file_lock = store_posix_file_lock,
        .file_is_locked = store_posix_file_is_locked,
        .file_async_fd = store_posix_file_async_fd,
        .file_async_end = store_posix_file_async_end,
        .file_close = store_posix_file_close,
        .file_discard = store_posix_file_discard,
    };
    static struct store posix = {.ops = &ops};

    return &posix;
}
