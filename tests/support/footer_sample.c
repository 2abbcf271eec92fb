/* SPDX-License-Identifier: BSD-3-Clause */
/* footer_sample.c -- makes, encodes, reads and compares the sample footer. */
#include "support/footer_sample.h"

#include "base/fault.h"
#include "support/guard.h"
#include "support/unit.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define PATH(...) ((const struct sidestep_path_item[]){__VA_ARGS__})
#define KEY(text)                                                                                  \
    {                                                                                              \
        .key = text                                                                                \
    }
#define INDEX(number)                                                                              \
    {                                                                                              \
        .index = number                                                                            \
    }

static const int64_t ones[SIDESTEP_MAX_NDIM] = {
    [0 ... SIDESTEP_MAX_NDIM - 1] = 1,
};
static const int64_t zeroes[SIDESTEP_MAX_NDIM];
static const uint64_t hashes[3] = {0x0123456789abcdef, 0xfedcba9876543210, 0x00ff00ff00ff00ff};

static const struct footer_item sample_items[SAMPLES] = {
    [WEIGHT] = {.name = "model.layers.0.weight",
                .requires_grad = true,
                .dtype = SIDESTEP_FLOAT32,
                .ndim = 2,
                .shape = DIMS(8, 4),
                .box = {2, DIMS(4, 0), DIMS(4, 4)},
                .path_length = 4,
                .path = PATH(KEY("model"), KEY("layers"), INDEX(0), KEY("weight")),
                .data_bytes = 64},
    [BIG] = {.name = "big",
             .dtype = SIDESTEP_BFLOAT16,
             .ndim = 2,
             .shape = DIMS(1024, 1025),
             .box = {2, DIMS(0, 0), DIMS(1024, 1025)},
             .path_length = 1,
             .path = PATH(KEY("big")),
             .data_bytes = 1024 * 1025 * 2},
    [SCALAR] = {.name = "s",
                .dtype = SIDESTEP_INT64,
                .shape = zeroes,
                .box = {0, zeroes, zeroes},
                .path_length = 1,
                .path = PATH(KEY("s")),
                .data_bytes = 8},
    [EMPTY] = {.name = "empty",
               .dtype = SIDESTEP_BOOL,
               .ndim = 2,
               .shape = DIMS(0, 70000),
               .box = {2, DIMS(0, 3), DIMS(0, 2)},
               .path_length = 1,
               .path = PATH(KEY("empty"))},
    [WIDE] = {.name = "wide",
              .dtype = SIDESTEP_UINT8,
              .ndim = 2,
              .shape = DIMS(INT64_C(1) << 40, 3),
              .box = {2, DIMS(INT64_C(1) << 39, 1), DIMS(1, 2)},
              .path_length = 1,
              .path = PATH(KEY("wide")),
              .data_bytes = 2},
    [LISTED] = {.name = "a.b",
                .dtype = SIDESTEP_BCOMPLEX32,
                .ndim = 1,
                .shape = DIMS(300),
                .box = {1, DIMS(299), DIMS(1)},
                .path_length = 4,
                .path = PATH(KEY("x"), INDEX(-5), KEY(""), KEY("a.b")),
                .data_bytes = 4},
    [UTF8] = {.name = "gr\xc3\xb6\xc3\x9f"
                      "e.-7",
              .dtype = SIDESTEP_FLOAT8_E8M0FNU,
              .ndim = 1,
              .shape = DIMS(3),
              .box = {1, DIMS(0), DIMS(3)},
              .path_length = 2,
              .path = PATH(KEY("gr\xc3\xb6\xc3\x9f"
                               "e"),
                           INDEX(-7)),
              .data_bytes = 3},
    [MANY] = {.name = "many",
              .dtype = SIDESTEP_COMPLEX128,
              .ndim = SIDESTEP_MAX_NDIM,
              .shape = ones,
              .box = {SIDESTEP_MAX_NDIM, zeroes, ones},
              .path_length = 2,
              .path = PATH(KEY("man"), KEY("y")),
              .data_bytes = 16},
    [OBJECT] = {.name = "step",
                .is_object = true,
                .path_length = 1,
                .path = PATH(KEY("step")),
                .data_bytes = 1000},
    [NOTHING] = {.name = "nothing",
                 .is_object = true,
                 .path_length = 1,
                 .path = PATH(KEY("nothing"))},
};

void sample_init(struct sample *sample)
{
    uint64_t offset = 0;

    sample->footer = (struct footer){.rank = 3,
                                     .shard = 1,
                                     .shard_count = 2,
                                     .world_size = 4,
                                     .layout_digest = 0x1122334455667788,
                                     .count = SAMPLES,
                                     .items = sample->items};
    for (unsigned i = 0; i < SAVE_ID_BYTES; i++)
        sample->footer.save_id[i] = (uint8_t)(0x11 * i);
    memcpy(sample->items, sample_items, sizeof(sample->items));
    for (size_t i = 0; i < SAMPLES; i++) {
        struct footer_item *item = &sample->items[i];
        item->offset = offset;
        item->data_offset = item->is_object ? 0 : 448;
        item->envelope_hash = item->is_object ? 0 : 0xabcdef0000000000 + i;
        item->bytes = item->data_bytes + (item->is_object ? 0 : 1024);
        item->raw_bytes = item->data_bytes;
        item->block_count = hash_block_count(item->data_bytes);
        item->blocks = hashes;
        item->raw_hash = hash_block_list(hashes, (size_t)item->block_count);
        offset += (item->bytes + 63) / 64 * 64;
    }
}

static enum sidestep_status file_read_at(const struct source *source, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    struct sample_file *file = (struct sample_file *)(uintptr_t)source->context;
    uint8_t *out = to;

    if (fault_hit("read"))
        return FAIL(err, SIDESTEP_EIO, "the disk is gone");
    for (size_t i = 0; i < bytes; i++)
        out[i] = offset + i < file->prefix ? 0 : file->bytes[offset + i - file->prefix];
    if (file->reads_before_change != 0 && --file->reads_before_change == 0)
        file->bytes[source->length - file->prefix - 60] ^= 1;
    return SIDESTEP_OK;
}

void sample_file_init(struct sample_file *file, uint64_t prefix, uint8_t *bytes, size_t length)
{
    *file = (struct sample_file){
        .source = {prefix + length, file_read_at, file}, .bytes = bytes, .prefix = prefix};
}

enum sidestep_status sample_read(const void *bytes, size_t length, struct arena *arena,
                                 struct footer *out, struct sidestep_error *err)
{
    struct sample_file file;
    void *copy = guard_copy(bytes, length);

    sample_file_init(&file, SAMPLE_ITEMS_END, copy, length);
    enum sidestep_status status = footer_read(&file.source, arena, out, NULL, err);
    guard_free(copy);
    return status;
}

void sample_put_le(uint8_t *to, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

void sample_fix_hashes(uint8_t *bytes, size_t length)
{
    uint8_t *trailer = bytes + length - FOOTER_TRAILER_BYTES;

    sample_put_le(trailer + 40, hash_block(bytes, length - FOOTER_TRAILER_BYTES), 8);
    sample_put_le(trailer + 56, hash_block(trailer, 56), 8);
}

void sample_encode(const struct sample *sample, struct buffer *out)
{
    struct sidestep_error err = {0};

    if (footer_encode(&sample->footer, SAMPLE_ITEMS_END, out, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
}

void sample_assert_equal(const struct footer_item *a, const struct footer_item *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->is_object, b->is_object);
    assert_int_equal(a->requires_grad, b->requires_grad);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->ndim, b->ndim);
    assert_int_equal(b->box.ndim, b->ndim);
    for (uint32_t d = 0; d < a->ndim; d++) {
        assert_int_equal(a->shape[d], b->shape[d]);
        assert_int_equal(a->box.offsets[d], b->box.offsets[d]);
        assert_int_equal(a->box.lengths[d], b->box.lengths[d]);
    }
    assert_int_equal(a->path_length, b->path_length);
    for (uint32_t i = 0; i < a->path_length; i++) {
        assert_int_equal(a->path[i].key == NULL, b->path[i].key == NULL);
        if (a->path[i].key != NULL)
            assert_string_equal(a->path[i].key, b->path[i].key);
        assert_int_equal(a->path[i].index, b->path[i].index);
        assert_int_equal(a->path[i].flags, b->path[i].flags);
    }
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->data_offset, b->data_offset);
    assert_int_equal(a->data_bytes, b->data_bytes);
    assert_int_equal(a->raw_bytes, b->raw_bytes);
    assert_int_equal(a->transform, b->transform);
    assert_int_equal(a->envelope_hash, b->envelope_hash);
    assert_memory_equal(&a->raw_hash, &b->raw_hash, sizeof(a->raw_hash));
    assert_int_equal(a->block_count, b->block_count);
    if (a->block_count != 0)
        assert_memory_equal(a->blocks, b->blocks, 8 * a->block_count);
}

void sample_flip_bits(uint8_t *bytes, size_t length, size_t *accepted, size_t *refused)
{
    for (size_t bit = 0; bit < 8 * (length - FOOTER_TRAILER_BYTES); bit++) {
        OWNED_ARENA arena = {0};
        OWNED_BUFFER again = {0};
        struct footer footer;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        sample_fix_hashes(bytes, length);
        if (sample_read(bytes, length, &arena, &footer, NULL) == SIDESTEP_OK) {
            assert_int_equal(footer_encode(&footer, SAMPLE_ITEMS_END, &again, NULL), SIDESTEP_OK);
            assert_int_equal(again.length, length);
            assert_memory_equal(again.bytes, bytes, length);
            ++*accepted;
        } else
            ++*refused;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}
