/* SPDX-License-Identifier: BSD-3-Clause */
/* dtype_numbers.c -- see dtype_numbers.h.  cast.h reads most floats.  The papers on 8-bit formats
 * (Noune 2022; OCP 2023) define the others. */
#include "model/dtype_numbers.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "model/cast.h"

/* "fnuz": a float of 8 bits without infinity, and with one NaN, which has the bits of -0. */
static double read_fnuz(unsigned mantissa_bits, int bias, uint8_t bits)
{
    unsigned mantissa = bits & ((1u << mantissa_bits) - 1);
    unsigned exponent = (bits & 0x7fu) >> mantissa_bits;

    if (bits == 0x80)
        return (double)NAN;
    double value = exponent == 0 ? ldexp(mantissa, 1 - bias - (int)mantissa_bits)
                                 : ldexp(mantissa | 1u << mantissa_bits,
                                         (int)exponent - bias - (int)mantissa_bits);
    return (bits & 0x80) != 0 ? -value : value;
}

static double read_e8m0(uint8_t bits)
{
    return bits == 0xff ? (double)NAN : ldexp(1, bits - 127);
}

bool dtype_is_complex(enum sidestep_dtype dtype)
{
    return dtype == SIDESTEP_COMPLEX32 || dtype == SIDESTEP_COMPLEX64 ||
           dtype == SIDESTEP_COMPLEX128 || dtype == SIDESTEP_BCOMPLEX32;
}

bool dtype_is_numeric(enum sidestep_dtype dtype)
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

/* The code of a case: read each element as ${type}, and convert it with ${expression}. */
#define EACH(type, expression)                                                                     \
    for (size_t i = 0; i < count; i++) {                                                           \
        type x;                                                                                    \
        memcpy(&x, at + i * sizeof(x), sizeof(x));                                                 \
        out[i] = (double)(expression);                                                             \
    }                                                                                              \
    break

/* ${dtype} is not complex. */
static void read_real(enum sidestep_dtype dtype, const uint8_t *at, size_t count, double *out)
{
    if (cast_is_supported(dtype)) {
        (void)cast_elements(dtype, at, SIDESTEP_FLOAT64, out, count);
        return;
    }
    switch (dtype) {
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
    case SIDESTEP_FLOAT8_E4M3FNUZ:
        EACH(uint8_t, read_fnuz(3, 8, x));
    case SIDESTEP_FLOAT8_E5M2FNUZ:
        EACH(uint8_t, read_fnuz(2, 16, x));
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

void dtype_read_numbers(enum sidestep_dtype dtype, const void *from, size_t count, double *real,
                        double *imaginary)
{
    enum sidestep_dtype part = part_of(dtype);
    size_t bytes = sidestep_dtype_size(dtype);
    const uint8_t *at = from;

    if (!dtype_is_complex(dtype)) {
        read_real(dtype, at, count, real);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        read_real(part, at + i * bytes, 1, &real[i]);
        read_real(part, at + i * bytes + bytes / 2, 1, &imaginary[i]);
    }
}
