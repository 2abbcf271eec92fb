/* SPDX-License-Identifier: BSD-3-Clause */
/* baseline_io.c -- reads and writes files as simply as possible; see baseline_io.h. */
#include "baseline_io.h"

#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define HUGE_BYTES ((uint64_t)2 << 20)

double cli_baseline_io_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static enum sidestep_status fail(struct sidestep_error *err, const char *what, const char *path)
{
    enum sidestep_status status = errno == ENOSPC || errno == EDQUOT ? SIDESTEP_ENOSPC
                                  : errno == EACCES || errno == EPERM || errno == EROFS
                                      ? SIDESTEP_EPERM
                                      : SIDESTEP_EIO;
    int sys_errno = errno;

    (void)cli_error_set(err, status, "bench: %s '%s': %s", what, path, strerror(errno));
    err->sys_errno = sys_errno;
    return status;
}

unsigned char *cli_baseline_io_map(uint64_t bytes, struct sidestep_error *err)
{
    unsigned char *map = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (map == MAP_FAILED) {
        (void)cli_error_set(err, SIDESTEP_ENOMEM, "bench: cannot allocate %llu MiB",
                            (unsigned long long)(bytes >> 20));
        return NULL;
    }
    /* The bytes before the first huge page are never freed, because the process ends soon. */
    map += (HUGE_BYTES - (uintptr_t)map % HUGE_BYTES) % HUGE_BYTES;
    (void)madvise(map, bytes, MADV_HUGEPAGE);
    memset(map, 0, bytes);
    return map;
}

static int create(const char *path, bool *direct)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = open(path, flags | O_DIRECT, 0666);

    *direct = fd >= 0;
    if (fd < 0 && errno == EINVAL) {
        (void)unlink(path);
        fd = open(path, flags, 0666);
    }
    return fd;
}

enum sidestep_status cli_baseline_io_write(const char *path, const unsigned char *memory,
                                           uint64_t bytes, bool *direct, double *seconds,
                                           struct sidestep_error *err)
{
    double began = cli_baseline_io_now();
    int fd = create(path, direct);
    bool ok = fd >= 0;

    /* Some file systems cannot reserve space, and nothing depends on it. */
    if (ok && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) != 0 && errno == ENOSPC)
        ok = false;
    for (uint64_t at = 0; ok && at < bytes; at += CLI_BASELINE_IO_BYTES)
        ok = pwrite(fd, memory + at, CLI_BASELINE_IO_BYTES, (off_t)at) ==
             (ssize_t)CLI_BASELINE_IO_BYTES;
    ok = ok && fsync(fd) == 0;
    *seconds = cli_baseline_io_now() - began;
    enum sidestep_status status = ok ? SIDESTEP_OK : fail(err, "write", path);
    if (fd >= 0)
        (void)close(fd);
    return status;
}

enum sidestep_status cli_baseline_io_read(const char *path, unsigned char *memory, uint64_t bytes,
                                          double *seconds, struct sidestep_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

    if (fd < 0 && errno == EINVAL)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0;
    if (ok)
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    double began = cli_baseline_io_now();
    for (uint64_t at = 0; ok && at < bytes; at += CLI_BASELINE_IO_BYTES)
        ok = pread(fd, memory + at, CLI_BASELINE_IO_BYTES, (off_t)at) ==
             (ssize_t)CLI_BASELINE_IO_BYTES;
    *seconds = cli_baseline_io_now() - began;
    enum sidestep_status status = ok ? SIDESTEP_OK : fail(err, "read", path);
    if (fd >= 0)
        (void)close(fd);
    return status;
}

void cli_baseline_io_drop_cache(const char *directory)
{
    DIR *stream = opendir(directory);
    const struct dirent *entry;

    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        int fd = openat(dirfd(stream), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

        if (fd < 0)
            continue;
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(fd);
    }
    if (stream != NULL)
        (void)closedir(stream);
}
