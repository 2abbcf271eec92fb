/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory.c -- allocates, touches and copies memory.
 *
 * On a virtual machine, free memory returns to the host after a while, and the next first access is
 * then ten times slower than a copy. So a run touches all memory that it needs before it is timed.
 */
#include "bench.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES 4096u
#define HUGE_BYTES ((uint64_t)2 << 20)
#define COPY_MAX_THREADS 64u

void *bench_map(uint64_t bytes, bool huge)
{
    uint64_t length = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        bench_die("cannot allocate %llu MiB", (unsigned long long)(length >> 20));
    (void)madvise(memory, length, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(memory, 0, length);
    return memory;
}

void bench_unmap(void *memory, uint64_t bytes)
{
    (void)munmap(memory, (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
}

void bench_touch(const void *memory, uint64_t bytes)
{
    const volatile unsigned char *p = memory;

    for (uint64_t at = 0; at < bytes; at += PAGE_BYTES)
        (void)p[at];
}

void bench_warm_free(uint64_t bytes)
{
    bench_unmap(bench_map(bytes, true), bytes);
}

struct slice {
    unsigned char *to;
    const unsigned char *from;
    uint64_t bytes;
};

static void *copy_slice(void *argument)
{
    const struct slice *slice = argument;

    memcpy(slice->to, slice->from, slice->bytes);
    return NULL;
}

void bench_copy(void *to, const void *from, uint64_t bytes, unsigned threads)
{
    pthread_t ids[COPY_MAX_THREADS];
    struct slice slices[COPY_MAX_THREADS];

    threads = threads < COPY_MAX_THREADS ? threads : COPY_MAX_THREADS;
    for (unsigned i = 0; i < threads; i++) {
        uint64_t begin = bytes / threads * i,
                 end = i + 1 < threads ? begin + bytes / threads : bytes;
        slices[i] = (struct slice){(unsigned char *)to + begin, (const unsigned char *)from + begin,
                                   end - begin};
        if (i != 0 && pthread_create(&ids[i], NULL, copy_slice, &slices[i]) != 0)
            bench_die("cannot start a thread");
    }
    copy_slice(&slices[0]);
    for (unsigned i = 1; i < threads; i++)
        pthread_join(ids[i], NULL);
}
