/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zstd_level.c -- encodes "stream.zstd/1" with matches, at the levels of libzstd.  It is for data
 * where strings of bytes repeat, such as tokens, indices and text; not for weights.
 *
 * An item is one frame, whose parts several threads encode.  The first part is encoded as the
 * beginning of a frame.  The thread of any other part does not know the bytes in front of it, so it
 * first encodes a primer: a few bytes that leave the encoder with three repeated offsets which do
 * not fit what follows.  Only the blocks after the primer are stored.
 *
 * A trial shows whether these blocks depend on what is really in front of them.  They are decoded
 * twice, once after enough bytes of 0x00 and once after enough bytes of 0xff, with repeated offsets
 * that reach there, and must give the part both times.  A match that begins in front of the part
 * copies 0x00 once and 0xff once, and the part has at most one of them at that place.
 *
 * A part that fails the trial is encoded without matches.  This is rare, except at levels 1 and 2:
 * they find so few matches that an offset of the primer may last until it fits something.
 */
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_c_srcSizeHint */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zstd_errors.h>

#include "base/base.h"
#include "codec/zstd.h"
#include "codec/zstd_blocks.h"
#include "codec/zstd_encode.h"

#define WINDOW_LOG 22 /* one part */
/* For levels from SLOW_LEVEL on: it halves the memory, and makes encoded text 0.3 % larger. */
#define SLOW_WINDOW_LOG 21
#define SLOW_LEVEL 10
#define RANDOM_BYTES 64u /* of each of the three strings that repeat in the primer */
/* Spaces between the strings make their offsets different, and odd multiples of 4.  Small numbers
 * of 8 bytes each have equal zeroes at multiples of 8, but not at these distances. */
#define FIRST_SPACE_BYTES 4u
#define SPACE_BYTES 8u
#define BEHIND_BYTES 32u /* libzstd does not search for matches in the last few bytes */
#define PRIMER_BYTES (6u * RANDOM_BYTES + FIRST_SPACE_BYTES + 2u * SPACE_BYTES + BEHIND_BYTES)
#define OFFSETS 3u
#define TRIAL_WINDOW_BYTE ((uint8_t)((ZSTD_WINDOW_LOG_MAX - 10) << 3))
#define MATCH_BYTES 3u /* the shortest match */

struct zstd_level {
    struct codec codec;
    int level;
};

struct codec_encoder {
    ZSTD_CCtx *coder;
    ZSTD_DCtx *decoder;
    unsigned window_log;
    struct codec_encoder *plain; /* of codec_zstd, for parts that fail the trial */
    uint8_t primer[PRIMER_BYTES];
    struct buffer trial;   /* the frame of a trial */
    struct buffer decoded; /* only its capacity is used */
};

/* Make three strings, and repeat them, each at a larger distance than the one before. */
static void make_primer(uint8_t to[PRIMER_BYTES])
{
    uint32_t seed = 1;
    size_t repeated = OFFSETS * RANDOM_BYTES + FIRST_SPACE_BYTES;

    for (size_t i = 0; i < PRIMER_BYTES; i++) {
        seed = seed * 1664525u + 1013904223u; /* any generator would serve */
        to[i] = (uint8_t)(seed >> 24);
    }
    for (size_t k = 0; k < OFFSETS; k++)
        memcpy(to + repeated + k * (RANDOM_BYTES + SPACE_BYTES), to + k * RANDOM_BYTES,
               RANDOM_BYTES);
}

static void encoder_free(struct codec_encoder *encoder)
{
    if (encoder == NULL)
        return;
    ZSTD_freeCCtx(encoder->coder);
    ZSTD_freeDCtx(encoder->decoder);
    codec_zstd.encoder_free(encoder->plain);
    buffer_release(&encoder->trial);
    buffer_release(&encoder->decoded);
    free(encoder);
}

static enum sidestep_status prepare(struct codec_encoder *encoder, int level,
                                    struct sidestep_error *err)
{
    encoder->coder = fault_hit("memory") ? NULL : ZSTD_createCCtx();
    encoder->decoder = fault_hit("memory") ? NULL : ZSTD_createDCtx();
    if (encoder->coder == NULL || encoder->decoder == NULL)
        return FAIL(err, SIDESTEP_ENOMEM, "zstd: no memory for an encoder");
    ZSTD_CCtx_setParameter(encoder->coder, ZSTD_c_compressionLevel, level);
    encoder->window_log = level < SLOW_LEVEL ? WINDOW_LOG : SLOW_WINDOW_LOG;
    ZSTD_CCtx_setParameter(encoder->coder, ZSTD_c_windowLog, (int)encoder->window_log);
    /* Makes the tables as large as a part needs: at level 19, 35 MiB instead of 85 MiB. */
    ZSTD_CCtx_setParameter(encoder->coder, ZSTD_c_srcSizeHint, 1 << encoder->window_log);
    ZSTD_CCtx_setParameter(encoder->coder, ZSTD_c_contentSizeFlag, 0);
    ZSTD_CCtx_setParameter(encoder->coder, ZSTD_c_checksumFlag, 0);
    ZSTD_DCtx_setParameter(encoder->decoder, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
    make_primer(encoder->primer);
    return codec_zstd.encoder_new(&codec_zstd, &encoder->plain, err);
}

static enum sidestep_status encoder_new(const struct codec *self, struct codec_encoder **out,
                                        struct sidestep_error *err)
{
    struct codec_encoder *encoder = memory_new(1, sizeof(*encoder));

    if (encoder == NULL)
        return FAIL_NOMEM(err, sizeof(*encoder));
    enum sidestep_status status = prepare(encoder, ((const struct zstd_level *)self)->level, err);
    if (status != SIDESTEP_OK) {
        encoder_free(encoder);
        return status;
    }
    *out = encoder;
    return SIDESTEP_OK;
}

/* Encode ${bytes}, and append all that the encoder has to ${out}, which is large enough. */
static enum sidestep_status encode_bytes(ZSTD_CCtx *coder, const void *bytes, size_t length,
                                         ZSTD_EndDirective how, ZSTD_outBuffer *out,
                                         struct sidestep_error *err)
{
    ZSTD_inBuffer in = {.src = bytes, .size = length};
    size_t left = ZSTD_compressStream2(coder, out, &in, how);

    if (ZSTD_isError(left))
        return zstd_encoder_error(left, err);
    assert(left == 0 && in.pos == in.size);
    return SIDESTEP_OK;
}

/* Append the encoded primer and ${part}.  Set ${*begin} to where the blocks of ${part} begin. */
static enum sidestep_status encode_part(struct codec_encoder *encoder,
                                        const struct codec_part *part, struct buffer *out,
                                        size_t *begin, struct sidestep_error *err)
{
    size_t room = ZSTD_compressBound(PRIMER_BYTES) + ZSTD_compressBound((size_t)part->length);
    size_t start = out->length;
    uint8_t *to = buffer_extend(out, room);
    ZSTD_outBuffer coded = {.dst = to, .size = room};

    if (to == NULL)
        return buffer_check(out, err);
    out->length = start;
    ZSTD_CCtx_reset(encoder->coder, ZSTD_reset_session_only);
    if (part->begin == 0) {
        *begin = ZSTD_ENCODED_HEADER_BYTES;
    } else {
        TRY(encode_bytes(encoder->coder, encoder->primer, PRIMER_BYTES, ZSTD_e_flush, &coded, err));
        *begin = coded.pos;
    }
    TRY(encode_bytes(encoder->coder, part->bytes, (size_t)part->length, ZSTD_e_end, &coded, err));
    *begin += start;
    out->length = start + coded.pos;
    return SIDESTEP_OK;
}

/* Append a block that makes ${offset}, ${offset} + 1 and ${offset} + 2 the repeated offsets.  It
 * has three sequences without literals, each a match of MATCH_BYTES.  Its tables have one symbol
 * each. */
static void put_offsets(uint64_t offset, struct buffer *out)
{
    enum { ONE_SYMBOL_EACH = 0x54, NO_LITERALS = 0 };
    unsigned code = 0, bits = 0;
    uint8_t header[ZSTD_BLOCK_HEADER_BYTES], stream[16] = {0};

    while (offset >> (code + 1) != 0)
        code++;
    /* Decoders read bits from the end, before which they skip a set bit: the last sequence comes
     * first. */
    for (unsigned k = 0; k < OFFSETS; k++)
        for (unsigned bit = 0; bit < code; bit++, bits++)
            if (((offset + k) >> bit & 1) != 0)
                stream[bits / 8] = (uint8_t)(stream[bits / 8] | 1u << bits % 8);
    stream[bits / 8] = (uint8_t)(stream[bits / 8] | 1u << bits % 8);
    uint8_t body[] = {NO_LITERALS, OFFSETS, ONE_SYMBOL_EACH, 0, (uint8_t)code, 0};
    size_t stream_bytes = bits / 8 + 1;
    zstd_block_write_header(header, ZSTD_BLOCK_COMPRESSED, sizeof(body) + stream_bytes, false);
    buffer_put(out, header, sizeof(header));
    buffer_put(out, body, sizeof(body));
    buffer_put(out, stream, stream_bytes);
}

/* Do ${blocks} decode to ${part} if all bytes in front of them are ${value}? */
static enum sidestep_status try_blocks(struct codec_encoder *encoder, const struct codec_part *part,
                                       const uint8_t *blocks, size_t length, uint8_t value,
                                       bool *correct, struct sidestep_error *err)
{
    struct buffer *trial = &encoder->trial;
    size_t in_front = round_up((size_t)part->length + ZSTD_BLOCKSIZE_MAX, ZSTD_BLOCKSIZE_MAX);
    size_t room = in_front + OFFSETS * MATCH_BYTES + (size_t)part->length;

    trial->length = 0;
    buffer_put_u32le(trial, ZSTD_MAGICNUMBER);
    buffer_put_u8(trial, 0);
    buffer_put_u8(trial, TRIAL_WINDOW_BYTE);
    for (size_t at = 0; at < in_front; at += ZSTD_BLOCKSIZE_MAX) {
        uint8_t header[ZSTD_BLOCK_HEADER_BYTES];
        zstd_block_write_header(header, ZSTD_BLOCK_RLE, ZSTD_BLOCKSIZE_MAX, false);
        buffer_put(trial, header, sizeof(header));
        buffer_put_u8(trial, value);
    }
    put_offsets(in_front - ZSTD_BLOCKSIZE_MAX / 2, trial);
    size_t at = trial->length;
    buffer_put(trial, blocks, length);
    TRY(buffer_check(trial, err));
    if (zstd_blocks_find_dependency(trial->bytes + at, length, true) == ZSTD_DEPENDENCY_FULL) {
        *correct = false;
        return SIDESTEP_OK;
    }
    encoder->decoded.length = 0;
    uint8_t *to = buffer_extend(&encoder->decoded, room);
    if (to == NULL)
        return buffer_check(&encoder->decoded, err);
    size_t decoded = ZSTD_decompressDCtx(encoder->decoder, to, room, trial->bytes, trial->length);
    *correct =
        decoded == room && memcmp(to + room - part->length, part->bytes, (size_t)part->length) == 0;
    return SIDESTEP_OK;
}

/* Do ${blocks} decode to ${part} whatever is in front of them?  Sets or clears the last block's
 * mark as the last of its frame. */
static enum sidestep_status check_blocks(struct codec_encoder *encoder,
                                         const struct codec_part *part, bool last, uint8_t *blocks,
                                         size_t length, bool *correct, struct sidestep_error *err)
{
    enum zstd_dependency need = zstd_blocks_find_dependency(blocks, length, last);

    *correct =
        need == ZSTD_DEPENDENCY_NONE || (need == ZSTD_DEPENDENCY_OFFSETS && part->begin == 0);
    if (need != ZSTD_DEPENDENCY_OFFSETS || *correct)
        return SIDESTEP_OK;
    TRY(try_blocks(encoder, part, blocks, length, 0x00, correct, err));
    return *correct ? try_blocks(encoder, part, blocks, length, 0xff, correct, err) : SIDESTEP_OK;
}

static enum sidestep_status encode(struct codec_encoder *encoder, const struct codec_item *item,
                                   const struct codec_part *part, struct buffer *out,
                                   struct buffer *index, struct sidestep_error *err)
{
    bool last = part->begin + part->length == item->bytes, correct = false;
    size_t start = out->length, begin = 0;

    if (part->begin == 0)
        zstd_write_frame_header(item->bytes, encoder->window_log, out);
    size_t at = out->length;
    TRY(encode_part(encoder, part, out, &begin, err));
    size_t length = out->length - begin;
    TRY(check_blocks(encoder, part, last, out->bytes + begin, length, &correct, err));
    if (!correct) {
        out->length = start;
        return codec_zstd.encode(encoder->plain, item, part, out, index, err);
    }
    memmove(out->bytes + at, out->bytes + begin, length);
    out->length = at + length;
    return SIDESTEP_OK;
}

#define LEVEL(number)                                                                              \
    {                                                                                              \
        .codec = {.descriptor = "stream.zstd/1",                                                   \
                  .encoder_new = encoder_new,                                                      \
                  .encoder_free = encoder_free,                                                    \
                  .encode = encode,                                                                \
                  .decode = zstd_decode_item},                                                     \
        .level = (number),                                                                         \
    }
static const struct zstd_level levels[CODEC_ZSTD_LEVELS] = {
    LEVEL(1),  LEVEL(2),  LEVEL(3),  LEVEL(4),  LEVEL(5),  LEVEL(6),  LEVEL(7),
    LEVEL(8),  LEVEL(9),  LEVEL(10), LEVEL(11), LEVEL(12), LEVEL(13), LEVEL(14),
    LEVEL(15), LEVEL(16), LEVEL(17), LEVEL(18), LEVEL(19),
};

const struct codec *codec_zstd_level(unsigned level)
{
    assert(level <= CODEC_ZSTD_LEVELS);
    return level == 0 ? &codec_zstd : &levels[level - 1].codec;
}
