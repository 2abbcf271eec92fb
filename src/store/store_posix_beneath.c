/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_posix_beneath.c -- opens a relative path, which is not trusted, without leaving the
 * directory: by openat2(2), or component by component where the kernel refuses that.  Readers may
 * follow links out of it.
 */
#include "store/store_posix.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

#ifndef SYS_openat2 /* in the C library since glibc 2.32 */
#define SYS_openat2 437
#endif

/* Sets ELOOP for a symbolic link, also where the kernel sets ENOTDIR. */
static int open_component(int dir_fd, const char *name, int flags)
{
    int fd = (int)TEMP_FAILURE_RETRY(openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC));
    struct stat st;

    if (fd < 0 && errno == ENOTDIR)
        errno = fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode)
                    ? ELOOP
                    : ENOTDIR;
    return fd;
}

static int open_by_components(int dir_fd, const char *path, int flags)
{
    OWNED_FD held = -1;
    int at = dir_fd;
    char name[NAME_MAX + 1];

    for (const char *slash; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        size_t length = (size_t)(slash - path);
        if (length > NAME_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, path, length);
        name[length] = '\0';
        int next = open_component(at, name, O_PATH | O_DIRECTORY);
        if (next < 0)
            return -1;
        if (held >= 0)
            (void)close(held);
        at = held = next;
    }
    return open_component(at, path, flags);
}

/* Is no component empty, "." or ".."?  Then both ways of opening give the same file. */
static bool is_plain_path(const char *path)
{
    for (;;) {
        size_t length = strcspn(path, "/");
        if (length == 0 || (length <= 2 && strspn(path, ".") >= length))
            return false;
        if (path[length] == '\0')
            return true;
        path += length + 1;
    }
}

static int open_at2(int dir_fd, const char *path, int flags, uint64_t resolve)
{
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .resolve = resolve | RESOLVE_NO_MAGICLINKS,
    };

    if (fault_hit("posix.openat2"))
        return -1;
    return (int)TEMP_FAILURE_RETRY(syscall(SYS_openat2, dir_fd, path, &how, sizeof(how)));
}

int store_posix_open_beneath(int dir_fd, const char *path, int flags)
{
    if (!is_plain_path(path)) {
        errno = EXDEV;
        return -1;
    }
    int fd = open_at2(dir_fd, path, flags | O_NOFOLLOW, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);

    /* Old kernels and sandboxes do not have openat2.  Some sandboxes return EPERM. */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        fd = open_by_components(dir_fd, path, flags);
    return fd;
}

/* Looks before it opens, because the mere opening of some devices has effects. */
int store_posix_open_followed(int dir_fd, const char *path, int flags)
{
    struct stat st;

    if (fstatat(dir_fd, path, &st, 0) != 0)
        return -1;
    if (!S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : ENXIO;
        return -1;
    }
    int fd = open_at2(dir_fd, path, flags, 0);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        fd = (int)TEMP_FAILURE_RETRY(openat(dir_fd, path, flags | O_CLOEXEC));
    return fd;
}
