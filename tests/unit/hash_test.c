/* SPDX-License-Identifier: BSD-3-Clause */
/* hash_test.c -- compares hashes with published values and with slow definitions. */
#include <errno.h>
#include <stdbool.h>

#include "base/fault.h"
#include "base/owned.h"
#include "codec/hash.h"
#include "support/guard.h"
#include "support/unit.h"

/* CRC-32 by its definition: a division of polynomials, bit by bit. */
static uint32_t slow_crc32(uint32_t crc, const uint8_t *bytes, size_t length)
{
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void fill(uint8_t *bytes, size_t length)
{
    uint32_t state = 1;

    for (size_t i = 0; i < length; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(state >> 24);
    }
}

TEST(test_block)
{
    assert_true(hash_block("", 0) == 0x2d06800538d394c2ull);
    assert_true(hash_block("abc", 3) == 0x78af5f94892f3950ull);
    assert_true(hash_block("abc", 2) != hash_block("abc", 3));
}

TEST(test_list)
{
    uint64_t blocks[2] = {1, 2};

    struct hash128 none = hash_block_list(blocks, 0);
    assert_true(none.high == 0x99aa06d3014798d8ull && none.low == 0x6001c324468d497full);
    struct hash128 two = hash_block_list(blocks, 2);
    blocks[1] = 3;
    struct hash128 other = hash_block_list(blocks, 2);
    assert_true(two.low != other.low && two.high != other.high);
    blocks[1] = 1;
    blocks[0] = 2;
    struct hash128 reversed = hash_block_list(blocks, 2);
    assert_true(two.low != reversed.low && two.high != reversed.high);
}

TEST(test_block_count)
{
    static const struct {
        uint64_t bytes;
        uint64_t blocks;
    } rows[] = {
        {0, 0},
        {1, 1},
        {HASH_BLOCK_BYTES, 1},
        {HASH_BLOCK_BYTES + 1, 2},
        {UINT64_MAX, (UINT64_MAX >> 20) + 1},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++)
        assert_true(hash_block_count(rows[i].bytes) == rows[i].blocks);
}

TEST(test_crc32)
{
    uint8_t bytes[600];

    fill(bytes, sizeof(bytes));
    assert_int_equal(hash_crc32(0, "", 0), 0);
    assert_int_equal(hash_crc32(0, "123456789", 9), 0xcbf43926u);
    for (size_t length = 0; length <= 300; length++) {
        uint8_t *copy = guard_copy(bytes, length);
        assert_int_equal(hash_crc32(0, copy, length), slow_crc32(0, bytes, length));
        assert_int_equal(hash_crc32(0x1234567, copy, length), slow_crc32(0x1234567, bytes, length));
        guard_free(copy);
    }
    for (size_t start = 0; start < 64; start++)
        assert_int_equal(hash_crc32(0, bytes + start, 500), slow_crc32(0, bytes + start, 500));
}

TEST(test_crc32_continues_and_joins)
{
    uint8_t bytes[257];

    fill(bytes, sizeof(bytes));
    uint32_t whole = hash_crc32(0, bytes, sizeof(bytes));
    for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
        uint32_t a = hash_crc32(0, bytes, cut);
        uint32_t b = hash_crc32(0, bytes + cut, sizeof(bytes) - cut);

        assert_int_equal(hash_crc32(a, bytes + cut, sizeof(bytes) - cut), whole);
        assert_int_equal(hash_crc32_combine(a, b, sizeof(bytes) - cut), whole);
    }
}

/* Lengths over 4 GiB: 2^33 zeroes after a byte, computed by doubling in two ways. */
TEST(test_crc32_joins_long)
{
    uint32_t zeroes = hash_crc32(0, "", 1);
    uint32_t stepwise = hash_crc32(0, "x", 1);

    for (unsigned i = 0; i < 33; i++) {
        stepwise = hash_crc32_combine(stepwise, zeroes, 1ull << i);
        zeroes = hash_crc32_combine(zeroes, zeroes, 1ull << i);
    }
    uint32_t once = hash_crc32_combine(hash_crc32(0, "x", 1), zeroes, 1ull << 33);
    uint32_t again = hash_crc32_combine(stepwise, hash_crc32(0, "", 1), 1);
    assert_int_equal(again, once);
}

TEST(test_sha256)
{
    static const struct {
        const char *text;
        const char *hex;
    } rows[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        uint8_t digest[HASH_SHA256_BYTES];
        char hex[2 * HASH_SHA256_BYTES + 1];

        hash_sha256(rows[i].text, strlen(rows[i].text), digest);
        hash_to_hex(digest, sizeof(digest), hex);
        assert_string_equal(hex, rows[i].hex);
    }
}

TEST(test_hex)
{
    static const char *const refused[] = {"",     "0",    "00f",  "00ffa", "00fF", "00f ",
                                          "00f/", "00f:", "00f`", "00fg",  "-0ff", "0x0f"};
    static const uint8_t bytes[2] = {0x00, 0xff};
    uint8_t back[2] = {1, 1};
    char hex[5];

    hash_to_hex(bytes, 2, hex);
    assert_string_equal(hex, "00ff");
    assert_true(hash_from_hex(hex, 2, back));
    assert_memory_equal(back, bytes, 2);
    for (size_t i = 0; i < ARRAY_LENGTH(refused); i++) {
        char *text = guard_copy(refused[i], strlen(refused[i]) + 1);
        assert_false(hash_from_hex(text, 2, back));
        guard_free(text);
    }
}

/* A hash of pieces equals the hash of the whole; a source that cannot be read has none. */
TEST(test_sha256_source)
{
    static const size_t lengths[] = {0, 1, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 1 << 20};
    OWNED uint8_t *bytes = malloc((1 << 20) + 1);

    assert_non_null(bytes);
    fill(bytes, (1 << 20) + 1);
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++) {
        struct source source = source_from_memory(bytes, lengths[i]);
        uint8_t digest[HASH_SHA256_BYTES], expected[HASH_SHA256_BYTES];

        hash_sha256(bytes, lengths[i], expected);
        assert_int_equal(hash_sha256_source(&source, digest, NULL), SIDESTEP_OK);
        assert_memory_equal(digest, expected, sizeof(digest));
        fault_arm("memory", 1, false, ENOMEM);
        assert_int_equal(hash_sha256_source(&source, digest, NULL), SIDESTEP_ENOMEM);
        fault_arm("", 0, false, 0);
    }
}

static enum sidestep_status read_fails(const struct source *source, void *to, size_t bytes,
                                       uint64_t offset, struct sidestep_error *err)
{
    (void)source, (void)to, (void)bytes;
    return offset != 0 ? FAIL(err, SIDESTEP_EIO, "no") : SIDESTEP_OK;
}

TEST(test_sha256_source_fails)
{
    struct source source = {.length = 1 << 20, .read_at = read_fails};
    uint8_t digest[HASH_SHA256_BYTES];

    assert_int_equal(hash_sha256_source(&source, digest, NULL), SIDESTEP_EIO);
}
