/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * utf8_test.c -- each code point is accepted in its one form, and all other short sequences are
 * refused.
 */
#include "base/utf8.h"
#include "support/guard.h"
#include "support/unit.h"

static size_t encode(uint32_t c, unsigned char *out)
{
    if (c < 0x80)
        return out[0] = (unsigned char)c, 1;
    size_t size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = size; i-- > 1; c >>= 6)
        out[i] = (unsigned char)(0x80 | (c & 0x3f));
    out[0] = (unsigned char)(0xf00u >> size | c);
    return size;
}

TEST(every_code_point_is_accepted)
{
    unsigned char bytes[4];

    assert_false(utf8_is_valid("a\0b", 3));
    for (uint32_t c = 1; c <= 0x10ffff; c++) {
        size_t size = encode(c, bytes);

        if (utf8_is_valid((char *)bytes, size) != (c < 0xd800 || c > 0xdfff))
            fail_msg("U+%04X", c);
    }
}

/* All strings of three bytes. The number of valid ones follows from the code points. */
TEST(nothing_else_is_accepted)
{
    const uint64_t ones = 0x7f, twos = 0x800 - 0x80, threes = 0x10000 - 0x800 - 0x800;
    uint64_t valid = 0;

    for (uint32_t i = 0; i < 1u << 24; i++) {
        char bytes[3] = {(char)(i >> 16), (char)(i >> 8), (char)i};

        valid += utf8_is_valid(bytes, 3);
    }
    assert_int_equal(valid, ones * ones * ones + 2 * ones * twos + threes);
}

TEST(nothing_behind_the_end_is_read)
{
    static const char *const cut[] = {"\xc3", "\xe2\x82", "\xf0\x9f\x92", "ab\xf0"};

    assert_true(utf8_is_valid("", 0));
    for (size_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
        char *copy = guard_copy(cut[i], strlen(cut[i]));

        assert_false(utf8_is_valid(copy, strlen(cut[i])));
        guard_free(copy);
    }
}

/* Each of 256 bytes, at each place of a long name, is judged as if it were alone. */
TEST(each_byte_of_a_long_name_counts)
{
    for (size_t length = 1; length <= 24; length++)
        for (size_t at = 0; at < length; at++)
            for (unsigned byte = 0; byte < 256; byte++) {
                char text[24];

                memset(text, 'n', sizeof(text));
                text[at] = (char)byte;
                char *copy = guard_copy(text, length);
                if (utf8_is_valid(copy, length) != (byte >= 1 && byte < 0x80))
                    fail_msg("byte 0x%02x at %zu of %zu", byte, at, length);
                guard_free(copy);
            }
}
