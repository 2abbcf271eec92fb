/* SPDX-License-Identifier: BSD-3-Clause */
/* number.c -- see number.h.  Small floats are told by sign, exponent and mantissa, as the papers on
 * 8-bit formats (Micikevicius 2022; Noune 2022; OCP 2023) define them. */
#include "model/number.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* What is known of a float of at most 16 bits. */
struct layout {
    int exponent_bits;
    int mantissa_bits;
    int bias;
    bool has_infinity; /* the highest exponent is infinities and NaNs, as in IEEE 754 */
    bool has_fnuz_nan; /* the only NaN is what would be -0 */
    bool has_fn_nan;   /* the only NaNs are all ones */
};

static const struct layout half = {5, 10, 15, .has_infinity = true};
static const struct layout bfloat = {8, 7, 127, .has_infinity = true};
static const struct layout e4m3fn = {4, 3, 7, .has_fn_nan = true};
static const struct layout e5m2 = {5, 2, 15, .has_infinity = true};
static const struct layout e4m3fnuz = {4, 3, 8, .has_fnuz_nan = true};
static const struct layout e5m2fnuz = {5, 2, 16, .has_fnuz_nan = true};

static double small_float(const struct layout *l, uint32_t bits)
{
    uint32_t mantissa_max = (1u << l->mantissa_bits) - 1,
             exponent_max = (1u << l->exponent_bits) - 1;
    uint32_t mantissa = bits & mantissa_max;
    uint32_t exponent = bits >> l->mantissa_bits & exponent_max;
    bool is_negative = bits >> (l->mantissa_bits + l->exponent_bits) != 0;
    double value;

    if (l->has_fnuz_nan && is_negative && exponent == 0 && mantissa == 0)
        return (double)NAN;
    if (l->has_fn_nan && exponent == exponent_max && mantissa == mantissa_max)
        return (double)NAN;
    if (l->has_infinity && exponent == exponent_max)
        value = mantissa != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - l->bias - l->mantissa_bits);
    else
        value =
            ldexp(mantissa | 1u << l->mantissa_bits, (int)exponent - l->bias - l->mantissa_bits);
    return is_negative ? -value : value;
}

static double read_e8m0(uint8_t bits)
{
    return bits == 0xff ? (double)NAN : ldexp(1, bits - 127);
}

bool number_is_complex(enum sidestep_dtype dtype)
{
    return dtype == SIDESTEP_COMPLEX32 || dtype == SIDESTEP_COMPLEX64 ||
           dtype == SIDESTEP_COMPLEX128 || dtype == SIDESTEP_BCOMPLEX32;
}

bool number_is_known(enum sidestep_dtype dtype)
{
    switch (dtype) {
    case SIDESTEP_DTYPE_NONE:
    case SIDESTEP_DTYPE_END:
    case SIDESTEP_FLOAT4_E2M1FN_X2:
    case SIDESTEP_BITS8:
    case SIDESTEP_BITS1X8:
    case SIDESTEP_BITS2X4:
    case SIDESTEP_BITS4X2:
    case SIDESTEP_BITS16:
        return false;
    default:
        return true;
    }
}

/* One loop for each way of reading an element: ${stride} is in elements of ${type}. */
#define EACH(type, expression)                                                                     \
    for (size_t i = 0; i < count; i++) {                                                           \
        type x;                                                                                    \
        memcpy(&x, at + i * stride * sizeof(x), sizeof(x));                                        \
        out[i] = (double)(expression);                                                             \
    }                                                                                              \
    break

/* Every ${stride}-th part of ${dtype}, which is not complex. */
static void read_parts(enum sidestep_dtype dtype, const uint8_t *at, size_t stride, size_t count,
                       double *out)
{
    switch (dtype) {
    case SIDESTEP_FLOAT64:
        EACH(double, x);
    case SIDESTEP_FLOAT32:
        EACH(float, x);
    case SIDESTEP_FLOAT16:
        EACH(uint16_t, small_float(&half, x));
    case SIDESTEP_BFLOAT16:
        EACH(uint16_t, small_float(&bfloat, x));
    case SIDESTEP_INT8:
        EACH(int8_t, x);
    case SIDESTEP_INT16:
        EACH(int16_t, x);
    case SIDESTEP_INT32:
        EACH(int32_t, x);
    case SIDESTEP_INT64:
        EACH(int64_t, x);
    case SIDESTEP_UINT8:
    case SIDESTEP_BOOL:
        EACH(uint8_t, x);
    case SIDESTEP_UINT16:
        EACH(uint16_t, x);
    case SIDESTEP_UINT32:
        EACH(uint32_t, x);
    case SIDESTEP_UINT64:
        EACH(uint64_t, x);
    case SIDESTEP_FLOAT8_E4M3FN:
        EACH(uint8_t, small_float(&e4m3fn, x));
    case SIDESTEP_FLOAT8_E5M2:
        EACH(uint8_t, small_float(&e5m2, x));
    case SIDESTEP_FLOAT8_E4M3FNUZ:
        EACH(uint8_t, small_float(&e4m3fnuz, x));
    case SIDESTEP_FLOAT8_E5M2FNUZ:
        EACH(uint8_t, small_float(&e5m2fnuz, x));
    case SIDESTEP_FLOAT8_E8M0FNU:
        EACH(uint8_t, read_e8m0(x));
    default:
        memset(out, 0, count * sizeof(*out));
    }
}

static enum sidestep_dtype part_of(enum sidestep_dtype dtype)
{
    switch (dtype) {
    case SIDESTEP_COMPLEX32:
        return SIDESTEP_FLOAT16;
    case SIDESTEP_COMPLEX64:
        return SIDESTEP_FLOAT32;
    case SIDESTEP_COMPLEX128:
        return SIDESTEP_FLOAT64;
    case SIDESTEP_BCOMPLEX32:
        return SIDESTEP_BFLOAT16;
    default:
        return dtype;
    }
}

void number_read(enum sidestep_dtype dtype, const void *from, size_t count, double *real,
                 double *imaginary)
{
    enum sidestep_dtype part = part_of(dtype);
    const uint8_t *at = from;

    if (!number_is_complex(dtype)) {
        read_parts(dtype, at, 1, count, real);
        return;
    }
    read_parts(part, at, 2, count, real);
    read_parts(part, at + sidestep_dtype_size(part), 2, count, imaginary);
}
