/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool.h -- the one large piece of memory: allocated once, huge pages, pre-faulted, reused.  First
 * touch of memory is slower than the disk on many machines, so it is never done in a save twice.
 */
#ifndef SNAPSHOT_POOL_H
#define SNAPSHOT_POOL_H

#include "base/base.h"

struct pool {
    unsigned char *bytes; /* page-aligned */
    uint64_t length;
};

/* At least ${bytes}; contents are lost when it grows.  ${workers} touch the pages in advance. NULL,
 * or a pool smaller than a huge page: whoever uses a page first touches it. */
enum sidestep_status pool_reserve(struct pool *pool, uint64_t bytes, struct workers *workers,
                                  struct sidestep_error *err);
/* The same, on ${node} of the machine's memory if there is room; -1: wherever. */
enum sidestep_status pool_reserve_on_node(struct pool *pool, uint64_t bytes, int node,
                                          struct workers *workers, struct sidestep_error *err);
/* Give the memory behind ${begin}, which lies in the pool or at its end, back to the system, until
 * it is used again. */
void pool_trim(const struct pool *pool, const unsigned char *begin);
void pool_release(struct pool *pool);

#endif
