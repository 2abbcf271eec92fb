/* SPDX-License-Identifier: BSD-3-Clause */
/* codec_test.c -- codecs encode and decode items, and refuse damaged bytes. */
#include <errno.h>
#include <zstd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "codec/codec.h"
#include "codec/planes.h"
#include "sidestep/sidestep_tools.h"
#include "support/guard.h"
#include "support/prng.h"
#include "support/unit.h"

#define CODECS 5u
static const struct codec *codecs[CODECS];

static int find_codecs(void **state)
{
    (void)state;
    const struct codec *all[CODECS] = {&codec_zstd, &codec_planes, codec_zstd_level(1),
                                       codec_zstd_level(3), codec_zstd_level(14)};
    memcpy(codecs, all, sizeof(all));
    return 0;
}

struct collected {
    struct codec_sink sink;
    struct buffer bytes;
};

static enum sidestep_status collect(struct codec_sink *sink, const uint8_t *bytes, size_t length,
                                    struct sidestep_error *err)
{
    struct collected *out = (struct collected *)sink;

    buffer_put(&out->bytes, bytes, length);
    return buffer_check(&out->bytes, err);
}

static void release(struct collected *out)
{
    buffer_release(&out->bytes);
}

static enum sidestep_status decode(const struct codec *codec, const void *stored, size_t length,
                                   uint64_t most, struct collected *out, struct sidestep_error *err)
{
    struct codec_memory_input in;
    void *copy = guard_copy(stored, length);

    *out = (struct collected){.sink = {collect}};
    codec_memory_input_init(&in, copy, length);
    enum sidestep_status status = codec->decode(codec, &in.input, most, &out->sink, err);
    guard_free(copy);
    return status;
}

/* Encode ${item}, whose bytes are ${bytes}, in parts of about ${chunks} chunks. */
static enum sidestep_status encode(const struct codec *codec, const struct codec_item *item,
                                   const uint8_t *bytes, uint64_t chunks, struct buffer *out,
                                   struct sidestep_error *err)
{
    struct codec_encoder *encoder = NULL;
    OWNED_BUFFER index = {0};
    uint64_t at = 0, data_end = item->data_offset + item->data_bytes;
    enum sidestep_status status = codec->encoder_new(codec, &encoder, err);

    while (status == SIDESTEP_OK && at < item->bytes) {
        uint64_t end = max_u64(at, item->data_offset) + chunks * CODEC_CHUNK_BYTES;
        if (end >= data_end)
            end = item->bytes;
        struct codec_part part = {.bytes = bytes + at, .begin = at, .length = end - at};
        status = codec->encode(encoder, item, &part, out, &index, err);
        at = end;
    }
    if (status == SIDESTEP_OK) {
        buffer_put(out, index.bytes, index.length);
        status = buffer_check(out, err);
    }
    codec->encoder_free(encoder);
    return status;
}

enum kind { NORMAL, NOISE, ZEROES, TEXT, KINDS };

/* Head, data and tail. */
static uint8_t *make_item(struct prng *prng, enum kind kind, const struct codec_item *item)
{
    uint8_t *bytes = malloc(item->bytes + 8);

    assert_non_null(bytes);
    for (uint64_t i = 0; i < item->bytes; i += 4) {
        uint32_t word = (uint32_t)prng_next(prng);
        if (kind == NORMAL)
            word = (word & 0x807fffff) | (uint32_t)(100 + word % 7) << 23;
        else if (kind == ZEROES)
            word = 0;
        else if (kind == TEXT)
            word = 0x20202020 | (word & 0x01010101);
        memcpy(bytes + i, &word, 4);
    }
    return bytes;
}

static void check_round_trip(const struct codec *codec, struct prng *prng, enum kind kind,
                             const struct codec_item *item, uint64_t chunks)
{
    OWNED uint8_t *bytes = make_item(prng, kind, item);
    OWNED_BUFFER stored = {0};
    OWNED_BY(release) struct collected out;
    struct sidestep_error err = {0};

    PRNG_ASSERT(prng, encode(codec, item, bytes, chunks, &stored, &err) == SIDESTEP_OK);
    enum sidestep_status status =
        decode(codec, stored.bytes, stored.length, item->bytes, &out, &err);
    if (status != SIDESTEP_OK)
        print_message("# %s: %s\n", codec->descriptor, err.message);
    PRNG_ASSERT(prng, status == SIDESTEP_OK);
    PRNG_ASSERT(prng, out.bytes.length == item->bytes);
    PRNG_ASSERT(prng, memcmp(out.bytes.bytes, bytes, item->bytes) == 0);
    PRNG_ASSERT(prng, stored.length <= item->bytes + item->bytes / 256 + 200);
    if (kind == ZEROES && item->bytes > 100000)
        PRNG_ASSERT(prng, stored.length < item->bytes / 20);
}

TEST(items_round_trip)
{
    static const uint64_t sizes[] = {8,
                                     16,
                                     1000,
                                     65536,
                                     128 << 10,
                                     CODEC_CHUNK_BYTES - 16,
                                     CODEC_CHUNK_BYTES,
                                     CODEC_CHUNK_BYTES + 16,
                                     3 * CODEC_CHUNK_BYTES + 4080};
    for (uint64_t seed = 1; seed <= 150; seed++) {
        struct prng prng = prng_new(seed);
        enum sidestep_dtype dtype = (enum sidestep_dtype)prng_below(&prng, SIDESTEP_DTYPE_END);
        struct codec_item item = {.data_offset =
                                      dtype == SIDESTEP_DTYPE_NONE ? 0 : prng_below(&prng, 1500),
                                  .data_bytes = sizes[prng_below(&prng, ARRAY_LENGTH(sizes))],
                                  .dtype = dtype};
        item.bytes = item.data_offset + item.data_bytes +
                     (dtype == SIDESTEP_DTYPE_NONE ? 0 : prng_below(&prng, 1500));
        check_round_trip(codecs[seed % CODECS], &prng, (enum kind)prng_below(&prng, KINDS), &item,
                         1 + prng_below(&prng, 3));
    }
}

/* The result is one frame that any zstd decodes, as stock torch does. */
TEST(zstd_is_one_frame)
{
    struct codec_item item = {.bytes = (5u << 20) + 77,
                              .data_offset = 70,
                              .data_bytes = 5 << 20,
                              .dtype = SIDESTEP_FLOAT32};
    struct sidestep_error err = {0};

    for (unsigned kind = 0; kind < KINDS; kind++) {
        struct prng prng = prng_new(kind);
        OWNED uint8_t *bytes = make_item(&prng, (enum kind)kind, &item);
        OWNED uint8_t *decoded = malloc(item.bytes);
        OWNED_BUFFER stored = {0};
        assert_int_equal(encode(&codec_zstd, &item, bytes, 2, &stored, &err), SIDESTEP_OK);
        assert_int_equal(ZSTD_getFrameContentSize(stored.bytes, stored.length), item.bytes);
        assert_int_equal(ZSTD_decompress(decoded, item.bytes, stored.bytes, stored.length),
                         item.bytes);
        assert_memory_equal(decoded, bytes, item.bytes);
        if (kind == NORMAL)
            assert_true(stored.length < item.bytes - item.bytes / 16);
    }
}

/* Data that repeats in a way that only a search finds: numbers below 50,000 in 8 bytes each, many
 * of which come in the same order again. */
static uint8_t *make_tokens(struct prng *prng, uint64_t bytes)
{
    uint64_t *tokens = malloc(bytes);

    assert_non_null(tokens);
    for (uint64_t i = 0; i < bytes / 8;) {
        uint64_t from = i > 1000 && prng_below(prng, 2) == 0 ? prng_below(prng, i - 100) : i;
        for (unsigned k = 0; k < 40 && i < bytes / 8; k++, i++)
            tokens[i] = from < i - k ? tokens[from + k] : prng_below(prng, 50000);
    }
    return (uint8_t *)tokens;
}

/* Each part finds its own matches, wherever it is. If parts did not pass their trial, the result
 * would be as large as without a search. At the lowest levels, some do not pass. */
TEST(levels_find_what_repeats)
{
    static const unsigned levels[] = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 19};
    struct codec_item item = {.bytes = 3 << 20, .data_bytes = 3 << 20, .dtype = SIDESTEP_INT64};
    struct prng prng = prng_new(7);
    struct sidestep_error err = {0};
    OWNED uint8_t *bytes = make_tokens(&prng, item.bytes);
    OWNED uint8_t *decoded = malloc(item.bytes);
    OWNED_BUFFER plain = {0};

    assert_int_equal(encode(&codec_zstd, &item, bytes, 1, &plain, &err), SIDESTEP_OK);
    for (size_t i = 0; i < ARRAY_LENGTH(levels); i++) {
        size_t bound = ZSTD_compressBound(CODEC_CHUNK_BYTES), alone = 0;
        OWNED_BUFFER stored = {0};
        OWNED uint8_t *whole = malloc(bound);
        for (uint64_t at = 0; at < item.bytes; at += CODEC_CHUNK_BYTES)
            alone += ZSTD_compress(whole, bound, bytes + at, CODEC_CHUNK_BYTES, (int)levels[i]);
        assert_int_equal(encode(codec_zstd_level(levels[i]), &item, bytes, 1, &stored, &err),
                         SIDESTEP_OK);
        size_t most = alone + alone / (levels[i] < 3 ? 2 : 50);
        if (stored.length > most)
            print_message("# level %u: %zu, not %zu\n", levels[i], stored.length, alone);
        assert_true(stored.length <= most);
        assert_true(stored.length < plain.length - plain.length / 8);
        assert_int_equal(ZSTD_decompress(decoded, item.bytes, stored.bytes, stored.length),
                         item.bytes);
        assert_memory_equal(decoded, bytes, item.bytes);
    }
}

/* Parts that begin like the primer (zstd_level.c), and parts that begin like the end of the
 * previous part, with all lengths of runs. Matches would reach back, and must not. */
TEST(parts_do_not_reach_back)
{
    struct codec_item item = {.bytes = 2 << 20, .data_bytes = 2 << 20, .dtype = SIDESTEP_UINT8};
    struct sidestep_error err = {0};
    OWNED uint8_t *decoded = malloc(item.bytes);

    for (unsigned k = 0; k < 12; k++) {
        struct prng prng = prng_new(k + 1);
        OWNED uint8_t *bytes = make_item(&prng, (enum kind)(k % KINDS), &item);
        OWNED_BUFFER stored = {0};
        uint32_t seed = 1;
        for (unsigned i = 0; i < 700; i++) {
            seed = seed * 1664525u + 1013904223u;
            if (k < 4)
                bytes[CODEC_CHUNK_BYTES + i] = (uint8_t)(seed >> 24);
            else if (k < 8)
                bytes[CODEC_CHUNK_BYTES + i] = bytes[CODEC_CHUNK_BYTES - 64 + i];
        }
        assert_int_equal(encode(codec_zstd_level(1 + 6 * (k % 3)), &item, bytes, 1, &stored, &err),
                         SIDESTEP_OK);
        assert_int_equal(ZSTD_decompress(decoded, item.bytes, stored.bytes, stored.length),
                         item.bytes);
        assert_memory_equal(decoded, bytes, item.bytes);
    }
}

/* The item is cut short, has bytes after its end, a flipped bit, or exceeds the limit. */
TEST(damage_is_refused_or_decoded_within_limits)
{
    struct codec_item item = {
        .bytes = 70000 + 900, .data_offset = 500, .data_bytes = 70000, .dtype = SIDESTEP_BFLOAT16};
    struct sidestep_error err = {0};
    struct prng prng = prng_new(1);
    OWNED uint8_t *bytes = make_item(&prng, NORMAL, &item);

    for (size_t c = 0; c < ARRAY_LENGTH(codecs); c++) {
        OWNED_BUFFER stored = {0};
        struct collected out;
        assert_int_equal(encode(codecs[c], &item, bytes, 1, &stored, &err), SIDESTEP_OK);
        for (size_t length = 0; length < stored.length; length += 1 + length / 5) {
            assert_int_equal(decode(codecs[c], stored.bytes, length, item.bytes, &out, &err),
                             SIDESTEP_ECORRUPT);
            release(&out);
        }
        assert_int_equal(decode(codecs[c], stored.bytes, stored.length, item.bytes - 1, &out, &err),
                         SIDESTEP_ECORRUPT);
        release(&out);
        for (unsigned n = 0; n < 400; n++) {
            size_t at = n < 60 ? n : prng_below(&prng, stored.length);
            uint8_t bit = (uint8_t)(1u << prng_below(&prng, 8));
            stored.bytes[at] ^= bit;
            enum sidestep_status status =
                decode(codecs[c], stored.bytes, stored.length, item.bytes, &out, &err);
            assert_true(status == SIDESTEP_OK || status == SIDESTEP_ECORRUPT ||
                        status == SIDESTEP_EUNSUPPORTED);
            assert_true(out.bytes.length <= item.bytes);
            stored.bytes[at] ^= bit;
            release(&out);
        }
        buffer_put_u8(&stored, 0);
        assert_int_equal(decode(codecs[c], stored.bytes, stored.length, item.bytes, &out, &err),
                         SIDESTEP_ECORRUPT);
        release(&out);
    }
}

/* Headers of planes with impossible values. */
TEST(wrong_planes_headers_are_refused)
{
    static const struct {
        size_t at;
        unsigned width;
        uint64_t value;
        enum sidestep_status status;
        const char *message;
    } lies[] = {
        {0, 1, 'X', SIDESTEP_ECORRUPT, "does not begin with its magic"},
        {8, 1, 2, SIDESTEP_EUNSUPPORTED, "version 2"},
        {9, 1, 3, SIDESTEP_ECORRUPT, "elements of 3 bytes"},
        {9, 1, 16, SIDESTEP_ECORRUPT, "elements of 16 bytes"},
        {9, 1, 0, SIDESTEP_ECORRUPT, "elements of 0 bytes"},
        {10, 2, 2, SIDESTEP_EUNSUPPORTED, "flags 0x2"},
        {12, 4, 4096, SIDESTEP_EUNSUPPORTED, "chunks of 4096 bytes"},
        {16, 8, UINT64_MAX, SIDESTEP_ECORRUPT, "at most"},
        {24, 8, 1 << 20, SIDESTEP_ECORRUPT, "data at"},
        {32, 8, UINT64_MAX - 3, SIDESTEP_ECORRUPT, "data at"},
        {40, 4, 5, SIDESTEP_ECORRUPT, "a plane has 5 bytes instead"},
        {40, 4, (1u << 30) | 2, SIDESTEP_ECORRUPT, "a constant has 2 bytes"},
        {40, 4, 3u << 30, SIDESTEP_ECORRUPT, "unknown method"},
        {40, 4, (1u << 30) - 1, SIDESTEP_ECORRUPT, "a chunk has"},
    };
    struct codec_item item = {.bytes = 4000, .data_bytes = 4000, .dtype = SIDESTEP_BFLOAT16};
    struct sidestep_error err = {0};
    struct prng prng = prng_new(1);
    OWNED uint8_t *bytes = make_item(&prng, NOISE, &item);

    for (size_t i = 0; i < ARRAY_LENGTH(lies); i++) {
        OWNED_BUFFER stored = {0};
        OWNED_BY(release) struct collected out;
        assert_int_equal(encode(&codec_planes, &item, bytes, 1, &stored, &err), SIDESTEP_OK);
        for (unsigned k = 0; k < lies[i].width; k++)
            stored.bytes[lies[i].at + k] = (uint8_t)(lies[i].value >> (8 * k));
        assert_int_equal(decode(&codec_planes, stored.bytes, stored.length, 1 << 20, &out, &err),
                         lies[i].status);
        if (strstr(err.message, lies[i].message) == NULL)
            fail_msg("'%s' does not say '%s'", err.message, lies[i].message);
    }
}

TEST(memory_may_be_short)
{
    /* Two parts with matches, so that the second one needs a trial. */
    struct codec_item item = {
        .bytes = (1 << 20) + 8000, .data_bytes = (1 << 20) + 8000, .dtype = SIDESTEP_FLOAT32};
    struct prng prng = prng_new(2);
    OWNED uint8_t *bytes = make_item(&prng, TEXT, &item);

    for (size_t c = 0; c < ARRAY_LENGTH(codecs); c++) {
        bool fired = true;
        for (unsigned long n = 1; fired; n++) {
            OWNED_BUFFER stored = {0};
            OWNED_BY(release) struct collected out = {0};
            struct sidestep_error err = {0};
            fault_arm("memory", n, false, ENOMEM);
            enum sidestep_status status = encode(codecs[c], &item, bytes, 1, &stored, &err);
            if (status == SIDESTEP_OK)
                status = decode(codecs[c], stored.bytes, stored.length, item.bytes, &out, &err);
            fired = fault_fired() != NULL;
            fault_arm("", 0, false, 0);
            assert_int_equal(status, fired ? SIDESTEP_ENOMEM : SIDESTEP_OK);
        }
    }
}

TEST(the_public_function_decodes)
{
    struct codec_item item = {.bytes = 3000, .data_bytes = 3000, .dtype = SIDESTEP_FLOAT32};
    struct sidestep_error err = {0};
    struct prng prng = prng_new(3);
    OWNED uint8_t *bytes = make_item(&prng, NORMAL, &item);
    OWNED_BUFFER stored = {0};
    void *decoded = NULL;
    size_t length = 0;

    assert_int_equal(encode(&codec_planes, &item, bytes, 1, &stored, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_decode("sidestep.planes/1", stored.bytes, stored.length, 3000,
                                     &decoded, &length, &err),
                     SIDESTEP_OK);
    assert_int_equal(length, 3000);
    assert_memory_equal(decoded, bytes, length);
    sidestep_bytes_free(&decoded);
    assert_int_equal(sidestep_decode("sidestep.planes/1", stored.bytes, stored.length, 2999,
                                     &decoded, &length, &err),
                     SIDESTEP_ECORRUPT);
    assert_int_equal(
        sidestep_decode("rot13", stored.bytes, stored.length, 3000, &decoded, &length, &err),
        SIDESTEP_EUNSUPPORTED);
    assert_int_equal(sidestep_decode(NULL, stored.bytes, 1, 1, &decoded, &length, &err),
                     SIDESTEP_EINVAL);
}

/* An encoded item with bytes in front of it, and its chunks. */
#define CHUNKS 3u
#define IN_FRONT 8u

struct chunked {
    struct codec_item item;
    uint8_t *bytes;
    struct buffer stored;
    uint64_t places[CHUNKS + 1];
};

static enum sidestep_status locate(struct chunked *chunked, size_t stored_bytes)
{
    struct source source = source_from_memory(chunked->stored.bytes, chunked->stored.length);
    struct sidestep_error err = {0};

    return codec_planes.chunks->locate(&chunked->item, &source, IN_FRONT, stored_bytes,
                                       chunked->places, &err);
}

/* Each chunk decodes to its part of the item; cut short, it is refused. */
static void check_chunks(const struct chunked *chunked, struct codec_decoder *decoder)
{
    static uint8_t decoded[CODEC_CHUNK_BYTES];
    const struct codec_chunk_ops *chunks = codec_planes.chunks;
    const struct codec_item *item = &chunked->item;
    struct sidestep_error err = {0};

    for (unsigned c = 0; c < CHUNKS; c++) {
        uint64_t begin = c * CODEC_CHUNK_BYTES, place = chunked->places[c];
        size_t length = (size_t)min_u64(CODEC_CHUNK_BYTES, item->data_bytes - begin);
        size_t coded = (size_t)(chunked->places[c + 1] - place);
        void *copy = guard_copy(chunked->stored.bytes + IN_FRONT + place, coded);
        assert_int_equal(chunks->decode(decoder, item, copy, coded, decoded, length, &err),
                         SIDESTEP_OK);
        assert_memory_equal(decoded, chunked->bytes + item->data_offset + begin, length);
        guard_free(copy);
        copy = guard_copy(chunked->stored.bytes + IN_FRONT + place, coded - 1);
        assert_int_equal(chunks->decode(decoder, item, copy, coded - 1, decoded, length, &err),
                         SIDESTEP_ECORRUPT);
        assert_int_equal(chunks->decode(decoder, item, copy, 3, decoded, length, &err),
                         SIDESTEP_ECORRUPT);
        guard_free(copy);
    }
}

/* Wrong sizes, and flipped bits in the header and the index. */
static void check_lies(struct chunked *chunked)
{
    size_t length = chunked->stored.length - IN_FRONT;
    const size_t lies[] = {0, 9, 10, 16, 24, 32, length - 1, length - 4 * CHUNKS};

    assert_int_not_equal(locate(chunked, length - 1), SIDESTEP_OK);
    assert_int_not_equal(locate(chunked, length + 1), SIDESTEP_OK);
    assert_int_not_equal(locate(chunked, 45), SIDESTEP_OK);
    for (size_t k = 0; k < ARRAY_LENGTH(lies); k++) {
        chunked->stored.bytes[IN_FRONT + lies[k]] ^= 1;
        assert_int_not_equal(locate(chunked, length), SIDESTEP_OK);
        chunked->stored.bytes[IN_FRONT + lies[k]] ^= 1;
    }
}

TEST(chunks_stand_for_themselves)
{
    static const enum sidestep_dtype dtypes[] = {SIDESTEP_BFLOAT16, SIDESTEP_FLOAT32,
                                                 SIDESTEP_FLOAT64, SIDESTEP_UINT8};
    struct codec_decoder *decoder = NULL;
    struct sidestep_error err = {0};
    struct prng prng = prng_new(4);
    uint64_t data = (CHUNKS - 1) * CODEC_CHUNK_BYTES + 80;

    assert_null(codec_zstd.chunks);
    assert_int_equal(codec_chunk_count(data), CHUNKS);
    assert_int_equal(codec_planes.chunks->decoder_new(&decoder, &err), SIDESTEP_OK);
    for (size_t i = 0; i < ARRAY_LENGTH(dtypes); i++) {
        struct chunked chunked = {
            .item = {
                .bytes = data + 900, .data_offset = 512, .data_bytes = data, .dtype = dtypes[i]}};
        chunked.bytes = make_item(&prng, NORMAL, &chunked.item);
        buffer_put(&chunked.stored, "in front", IN_FRONT);
        assert_int_equal(
            encode(&codec_planes, &chunked.item, chunked.bytes, 2, &chunked.stored, &err),
            SIDESTEP_OK);
        assert_int_equal(locate(&chunked, chunked.stored.length - IN_FRONT), SIDESTEP_OK);
        check_chunks(&chunked, decoder);
        check_lies(&chunked);
        buffer_release(&chunked.stored);
        free(chunked.bytes);
    }
    codec_planes.chunks->decoder_free(decoder);
}

ALL_TESTS(find_codecs, NULL);
