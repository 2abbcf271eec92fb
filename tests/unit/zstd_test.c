/* SPDX-License-Identifier: BSD-3-Clause */
/* zstd_test.c -- the decoder accepts one frame of limited size and window, and nothing else. */
#include <stdbool.h>

#include <zstd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "codec/zstd.h"
#include "support/guard.h"
#include "support/unit.h"

#define RAW_BYTES ((size_t)300000)

struct frame {
    uint8_t *bytes;
    size_t length;
};

/* Bytes that compress somewhat. */
static uint8_t *make_raw(size_t length)
{
    uint8_t *raw = malloc(length + 1);
    uint32_t state = 7;

    assert_non_null(raw);
    for (size_t i = 0; i < length; i++) {
        state = state * 1664525u + 1013904223u;
        raw[i] = (uint8_t)(state >> 30);
    }
    return raw;
}

struct how {
    int window_log;
    bool no_content_size;
    bool checksum;
};

static struct frame compress(const void *raw, size_t length, struct how how)
{
    struct frame frame = {.bytes = malloc(ZSTD_compressBound(length) + 64)};
    ZSTD_CCtx *context = ZSTD_createCCtx();

    assert_non_null(context);
    assert_non_null(frame.bytes);
    if (how.window_log != 0)
        ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, how.window_log);
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, !how.no_content_size);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, how.checksum);
    frame.length = ZSTD_compress2(context, frame.bytes, ZSTD_compressBound(length), raw, length);
    assert_false(ZSTD_isError(frame.length));
    ZSTD_freeCCtx(context);
    return frame;
}

/* Decode a copy that ends at a guard page. */
static enum sidestep_status decode(const void *stored, size_t length, uint64_t max_bytes,
                                   void **raw, size_t *raw_bytes, struct sidestep_error *err)
{
    void *copy = guard_copy(stored, length);
    enum sidestep_status status = zstd_decode(copy, length, max_bytes, raw, raw_bytes, err);

    guard_free(copy);
    return status;
}

static void refused(const void *stored, size_t length, uint64_t max_bytes, const char *words)
{
    struct sidestep_error err = {0};
    void *raw = NULL;
    size_t raw_bytes = 77;

    assert_int_equal(decode(stored, length, max_bytes, &raw, &raw_bytes, &err), SIDESTEP_ECORRUPT);
    assert_null(raw);
    assert_int_equal(raw_bytes, 77);
    if (strstr(err.message, words) == NULL)
        fail_msg("'%s' lacks '%s'", err.message, words);
}

TEST(test_round_trips)
{
    static const size_t lengths[] = {0, 1, 7, 255, 256, 65535, 65536, 65537, 131072, RAW_BYTES};
    static const struct how hows[] = {
        {0}, {.no_content_size = true}, {.checksum = true}, {.window_log = 10}, {.window_log = 27}};
    OWNED uint8_t *raw = make_raw(RAW_BYTES);

    for (size_t i = 0; i < ARRAY_LENGTH(lengths) * ARRAY_LENGTH(hows); i++) {
        size_t length = lengths[i / ARRAY_LENGTH(hows)];
        struct frame frame = compress(raw, length, hows[i % ARRAY_LENGTH(hows)]);
        struct sidestep_error err = {0};
        void *out = NULL;
        size_t out_bytes = 0;

        /* The exact limit is enough; one byte less is not. */
        assert_int_equal(decode(frame.bytes, frame.length, length, &out, &out_bytes, &err),
                         SIDESTEP_OK);
        assert_int_equal(out_bytes, length);
        assert_memory_equal(out, raw, length);
        free(out);
        if (length != 0)
            refused(frame.bytes, frame.length, length - 1, "");
        free(frame.bytes);
    }
}

TEST(test_limits)
{
    OWNED uint8_t *zeroes = calloc(1, 64 << 20);
    struct frame known = compress(zeroes, 64 << 20, (struct how){0});
    struct frame unknown = compress(zeroes, 64 << 20, (struct how){.no_content_size = true});

    assert_true(unknown.length < 10000);
    refused(known.bytes, known.length, 1 << 20, "holds 67108864 bytes, at most 1048576 fit");
    refused(unknown.bytes, unknown.length, 1 << 20, "holds more than 1048576 bytes");
    refused(unknown.bytes, unknown.length, 0, "holds more than 0 bytes");
    free(known.bytes);
    free(unknown.bytes);
}

TEST(test_window)
{
    OWNED uint8_t *raw = make_raw(1000);
    struct frame frame = compress(raw, 1000, (struct how){.no_content_size = true});

    /* This frame is not a single segment, so byte 5 is the window: exponent - 10, and eighths of
     * it. */
    assert_int_equal(frame.bytes[4] & 0x20, 0);
    frame.bytes[5] = 17 << 3;
    void *out = NULL;
    size_t out_bytes = 0;
    assert_int_equal(decode(frame.bytes, frame.length, 1000, &out, &out_bytes, NULL), SIDESTEP_OK);
    free(out);
    frame.bytes[5] = 17 << 3 | 1;
    refused(frame.bytes, frame.length, 1000, "a window of 150994944 bytes is over the limit");
    frame.bytes[5] = 0xff;
    refused(frame.bytes, frame.length, 1000, "is over the limit of 134217728");
    free(frame.bytes);
}

/* The window of a single segment is its size. */
TEST(test_window_of_single_segment)
{
    static const uint8_t stored[] = {0x28, 0xb5, 0x2f, 0xfd, 0xe0, 1, 0, 0, 8, 0, 0, 0, 0, 1, 0, 0};

    refused(stored, sizeof(stored), UINT64_MAX, "a window of 134217729 bytes");
}

TEST(test_what_is_not_one_frame)
{
    static const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 'h', 'i'};
    OWNED uint8_t *raw = make_raw(1000);
    struct frame frame = compress(raw, 1000, (struct how){.checksum = true});
    OWNED uint8_t *stored = malloc(2 * frame.length + 64);

    refused("", 0, 10, "do not start a zstd frame");
    refused("PK\3\4....", 8, 10, "do not start a zstd frame");
    refused(skippable, sizeof(skippable), 10, "skippable frames are refused");
    for (uint8_t magic = 0x50; magic < 0x60; magic++) {
        memcpy(stored, skippable, sizeof(skippable));
        stored[0] = magic;
        memcpy(stored + sizeof(skippable), frame.bytes, frame.length);
        refused(stored, sizeof(skippable) + frame.length, 1000, "skippable frames are refused");
    }
    memcpy(stored, frame.bytes, frame.length);
    stored[frame.length] = 0;
    refused(stored, frame.length + 1, 1000, "1 bytes follow the frame");
    memcpy(stored + frame.length, skippable, sizeof(skippable));
    refused(stored, frame.length + sizeof(skippable), 1000, "10 bytes follow the frame");
    memcpy(stored + frame.length, frame.bytes, frame.length);
    refused(stored, 2 * frame.length, 2000, "bytes follow the frame");
    free(frame.bytes);
}

TEST(test_dictionary)
{
    OWNED uint8_t *raw = make_raw(1000);
    struct frame frame = compress(raw, 1000, (struct how){0});
    OWNED uint8_t *stored = malloc(frame.length + 1);

    memcpy(stored, frame.bytes, 5);
    stored[4] |= 1; /* one byte of dictionary id, after the window (there is none) */
    assert_int_equal(frame.bytes[4] & 0x20, 0x20);
    stored[5] = 9;
    memcpy(stored + 6, frame.bytes + 5, frame.length - 5);
    refused(stored, frame.length + 1, 1000, "needs dictionary 9");
    free(frame.bytes);
}

TEST(test_truncated_and_damaged)
{
    static const struct how hows[] = {{.checksum = true}, {.no_content_size = true}};
    OWNED uint8_t *raw = make_raw(3000);

    for (size_t i = 0; i < ARRAY_LENGTH(hows); i++) {
        struct frame frame = compress(raw, 3000, hows[i]);

        for (size_t length = 0; length < frame.length; length++)
            refused(frame.bytes, length, 3000, "zstd: ");
        for (size_t bit = 0; bit < frame.length * 8; bit++) {
            void *out = NULL;
            size_t out_bytes = 0;

            frame.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            enum sidestep_status status =
                decode(frame.bytes, frame.length, 3000, &out, &out_bytes, NULL);
            assert_true(status == SIDESTEP_OK || status == SIDESTEP_ECORRUPT);
            /* The frame's checksum, if there is one, notices every change of the data. */
            if (status == SIDESTEP_OK && hows[i].checksum)
                assert_true(out_bytes == 3000 && memcmp(out, raw, 3000) == 0);
            free(out);
            frame.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        free(frame.bytes);
    }
}

TEST(test_memory)
{
    OWNED uint8_t *raw = make_raw(RAW_BYTES);
    struct frame frame = compress(raw, RAW_BYTES, (struct how){.no_content_size = true});
    unsigned long fired = 0;

    for (unsigned long n = 1;; n++) {
        struct sidestep_error err = {0};
        void *out = NULL;
        size_t out_bytes = 0;

        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status status =
            zstd_decode(frame.bytes, frame.length, RAW_BYTES, &out, &out_bytes, &err);
        bool has_fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        free(out);
        if (!has_fired) {
            assert_int_equal(status, SIDESTEP_OK);
            break;
        }
        assert_int_equal(status, SIDESTEP_ENOMEM);
        fired++;
    }
    assert_true(fired >= 4); /* the decoder, and 64, 128, 256 KiB and more of output */
    free(frame.bytes);
}

/* The largest content of a frame for its size: zeroes. */
TEST(memory_is_known_beforehand)
{
    static const size_t sizes[] = {0, 1, 100000, (size_t)64 << 20};

    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        OWNED uint8_t *zeros = calloc(sizes[i] + 1, 1);
        assert_non_null(zeros);
        struct frame frame = compress(zeros, sizes[i], (struct how){0});
        assert_true(zstd_max_memory(frame.length, UINT64_MAX) >= sizes[i]);
        assert_int_equal(zstd_max_memory(frame.length, 1000), 2000);
        free(frame.bytes);
    }
    assert_true(zstd_max_memory(UINT64_MAX, UINT64_MAX) >= (uint64_t)1 << 60);
}
