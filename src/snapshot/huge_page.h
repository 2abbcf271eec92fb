/* SPDX-License-Identifier: BSD-3-Clause */
/* huge_page.h -- turns existing memory into a huge page, at the same address. */
#ifndef SNAPSHOT_HUGE_PAGE_H
#define SNAPSHOT_HUGE_PAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/base.h"
#include "snapshot/cow_plan.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* The size on x86-64, and on arm64 with pages of 4 KiB; also the size of a granule. */
#define HUGE_PAGE_BYTES COW_GRANULE_BYTES

/* Collapse the memory at ${at}, a multiple of HUGE_PAGE_BYTES, all of which is mapped.  Takes 0.2
 * to 0.5 ms, during which the process cannot map memory.  Returns false with errno set: EINVAL on
 * Linux before 6.1. */
static inline bool huge_page_collapse(uint64_t at)
{
    return !fault_hit("huge.collapse") &&
           madvise((void *)(uintptr_t)at, HUGE_PAGE_BYTES, MADV_COLLAPSE) == 0;
}

#endif
