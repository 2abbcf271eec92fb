/* SPDX-License-Identifier: BSD-3-Clause */
/* planes_split.c -- see planes_layout.h: splits and joins planes.  The loops are written so that
 * compilers vectorize them (with -O3: src/meson.build). */
#include <assert.h>
#include <string.h>

#include "codec/planes_layout.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "elements are little-endian, here and in files"
#endif

/* Elements per round.  Compilers vectorize loops better if the number of iterations is constant. */
#define ROUND ((size_t)1024)

/* For elements of a width: load, store, and rotate by one bit to the left or right. */
#define ELEMENT(type, width)                                                                       \
    static inline type load_##width(const uint8_t *from, size_t i)                                 \
    {                                                                                              \
        type value;                                                                                \
                                                                                                   \
        memcpy(&value, from + i * (width), (width));                                               \
        return value;                                                                              \
    }                                                                                              \
    static inline void store_##width(uint8_t *to, size_t i, type value)                            \
    {                                                                                              \
        memcpy(to + i * (width), &value, (width));                                                 \
    }                                                                                              \
    static inline type left_##width(type v)                                                        \
    {                                                                                              \
        return (type)(v << 1 | v >> (8 * (width)-1));                                              \
    }                                                                                              \
    static inline type right_##width(type v)                                                       \
    {                                                                                              \
        return (type)(v >> 1 | v << (8 * (width)-1));                                              \
    }

/* Call ${round} for each ROUND elements, and for the rest. */
#define ROUNDS(round, from, count, rotate, to)                                                     \
    do {                                                                                           \
        size_t at_ = 0;                                                                            \
        for (; (count)-at_ >= ROUND; at_ += ROUND)                                                 \
            round(from, at_, ROUND, count, rotate, to);                                            \
        round(from, at_, (count)-at_, count, rotate, to);                                          \
    } while (0)

#define INLINE static inline __attribute__((always_inline)) void

ELEMENT(uint16_t, 2)
ELEMENT(uint32_t, 4)
ELEMENT(uint64_t, 8)

/* Two planes at a time: compilers do not vectorize loops with more outputs. */
#define SPLIT(type, width)                                                                         \
    INLINE split_round_##width(const uint8_t *restrict from, size_t at, size_t n, size_t count,    \
                               bool rotate, uint8_t *restrict to)                                  \
    {                                                                                              \
        const uint8_t *restrict in = from + at * (width);                                          \
                                                                                                   \
        for (unsigned p = 0; p < (width); p += 2) {                                                \
            uint8_t *restrict high = to + p * count + at;                                          \
            uint8_t *restrict low = to + (p + 1) * count + at;                                     \
            for (size_t i = 0; i < n; i++) {                                                       \
                type v = load_##width(in, i);                                                      \
                v = rotate ? left_##width(v) : v;                                                  \
                high[i] = (uint8_t)(v >> 8 * ((width)-1 - p));                                     \
                low[i] = (uint8_t)(v >> 8 * ((width)-2 - p));                                      \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void split_##width(const uint8_t *from, size_t count, bool rotate, uint8_t *to)         \
    {                                                                                              \
        if (rotate)                                                                                \
            ROUNDS(split_round_##width, from, count, true, to);                                    \
        else                                                                                       \
            ROUNDS(split_round_##width, from, count, false, to);                                   \
    }

SPLIT(uint16_t, 2)
SPLIT(uint32_t, 4)
SPLIT(uint64_t, 8)

void planes_split(const uint8_t *from, size_t bytes, unsigned width, bool rotate, uint8_t *to)
{
    assert(bytes % width == 0);
    if (width == 2)
        split_2(from, bytes / 2, rotate, to);
    else if (width == 4)
        split_4(from, bytes / 4, rotate, to);
    else if (width == 8)
        split_8(from, bytes / 8, rotate, to);
    else
        memcpy(to, from, bytes);
}

INLINE join_round_2(const uint8_t *const *p, size_t at, size_t n, size_t count, bool rotate,
                    uint8_t *restrict to)
{
    const uint8_t *restrict p0 = p[0] + at, *restrict p1 = p[1] + at;

    (void)count;
    for (size_t i = 0; i < n; i++) {
        uint16_t v = (uint16_t)((uint16_t)p0[i] << 8 | p1[i]);
        store_2(to + at * 2, i, rotate ? right_2(v) : v);
    }
}

INLINE join_round_4(const uint8_t *const *p, size_t at, size_t n, size_t count, bool rotate,
                    uint8_t *restrict to)
{
    const uint8_t *restrict p0 = p[0] + at, *restrict p1 = p[1] + at;
    const uint8_t *restrict p2 = p[2] + at, *restrict p3 = p[3] + at;

    (void)count;
    for (size_t i = 0; i < n; i++) {
        uint32_t v = (uint32_t)p0[i] << 24 | (uint32_t)p1[i] << 16 | (uint32_t)p2[i] << 8 | p3[i];
        store_4(to + at * 4, i, rotate ? right_4(v) : v);
    }
}

INLINE join_round_8(const uint8_t *const *p, size_t at, size_t n, size_t count, bool rotate,
                    uint8_t *restrict to)
{
    (void)count;
    for (size_t i = at; i < at + n; i++) {
        uint64_t v = 0;
        for (unsigned k = 0; k < 8; k++)
            v = v << 8 | p[k][i];
        store_8(to, i, rotate ? right_8(v) : v);
    }
}

#define JOIN(width)                                                                                \
    static void join_##width(const uint8_t *const *planes, size_t count, bool rotate, uint8_t *to) \
    {                                                                                              \
        if (rotate)                                                                                \
            ROUNDS(join_round_##width, planes, count, true, to);                                   \
        else                                                                                       \
            ROUNDS(join_round_##width, planes, count, false, to);                                  \
    }

JOIN(2)
JOIN(4)
JOIN(8)

void planes_join(const uint8_t *const planes[], size_t bytes, unsigned width, bool rotate,
                 uint8_t *to)
{
    assert(bytes % width == 0);
    if (width == 2)
        join_2(planes, bytes / 2, rotate, to);
    else if (width == 4)
        join_4(planes, bytes / 4, rotate, to);
    else if (width == 8)
        join_8(planes, bytes / 8, rotate, to);
    else
        memcpy(to, planes[0], bytes);
}
