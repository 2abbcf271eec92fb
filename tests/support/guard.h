/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * guard.h -- copies test input to the end of a page that an inaccessible page follows, so that a
 * parser that reads one byte too many crashes, with and without a sanitizer.
 */
#ifndef SUPPORT_GUARD_H
#define SUPPORT_GUARD_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Map a page with the mapped size, the copy (at the end of its pages), and an inaccessible page.
 * Aborts if it is out of memory, because the test cannot continue. */
static inline void *guard_copy(const void *bytes, size_t length)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t data_bytes = (length + page - 1) / page * page;
    size_t mapped_bytes = page + data_bytes + page;
    unsigned char *map =
        mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED || mprotect(map + page + data_bytes, page, PROT_NONE) != 0)
        abort();
    memcpy(map, &mapped_bytes, sizeof(mapped_bytes));
    unsigned char *copy = map + page + data_bytes - length;
    if (length != 0)
        memcpy(copy, bytes, length);
    return copy;
}

static inline void guard_free(void *copy)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t mapped_bytes;

    if (copy == NULL)
        return;
    unsigned char *map = (unsigned char *)copy - (uintptr_t)copy % page - page;
    memcpy(&mapped_bytes, map, sizeof(mapped_bytes));
    if (munmap(map, mapped_bytes) != 0)
        abort();
}

#endif
