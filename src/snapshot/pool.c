/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.c -- allocates the staging pool; see pool.h. */
#include "snapshot/pool.h"

#include <assert.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

#define POOL_HUGE_BYTES ((uint64_t)2 << 20)
#define POOL_SMALL_BYTES ((uint64_t)64 << 10) /* a multiple of every page size */
#define POOL_MAX_NODES 1024                   /* the kernel's limit */
#define POOL_TOUCH_BYTES ((uint64_t)32 << 20)
_Static_assert(POOL_HUGE_BYTES % POOL_SMALL_BYTES == 0, "both sizes are whole pages");

struct touch_job {
    unsigned char *bytes;
    uint64_t length;
    _Atomic uint64_t next;
};

static void touch(void *context)
{
    struct touch_job *t = context;

    for (;;) {
        uint64_t begin = atomic_fetch_add(&t->next, POOL_TOUCH_BYTES);
        if (begin >= t->length)
            return;
        memset(t->bytes + begin, 0, min_u64(POOL_TOUCH_BYTES, t->length - begin));
    }
}

/* Call before any page is touched.  If the system refuses, pages come from the node of the thread
 * that touches them. */
static void prefer_node(void *memory, uint64_t bytes, int node)
{
    enum { WORD_BITS = 8 * sizeof(unsigned long) };
    unsigned long nodes[POOL_MAX_NODES / WORD_BITS] = {0};

    if (node < 0 || node >= POOL_MAX_NODES || !seccomp_survives(SECCOMP_mbind))
        return;
    nodes[node / WORD_BITS] = 1ul << node % WORD_BITS;
    (void)syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes, POOL_MAX_NODES + 1, 0);
}

enum sidestep_status pool_reserve(struct pool *pool, uint64_t bytes, struct workers *workers,
                                  struct sidestep_error *err)
{
    return pool_reserve_on_node(pool, bytes, -1, workers, err);
}

enum sidestep_status pool_reserve_on_node(struct pool *pool, uint64_t bytes, int node,
                                          struct workers *workers, struct sidestep_error *err)
{
    if (bytes <= pool->length)
        return SIDESTEP_OK;
    pool_release(pool);
    bytes = round_up(bytes, bytes < POOL_HUGE_BYTES ? POOL_SMALL_BYTES : POOL_HUGE_BYTES);
    void *map = fault_hit("pool.map") ? MAP_FAILED
                                      : mmap(NULL, bytes + POOL_HUGE_BYTES, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return error_set(err, SIDESTEP_ENOMEM, errno, HERE,
                         "allocate %llu MiB of staging memory (see pool_bytes)",
                         (unsigned long long)(bytes >> 20));
    /* Unmap what is outside the aligned part. */
    unsigned char *begin = map;
    unsigned char *aligned = (unsigned char *)round_up((uint64_t)(uintptr_t)map, POOL_HUGE_BYTES);
    if (aligned != begin)
        (void)munmap(begin, (size_t)(aligned - begin));
    if (begin + POOL_HUGE_BYTES != aligned)
        (void)munmap(aligned + bytes, (size_t)(begin + POOL_HUGE_BYTES - aligned));
    /* These calls improve performance; failures do not matter. */
    (void)madvise(aligned, bytes, MADV_HUGEPAGE);
    (void)madvise(aligned, bytes, MADV_DONTFORK);
    (void)madvise(aligned, bytes, MADV_DONTDUMP);
    prefer_node(aligned, bytes, node);
    struct touch_job t = {.bytes = aligned, .length = bytes};
    if (workers != NULL && bytes >= POOL_HUGE_BYTES)
        workers_run(workers, touch, &t);
    assert((uintptr_t)aligned % POOL_HUGE_BYTES == 0);
    pool->bytes = aligned;
    pool->length = bytes;
    return SIDESTEP_OK;
}

bool pool_touch_next(const struct pool *pool, uint64_t *at)
{
    uint64_t end = min_u64(*at + POOL_HUGE_BYTES, pool->length);

    for (uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE); *at < end; *at += page)
        *(volatile unsigned char *)(pool->bytes + *at) = 0;
    return end < pool->length;
}

void pool_trim(const struct pool *pool, const unsigned char *begin)
{
    assert(pool->bytes <= begin && begin <= pool->bytes + pool->length);
    uint64_t kept = round_up((uint64_t)(begin - pool->bytes), POOL_HUGE_BYTES);

    if (kept < pool->length)
        (void)madvise(pool->bytes + kept, pool->length - kept, MADV_DONTNEED);
}

void pool_release(struct pool *pool)
{
    if (pool->bytes != NULL)
        (void)munmap(pool->bytes, pool->length);
    *pool = (struct pool){0};
}
