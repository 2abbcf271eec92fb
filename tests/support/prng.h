/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prng.h -- random numbers for test cases that can be repeated: the number of a case is its seed,
 * and a failed PRNG_ASSERT() prints it.
 */
#ifndef SUPPORT_PRNG_H
#define SUPPORT_PRNG_H

#include "support/unit.h"

struct prng {
    uint64_t seed;
    uint64_t state;
};

static inline struct prng prng_new(uint64_t seed)
{
    return (struct prng){.seed = seed, .state = seed * 0x9e3779b97f4a7c15u + 1};
}

/* splitmix64 */
static inline uint64_t prng_next(struct prng *p)
{
    uint64_t z = p->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 .. n - 1 */
static inline uint64_t prng_below(struct prng *p, uint64_t n)
{
    return prng_next(p) % n;
}

/* low .. high */
static inline int64_t prng_between(struct prng *p, int64_t low, int64_t high)
{
    return low + (int64_t)prng_below(p, (uint64_t)(high - low) + 1);
}

#define PRNG_ASSERT(p, condition)                                                                  \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("%s, in the case with seed %llu", #condition, (unsigned long long)(p)->seed); \
    } while (0)

#endif
