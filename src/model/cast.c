/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cast.c -- see cast.h.
 *
 * Each type is a sign, an exponent and a fraction, with a number of bits for each.  Each value of
 * each type is also a double.  So widen() to a double and narrow() from a double serve all pairs of
 * types.  The usual pairs of weights have loops of their own, which compilers vectorize.
 */
#include "model/cast.h"

#include <assert.h>
#include <string.h>

struct float_format {
    unsigned bytes;
    unsigned exponent_bits;
    unsigned fraction_bits;
    bool has_infinity; /* if not, the largest exponent is a usual one, and only all ones is NaN */
};

static const struct float_format formats[SIDESTEP_DTYPE_END] = {
    [SIDESTEP_FLOAT64] = {8, 11, 52, true},      [SIDESTEP_FLOAT32] = {4, 8, 23, true},
    [SIDESTEP_FLOAT16] = {2, 5, 10, true},       [SIDESTEP_BFLOAT16] = {2, 8, 7, true},
    [SIDESTEP_FLOAT8_E4M3FN] = {1, 4, 3, false}, [SIDESTEP_FLOAT8_E5M2] = {1, 5, 2, true},
};

bool cast_is_supported(enum sidestep_dtype dtype)
{
    return (unsigned)dtype < SIDESTEP_DTYPE_END && formats[dtype].bytes != 0;
}

bool cast_narrows(enum sidestep_dtype from, enum sidestep_dtype to)
{
    assert(cast_is_supported(from) && cast_is_supported(to));
    return formats[to].exponent_bits < formats[from].exponent_bits ||
           formats[to].fraction_bits < formats[from].fraction_bits;
}

#define DOUBLE_FRACTION 52u
#define DOUBLE_BIAS 1023
#define DOUBLE_ONES 0x7ffu

static uint64_t read_bits(const unsigned char *from, unsigned bytes)
{
    uint64_t bits = 0;

    memcpy(&bits, from, bytes);
    return bits;
}

static int bias_of(const struct float_format *f)
{
    return (1 << (f->exponent_bits - 1)) - 1;
}

/* Convert the bits of a value of ${f} to the bits of the same double. */
static uint64_t widen(const struct float_format *f, uint64_t bits)
{
    unsigned shift = DOUBLE_FRACTION - f->fraction_bits;
    uint64_t ones = ((uint64_t)1 << f->exponent_bits) - 1;
    uint64_t fraction = bits & (((uint64_t)1 << f->fraction_bits) - 1);
    uint64_t exponent = bits >> f->fraction_bits & ones;
    uint64_t sign = (bits >> (f->fraction_bits + f->exponent_bits) & 1) << 63;
    bool is_all_ones = fraction == ((uint64_t)1 << f->fraction_bits) - 1;

    if (f->bytes == 8)
        return bits;
    if (exponent == ones && (f->has_infinity || is_all_ones))
        return sign | (uint64_t)DOUBLE_ONES << DOUBLE_FRACTION | fraction << shift;
    if (exponent != 0)
        return sign | (exponent + DOUBLE_BIAS - (uint64_t)bias_of(f)) << DOUBLE_FRACTION |
               fraction << shift;
    if (fraction == 0)
        return sign;
    /* A subnormal: its highest bit becomes the hidden bit. */
    unsigned top = 63 - (unsigned)__builtin_clzll(fraction);
    uint64_t rest = (fraction << (DOUBLE_FRACTION - top)) & (((uint64_t)1 << DOUBLE_FRACTION) - 1);
    uint64_t wide = (uint64_t)(1 - bias_of(f) + DOUBLE_BIAS) + top - f->fraction_bits;
    return sign | wide << DOUBLE_FRACTION | rest;
}

/* ${value} without its lowest ${bits}, rounded to nearest, ties to even. */
static uint64_t round_off(uint64_t value, unsigned bits)
{
    if (bits == 0)
        return value;
    if (bits > 62)
        return 0;
    uint64_t half = (uint64_t)1 << (bits - 1), rest = value & (((uint64_t)1 << bits) - 1);
    uint64_t high = value >> bits;

    return high + (rest > half || (rest == half && (high & 1) != 0));
}

/* Convert the bits of a double to those of the nearest value of ${f}.  Counts overflows. */
static uint64_t narrow(const struct float_format *f, uint64_t bits, uint64_t *overflows)
{
    unsigned shift = DOUBLE_FRACTION - f->fraction_bits;
    uint64_t sign = bits >> 63 << (f->exponent_bits + f->fraction_bits);
    uint64_t ones = ((uint64_t)1 << f->exponent_bits) - 1;
    uint64_t hidden = (uint64_t)1 << f->fraction_bits;
    uint64_t infinity = f->has_infinity ? ones << f->fraction_bits
                                        : (ones << f->fraction_bits | (hidden - 1)); /* NaN */
    uint64_t fraction = bits & (((uint64_t)1 << DOUBLE_FRACTION) - 1);
    int exponent = (int)(bits >> DOUBLE_FRACTION & DOUBLE_ONES) - DOUBLE_BIAS + bias_of(f);

    if (f->bytes == 8)
        return bits;
    if ((bits >> DOUBLE_FRACTION & DOUBLE_ONES) == DOUBLE_ONES) {
        if (fraction == 0 || !f->has_infinity)
            return sign | infinity;
        return sign | infinity | hidden >> 1 | fraction >> shift; /* a quiet NaN */
    }
    uint64_t magnitude;
    if (exponent > 0)
        magnitude = round_off((uint64_t)exponent << DOUBLE_FRACTION | fraction, shift);
    else
        magnitude = round_off((uint64_t)1 << DOUBLE_FRACTION | fraction,
                              shift + 1 + (exponent < -64 ? 64u : (unsigned)-exponent));
    if ((bits << 1) >> 53 == 0)
        magnitude = 0; /* zero, and subnormal doubles, which all round to zero */
    if (magnitude < infinity)
        return sign | magnitude;
    ++*overflows;
    return sign | infinity;
}

/* Loops for the usual pairs of weights.  They give the same results as widen() and narrow(). */

static uint64_t float32_to_bfloat16(const unsigned char *from, unsigned char *to, size_t count)
{
    uint64_t overflows = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, from + 4 * i, 4);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        uint32_t nan = bits >> 16 | 0x40;
        uint32_t is_nan = (bits & 0x7fffffff) > 0x7f800000;
        uint16_t out = (uint16_t)(is_nan ? nan : rounded);
        overflows += (out & 0x7fff) == 0x7f80 && (bits & 0x7fffffff) < 0x7f800000;
        memcpy(to + 2 * i, &out, 2);
    }
    return overflows;
}

static uint64_t bfloat16_to_float32(const unsigned char *from, unsigned char *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;

        memcpy(&bits, from + 2 * i, 2);
        uint32_t out = (uint32_t)bits << 16;
        memcpy(to + 4 * i, &out, 4);
    }
    return 0;
}

static uint64_t float32_to_float16(const unsigned char *from, unsigned char *to, size_t count)
{
    uint64_t overflows = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits, small;
        float value, magic = 0.5f;

        memcpy(&bits, from + 4 * i, 4);
        uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
        memcpy(&value, &rest, 4);
        value += magic; /* for subnormal halves, this sum rounds at the half's last bit */
        memcpy(&small, &value, 4);
        small -= 0x3f000000;
        uint32_t normal = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
        uint32_t nan = 0x7e00 | (rest >> 13 & 0x3ff);
        uint32_t out = rest > 0x7f800000    ? nan
                       : rest >= 0x477ff000 ? 0x7c00
                       : rest < 0x38800000  ? small
                                            : normal;
        overflows += rest >= 0x477ff000 && rest < 0x7f800000;
        uint16_t half = (uint16_t)(sign | out);
        memcpy(to + 2 * i, &half, 2);
    }
    return overflows;
}

/* A multiplication changes the exponent's bias.  It also makes subnormals normal. */
static uint64_t float16_to_float32(const unsigned char *from, unsigned char *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        float value, scale = 0x1p112f;

        memcpy(&half, from + 2 * i, 2);
        uint32_t rest = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
        memcpy(&value, &rest, 4);
        value *= scale;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        bits = rest >= 0x0f800000 ? rest | 0x7f800000 : bits; /* infinity or NaN */
        bits |= sign;
        memcpy(to + 4 * i, &bits, 4);
    }
    return 0;
}

/* Look up each byte in a table of all 256 values. */
static uint64_t byte_to_float32(const struct float_format *source, const unsigned char *from,
                                unsigned char *to, size_t count)
{
    uint32_t values[256];
    uint64_t overflows = 0;

    for (unsigned i = 0; i < 256; i++)
        values[i] = (uint32_t)narrow(&formats[SIDESTEP_FLOAT32], widen(source, i), &overflows);
    for (size_t i = 0; i < count; i++)
        memcpy(to + 4 * i, &values[from[i]], 4);
    return 0;
}

uint64_t cast_elements(enum sidestep_dtype from_type, const void *from, enum sidestep_dtype to_type,
                       void *to, size_t count)
{
    const struct float_format *source, *target;
    uint64_t overflows = 0;

    assert(cast_is_supported(from_type) && cast_is_supported(to_type));
    source = &formats[from_type], target = &formats[to_type];
    if (from_type == to_type) {
        memcpy(to, from, count * source->bytes);
        return 0;
    }
    if (from_type == SIDESTEP_FLOAT32 && to_type == SIDESTEP_BFLOAT16)
        return float32_to_bfloat16(from, to, count);
    if (from_type == SIDESTEP_BFLOAT16 && to_type == SIDESTEP_FLOAT32)
        return bfloat16_to_float32(from, to, count);
    if (from_type == SIDESTEP_FLOAT16 && to_type == SIDESTEP_FLOAT32)
        return float16_to_float32(from, to, count);
    if (source->bytes == 1 && to_type == SIDESTEP_FLOAT32 && count >= 256)
        return byte_to_float32(source, from, to, count);
    if (from_type == SIDESTEP_FLOAT32 && to_type == SIDESTEP_FLOAT16)
        return float32_to_float16(from, to, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = read_bits((const unsigned char *)from + i * source->bytes, source->bytes);

        bits = narrow(target, widen(source, bits), &overflows);
        memcpy((unsigned char *)to + i * target->bytes, &bits, target->bytes);
    }
    return overflows;
}
