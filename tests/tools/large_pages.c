/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * large_pages.c -- an LD_PRELOAD library: pages of LARGE_PAGES bytes, 16384 or 65536, on a machine
 * whose pages are smaller.  sysconf() tells that size, mmap() gives addresses that are multiples of
 * it, and /proc/self/pagemap has one entry for each: what its small pages have in common.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define ENTRIES 512 /* that are read at a time */

static uint64_t small_page(void)
{
    return (uint64_t)NEXT(sysconf)(_SC_PAGESIZE);
}

static uint64_t large_page(void)
{
    const char *bytes = getenv("LARGE_PAGES");

    return bytes != NULL ? strtoull(bytes, NULL, 10) : small_page();
}

long sysconf(int name)
{
    return name == _SC_PAGESIZE ? (long)large_page() : NEXT(sysconf)(name);
}

/* Map more than ${length} without access, and put the mapping at a multiple in it. */
static void *map_aligned(size_t length, int protection, int flags, int fd, off_t offset)
{
    uint64_t page = large_page(), rest = small_page() - 1;
    size_t bytes = (size_t)((length + rest) & ~rest);
    unsigned char *all =
        NEXT(mmap)(NULL, bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (all == MAP_FAILED)
        return MAP_FAILED;
    unsigned char *at = all + ((page - (uintptr_t)all % page) % page);
    void *map = NEXT(mmap)(at, length, protection, flags | MAP_FIXED, fd, offset);
    int saved = errno;
    if (map == MAP_FAILED)
        at = all + bytes + page; /* give all of it back */
    if (at != all)
        (void)munmap(all, (size_t)(at - all));
    if (map != MAP_FAILED && at + bytes != all + bytes + page)
        (void)munmap(at + bytes, (size_t)(all + page - at));
    errno = saved;
    return map;
}

void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (at != NULL || length == 0 || (flags & MAP_HUGETLB) != 0)
        return NEXT(mmap)(at, length, protection, flags, fd, offset);
    return map_aligned(length, protection, flags, fd, offset);
}

static bool is_pagemap(int fd)
{
    char name[32], path[64];

    (void)strcpy(name, "/proc/self/fd/");
    for (int digit = 1000000; digit != 0; digit /= 10)
        if (fd >= digit || digit == 1)
            strncat(name, &"0123456789"[fd / digit % 10], 1);
    ssize_t length = readlink(name, path, sizeof(path) - 1);
    if (length < 8)
        return false;
    return memcmp(path + length - 8, "/pagemap", 8) == 0;
}

/* Read entries of small pages, and give for each large one the bits that all of its pages have. */
static ssize_t read_pagemap(int fd, uint64_t *to, size_t count, uint64_t first)
{
    uint64_t each = large_page() / small_page(), entries[ENTRIES];

    for (size_t i = 0; i < count; i++) {
        ssize_t n = NEXT(pread)(fd, entries, each * sizeof(*entries),
                                (off_t)((first + i) * each * sizeof(*entries)));
        if (n < (ssize_t)(each * sizeof(*entries)))
            return n < 0 ? -1 : (ssize_t)(i * sizeof(*to));
        to[i] = entries[0];
        for (size_t k = 1; k < each; k++)
            to[i] &= entries[k];
    }
    return (ssize_t)(count * sizeof(*to));
}

ssize_t pread(int fd, void *to, size_t length, off_t offset)
{
    if (large_page() == small_page() || length % sizeof(uint64_t) != 0 || !is_pagemap(fd))
        return NEXT(pread)(fd, to, length, offset);
    return read_pagemap(fd, to, length / sizeof(uint64_t), (uint64_t)offset / sizeof(uint64_t));
}
