/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_write_test.c -- the layout of archives, up to sizes that no test can write. Golden files
 * and tests with torch show that the bytes are the same as torch's.
 */
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/owned.h"
#include "format/archive.h"
#include "model/value.h"
#include "support/unit.h"

static void expect(const char *what, enum sidestep_status got, const struct sidestep_error *err,
                   enum sidestep_status status, const char *words)
{
    if (got != status || (status != SIDESTEP_OK && strstr(err->message, words) == NULL))
        fail_msg("%s: '%s' (%d) is not '%s' (%d)", what, err->message, got, words, status);
}

/* An archive whose data is a hole of a sparse file. */
struct hole {
    struct source source;
    struct buffer head;
    struct buffer tail;
    uint64_t data_bytes;
};

static enum sidestep_status hole_read_at(const struct source *source, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    const struct hole *hole = source->context;
    uint64_t tail_at = hole->head.length + hole->data_bytes;
    uint8_t *out = to;

    (void)err;
    for (size_t i = 0; i < bytes; i++) {
        uint64_t at = offset + i;
        out[i] = at < hole->head.length ? hole->head.bytes[at]
                 : at >= tail_at        ? hole->tail.bytes[at - tail_at]
                                        : 0;
    }
    return SIDESTEP_OK;
}

/* Descriptors and directory entries grow when sizes or positions reach 2^32 - 1 (torch gives these
 * numbers). All data stays aligned, and the reader finds it. */
TEST(test_zip64)
{
    static const struct {
        uint64_t bytes;
        uint64_t head;
        uint64_t tail;
    } cases[] = {
        {0, 704, 809},
        {1, 704, 872},
        {24, 704, 849},
        {63, 704, 810},
        {64, 704, 873},
        {65, 704, 872},
        {UINT32_MAX - 1000, 768, 850}, /* the end of the tail's directory is over 4 GiB */
        {UINT32_MAX - 1, 768, 907},    /* all members after the data are */
        {UINT32_MAX, 768, 926},        /* and the data has a size of 64 bits */
        {(uint64_t)UINT32_MAX + 1, 768, 925},
        {((uint64_t)1 << 62) - 64, 768, 925},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        static const uint8_t zeroes[8];
        int64_t lengths[1] = {(int64_t)cases[i].bytes};
        struct archive_tensor_layout layout;
        struct archive_tensor tensor;
        struct sidestep_error err = {0};
        struct hole hole = {.data_bytes = cases[i].bytes};
        uint32_t crc = cases[i].bytes != 0 ? 0x12345678 : 0;

        expect("begin",
               archive_tensor_write_head(SIDESTEP_BITS8, 1, lengths, &hole.head, &layout, &err),
               &err, SIDESTEP_OK, "");
        expect("end", archive_tensor_write_tail(&layout, crc, zeroes, &hole.tail, &err), &err,
               SIDESTEP_OK, "");
        assert_true(layout.head_bytes == hole.head.length && layout.head_bytes % 64 == 0);
        assert_int_equal(layout.head_bytes, cases[i].head);
        assert_int_equal(layout.tail_bytes, cases[i].tail);
        assert_true(layout.data_bytes == cases[i].bytes);
        assert_true(layout.tail_bytes == hole.tail.length);
        hole.source = (struct source){hole.head.length + cases[i].bytes + hole.tail.length,
                                      hole_read_at, &hole};
        expect("read", archive_tensor_read(&hole.source, 0, hole.source.length, &tensor, &err),
               &err, SIDESTEP_OK, "");
        assert_true(tensor.data_offset == layout.head_bytes);
        assert_true(tensor.data_bytes == cases[i].bytes);
        assert_true(tensor.data_crc == crc && tensor.has_crc);
        buffer_release(&hole.head);
        buffer_release(&hole.tail);
    }
}

TEST(test_layout_without_head)
{
    int64_t lengths[SIDESTEP_MAX_NDIM];

    for (uint32_t ndim = 0; ndim <= SIDESTEP_MAX_NDIM; ndim++) {
        OWNED_BUFFER head = {0};
        struct archive_tensor_layout with;
        struct archive_tensor_layout without;

        for (uint32_t d = 0; d < ndim; d++)
            lengths[d] = d == 0 ? INT64_C(1) << 58 : 1;
        buffer_put_text(&head, "what was there");
        assert_int_equal(
            archive_tensor_write_head(SIDESTEP_INT64, ndim, lengths, &head, &with, NULL),
            SIDESTEP_OK);
        assert_int_equal(
            archive_tensor_write_head(SIDESTEP_INT64, ndim, lengths, NULL, &without, NULL),
            SIDESTEP_OK);
        assert_int_equal(with.head_bytes, without.head_bytes);
        assert_int_equal(with.data_bytes, without.data_bytes);
        assert_int_equal(with.tail_bytes, without.tail_bytes);
        assert_memory_equal(with.head, without.head, sizeof(with.head));
        assert_int_equal(with.data_header, without.data_header);
        assert_int_equal(head.length, 14 + with.head_bytes);
    }
}

TEST(test_what_cannot_be_written)
{
    static const struct {
        int dtype;
        uint32_t ndim;
        int64_t lengths[3];
        const char *words;
    } cases[] = {
        {SIDESTEP_DTYPE_NONE, 1, {1}, "there is no dtype 0"},
        {SIDESTEP_DTYPE_END, 1, {1}, "there is no dtype"},
        {-1, 1, {1}, "there is no dtype -1"},
        {SIDESTEP_INT8, 65, {1}, "65 dimensions are more than 64"},
        {SIDESTEP_INT8, 2, {1, -1}, "dimension 1 has length -1"},
        {SIDESTEP_INT8, 1, {INT64_MAX}, "more than 2^62 bytes"},
        {SIDESTEP_INT8, 1, {(INT64_C(1) << 62) + 1}, "more than 2^62 bytes"},
        {SIDESTEP_COMPLEX128, 1, {(INT64_C(1) << 58) + 1}, "more than 2^62 bytes"},
        {SIDESTEP_INT8, 2, {INT64_C(1) << 32, INT64_C(1) << 32}, "more than 2^62 bytes"},
        {SIDESTEP_INT8, 3, {INT64_MAX, INT64_MAX, 0}, "more than 2^62 bytes"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        OWNED_BUFFER head = {0};
        struct archive_tensor_layout layout;
        struct sidestep_error err = {0};

        expect(cases[i].words,
               archive_tensor_write_head((enum sidestep_dtype)cases[i].dtype, cases[i].ndim,
                                         cases[i].lengths, &head, &layout, &err),
               &err, SIDESTEP_EINVAL, cases[i].words);
        assert_int_equal(head.length, 0);
    }
}

/* Data that starts like a data descriptor is hashed into the serialization id, as torch does. */
TEST(test_descriptor_quirk)
{
    static const struct {
        const char *first_bytes;
        int64_t length;
        bool changes;
    } cases[] = {
        {"PK\7\10abcd", 8, true}, {"PK\7\10abcd", 9, true},     {"PK\7\10abcd", 7, false},
        {"PK\3\4abcd", 8, false}, {"PK\7\10\0\0\0\0", 8, true},
    };
    static const uint8_t zeroes[8];

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        OWNED_BUFFER tail = {0};
        OWNED_BUFFER usual = {0};
        struct archive_tensor_layout layout;

        assert_int_equal(
            archive_tensor_write_head(SIDESTEP_UINT8, 1, &cases[i].length, NULL, &layout, NULL),
            SIDESTEP_OK);
        assert_int_equal(archive_tensor_write_tail(
                             &layout, 1, (const uint8_t *)cases[i].first_bytes, &tail, NULL),
                         SIDESTEP_OK);
        assert_int_equal(archive_tensor_write_tail(&layout, 1, zeroes, &usual, NULL), SIDESTEP_OK);
        assert_int_equal(tail.length, usual.length);
        assert_int_equal(memcmp(tail.bytes, usual.bytes, tail.length) != 0, cases[i].changes);
    }
}

/* A tail made from the last one equals a new one: for tensors with the same layout and with others,
 * empty ones, ones over 4 GiB, and data that looks like a descriptor. */
TEST(test_tails_like_the_last)
{
    static const int64_t lengths[] = {
        1, 1, 1, 0, 0, 12, 12, 4096, 1, (int64_t)5 << 30, (int64_t)5 << 30, 1};
    static const uint8_t firsts[][9] = {"abcdefgh", "PK\7\bwxyz", "\0\0\0\0\0\0\0"};
    OWNED_BY(archive_tail_cache_release) struct archive_tail_cache last = {0};
    uint32_t crc = 1;

    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++)
        for (size_t f = 0; f < ARRAY_LENGTH(firsts); f++) {
            struct archive_tensor_layout layout;
            OWNED_BUFFER tail = {0};
            OWNED_BUFFER expected = {0};

            crc = crc * 2654435761u + 1;
            uint32_t of_data = lengths[i] != 0 ? crc : 0;
            assert_int_equal(
                archive_tensor_write_head(SIDESTEP_FLOAT64, 1, &lengths[i], NULL, &layout, NULL),
                SIDESTEP_OK);
            assert_int_equal(
                archive_tensor_write_tail(&layout, of_data, firsts[f], &expected, NULL),
                SIDESTEP_OK);
            assert_int_equal(
                archive_tensor_write_tail_cached(&last, &layout, of_data, firsts[f], &tail, NULL),
                SIDESTEP_OK);
            assert_int_equal(tail.length, expected.length);
            assert_memory_equal(tail.bytes, expected.bytes, tail.length);
        }
}

/* Out of memory is reported, and the next tensor's tail is not made from a broken one. */
TEST(test_tails_without_memory)
{
    const int64_t lengths[] = {7, 8};
    struct archive_tensor_layout layouts[2];

    for (size_t i = 0; i < 2; i++)
        assert_int_equal(
            archive_tensor_write_head(SIDESTEP_INT8, 1, &lengths[i], NULL, &layouts[i], NULL),
            SIDESTEP_OK);
    for (unsigned long n = 1; n <= 2; n++) {
        OWNED_BY(archive_tail_cache_release) struct archive_tail_cache last = {0};
        OWNED_BUFFER tail = {0};

        fault_arm("memory", n, true, ENOMEM);
        assert_int_equal(archive_tensor_write_tail_cached(&last, &layouts[0], 1,
                                                          (const uint8_t *)"12345678", &tail, NULL),
                         SIDESTEP_ENOMEM);
        assert_non_null(fault_fired());
        fault_arm("", 0, false, 0);
        assert_int_equal(tail.length, 0);
    }
}

/* Refuses what cannot be written, and what would be too long to read again. */
TEST(test_objects)
{
    struct sidestep_value *value = sidestep_value_int(7);
    struct sidestep_value *back = NULL;
    struct sidestep_error err = {0};
    OWNED_BUFFER out = {0};

    assert_int_equal(archive_object_write(value, &out, &err), SIDESTEP_OK);
    assert_int_equal(out.length, 1261);
    assert_int_equal(archive_object_read(out.bytes, out.length, &back, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_value_get_int(back), 7);
    sidestep_value_free(&value);
    sidestep_value_free(&back);

    /* Refused before it takes memory: nobody has written to the pages of this text. */
    size_t length = ARCHIVE_MAX_PICKLE_BYTES + 1;
    char *bytes = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(bytes != MAP_FAILED);
    enum sidestep_value_kind kinds[] = {SIDESTEP_VALUE_STR, SIDESTEP_VALUE_BYTES};
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        struct sidestep_value large = {.kind = kinds[i], .as.text = {bytes, length}};
        out.length = 0;
        expect("large", archive_object_write(&large, &out, &err), &err, SIDESTEP_EUNSUPPORTED,
               "2147483649 bytes");
        assert_int_equal(out.length, 0);
    }
    assert_int_equal(munmap(bytes, length), 0);
}

/* An object has no limit of its own below that of a pickle. */
TEST(test_large_object)
{
    size_t length = (size_t)80 << 20;
    OWNED char *bytes = memory_new(length, 1);
    OWNED_BUFFER out = {0};
    struct sidestep_value *back = NULL;
    struct sidestep_error err = {0};

    assert_non_null(bytes);
    memset(bytes, 'x', length);
    struct sidestep_value large = {.kind = SIDESTEP_VALUE_BYTES, .as.text = {bytes, length}};
    assert_int_equal(archive_object_write(&large, &out, &err), SIDESTEP_OK);
    assert_int_equal(archive_object_read(out.bytes, out.length, &back, &err), SIDESTEP_OK);
    assert_true(value_equal(&large, back));
    sidestep_value_free(&back);
}
