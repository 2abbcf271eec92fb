/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_test.c -- archives compared with torch's: its files are read, and written again byte for
 * byte; damage of every kind is found; failures of storage and memory are reported.
 */
#include <stdbool.h>

#include "base/fault.h"
#include "base/owned.h"
#include "codec/hash.h"
#include "format/archive.h"
#include "support/guard.h"
#include "support/unit.h"

#define GOLDEN_A "tests/golden/torch-2.6.0/"
#define GOLDEN_B "tests/golden/torch-2.14.1/"

struct file {
    uint8_t bytes[65536];
    size_t length;
};

static void read_file(const char *path, struct file *file)
{
    FILE *stream = fopen(path, "rb");

    if (stream == NULL)
        fail_msg("cannot open %s", path);
    file->length = fread(file->bytes, 1, sizeof(file->bytes), stream);
    fclose(stream);
}

/* Length of the item at ${at}: up to the first end record. */
static size_t item_length(const struct file *file, size_t at)
{
    for (size_t i = at; i + 22 <= file->length; i++)
        if (memcmp(file->bytes + i, "PK\5\6", 4) == 0)
            return i + 22 - at;
    fail_msg("no end record behind %zu", at);
    return 0;
}

/* ---------------------------------------------------------------- golden files */

static void write_tensor(const struct archive_tensor *tensor, const uint8_t *data,
                         struct buffer *out)
{
    struct archive_tensor_layout layout;
    struct sidestep_error err = {0};
    uint8_t first_bytes[8] = {0};

    assert_int_equal(
        archive_tensor_write_head(tensor->dtype, tensor->ndim, tensor->shape, out, &layout, &err),
        SIDESTEP_OK);
    assert_int_equal(out->length, layout.head_bytes);
    assert_int_equal(tensor->data_bytes, layout.data_bytes);
    buffer_put(out, data, layout.data_bytes);
    memcpy(first_bytes, data, layout.data_bytes < 8 ? layout.data_bytes : 8);
    assert_int_equal(archive_tensor_write_tail(&layout, hash_crc32(0, data, layout.data_bytes),
                                               first_bytes, out, &err),
                     SIDESTEP_OK);
    assert_int_equal(out->length, layout.head_bytes + layout.data_bytes + layout.tail_bytes);
}

struct seen {
    unsigned tensors;
    unsigned objects;
    unsigned rewritten;
};

static void golden_item(const struct file *file, size_t at, size_t length, struct seen *seen)
{
    struct source source = source_from_memory(file->bytes, file->length);
    struct archive_tensor tensor;
    struct sidestep_value *value = NULL;
    struct sidestep_error err = {0};
    OWNED_BUFFER out = {0};

    assert_int_equal(archive_check(&source, at, length, &err), SIDESTEP_OK);
    if (archive_tensor_read(&source, at, length, &tensor, &err) == SIDESTEP_OK) {
        const uint8_t *data = file->bytes + at + tensor.data_offset;

        seen->tensors++;
        assert_true(tensor.has_crc);
        assert_int_equal(tensor.data_offset % 64, 0);
        assert_int_equal(hash_crc32(0, data, tensor.data_bytes), tensor.data_crc);
        if (!tensor.row_major || tensor.conjugate || tensor.negative)
            return;
        write_tensor(&tensor, data, &out);
    } else {
        seen->objects++;
        assert_int_equal(archive_object_read(file->bytes + at, length, &value, &err), SIDESTEP_OK);
        enum sidestep_status status = archive_object_write(value, &out, &err);
        sidestep_value_free(&value);
        if (status == SIDESTEP_EUNSUPPORTED)
            return;
        assert_int_equal(status, SIDESTEP_OK);
    }
    seen->rewritten += out.length == length && memcmp(out.bytes, file->bytes + at, length) == 0;
}

TEST(test_golden)
{
    static const struct {
        const char *path;
        struct seen seen;
    } rows[] = {
        {GOLDEN_A "tensor.pt", {1, 0, 0}},
        {GOLDEN_A "nested/__0_0.distcp", {3, 4, 0}},
        {GOLDEN_B "tensor.pt", {1, 0, 1}},
        {GOLDEN_B "nested/__0_0.distcp", {3, 4, 7}},
        {GOLDEN_B "four_ranks/__0_0.distcp", {3, 1, 4}},
        {GOLDEN_B "four_ranks/__1_0.distcp", {4, 1, 5}},
        {GOLDEN_B "four_ranks/__2_0.distcp", {4, 2, 6}},
        /* an empty shard of 7 x 0 keeps the strides of its whole tensor */
        {GOLDEN_B "four_ranks/__3_0.distcp", {4, 1, 4}},
    };
    static struct file file;

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct seen seen = {0};

        read_file(rows[i].path, &file);
        for (size_t at = 0, length; at < file.length; at += length) {
            length = item_length(&file, at);
            golden_item(&file, at, length, &seen);
        }
        if (memcmp(&seen, &rows[i].seen, sizeof(seen)) != 0)
            fail_msg("%s: %u tensors, %u objects, %u rewritten", rows[i].path, seen.tensors,
                     seen.objects, seen.rewritten);
    }
}

TEST(test_what_a_tensor_says)
{
    static const char *const paths[] = {GOLDEN_A "tensor.pt", GOLDEN_B "tensor.pt"};
    static struct file file;

    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
        struct archive_tensor tensor;
        float data[6];

        read_file(paths[i], &file);
        struct source source = source_from_memory(file.bytes, file.length);
        assert_int_equal(archive_tensor_read(&source, 0, file.length, &tensor, NULL), SIDESTEP_OK);
        assert_int_equal(tensor.dtype, SIDESTEP_FLOAT32);
        assert_int_equal(tensor.ndim, 2);
        assert_true(tensor.shape[0] == 2 && tensor.shape[1] == 3);
        assert_true(tensor.strides[0] == 3 && tensor.strides[1] == 1);
        assert_true(tensor.storage_offset == 0 && tensor.data_bytes == 24);
        assert_int_equal(tensor.data_offset, i == 0 ? 448 : 704);
        assert_true(tensor.row_major && tensor.has_crc);
        assert_false(tensor.swapped || tensor.conjugate || tensor.negative);
        memcpy(data, file.bytes + tensor.data_offset, sizeof(data));
        for (int e = 0; e < 6; e++)
            assert_true(data[e] == (float)e);
    }
}

/* ---------------------------------------------------------------- damage */

static bool same_tensor(const struct archive_tensor *a, const struct archive_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, sizeof(a->shape)) == 0 &&
           memcmp(a->strides, b->strides, sizeof(a->strides)) == 0 &&
           a->storage_offset == b->storage_offset && a->data_offset == b->data_offset &&
           a->data_bytes == b->data_bytes && a->data_crc == b->data_crc &&
           a->has_crc == b->has_crc && a->swapped == b->swapped && a->conjugate == b->conjugate &&
           a->negative == b->negative && a->row_major == b->row_major;
}

static enum sidestep_status read_copy(const struct file *file, size_t length,
                                      struct archive_tensor *tensor, struct sidestep_error *err)
{
    uint8_t *copy = guard_copy(file->bytes, length);
    struct source source = source_from_memory(copy, length);
    enum sidestep_status status = archive_tensor_read(&source, 0, length, tensor, err);

    guard_free(copy);
    return status;
}

TEST(test_truncated)
{
    static struct file file;

    read_file(GOLDEN_B "tensor.pt", &file);
    for (size_t length = 0; length < file.length; length++) {
        struct archive_tensor tensor = {.ndim = 77};

        assert_int_equal(read_copy(&file, length, &tensor, NULL), SIDESTEP_ECORRUPT);
        assert_int_equal(tensor.ndim, 77); /* untouched */
    }
}

/* A flipped bit is found, unless it means nothing: padding, times, versions. */
TEST(test_each_bit)
{
    static struct file file;
    struct archive_tensor right;
    unsigned unnoticed = 0;

    read_file(GOLDEN_B "tensor.pt", &file);
    assert_int_equal(read_copy(&file, file.length, &right, NULL), SIDESTEP_OK);
    for (size_t bit = 0; bit < file.length * 8; bit++) {
        struct archive_tensor tensor;

        file.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        uint8_t *copy = guard_copy(file.bytes, file.length);
        struct source source = source_from_memory(copy, file.length);
        enum sidestep_status read = archive_tensor_read(&source, 0, file.length, &tensor, NULL);
        enum sidestep_status check = archive_check(&source, 0, file.length, NULL);
        guard_free(copy);
        file.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);

        assert_true(read == SIDESTEP_OK || read == SIDESTEP_ECORRUPT ||
                    read == SIDESTEP_EUNSUPPORTED);
        if (read == SIDESTEP_OK)
            assert_true(same_tensor(&tensor, &right));
        if (check == SIDESTEP_OK) {
            assert_int_equal(read, SIDESTEP_OK);
            assert_true(bit / 8 < right.data_offset || bit / 8 >= right.data_offset + 24);
            unnoticed++;
        }
    }
    /* The padding, and per member 6 bytes of versions, 8 of times, 6 of attributes, and the end
     * record's versions. */
    assert_true(unnoticed <= 8 * (7 * 63 + 7 * 20 + 4 + 7 * 2));
    assert_true(unnoticed >= 8 * 7 * 20);
}

TEST(test_each_bit_of_an_object)
{
    static struct file file;

    read_file(GOLDEN_B "four_ranks/__3_0.distcp", &file);
    file.length = item_length(&file, 0);
    for (size_t bit = 0; bit < file.length * 8; bit++) {
        struct sidestep_value *value = NULL;

        file.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        uint8_t *copy = guard_copy(file.bytes, file.length);
        enum sidestep_status status = archive_object_read(copy, file.length, &value, NULL);
        guard_free(copy);
        file.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_true((status == SIDESTEP_OK) == (value != NULL));
        sidestep_value_free(&value);
    }
}

/* ---------------------------------------------------------------- failures of storage and memory
 */

struct counted {
    struct source source;
    const uint8_t *bytes;
    unsigned *reads;
    unsigned fail_at; /* 0: never */
};

static enum sidestep_status counted_read_at(const struct source *source, void *to, size_t bytes,
                                            uint64_t offset, struct sidestep_error *err)
{
    const struct counted *counted = source->context;

    if (++*counted->reads == counted->fail_at)
        return FAIL(err, SIDESTEP_EIO, "the disk is broken");
    memcpy(to, counted->bytes + offset, bytes);
    return SIDESTEP_OK;
}

/* A tensor of any size takes two reads, because a load opens thousands of them. */
TEST(test_reads)
{
    struct archive_tensor shape = {
        .dtype = SIDESTEP_UINT8, .ndim = 1, .shape = {3 << 20}, .data_bytes = 3 << 20};
    OWNED uint8_t *data = calloc(1, 3 << 20);
    OWNED_BUFFER out = {0};
    struct archive_tensor tensor;
    unsigned reads = 0;

    write_tensor(&shape, data, &out);
    struct counted counted = {.bytes = out.bytes, .reads = &reads};
    counted.source = (struct source){out.length, counted_read_at, &counted};
    assert_int_equal(archive_tensor_read(&counted.source, 0, out.length, &tensor, NULL),
                     SIDESTEP_OK);
    assert_int_equal(reads, 2);
    reads = 0;
    assert_int_equal(archive_check(&counted.source, 0, out.length, NULL), SIDESTEP_OK);
    assert_int_equal(reads, 5); /* and three pieces of 1 MiB */
    for (counted.fail_at = 1; counted.fail_at <= 5; counted.fail_at++) {
        struct sidestep_error err = {0};

        reads = 0;
        assert_int_equal(archive_check(&counted.source, 0, out.length, &err), SIDESTEP_EIO);
        assert_non_null(strstr(err.message, "the disk is broken"));
    }
}

/* Run ${step} with the 1st, 2nd ... allocation failing, until none fails. */
static void fail_each_allocation(enum sidestep_status (*step)(void *context), void *context,
                                 unsigned long at_least)
{
    for (unsigned long n = 1;; n++) {
        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status status = step(context);
        bool has_fired = fault_fired() != NULL;

        fault_arm("", 0, false, 0);
        if (!has_fired) {
            assert_int_equal(status, SIDESTEP_OK);
            assert_true(n > at_least);
            return;
        }
        assert_int_equal(status, SIDESTEP_ENOMEM);
    }
}

static enum sidestep_status step_tensor_read(void *context)
{
    const struct file *file = context;
    struct source source = source_from_memory(file->bytes, file->length);
    struct archive_tensor tensor;

    return archive_tensor_read(&source, 0, file->length, &tensor, NULL);
}

static enum sidestep_status step_check(void *context)
{
    const struct file *file = context;
    struct source source = source_from_memory(file->bytes, file->length);

    return archive_check(&source, 0, file->length, NULL);
}

static enum sidestep_status step_object(void *context)
{
    const struct file *file = context;
    struct sidestep_value *value = NULL;
    OWNED_BUFFER out = {0};

    TRY(archive_object_read(file->bytes, file->length, &value, NULL));
    enum sidestep_status status = archive_object_write(value, &out, NULL);
    sidestep_value_free(&value);
    return status;
}

static enum sidestep_status step_tensor_write(void *context)
{
    static const uint8_t data[8];
    int64_t lengths[1] = {8};
    struct archive_tensor_layout layout;
    OWNED_BUFFER out = {0};
    OWNED_BUFFER tail = {0};

    (void)context;
    TRY(archive_tensor_write_head(SIDESTEP_INT8, 1, lengths, &out, &layout, NULL));
    return archive_tensor_write_tail(&layout, 0, data, &tail, NULL);
}

TEST(test_memory)
{
    static struct file file;

    read_file(GOLDEN_B "tensor.pt", &file);
    fail_each_allocation(step_tensor_read, &file, 2);
    fail_each_allocation(step_check, &file, 2);
    fail_each_allocation(step_tensor_write, &file, 2);
    read_file(GOLDEN_B "four_ranks/__3_0.distcp", &file);
    file.length = item_length(&file, 0);
    fail_each_allocation(step_object, &file, 4);
}
