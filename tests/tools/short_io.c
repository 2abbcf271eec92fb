/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * short_io.c -- an LD_PRELOAD library: read, write, pread and pwrite move fewer bytes than
 * requested, at random, as POSIX allows; sometimes they fail with EINTR. With SHORT_IO_LOSE in the
 * environment, writes report more bytes than they moved: a negative control that must be detected.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_ulong calls;

/* The number of bytes to move of ${length}; 0: fail with EINTR. */
static size_t fewer(size_t length)
{
    uint64_t x = atomic_fetch_add(&calls, 1) * 0x9e3779b97f4a7c15u + (uint64_t)getpid();

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    if (length <= 1 || x % 4 == 0)
        return length;
    if (x % 16 == 1)
        return 0;
    return 1 + (x >> 8) % length;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define MOVE(name, ...)                                                                            \
    do {                                                                                           \
        size_t most = fewer(length);                                                               \
        if (most == 0 && length != 0) {                                                            \
            errno = EINTR;                                                                         \
            return -1;                                                                             \
        }                                                                                          \
        return NEXT(name)(__VA_ARGS__);                                                            \
    } while (0)

ssize_t read(int fd, void *to, size_t length)
{
    MOVE(read, fd, to, most);
}

ssize_t pread(int fd, void *to, size_t length, off_t offset)
{
    MOVE(pread, fd, to, most, offset);
}

ssize_t write(int fd, const void *from, size_t length)
{
    MOVE(write, fd, from, most);
}

static ssize_t write_at(int fd, const void *from, size_t length, off_t offset)
{
    MOVE(pwrite, fd, from, most, offset);
}

ssize_t pwrite(int fd, const void *from, size_t length, off_t offset)
{
    ssize_t written = write_at(fd, from, length, offset);

    return written > 0 && getenv("SHORT_IO_LOSE") != NULL ? (ssize_t)length : written;
}

ssize_t pread64(int fd, void *to, size_t length, off_t offset)
    __attribute__((alias("pread"), visibility("default")));
ssize_t pwrite64(int fd, const void *from, size_t length, off_t offset)
    __attribute__((alias("pwrite"), visibility("default")));
