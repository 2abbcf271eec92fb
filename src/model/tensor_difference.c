/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_difference.c -- see tensor_difference.h.  Most elements are equal, so it first compares
 * the bytes of a run of elements, and looks at the numbers only if those differ. */
#include "model/tensor_difference.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/base.h"
#include "model/dtype_numbers.h"

#define RUN_ELEMENTS 256u

struct numbers {
    double real[RUN_ELEMENTS];
    double imaginary[RUN_ELEMENTS];
};

static void add_distance(struct tensor_difference *sum, double distance, double size)
{
    double relative = size > 0 ? distance / size : 0;

    if (isnan(distance) || isinf(distance))
        distance = relative = (double)INFINITY;
    sum->max_abs = fmax(sum->max_abs, distance);
    sum->max_rel = fmax(sum->max_rel, relative);
}

/* For integers of 64 bits: as doubles they are rounded, so close ones would look equal. */
static bool add_wide_integers(struct tensor_difference *sum, enum sidestep_dtype dtype,
                              const void *a, const void *b)
{
    __int128 x, y;

    if (dtype == SIDESTEP_INT64) {
        int64_t signed_a, signed_b;
        memcpy(&signed_a, a, sizeof(signed_a));
        memcpy(&signed_b, b, sizeof(signed_b));
        x = signed_a, y = signed_b;
    } else if (dtype == SIDESTEP_UINT64) {
        uint64_t unsigned_a, unsigned_b;
        memcpy(&unsigned_a, a, sizeof(unsigned_a));
        memcpy(&unsigned_b, b, sizeof(unsigned_b));
        x = unsigned_a, y = unsigned_b;
    } else {
        return false;
    }
    add_distance(sum, (double)(x > y ? x - y : y - x), fmax(fabs((double)x), fabs((double)y)));
    return true;
}

/* |x - y|; 0 for two NaNs, even if their bits differ. */
static double distance_of(double x, double y)
{
    return x == y || (isnan(x) && isnan(y)) ? 0 : fabs(x - y);
}

static void add_numbers(struct tensor_difference *sum, bool is_complex, const struct numbers *a,
                        const struct numbers *b, size_t i)
{
    double x = a->real[i], y = b->real[i];

    if (is_complex)
        add_distance(sum, hypot(distance_of(x, y), distance_of(a->imaginary[i], b->imaginary[i])),
                     fmax(hypot(x, a->imaginary[i]), hypot(y, b->imaginary[i])));
    else
        add_distance(sum, distance_of(x, y), fmax(fabs(x), fabs(y)));
}

/* Add a run of elements.  At least one of them differs. */
static void add_run(struct tensor_difference *sum, enum sidestep_dtype dtype, const uint8_t *a,
                    const uint8_t *b, uint64_t first, size_t count)
{
    size_t bytes = sidestep_dtype_size(dtype);
    bool is_complex = dtype_is_complex(dtype), is_numeric = dtype_is_numeric(dtype);
    struct numbers x, y;

    if (is_numeric) {
        dtype_read_numbers(dtype, a, count, x.real, x.imaginary);
        dtype_read_numbers(dtype, b, count, y.real, y.imaginary);
    } else {
        sum->max_abs = sum->max_rel = (double)NAN;
    }
    for (size_t i = 0; i < count; i++) {
        if (memcmp(a + i * bytes, b + i * bytes, bytes) == 0)
            continue;
        sum->first = min_u64(sum->first, first + i);
        sum->count++;
        if (is_numeric && !add_wide_integers(sum, dtype, a + i * bytes, b + i * bytes))
            add_numbers(sum, is_complex, &x, &y, i);
    }
}

void tensor_difference_add(struct tensor_difference *sum, enum sidestep_dtype dtype, const void *a,
                           const void *b, uint64_t begin, uint64_t end)
{
    size_t bytes = sidestep_dtype_size(dtype);

    for (uint64_t at = begin; at < end; at += RUN_ELEMENTS) {
        size_t count = (size_t)min_u64(RUN_ELEMENTS, end - at);
        const uint8_t *x = (const uint8_t *)a + at * bytes, *y = (const uint8_t *)b + at * bytes;

        if (memcmp(x, y, count * bytes) != 0)
            add_run(sum, dtype, x, y, at, count);
    }
}
