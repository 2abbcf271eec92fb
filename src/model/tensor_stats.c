/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tensor_stats.c -- see tensor_stats.h.  Small floats become float32 in batches, and vector
 * operations look at several of them at a time.
 */
#include "model/tensor_stats.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "model/cast.h"
#include "model/dtype_numbers.h"

#define BATCH 1024u /* elements converted at a time */
#define LANES 4u    /* elements of a vector */

enum number_kind { NOT_A_NUMBER, FLOAT, DOUBLE, INTEGER, COMPLEX };

static enum number_kind kind_of(enum sidestep_dtype dtype)
{
    if (dtype_is_complex(dtype))
        return COMPLEX;
    if (cast_is_supported(dtype))
        return dtype == SIDESTEP_FLOAT64 ? DOUBLE : FLOAT;
    switch (dtype) {
    case SIDESTEP_INT8:
    case SIDESTEP_INT16:
    case SIDESTEP_INT32:
    case SIDESTEP_INT64:
    case SIDESTEP_UINT8:
    case SIDESTEP_UINT16:
    case SIDESTEP_UINT32:
    case SIDESTEP_UINT64:
    case SIDESTEP_BOOL:
        return INTEGER;
    default:
        return NOT_A_NUMBER;
    }
}

bool tensor_stats_is_ordered(enum sidestep_dtype dtype)
{
    enum number_kind kind = kind_of(dtype);

    return kind == FLOAT || kind == DOUBLE || kind == INTEGER;
}

void tensor_stats_merge(struct tensor_stats *into, const struct tensor_stats *other)
{
    into->count += other->count;
    into->nans += other->nans;
    into->infs += other->infs;
    into->min = other->min < into->min ? other->min : into->min;
    into->max = other->max > into->max ? other->max : into->max;
    into->sum += other->sum;
}

typedef float four_floats __attribute__((vector_size(4 * LANES)));
typedef int32_t four_integers __attribute__((vector_size(4 * LANES)));
typedef double four_doubles __attribute__((vector_size(8 * LANES)));

/* In each lane: ${a} if ${which} is all ones, else ${b}. */
static four_floats choose(four_integers which, four_floats a, four_floats b)
{
    return (four_floats)((which & (four_integers)a) | (~which & (four_integers)b));
}

/* ${count} is a multiple of LANES. */
static void add_floats(struct tensor_stats *s, const float *numbers, size_t count)
{
    four_floats low = (four_floats){0} + __builtin_inff(), high = -low;
    four_integers nans = {0}, infs = {0};
    four_doubles sums = {0};

    for (size_t i = 0; i < count; i += LANES) {
        four_floats x;

        memcpy(&x, numbers + i, sizeof(x));
        four_integers magnitude = (four_integers)x & 0x7fffffff;
        four_integers is_finite = magnitude < 0x7f800000;
        nans -= magnitude > 0x7f800000; /* true is -1 */
        infs -= magnitude == 0x7f800000;
        sums += __builtin_convertvector((four_floats)((four_integers)x & is_finite), four_doubles);
        low = choose(x < low, x, low);
        high = choose(x > high, x, high);
    }
    for (unsigned l = 0; l < LANES; l++) {
        struct tensor_stats lane = {.nans = (uint32_t)nans[l],
                                    .infs = (uint32_t)infs[l],
                                    .count = count / LANES - (uint32_t)nans[l] - (uint32_t)infs[l],
                                    .min = (double)low[l],
                                    .max = (double)high[l],
                                    .sum = sums[l]};
        tensor_stats_merge(s, &lane);
    }
}

static void add_double(struct tensor_stats *s, double x)
{
    if (x != x) {
        s->nans++;
        return;
    }
    s->min = x < s->min ? x : s->min;
    s->max = x > s->max ? x : s->max;
    if (isinf(x)) {
        s->infs++;
    } else {
        s->count++;
        s->sum += x;
    }
}

/* Counts elements, NaNs and infinities. */
static void add_complex(struct tensor_stats *s, enum sidestep_dtype dtype, const unsigned char *at,
                        size_t count)
{
    size_t size = sidestep_dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        double x[2];

        dtype_read_numbers(dtype, at + i * size, 1, &x[0], &x[1]);
        bool nan = x[0] != x[0] || x[1] != x[1], inf = isinf(x[0]) || isinf(x[1]);
        s->nans += nan;
        s->infs += inf && !nan;
        s->count += !nan && !inf;
    }
}

void tensor_stats_add(struct tensor_stats *s, enum sidestep_dtype dtype, const void *bytes,
                      size_t count)
{
    const unsigned char *at = bytes;
    size_t size = sidestep_dtype_size(dtype);
    enum number_kind kind = kind_of(dtype);
    float floats[BATCH];

    if (kind == COMPLEX)
        add_complex(s, dtype, at, count);
    for (size_t n; kind == FLOAT && count >= LANES; count -= n, at += n * size) {
        n = count < BATCH ? count / LANES * LANES : BATCH;
        (void)cast_elements(dtype, at, SIDESTEP_FLOAT32, floats, n);
        add_floats(s, floats, n);
    }
    for (size_t i = 0; (kind != COMPLEX && kind != NOT_A_NUMBER) && i < count; i++) {
        double x;

        dtype_read_numbers(dtype, at + i * size, 1, &x, NULL);
        add_double(s, x);
    }
}
