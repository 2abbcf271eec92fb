/* SPDX-License-Identifier: BSD-3-Clause */
/* footer_test.c -- footers are written and read again, and damaged or wrong ones are refused. */
#include "base/owned.h"
#include "support/footer_sample.h"
#include "support/unit.h"

/* Offsets of fields. docs/FORMAT.md has the tables. */
#define HEADER 64u
#define RECORD 72u

/* ------------------------------------------------------------------ what is written is read */

TEST(footers_round_trip)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER bytes = {0}, again = {0};
    struct sample sample;
    struct sample_file file;
    struct footer footer;
    struct footer_trailer trailer;
    uint8_t sha256[HASH_SHA256_BYTES], expected[HASH_SHA256_BYTES];

    sample_init(&sample);
    sample_encode(&sample, &bytes);
    sample_file_init(&file, SAMPLE_ITEMS_END, bytes.bytes, bytes.length);
    assert_int_equal(footer_trailer_read(&file.source, &trailer, NULL), SIDESTEP_OK);
    assert_int_equal(trailer.footer_bytes, bytes.length - FOOTER_TRAILER_BYTES);
    assert_int_equal(trailer.layout_digest, 0x1122334455667788);
    assert_int_equal(trailer.footer_hash, hash_block(bytes.bytes, bytes.length - 64));
    assert_memory_equal(trailer.save_id, sample.footer.save_id, SAVE_ID_BYTES);

    assert_int_equal(footer_read(&file.source, &arena, &footer, sha256, NULL), SIDESTEP_OK);
    hash_sha256(bytes.bytes, bytes.length, expected);
    assert_memory_equal(sha256, expected, sizeof(sha256));
    assert_memory_equal(footer.save_id, sample.footer.save_id, SAVE_ID_BYTES);
    assert_int_equal(footer.rank, 3);
    assert_int_equal(footer.shard, 1);
    assert_int_equal(footer.shard_count, 2);
    assert_int_equal(footer.world_size, 4);
    assert_int_equal(footer.layout_digest, 0x1122334455667788);
    assert_int_equal(footer.required_features, 0);
    assert_int_equal(footer.optional_features, 0);
    assert_int_equal(footer.count, SAMPLES);
    for (size_t i = 0; i < SAMPLES; i++)
        sample_assert_equal(&sample.items[i], &footer.items[i]);
    assert_int_equal(footer_encode(&footer, SAMPLE_ITEMS_END, &again, NULL), SIDESTEP_OK);
    assert_int_equal(again.length, bytes.length);
    assert_memory_equal(again.bytes, bytes.bytes, bytes.length);
}

TEST(the_size_is_known_before_the_hashes)
{
    OWNED_BUFFER bytes = {0};
    struct sample sample;

    sample_init(&sample);
    sample_encode(&sample, &bytes);
    for (size_t i = 0; i < SAMPLES; i++) {
        sample.items[i].envelope_hash = 0;
        sample.items[i].raw_hash = (struct hash128){0};
        sample.items[i].blocks = NULL;
    }
    assert_int_equal(footer_encoded_bytes(&sample.footer), bytes.length);
    sample.footer.count = 0;
    assert_int_equal(footer_encoded_bytes(&sample.footer), HEADER + FOOTER_TRAILER_BYTES);
    bytes.length = 5; /* it is appended */
    sample_encode(&sample, &bytes);
    assert_int_equal(bytes.length, 5 + HEADER + FOOTER_TRAILER_BYTES);

    /* A sharded matrix of a usual model takes less than 100 bytes, without its name and hashes. */
    sample.footer.count = 1;
    uint64_t added = footer_encoded_bytes(&sample.footer) - HEADER - FOOTER_TRAILER_BYTES;
    assert_true(added - strlen(sample.items[WEIGHT].name) - 8 <= 100);
}

/* The bytes of version 1, which never change. */
TEST(the_bytes_are_those_of_version_1)
{
    OWNED_BUFFER bytes = {0};
    struct sample sample;
    uint8_t golden[4096];
    FILE *file = fopen("tests/golden/footer/version-1.bin", "rb");

    assert_non_null(file);
    size_t length = fread(golden, 1, sizeof(golden), file);
    fclose(file);
    sample_init(&sample);
    sample_encode(&sample, &bytes);
    assert_int_equal(bytes.length, length);
    assert_memory_equal(bytes.bytes, golden, length);
}

/* ------------------------------------------------------------------ damage */

TEST(every_flipped_bit_is_found)
{
    OWNED_BUFFER bytes = {0};
    struct sample sample;

    sample_init(&sample);
    sample_encode(&sample, &bytes);
    for (size_t bit = 0; bit < 8 * bytes.length; bit++) {
        OWNED_ARENA arena = {0};
        struct footer footer;
        struct sidestep_error err = {0};
        bytes.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (sample_read(bytes.bytes, bytes.length, &arena, &footer, &err) != SIDESTEP_ECORRUPT)
            fail_msg("bit %zu of %zu: status %d: %s", bit, 8 * bytes.length, err.status,
                     err.message);
        assert_non_null(strstr(err.message, "do not match their hash"));
        assert_int_equal(footer.count, 0);
        bytes.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* Fix the hashes after each change, to test the parser: what it accepts is what the encoder
 * writes. */
TEST(every_flipped_bit_behind_the_hashes)
{
    OWNED_BUFFER bytes = {0};
    struct sample sample;
    size_t accepted = 0, refused = 0;

    sample_init(&sample);
    sample_encode(&sample, &bytes);
    sample_flip_bits(bytes.bytes, bytes.length, &accepted, &refused);
    assert_true(accepted > 0); /* a letter of a name, an envelope's hash */
}

TEST(every_truncation_is_refused)
{
    OWNED_BUFFER bytes = {0};
    struct sample sample;

    sample_init(&sample);
    sample_encode(&sample, &bytes);
    for (size_t length = 0; length < bytes.length; length++) {
        OWNED_ARENA arena = {0};
        struct footer footer;
        struct sidestep_error err = {0};
        assert_int_equal(sample_read(bytes.bytes, length, &arena, &footer, &err),
                         SIDESTEP_ENOTFOUND);
        assert_non_null(strstr(err.message, "does not end with a trailer of sidestep"));

        /* The same without the items: a file that is too short. */
        struct source tail = source_from_memory(bytes.bytes + bytes.length - length, length);
        assert_int_equal(footer_read(&tail, &arena, &footer, NULL, &err),
                         length < FOOTER_TRAILER_BYTES ? SIDESTEP_ENOTFOUND : SIDESTEP_ECORRUPT);
    }
    /* Cut within the footer, with a trailer that knows the new length. */
    for (size_t cut = 1; cut <= bytes.length - FOOTER_TRAILER_BYTES; cut++) {
        OWNED_ARENA arena = {0};
        struct footer footer;
        uint8_t shorter[4096];
        size_t footer_bytes = bytes.length - FOOTER_TRAILER_BYTES - cut;
        memcpy(shorter, bytes.bytes, footer_bytes);
        memcpy(shorter + footer_bytes, bytes.bytes + bytes.length - FOOTER_TRAILER_BYTES,
               FOOTER_TRAILER_BYTES);
        sample_put_le(shorter + footer_bytes + 32, footer_bytes, 8);
        sample_fix_hashes(shorter, footer_bytes + FOOTER_TRAILER_BYTES);
        assert_int_equal(
            sample_read(shorter, footer_bytes + FOOTER_TRAILER_BYTES, &arena, &footer, NULL),
            SIDESTEP_ECORRUPT);
    }
}

/* ------------------------------------------------------------------ lies */

#define AT(item, field) (HEADER + (item)*RECORD + (field))
static const struct {
    size_t at;
    unsigned bytes;
    uint64_t value;
    enum sidestep_status status;
    const char *words;
} lies[] = {
    {0, 1, 'X', SIDESTEP_ECORRUPT, "does not begin with its magic"},
    {8, 4, 0, SIDESTEP_ECORRUPT, "version 0"},
    {8, 4, 2, SIDESTEP_EUNSUPPORTED, "footer: version 2 is newer than this library"},
    {12, 4, 0, SIDESTEP_ECORRUPT, "rank 3 of 0 ranks"},
    {12, 4, 3, SIDESTEP_ECORRUPT, "rank 3 of 3 ranks"},
    {12, 4, SIDESTEP_MAX_RANKS + 1, SIDESTEP_ECORRUPT, "rank 3 of 1048577 ranks (at most 1048576)"},
    {16, 8, 0x20, SIDESTEP_EUNSUPPORTED, "feature bit 5 is required"},
    {16, 8, UINT64_C(1) << 63, SIDESTEP_EUNSUPPORTED, "feature bit 63 is required"},
    {32, 4, 1, SIDESTEP_ECORRUPT, "shard 1 of 1"},
    {36, 4, 8, SIDESTEP_ECORRUPT, "there are extensions, but no feature that uses them"},
    {40, 8, 0, SIDESTEP_ECORRUPT, "0 items"},
    {40, 8, SAMPLES + 1, SIDESTEP_ECORRUPT, "11 items"},
    {40, 8, FOOTER_MAX_ITEMS + 1, SIDESTEP_ECORRUPT, "16777217 items"},
    {40, 8, UINT64_MAX, SIDESTEP_ECORRUPT, "18446744073709551615 items"},
    {40, 8, UINT64_MAX / RECORD + 1, SIDESTEP_ECORRUPT, "do not make"},
    {48, 8, UINT64_MAX - 7, SIDESTEP_ECORRUPT, "18446744073709551608 bytes of text"},
    {48, 8, 1, SIDESTEP_ECORRUPT, "1 bytes of text"},
    {56, 8, UINT64_MAX, SIDESTEP_ECORRUPT, "18446744073709551615 hashes"},
    {56, 8, UINT64_C(1) << 61, SIDESTEP_ECORRUPT, "do not make"},
    {AT(BIG, 0), 8, 0, SIDESTEP_ECORRUPT,
     "'big': starts at 0, before the end of the previous item"},
    {AT(OBJECT, 0), 8, SAMPLE_ITEMS_END - 999, SIDESTEP_ECORRUPT,
     "'step': 4193305 + 1000 lie outside"},
    {AT(OBJECT, 0), 8, UINT64_MAX, SIDESTEP_ECORRUPT, "'step': 18446744073709551615 + 1000 lie"},
    {AT(WEIGHT, 8), 8, UINT64_MAX, SIDESTEP_ECORRUPT, "lie outside the 4194304 bytes"},
    {AT(WEIGHT, 8), 8, 500, SIDESTEP_ECORRUPT, "'model.layers.0.weight': data at 448 + 64 lie"},
    {AT(OBJECT, 8), 8, 999, SIDESTEP_ECORRUPT,
     "'step': the data of an object are not the whole object"},
    {AT(WEIGHT, 16), 8, 63, SIDESTEP_ECORRUPT, "63 bytes stored for 64, without a transform"},
    {AT(WEIGHT, 16), 8, UINT64_MAX, SIDESTEP_ECORRUPT, "no hashes for them"},
    {AT(WEIGHT, 24), 8, 65, SIDESTEP_ECORRUPT, "65 bytes of data, but its box has 64"},
    {AT(OBJECT, 24), 8, 1, SIDESTEP_ECORRUPT, "'step': 1000 bytes stored for 1"},
    {AT(OBJECT, 32), 8, 1, SIDESTEP_ECORRUPT, "the data of an object are not the whole object"},
    {AT(BIG, 40), 1, 0, SIDESTEP_ECORRUPT, "its hash does not match its block hashes"},
    {AT(BIG, 48), 1, 0, SIDESTEP_ECORRUPT, "its hash does not match its block hashes"},
    {AT(WEIGHT, 56), 4, 1025, SIDESTEP_ECORRUPT, "data at 1025 + 64 lie outside its 1088"},
    {AT(OBJECT, 56), 4, 1, SIDESTEP_ECORRUPT, "the data of an object are not the whole object"},
    {AT(WEIGHT, 60), 4, 1, SIDESTEP_EUNSUPPORTED, "weight': transform number 1 is newer"},
    {AT(WEIGHT, 64), 2, 0, SIDESTEP_ECORRUPT, "item 0: its shape or name is cut off"},
    {AT(WEIGHT, 64), 2, 22, SIDESTEP_ECORRUPT, "item 0: its shape or name is cut off"},
    {AT(NOTHING, 64), 2, 0xffff, SIDESTEP_ECORRUPT, "item 9: its shape or name is cut off"},
    {AT(WEIGHT, 66), 1, 0x8a, SIDESTEP_ECORRUPT, "item 0: flags 0x8a instead of 0x0a"},
    {AT(SCALAR, 66), 1, 0x1c, SIDESTEP_ECORRUPT, "item 2: flags 0x1c instead of 0x0c"},
    {AT(OBJECT, 66), 1, 0x0b, SIDESTEP_ECORRUPT, "an object with dtype, shape or requires_grad"},
    {AT(OBJECT, 67), 1, 1, SIDESTEP_ECORRUPT, "an object with dtype, shape or requires_grad"},
    {AT(SCALAR, 67), 1, 0, SIDESTEP_ECORRUPT, "'s': a tensor without a dtype"},
    {AT(SCALAR, 67), 1, 29, SIDESTEP_EUNSUPPORTED, "'s': dtype number 29 is newer"},
    {AT(SCALAR, 67), 1, 255, SIDESTEP_EUNSUPPORTED, "'s': dtype number 255 is newer"},
    {AT(SCALAR, 67), 1, SIDESTEP_INT32, SIDESTEP_ECORRUPT, "8 bytes of data, but its box has 4"},
    {AT(MANY, 68), 1, 65, SIDESTEP_ECORRUPT, "item 7: 65 dimensions"},
    {AT(MANY, 69), 1, 65, SIDESTEP_ECORRUPT, "65 items in its path"},
    {AT(WEIGHT, 69), 1, 0, SIDESTEP_ECORRUPT, "item 0: a path is malformed"},
    {AT(WEIGHT, 70), 2, 1, SIDESTEP_ECORRUPT, "item 0: 2 dimensions"},
    /* Text of the first item: six dimensions of a byte each, the name, the path. */
    {AT(SAMPLES, 0), 1, 7, SIDESTEP_ECORRUPT, "4 elements at offset 4 lie outside 7"},
    {AT(SAMPLES, 6), 1, '\0', SIDESTEP_ECORRUPT, "item 0: its shape or name is cut off"},
    {AT(SAMPLES, 6), 1, 0xff, SIDESTEP_ECORRUPT, "a name is not UTF-8"},
    {AT(SAMPLES, 6), 1, '\x1b', SIDESTEP_OK, ""},
    {AT(SAMPLES, 28), 2, 4, SIDESTEP_ECORRUPT, "item 0: a path is malformed"},
    {AT(SAMPLES, 28), 2, 0x8005, SIDESTEP_ECORRUPT, "item 0: flags 0x0a instead of 0x02"},
};

TEST(contradictions_are_refused_with_a_reason)
{
    for (size_t i = 0; i < ARRAY_LENGTH(lies); i++) {
        OWNED_ARENA arena = {0};
        OWNED_BUFFER bytes = {0};
        struct sample sample;
        struct footer footer;
        struct sidestep_error err = {0};
        sample_init(&sample);
        sample_encode(&sample, &bytes);
        sample_put_le(bytes.bytes + lies[i].at, lies[i].value, lies[i].bytes);
        sample_fix_hashes(bytes.bytes, bytes.length);
        if (sample_read(bytes.bytes, bytes.length, &arena, &footer, &err) != lies[i].status ||
            strstr(err.message, lies[i].words) == NULL)
            fail_msg("lie %zu: status %d, '%s', not '%s'", i, err.status, err.message,
                     lies[i].words);
    }
}

TEST(padding_is_zero_and_short)
{
    OWNED_ARENA arena = {0};
    struct footer footer = {.world_size = 1, .shard_count = 1};
    uint8_t bytes[HEADER + 8 + FOOTER_TRAILER_BYTES];
    OWNED_BUFFER encoded = {0};
    struct sidestep_error err = {0};

    assert_int_equal(footer_encode(&footer, SAMPLE_ITEMS_END, &encoded, NULL), SIDESTEP_OK);
    memset(bytes, 0, sizeof(bytes));
    memcpy(bytes, encoded.bytes, HEADER);
    memcpy(bytes + HEADER + 8, encoded.bytes + HEADER, FOOTER_TRAILER_BYTES);
    sample_put_le(bytes + HEADER + 8 + 32, HEADER + 8, 8);
    for (unsigned field = 48; field <= 56; field += 8) { /* text, then a hash, of nobody */
        sample_put_le(bytes + 48, 0, 8);
        sample_put_le(bytes + 56, 0, 8);
        sample_put_le(bytes + field, field == 48 ? 8 : 1, 8);
        sample_fix_hashes(bytes, sizeof(bytes));
        assert_int_equal(sample_read(bytes, sizeof(bytes), &arena, &footer, &err),
                         SIDESTEP_ECORRUPT);
        assert_non_null(strstr(err.message, field == 48 ? "bytes follow the text of the last item"
                                                        : "1 hashes belong to no item"));
    }
}

/* A newer writer may append data after the hashes, if a feature bit says so. */
TEST(unknown_optional_features_are_ignored)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER bytes = {0}, longer = {0};
    struct sample sample;
    struct footer footer;

    sample_init(&sample);
    sample.footer.optional_features = UINT64_C(1) << 40;
    sample_encode(&sample, &bytes);
    size_t footer_bytes = bytes.length - FOOTER_TRAILER_BYTES;
    sample_put_le(bytes.bytes + 36, 13, 4);
    buffer_put(&longer, bytes.bytes, footer_bytes);
    buffer_put(&longer, "thirteen byte", 13);
    buffer_put(&longer, bytes.bytes + footer_bytes, FOOTER_TRAILER_BYTES);
    sample_put_le(longer.bytes + footer_bytes + 13 + 32, footer_bytes + 13, 8);
    sample_fix_hashes(longer.bytes, longer.length);
    assert_int_equal(sample_read(longer.bytes, longer.length, &arena, &footer, NULL), SIDESTEP_OK);
    assert_int_equal(footer.count, SAMPLES);
    assert_int_equal(footer.optional_features, UINT64_C(1) << 40);
}

/* Items with transforms: all their bytes are data, and an extension has the names. */
TEST(transforms_are_named)
{
    static const char *const names[] = {"stream.zstd/1", "a,b"};
    struct sample s;
    struct footer footer;
    struct sidestep_error err = {0};
    OWNED_BUFFER bytes = {0};
    OWNED_ARENA arena = {0};

    sample_init(&s);
    s.footer.transforms = names;
    s.footer.transform_count = 2;
    s.items[WEIGHT].transform = 2;
    s.items[WEIGHT].data_bytes = s.items[WEIGHT].bytes;
    s.items[OBJECT].transform = 1;
    s.items[OBJECT].raw_bytes = 123456;
    s.items[WEIGHT].block_count = 1;
    sample_encode(&s, &bytes);
    assert_int_equal(sample_read(bytes.bytes, bytes.length, &arena, &footer, &err), SIDESTEP_OK);
    assert_int_equal(footer.required_features, FOOTER_REQUIRED_TRANSFORMS);
    assert_int_equal(footer.transform_count, 2);
    assert_string_equal(footer.transforms[0], names[0]);
    assert_string_equal(footer.transforms[1], names[1]);
    for (size_t i = 0; i < SAMPLES; i++)
        sample_assert_equal(&s.items[i], &footer.items[i]);
    assert_int_equal(footer_encoded_bytes(&footer), bytes.length);

    /* An empty name, a transform that is not listed, and bytes besides the data. */
    s.footer.transforms = (const char *const[]){"x", ""};
    assert_int_equal(footer_encode(&s.footer, SAMPLE_ITEMS_END, &bytes, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "transform 2 has no name"));
    s.footer.transforms = names;
    s.items[WEIGHT].data_bytes--;
    assert_int_equal(footer_encode(&s.footer, SAMPLE_ITEMS_END, &bytes, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "a transformed tensor has"));
    s.items[WEIGHT].data_bytes++;
    s.items[WEIGHT].transform = 3;
    assert_int_equal(footer_encode(&s.footer, SAMPLE_ITEMS_END, &bytes, &err),
                     SIDESTEP_EUNSUPPORTED);
}
