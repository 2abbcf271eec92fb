/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nontemporal_copy.c -- see nontemporal_copy.h.
 *
 * The memcpy() of glibc does this only for copies as large as a good part of the shared cache.  The
 * pieces that several threads copy of a state are smaller.  As glibc does, we copy several pages
 * side by side, which keeps several banks of memory busy.
 */
#include "base/nontemporal_copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

#define PAGE_BYTES 4096u
#define PAGES 4u                      /* side by side */
#define RUN_BYTES 256u                /* copied from one page, before the next page */
#define MIN_BYTES ((size_t)256 << 10) /* memcpy() is faster for less, because of the caches */

static void stream_run(__m128i *to, const __m128i *from)
{
    for (size_t i = 0; i < RUN_BYTES / sizeof(*to); i += 4) {
        __m128i a = _mm_loadu_si128(from + i), b = _mm_loadu_si128(from + i + 1);
        __m128i c = _mm_loadu_si128(from + i + 2), d = _mm_loadu_si128(from + i + 3);
        _mm_stream_si128(to + i, a);
        _mm_stream_si128(to + i + 1, b);
        _mm_stream_si128(to + i + 2, c);
        _mm_stream_si128(to + i + 3, d);
    }
}

/* Copy a multiple of PAGES * PAGE_BYTES, and return the number of bytes copied. */
static size_t copy_pages(unsigned char *to, const unsigned char *from, size_t bytes)
{
    const size_t group = (size_t)PAGES * PAGE_BYTES;
    size_t at = 0;

    if (bytes < MIN_BYTES || (uintptr_t)to % sizeof(__m128i) != 0)
        return 0;
    for (; bytes - at >= group; at += group)
        for (size_t run = 0; run < PAGE_BYTES; run += RUN_BYTES)
            for (size_t page = 0; page < group; page += PAGE_BYTES)
                stream_run((__m128i *)(void *)(to + at + page + run),
                           (const __m128i *)(const void *)(from + at + page + run));
    _mm_sfence();
    return at;
}
#else
static size_t copy_pages(unsigned char *to, const unsigned char *from, size_t bytes)
{
    (void)to, (void)from, (void)bytes;
    return 0;
}
#endif

void nontemporal_copy(void *to, const void *from, size_t bytes)
{
    size_t done = copy_pages(to, from, bytes);

    if (bytes != done)
        memcpy((unsigned char *)to + done, (const unsigned char *)from + done, bytes - done);
}
