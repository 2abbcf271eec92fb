/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zstd_encode.c -- see zstd_encode.h, and RFC 8878 for the bytes.
 *
 * An item is one frame, because torch's reader stops after the first.  So each part is encoded as a
 * frame, and only its blocks are stored.  A block may refer to matches, repeated offsets and tables
 * of symbols from before it.  A part's first block has no tables to refer to.  If a check finds
 * sequences, the part is stored in raw blocks instead.
 */
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_c_literalCompressionMode */
#include "codec/zstd_encode.h"

#include <assert.h>
#include <string.h>
#include <zstd_errors.h>

#include "base/base.h"
#include "codec/codec.h"
#include "codec/zstd.h"
#include "codec/zstd_blocks.h"

#define WINDOW_LOG 17                                   /* a decoder must keep one block */
#define WINDOW_BYTE ((uint8_t)((WINDOW_LOG - 10) << 3)) /* as in RFC 8878, 3.1.1.1.2 */
#define DESCRIPTOR_WITH_SIZE 0xC0u                      /* eight bytes of content size */

enum sidestep_status zstd_encoder_new(ZSTD_CCtx **out, struct sidestep_error *err)
{
    ZSTD_CCtx *coder = fault_hit("memory") ? NULL : ZSTD_createCCtx();

    if (coder == NULL)
        return FAIL(err, SIDESTEP_ENOMEM, "zstd: no memory for an encoder");
    /* The fastest search for matches, with steps longer than a block, so that it finds none. */
    ZSTD_CCtx_setParameter(coder, ZSTD_c_compressionLevel, 1);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_strategy, ZSTD_fast);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_targetLength, ZSTD_TARGETLENGTH_MAX);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_hashLog, ZSTD_HASHLOG_MIN);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_windowLog, WINDOW_LOG);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_contentSizeFlag, 0);
    ZSTD_CCtx_setParameter(coder, ZSTD_c_checksumFlag, 0);
    /* A libzstd without this parameter stores literals as they are: larger, but not wrong. */
    ZSTD_CCtx_setParameter(coder, ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    *out = coder;
    return SIDESTEP_OK;
}

enum sidestep_status zstd_encoder_error(size_t code, struct sidestep_error *err)
{
    if (ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation)
        return FAIL(err, SIDESTEP_ENOMEM, "zstd: no memory to encode");
    return FAIL(err, SIDESTEP_EIO, "zstd: encode: %s", ZSTD_getErrorName(code));
}

enum sidestep_status zstd_encode_frame(ZSTD_CCtx *coder, const void *bytes, size_t length,
                                       struct buffer *out, struct sidestep_error *err)
{
    size_t room = ZSTD_compressBound(length), start = out->length;
    uint8_t *to = buffer_extend(out, room);

    if (to == NULL)
        return buffer_check(out, err);
    size_t coded = ZSTD_compress2(coder, to, room, bytes, length);
    out->length = start;
    if (ZSTD_isError(coded))
        return zstd_encoder_error(coded, err);
    out->length += coded;
    return SIDESTEP_OK;
}

static void put_raw_blocks(const struct codec_part *part, bool last, struct buffer *out)
{
    for (uint64_t at = 0; at < part->length; at += ZSTD_BLOCKSIZE_MAX) {
        size_t length = (size_t)min_u64(ZSTD_BLOCKSIZE_MAX, part->length - at);
        uint8_t header[ZSTD_BLOCK_HEADER_BYTES];
        zstd_block_write_header(header, ZSTD_BLOCK_RAW, length,
                                last && at + length == part->length);
        buffer_put(out, header, sizeof(header));
        buffer_put(out, part->bytes + at, length);
    }
}

void zstd_write_frame_header(uint64_t content_bytes, unsigned window_log, struct buffer *out)
{
    buffer_put_u32le(out, ZSTD_MAGICNUMBER);
    buffer_put_u8(out, DESCRIPTOR_WITH_SIZE);
    buffer_put_u8(out, (uint8_t)((window_log - 10) << 3));
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
        zstd_write_frame_header(item->bytes, WINDOW_LOG, out);
    size_t start = out->length;
    TRY(zstd_encode_frame((ZSTD_CCtx *)encoder, part->bytes, (size_t)part->length, out, err));
    size_t coded = out->length - start;
    uint8_t *frame = out->bytes + start;
    if (coded <= ZSTD_ENCODED_HEADER_BYTES || frame[4] != 0 || frame[5] > WINDOW_BYTE ||
        zstd_blocks_find_dependency(frame + ZSTD_ENCODED_HEADER_BYTES,
                                    coded - ZSTD_ENCODED_HEADER_BYTES,
                                    last) != ZSTD_DEPENDENCY_NONE) {
        out->length = start;
        put_raw_blocks(part, last, out);
        return buffer_check(out, err);
    }
    memmove(frame, frame + ZSTD_ENCODED_HEADER_BYTES, coded - ZSTD_ENCODED_HEADER_BYTES);
    out->length -= ZSTD_ENCODED_HEADER_BYTES;
    return SIDESTEP_OK;
}

static enum sidestep_status encoder_new(const struct codec *self, struct codec_encoder **out,
                                        struct sidestep_error *err)
{
    (void)self;
    return zstd_encoder_new((ZSTD_CCtx **)out, err);
}

static void encoder_free(struct codec_encoder *encoder)
{
    ZSTD_freeCCtx((ZSTD_CCtx *)encoder); /* accepts NULL */
}

enum sidestep_status zstd_decode_item(const struct codec *self, struct codec_input *input,
                                      uint64_t max, struct codec_sink *sink,
                                      struct sidestep_error *err)
{
    (void)self;
    return zstd_decode_stream(input, max, sink, err);
}

const struct codec codec_zstd = {.descriptor = "stream.zstd/1",
                                 .encoder_new = encoder_new,
                                 .encoder_free = encoder_free,
                                 .encode = encode,
                                 .decode = zstd_decode_item};
