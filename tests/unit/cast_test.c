/* SPDX-License-Identifier: BSD-3-Clause */
/* cast_test.c -- conversions between floating-point types, against their definition. */
#include <math.h>

#include "model/cast.h"
#include "support/prng.h"
#include "support/unit.h"

static const enum sidestep_dtype types[] = {SIDESTEP_FLOAT64,       SIDESTEP_FLOAT32,
                                            SIDESTEP_FLOAT16,       SIDESTEP_BFLOAT16,
                                            SIDESTEP_FLOAT8_E4M3FN, SIDESTEP_FLOAT8_E5M2};

/* One element, with a neighbour on each side, so that the loops for several elements run. */
static uint64_t cast_one(enum sidestep_dtype from, uint64_t bits, enum sidestep_dtype to,
                         uint64_t *overflows)
{
    uint64_t out = 0;

    *overflows = cast_elements(from, &bits, to, &out, 1);
    return out;
}

static double value_of(enum sidestep_dtype type, uint64_t bits)
{
    uint64_t overflows, wide = cast_one(type, bits, SIDESTEP_FLOAT64, &overflows);
    double value;

    memcpy(&value, &wide, 8);
    return value;
}

/* Each value of each small type converts without loss to any type that is not narrower. */
TEST(small_types_survive)
{
    static const enum sidestep_dtype pairs[][2] = {
        {SIDESTEP_FLOAT16, SIDESTEP_FLOAT32},       {SIDESTEP_FLOAT16, SIDESTEP_FLOAT64},
        {SIDESTEP_BFLOAT16, SIDESTEP_FLOAT32},      {SIDESTEP_BFLOAT16, SIDESTEP_FLOAT64},
        {SIDESTEP_FLOAT8_E4M3FN, SIDESTEP_FLOAT16}, {SIDESTEP_FLOAT8_E4M3FN, SIDESTEP_BFLOAT16},
        {SIDESTEP_FLOAT8_E5M2, SIDESTEP_FLOAT16},   {SIDESTEP_FLOAT8_E5M2, SIDESTEP_FLOAT32},
    };

    for (size_t p = 0; p < sizeof(pairs) / sizeof(pairs[0]); p++)
        for (uint32_t bits = 0; bits < 1u << 8 * sidestep_dtype_size(pairs[p][0]); bits++) {
            uint64_t overflows, there, back;

            there = cast_one(pairs[p][0], bits, pairs[p][1], &overflows);
            assert_int_equal(overflows, 0);
            back = cast_one(pairs[p][1], there, pairs[p][0], &overflows);
            if (isnan(value_of(pairs[p][0], bits)))
                assert_true(isnan(value_of(pairs[p][0], back)));
            else
                assert_int_equal(back, bits);
        }
}

/* A type is narrower if some value of another does not survive a conversion to it. */
TEST(narrower_is_what_loses_values)
{
    for (size_t a = 2; a < sizeof(types) / sizeof(types[0]); a++)
        for (size_t b = 0; b < sizeof(types) / sizeof(types[0]); b++) {
            bool loses = false;
            for (uint32_t bits = 0; bits < 1u << 8 * sidestep_dtype_size(types[a]); bits++) {
                uint64_t overflows;
                double value = value_of(types[a], bits);
                uint64_t there = cast_one(types[a], bits, types[b], &overflows);
                loses = loses || (isfinite(value) && value_of(types[b], there) != value);
            }
            assert_int_equal(cast_narrows(types[a], types[b]), loses);
        }
    assert_true(cast_narrows(SIDESTEP_FLOAT64, SIDESTEP_FLOAT32));
    assert_true(cast_narrows(SIDESTEP_FLOAT32, SIDESTEP_BFLOAT16));
    assert_false(cast_narrows(SIDESTEP_FLOAT32, SIDESTEP_FLOAT64));
}

TEST(known_values)
{
    static const struct {
        enum sidestep_dtype type;
        uint64_t bits;
        double value;
    } known[] = {
        {SIDESTEP_FLOAT16, 0x3c00, 1},       {SIDESTEP_FLOAT16, 0x0001, 0x1p-24},
        {SIDESTEP_FLOAT16, 0x7bff, 65504},   {SIDESTEP_FLOAT16, 0xfc00, -INFINITY},
        {SIDESTEP_BFLOAT16, 0x3f80, 1},      {SIDESTEP_BFLOAT16, 0x7f7f, 0x1.fep127},
        {SIDESTEP_FLOAT8_E4M3FN, 0x7e, 448}, {SIDESTEP_FLOAT8_E4M3FN, 0x01, 0x1p-9},
        {SIDESTEP_FLOAT8_E5M2, 0x7b, 57344}, {SIDESTEP_FLOAT8_E5M2, 0x7c, INFINITY},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_true(value_of(known[i].type, known[i].bits) == known[i].value);
    assert_true(isnan(value_of(SIDESTEP_FLOAT8_E4M3FN, 0x7f)));
}

/* The result is the nearest value; of two equally near ones, the even one. */
static void check_nearest(enum sidestep_dtype type, double x)
{
    uint64_t bits, overflows, out, sign = (uint64_t)1 << (8 * sidestep_dtype_size(type) - 1);
    double made, below, above;

    memcpy(&bits, &x, 8);
    out = cast_one(SIDESTEP_FLOAT64, bits, type, &overflows);
    made = value_of(type, out);
    assert_int_equal(signbit(made) != 0, signbit(x) != 0);
    if (!isfinite(made)) {
        double most = value_of(type, type == SIDESTEP_FLOAT8_E4M3FN ? 0x7e : out - 1);
        double step =
            fabs(most) -
            fabs(value_of(type, (type == SIDESTEP_FLOAT8_E4M3FN ? 0x7e : (out & ~sign) - 1) - 1));
        assert_int_equal(overflows, 1);
        assert_true(fabs(x) >= fabs(most) + step / 2);
        return;
    }
    assert_int_equal(overflows, 0);
    if ((out & ~sign) == 0) {
        assert_true(fabs(x) <= fabs(value_of(type, 1)) / 2);
        return;
    }
    below = value_of(type, out - 1), above = value_of(type, out + 1);
    assert_true(fabs(x - made) <= fabs(x - below));
    assert_true(!isfinite(above) || fabs(x - made) <= fabs(x - above));
    if (fabs(x - made) == fabs(x - below) || fabs(x - made) == fabs(x - above))
        assert_int_equal(out & 1, 0);
}

TEST(rounds_to_the_nearest)
{
    struct prng random = prng_new(3);

    for (unsigned i = 0; i < 200000; i++) {
        enum sidestep_dtype type = types[2 + prng_below(&random, 4)];
        /* A random number near a value of the type, often halfway between two. */
        uint64_t bits = prng_below(&random, (uint64_t)1 << 8 * sidestep_dtype_size(type));
        double a = value_of(type, bits), b = value_of(type, bits + 1);

        if (!isfinite(a) || !isfinite(b) || signbit(a) != signbit(b))
            continue;
        double x = prng_below(&random, 2) ? a / 2 + b / 2
                                          : a + (b - a) * (double)prng_below(&random, 1000) / 1000;
        check_nearest(type, x);
    }
    check_nearest(SIDESTEP_FLOAT8_E4M3FN, 464);
    check_nearest(SIDESTEP_FLOAT8_E4M3FN, 465);
    check_nearest(SIDESTEP_FLOAT16, 65519);
    check_nearest(SIDESTEP_FLOAT16, 65520);
    check_nearest(SIDESTEP_BFLOAT16, 1e300);
}

/* Pairs of types with their own loop give the same result as a conversion through doubles. */
TEST(fast_loops_agree)
{
    static const enum sidestep_dtype pairs[][2] = {{SIDESTEP_FLOAT32, SIDESTEP_BFLOAT16},
                                                   {SIDESTEP_FLOAT32, SIDESTEP_FLOAT16}};
    struct prng random = prng_new(5);

    for (unsigned i = 0; i < 400000; i++)
        for (unsigned p = 0; p < 2; p++) {
            uint64_t bits = prng_next(&random) & 0xffffffff, slow, fast, overflows[3];

            if (i % 2 == 0) /* around the limits of a half */
                bits = (bits & 0x807fffff) | (100 + prng_below(&random, 50)) << 23;
            fast = cast_one(pairs[p][0], bits, pairs[p][1], &overflows[0]);
            slow = cast_one(SIDESTEP_FLOAT64,
                            cast_one(pairs[p][0], bits, SIDESTEP_FLOAT64, &overflows[2]),
                            pairs[p][1], &overflows[1]);
            if (isnan(value_of(pairs[p][0], bits)))
                assert_true(isnan(value_of(pairs[p][1], fast)));
            else
                assert_int_equal(fast, slow);
            assert_int_equal(overflows[0], overflows[1]);
        }
}

TEST(a_table_of_bytes_agrees)
{
    static const enum sidestep_dtype bytes[] = {SIDESTEP_FLOAT8_E4M3FN, SIDESTEP_FLOAT8_E5M2};

    for (unsigned t = 0; t < 2; t++) {
        uint8_t all[256];
        float many[256];

        for (unsigned i = 0; i < 256; i++)
            all[i] = (uint8_t)i;
        assert_int_equal(cast_elements(bytes[t], all, SIDESTEP_FLOAT32, many, 256), 0);
        for (unsigned i = 0; i < 256; i++) {
            double one = value_of(bytes[t], i);
            assert_true(isnan(one) ? isnan(many[i]) : (double)many[i] == one);
        }
    }
}

TEST(casts_support_only_floats)
{
    unsigned known = 0;

    for (unsigned i = 0; i < SIDESTEP_DTYPE_END; i++)
        known += cast_is_supported((enum sidestep_dtype)i);
    assert_int_equal(known, 6);
    assert_false(cast_is_supported(SIDESTEP_DTYPE_END));
}
