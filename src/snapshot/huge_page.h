/* SPDX-License-Identifier: BSD-3-Clause */
/* huge_page.h -- memory that is there becomes a huge page, without moving to another address. */
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

/* Of x86-64, and of arm64 with pages of 4 KiB: also what cow takes for a granule. */
#define HUGE_PAGE_BYTES COW_GRANULE_BYTES

/* ${at}: a multiple of HUGE_PAGE_BYTES, mapped for as long.  0.2 to 0.5 ms, in which the process
 * cannot map memory.  On false errno: EINVAL on Linux before 6.1. */
static inline bool huge_page_collapse(uint64_t at)
{
    return !fault_hit("huge.collapse") &&
           madvise((void *)(uintptr_t)at, HUGE_PAGE_BYTES, MADV_COLLAPSE) == 0;
}

#endif
