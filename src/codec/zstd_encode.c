/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zstd_encode.c -- see zstd_encode.h, and RFC 8878 for the bytes.
 *
 * An item is one frame, because torch's reader stops behind the first.  Each part is coded as a
 * frame of its own, of which the blocks are taken.  What a block may need of those before it are
 * matches, repeated offsets and tables of symbols; a fresh coder has no tables, and that there are
 * no sequences is not trusted but checked: else the part is stored in raw blocks.
 */
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_c_literalCompressionMode */
#include "codec/zstd_encode.h"

#include <assert.h>
#include <string.h>
#include <zstd_errors.h>

#include "base/checked.h"
#include "base/fault.h"
#include "codec/codec.h"
#include "codec/zstd.h"

#define BLOCK_BYTES ((size_t)128 << 10)
#define BLOCK_HEADER_BYTES 3u
#define WINDOW_LOG 17 /* one block: what a decoder has to keep */
#define WINDOW_BYTE ((uint8_t)((WINDOW_LOG - 10) << 3))
/* Of the frames that are taken apart: magic number, descriptor, window. */
#define FRAME_HEADER_BYTES 6u
#define DESCRIPTOR_WITH_SIZE 0xC0u /* eight bytes of content size */

enum { BLOCK_RAW, BLOCK_RLE, BLOCK_COMPRESSED };

struct block {
    uint8_t *header;
    unsigned type;
    size_t bytes; /* behind the header */
};

enum sidestep_status zstd_coder_new(ZSTD_CCtx **out, struct sidestep_error *err)
{
    ZSTD_CCtx *coder = fault_hit("memory") ? NULL : ZSTD_createCCtx();

    if (coder == NULL)
        return FAIL(err, SIDESTEP_ENOMEM, "zstd: no memory for an encoder");
    /* The fastest search, with steps longer than a block. */
    ZSTD_CCtx_setParameter(coder, ZSTD_c_compressionLevel, 1);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_strategy, ZSTD_fast);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_targetLength, ZSTD_TARGETLENGTH_MAX);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_hashLog, ZSTD_HASHLOG_MIN);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_windowLog, WINDOW_LOG);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_contentSizeFlag, 0);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_checksumFlag, 0);
    /* A libzstd that does not have this one stores literals as they are: larger, not wrong. */
    ZSTD_CCtx_setParameter(coder, ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    *out = coder;
    return SIDESTEP_OK;
}

enum sidestep_status zstd_code_frame(ZSTD_CCtx *coder, const void *bytes, size_t length,
                                     struct buffer *out, struct sidestep_error *err)
{
    size_t room = ZSTD_compressBound(length), start = out->length;
    uint8_t *to = buffer_extend(out, room);

    if (to == NULL)
        return buffer_check(out, err);
    size_t coded = ZSTD_compress2(coder, to, room, bytes, length);
    out->length = start;
    if (ZSTD_isError(coded) && ZSTD_getErrorCode(coded) == ZSTD_error_memory_allocation)
        return FAIL(err, SIDESTEP_ENOMEM, "zstd: no memory to encode");
    if (ZSTD_isError(coded))
        return FAIL(err, SIDESTEP_EIO, "zstd: encode %zu bytes: %s", length,
                    ZSTD_getErrorName(coded));
    out->length += coded;
    return SIDESTEP_OK;
}

/* Bytes of the literals section (RFC 8878, 3.1.1.3.1) at ${b}; 0: it is cut off. */
static size_t literals_bytes(const uint8_t *b, size_t length)
{
    unsigned type = length != 0 ? b[0] & 3 : 0, format = length != 0 ? b[0] >> 2 & 3 : 0;
    static const size_t plain_headers[4] = {1, 2, 1, 3}, coded_headers[4] = {3, 3, 4, 5};
    size_t header = type < 2 ? plain_headers[format] : coded_headers[format];

    if (length < header)
        return 0;
    if (type < 2) {
        size_t size = header == 1   ? b[0] >> 3u
                      : header == 2 ? (size_t)b[0] >> 4 | (size_t)b[1] << 4
                                    : (size_t)b[0] >> 4 | (size_t)b[1] << 4 | (size_t)b[2] << 12;
        return header + (type == 1 ? 1 : size);
    }
    size_t size = header == 3   ? (size_t)b[1] >> 6 | (size_t)b[2] << 2
                  : header == 4 ? (size_t)b[2] >> 2 | (size_t)b[3] << 6
                                : (size_t)b[2] >> 6 | (size_t)b[3] << 2 | (size_t)b[4] << 10;
    return header + size;
}

/* Does the block depend on none before it?  It ends with a sequence count of 0. */
static bool is_alone(const struct block *block)
{
    const uint8_t *body = block->header + BLOCK_HEADER_BYTES;

    if (block->type != BLOCK_COMPRESSED)
        return block->type == BLOCK_RAW || block->type == BLOCK_RLE;
    size_t literals = literals_bytes(body, block->bytes);
    return literals != 0 && literals + 1 == block->bytes && body[literals] == 0;
}

static void set_last(uint8_t *header, bool last)
{
    header[0] = (uint8_t)((header[0] & ~1u) | last);
}

/* Are these whole blocks that may stand in any frame?  The last one is the frame's if ${last}. */
static bool join_blocks(uint8_t *bytes, size_t length, bool last)
{
    uint8_t *header = NULL;

    for (size_t at = 0; at < length;) {
        struct block block = {.header = bytes + at};
        if (length - at < BLOCK_HEADER_BYTES)
            return false;
        uint32_t word =
            (uint32_t)bytes[at] | (uint32_t)bytes[at + 1] << 8 | (uint32_t)bytes[at + 2] << 16;
        block.type = word >> 1 & 3;
        block.bytes = block.type == BLOCK_RLE ? 1 : word >> 3;
        if (block.bytes > length - at - BLOCK_HEADER_BYTES || !is_alone(&block))
            return false;
        header = block.header;
        set_last(header, false);
        at += BLOCK_HEADER_BYTES + block.bytes;
    }
    if (header != NULL)
        set_last(header, last);
    return header != NULL;
}

static void put_raw_blocks(const struct codec_part *part, bool last, struct buffer *out)
{
    for (uint64_t at = 0; at < part->length; at += BLOCK_BYTES) {
        size_t length = (size_t)min_u64(BLOCK_BYTES, part->length - at);
        uint32_t word = (uint32_t)length << 3 | (last && at + length == part->length);
        uint8_t header[BLOCK_HEADER_BYTES] = {(uint8_t)word, (uint8_t)(word >> 8),
                                              (uint8_t)(word >> 16)};
        buffer_put(out, header, sizeof(header));
        buffer_put(out, part->bytes + at, length);
    }
}

static void put_frame_header(uint64_t content_bytes, struct buffer *out)
{
    buffer_put_u32le(out, ZSTD_MAGICNUMBER);
    buffer_put_u8(out, DESCRIPTOR_WITH_SIZE);
    buffer_put_u8(out, WINDOW_BYTE);
    buffer_put_u64le(out, content_bytes);
}

static enum sidestep_status encode(struct codec_encoder *encoder, const struct codec_item *item,
                                   const struct codec_part *part, struct buffer *out,
                                   struct buffer *index, struct sidestep_error *err)
{
    bool last = part->begin + part->length == item->bytes;

    (void)index;
    assert(part->length != 0);
    if (part->begin == 0)
        put_frame_header(item->bytes, out);
    size_t start = out->length;
    TRY(zstd_code_frame((ZSTD_CCtx *)encoder, part->bytes, (size_t)part->length, out, err));
    size_t coded = out->length - start;
    uint8_t *frame = out->bytes + start;
    if (coded <= FRAME_HEADER_BYTES || frame[4] != 0 || frame[5] > WINDOW_BYTE ||
        !join_blocks(frame + FRAME_HEADER_BYTES, coded - FRAME_HEADER_BYTES, last)) {
        out->length = start;
        put_raw_blocks(part, last, out);
        return buffer_check(out, err);
    }
    memmove(frame, frame + FRAME_HEADER_BYTES, coded - FRAME_HEADER_BYTES);
    out->length -= FRAME_HEADER_BYTES;
    return SIDESTEP_OK;
}

static enum sidestep_status encoder_new(const struct codec *self, struct codec_encoder **out,
                                        struct sidestep_error *err)
{
    (void)self;
    return zstd_coder_new((ZSTD_CCtx **)out, err);
}

static void encoder_free(struct codec_encoder *encoder)
{
    ZSTD_freeCCtx((ZSTD_CCtx *)encoder); /* accepts NULL */
}

static enum sidestep_status decode(const struct codec *self, struct codec_input *input,
                                   uint64_t most, struct codec_sink *sink,
                                   struct sidestep_error *err)
{
    (void)self;
    return zstd_decode_stream(input, most, sink, err);
}

const struct codec codec_zstd = {.descriptor = "stream.zstd/1",
                                 .encoder_new = encoder_new,
                                 .encoder_free = encoder_free,
                                 .encode = encode,
                                 .decode = decode};
