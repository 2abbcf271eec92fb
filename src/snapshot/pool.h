/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool.h -- allocates the staging memory: once, with huge pages whose first touch is done in
 * advance.
 *
 * On many machines the first touch of memory is slower than the disk, so all saves use the same
 * memory.
 */
#ifndef SNAPSHOT_POOL_H
#define SNAPSHOT_POOL_H

#include "base/base.h"

struct pool {
    unsigned char *bytes; /* page-aligned */
    uint64_t length;
};

/* Make the pool at least ${bytes} large; contents are lost when it grows.  ${workers} touch the
 * pages in advance.  With NULL, or a pool smaller than a huge page, pages are touched on first
 * use. */
enum sidestep_status pool_reserve(struct pool *pool, uint64_t bytes, struct workers *workers,
                                  struct sidestep_error *err);
/* The same, on NUMA node ${node} if it has free memory; -1: any node. */
enum sidestep_status pool_reserve_on_node(struct pool *pool, uint64_t bytes, int node,
                                          struct workers *workers, struct sidestep_error *err);
/* Touch the pages of [*at, ...), at most 2 MiB of them, and move ${*at} behind them; false: there
 * are no more.  Contents may be lost. */
bool pool_touch_next(const struct pool *pool, uint64_t *at);
/* Return the memory from ${begin}, an address in the pool or its end, to the system until it is
 * used again. */
void pool_trim(const struct pool *pool, const unsigned char *begin);
void pool_release(struct pool *pool);

#endif
