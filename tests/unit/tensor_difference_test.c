/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_difference_test.c -- elements as numbers, and their differences, for every dtype. */
#include <math.h>

#include "model/tensor_difference.h"
#include "model/dtype_numbers.h"
#include "support/prng.h"
#include "support/unit.h"

static double read_bits(enum sidestep_dtype dtype, uint64_t bits)
{
    double real = -7, imaginary = -7;

    dtype_read_numbers(dtype, &bits, 1, &real, &imaginary);
    return real;
}

TEST(small_floats_are_what_torch_says)
{
    static const struct {
        enum sidestep_dtype dtype;
        uint64_t bits;
        double value; /* from torch.tensor(bits).view(dtype).double() */
    } cases[] = {
        {SIDESTEP_FLOAT16, 0x3c00, 1},
        {SIDESTEP_FLOAT16, 0x0001, 0x1p-24},
        {SIDESTEP_FLOAT16, 0xfbff, -65504},
        {SIDESTEP_BFLOAT16, 0x3f80, 1},
        {SIDESTEP_BFLOAT16, 0x0001, 0x1p-133},
        {SIDESTEP_BFLOAT16, 0xc049, -3.140625},
        {SIDESTEP_FLOAT8_E4M3FN, 0x7e, 448},
        {SIDESTEP_FLOAT8_E4M3FN, 0x01, 0x1p-9},
        {SIDESTEP_FLOAT8_E5M2, 0x7b, 57344},
        {SIDESTEP_FLOAT8_E5M2, 0x81, -0x1p-16},
        {SIDESTEP_FLOAT8_E4M3FNUZ, 0x7f, 240},
        {SIDESTEP_FLOAT8_E4M3FNUZ, 0x01, 0x1p-10},
        {SIDESTEP_FLOAT8_E5M2FNUZ, 0x7f, 57344},
        {SIDESTEP_FLOAT8_E5M2FNUZ, 0x01, 0x1p-17},
        {SIDESTEP_FLOAT8_E8M0FNU, 0x7f, 1},
        {SIDESTEP_FLOAT8_E8M0FNU, 0x00, 0x1p-127},
        {SIDESTEP_INT8, 0xff, -1},
        {SIDESTEP_UINT8, 0xff, 255},
        {SIDESTEP_BOOL, 1, 1},
        {SIDESTEP_INT16, 0x8000, -32768},
        {SIDESTEP_UINT16, 0x8000, 32768},
        {SIDESTEP_INT32, 0xffffffff, -1},
        {SIDESTEP_UINT32, 0xffffffff, 4294967295.0},
        {SIDESTEP_INT64, UINT64_MAX, -1},
        {SIDESTEP_UINT64, 0x8000000000000000, 0x1p63},
        {SIDESTEP_FLOAT32, 0x40490fdb, 3.1415927410125732},
        {SIDESTEP_FLOAT64, 0x400921fb54442d18, 3.141592653589793},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (read_bits(cases[i].dtype, cases[i].bits) != cases[i].value)
            fail_msg("%s 0x%llx is %a", sidestep_dtype_name(cases[i].dtype),
                     (unsigned long long)cases[i].bits, read_bits(cases[i].dtype, cases[i].bits));
    assert_true(isinf(read_bits(SIDESTEP_FLOAT16, 0x7c00)));
    assert_true(isinf(read_bits(SIDESTEP_FLOAT8_E5M2, 0xfc)));
    assert_true(isnan(read_bits(SIDESTEP_FLOAT16, 0x7c01)));
    assert_true(isnan(read_bits(SIDESTEP_BFLOAT16, 0xffff)));
    assert_true(isnan(read_bits(SIDESTEP_FLOAT8_E4M3FN, 0xff)));
    assert_true(isnan(read_bits(SIDESTEP_FLOAT8_E4M3FNUZ, 0x80)));
    assert_true(isnan(read_bits(SIDESTEP_FLOAT8_E5M2FNUZ, 0x80)));
    assert_true(isnan(read_bits(SIDESTEP_FLOAT8_E8M0FNU, 0xff)));
}

/* Each float16, and a float of the same value. */
TEST(float16_agrees_with_the_compiler)
{
#ifdef __FLT16_MAX__
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        uint16_t half = (uint16_t)bits;
        _Float16 value;
        memcpy(&value, &half, sizeof(value));
        double mine = read_bits(SIDESTEP_FLOAT16, bits);
        assert_true(mine == (double)value || (isnan(mine) && isnan((double)value)));
    }
#else
    print_message("skipped: this compiler has no _Float16\n");
    skip();
#endif
}

static struct tensor_difference compare(enum sidestep_dtype dtype, const void *a, const void *b,
                                        uint64_t count)
{
    struct tensor_difference sum = TENSOR_DIFFERENCE_INIT;

    tensor_difference_add(&sum, dtype, a, b, 0, count);
    return sum;
}

TEST(distances_are_right)
{
    static float a[1000], b[1000];
    struct tensor_difference sum;

    sum = compare(SIDESTEP_FLOAT32, a, b, 1000);
    assert_true(sum.count == 0 && sum.first == UINT64_MAX && sum.max_abs == 0 && sum.max_rel == 0);
    a[700] = 4, b[700] = 3;
    a[999] = -100, b[999] = -101;
    sum = compare(SIDESTEP_FLOAT32, a, b, 1000);
    assert_int_equal(sum.count, 2);
    assert_int_equal(sum.first, 700);
    assert_true(sum.max_abs == 1 && sum.max_rel == 0.25);
    a[3] = 0.0f, b[3] = -0.0f; /* different bits, but equal */
    sum = compare(SIDESTEP_FLOAT32, a, b, 1000);
    assert_true(sum.count == 3 && sum.first == 3 && sum.max_abs == 1);
    a[5] = NAN, b[5] = 1;
    sum = compare(SIDESTEP_FLOAT32, a, b, 1000);
    assert_true(sum.count == 4 && isinf(sum.max_abs) && isinf(sum.max_rel));
    a[5] = b[5] = INFINITY;
    sum = compare(SIDESTEP_FLOAT32, a, b, 1000);
    assert_true(sum.count == 3 && sum.max_abs == 1);
}

TEST(wide_integers_are_exact)
{
    int64_t a[] = {INT64_MAX, 5}, b[] = {INT64_MAX - 1, 5};
    int64_t low[] = {INT64_MIN}, high[] = {INT64_MAX};
    uint64_t c[] = {UINT64_MAX}, d[] = {UINT64_MAX - 3};
    struct tensor_difference sum = compare(SIDESTEP_INT64, a, b, 2);

    assert_true(sum.count == 1 && sum.max_abs == 1 && sum.max_rel < 1e-18);
    sum = compare(SIDESTEP_INT64, low, high, 1);
    assert_true(sum.max_abs == 0x1p64);
    sum = compare(SIDESTEP_UINT64, c, d, 1);
    assert_true(sum.max_abs == 3);
}

TEST(complex_numbers_are_apart_by_their_distance)
{
    float a[] = {0, 0, 3, 4}, b[] = {0, 0, 0, 0};
    struct tensor_difference sum = compare(SIDESTEP_COMPLEX64, a, b, 2);

    assert_true(sum.count == 1 && sum.first == 1 && sum.max_abs == 5 && sum.max_rel == 1);
    b[0] = NAN, a[0] = NAN, a[1] = 1;
    sum = compare(SIDESTEP_COMPLEX64, a, b, 1);
    assert_true(sum.count == 1 && sum.max_abs == 1);
}

TEST(bit_dtypes_have_no_values)
{
    uint8_t a[] = {1, 2, 3}, b[] = {1, 2, 4};
    struct tensor_difference sum = compare(SIDESTEP_BITS8, a, b, 3);

    assert_true(sum.count == 1 && sum.first == 2 && isnan(sum.max_abs) && isnan(sum.max_rel));
}

/* For all dtypes: each element is read, and no byte beside them. */
TEST(every_dtype_is_compared)
{
    struct prng prng = prng_new(7);

    for (int dtype = 1; dtype < SIDESTEP_DTYPE_END; dtype++) {
        size_t bytes = sidestep_dtype_size((enum sidestep_dtype)dtype), count = 700;
        uint8_t *a = malloc(count * bytes), *b = malloc(count * bytes);
        assert_true(a != NULL && b != NULL);
        for (size_t i = 0; i < count * bytes; i++)
            a[i] = b[i] = (uint8_t)prng_below(&prng, 256);
        size_t at = (size_t)prng_below(&prng, count);
        b[at * bytes + bytes - 1] ^= 0x40;
        struct tensor_difference sum = compare((enum sidestep_dtype)dtype, a, b, count);
        if (sum.count != 1 || sum.first != at)
            fail_msg("%s: %llu differ, the first at %llu, not %zu", sidestep_dtype_name(dtype),
                     (unsigned long long)sum.count, (unsigned long long)sum.first, at);
        free(a);
        free(b);
    }
}
