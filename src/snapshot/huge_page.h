/* SPDX-License-Identifier: BSD-3-Clause */
/* huge_page.h -- turns existing memory into a huge page, at the same address. */
#ifndef SNAPSHOT_HUGE_PAGE_H
#define SNAPSHOT_HUGE_PAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* The size of a huge page: 2 MiB with pages of 4 KiB, 32 MiB with 16 KiB, 512 MiB with 64 KiB. */
static inline uint64_t huge_page_bytes(void)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return page / sizeof(uint64_t) *
           page; /* a page of the page table, which has 8 bytes for each */
}

/* Collapse the memory at ${at}, a multiple of huge_page_bytes(), all of which is mapped.  2 MiB
 * take 0.2 to 0.5 ms, during which the process cannot map memory.  Returns false with errno set:
 * EINVAL on Linux before 6.1. */
static inline bool huge_page_collapse(uint64_t at)
{
    return !fault_hit("huge.collapse") &&
           madvise((void *)(uintptr_t)at, huge_page_bytes(), MADV_COLLAPSE) == 0;
}

#endif
