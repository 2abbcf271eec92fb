/* SPDX-License-Identifier: BSD-3-Clause */
/* checked.h -- arithmetic on sizes.  The checked functions return false on overflow. */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}
static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}
static inline uint64_t round_up(uint64_t n, uint64_t power_of_two)
{
    return (n + power_of_two - 1) & ~(power_of_two - 1);
}
static inline uint64_t round_down(uint64_t n, uint64_t power_of_two)
{
    return n & ~(power_of_two - 1);
}
static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
