/* SPDX-License-Identifier: BSD-3-Clause */
/* planes.c -- see planes.h: encodes items. */
#include "codec/planes.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/planes_layout.h"
#include "codec/zstd_encode.h"
#include "model/model.h"

/* A sample of this many bytes, evenly spread, tells whether a plane is worth encoding. */
#define SAMPLE_BYTES 4096u
/* The chance that two bytes of a plane are equal, divided by that chance if all values were equally
 * frequent.  If it is at least this, entropy coding saves some percent. */
#define WORTH_COLLISIONS 1.3

struct codec_encoder {
    ZSTD_CCtx *coder;
    uint8_t planes[CODEC_CHUNK_BYTES];
};

static void encoder_free(struct codec_encoder *encoder)
{
    if (encoder != NULL)
        ZSTD_freeCCtx(encoder->coder);
    free(encoder);
}

static enum sidestep_status encoder_new(const struct codec *self, struct codec_encoder **out,
                                        struct sidestep_error *err)
{
    struct codec_encoder *encoder = memory_new(1, sizeof(*encoder));

    (void)self;
    if (encoder == NULL)
        return FAIL_NOMEM(err, sizeof(*encoder));
    enum sidestep_status status = zstd_encoder_new(&encoder->coder, err);
    if (status != SIDESTEP_OK) {
        encoder_free(encoder);
        return status;
    }
    *out = encoder;
    return SIDESTEP_OK;
}

/* Choose the width and rotation.  A complex element counts as two elements. */
static void choose_width(enum sidestep_dtype dtype, struct planes_header *header)
{
    size_t bytes = sidestep_dtype_size(dtype);
    bool is_complex = dtype_is_complex(dtype);

    header->rotated = is_complex || dtype == SIDESTEP_FLOAT64 || dtype == SIDESTEP_FLOAT32 ||
                      dtype == SIDESTEP_FLOAT16 || dtype == SIDESTEP_BFLOAT16;
    header->width = bytes == 0 ? 1 : (unsigned)(is_complex ? bytes / 2 : bytes);
}

struct planes_header planes_header_for_item(const struct codec_item *item)
{
    struct planes_header header = {
        .bytes = item->bytes, .data_bytes = item->data_bytes, .data_offset = item->data_offset};

    choose_width(item->dtype, &header);
    assert(header.data_bytes % header.width == 0);
    return header;
}

static void put_header(const struct planes_header *header, struct buffer *out)
{
    buffer_put(out, PLANES_MAGIC, PLANES_MAGIC_BYTES);
    buffer_put_u8(out, PLANES_VERSION);
    buffer_put_u8(out, (uint8_t)header->width);
    buffer_put_u16le(out, header->rotated ? PLANES_ROTATED : 0);
    buffer_put_u32le(out, (uint32_t)CODEC_CHUNK_BYTES);
    buffer_put_u64le(out, header->bytes);
    buffer_put_u64le(out, header->data_bytes);
    buffer_put_u64le(out, header->data_offset);
}

/* Does a sample show that encoding saves bytes? */
static bool is_worth_coding(const uint8_t *plane, size_t length)
{
    uint32_t counts[256] = {0};
    size_t step = length / SAMPLE_BYTES + 1, n = 0;
    double equal = 0;

    for (size_t i = 0; i < length; i += step, n++)
        counts[plane[i]]++;
    if (n < 256) /* too few bytes to tell */
        return true;
    for (unsigned i = 0; i < 256; i++)
        equal += (double)counts[i] * ((double)counts[i] - 1);
    return equal * 256 >= WORTH_COLLISIONS * (double)n * (double)(n - 1);
}

/* Append the plane, and set ${*word} to its method and number of bytes. */
static enum sidestep_status put_plane(ZSTD_CCtx *coder, const uint8_t *plane, size_t length,
                                      struct buffer *out, uint32_t *word,
                                      struct sidestep_error *err)
{
    size_t start = out->length;

    if (length != 0 && memcmp(plane, plane + 1, length - 1) == 0) {
        buffer_put_u8(out, plane[0]);
        *word = (uint32_t)PLANES_CONSTANT << PLANES_METHOD_SHIFT | 1;
        return buffer_check(out, err);
    }
    if (is_worth_coding(plane, length)) {
        TRY(zstd_encode_frame(coder, plane, length, out, err));
        size_t coded = out->length - start;
        if (coded + coded / 64 < length) {
            *word = (uint32_t)PLANES_ZSTD << PLANES_METHOD_SHIFT | (uint32_t)coded;
            return SIDESTEP_OK;
        }
        out->length = start;
    }
    buffer_put(out, plane, length);
    *word = (uint32_t)PLANES_STORED << PLANES_METHOD_SHIFT | (uint32_t)length;
    return buffer_check(out, err);
}

static enum sidestep_status put_chunk(struct codec_encoder *encoder,
                                      const struct planes_header *header, const uint8_t *bytes,
                                      size_t length, struct buffer *out, struct buffer *index,
                                      struct sidestep_error *err)
{
    size_t start = out->length, plane_bytes = length / header->width;
    const uint8_t *planes = bytes;

    if (header->width != 1) {
        planes_split(bytes, length, header->width, header->rotated, encoder->planes);
        planes = encoder->planes;
    }
    for (unsigned p = 0; p < header->width; p++)
        buffer_put_u32le(out, 0);
    TRY(buffer_check(out, err));
    for (unsigned p = 0; p < header->width; p++) {
        uint32_t word = 0;
        TRY(put_plane(encoder->coder, planes + p * plane_bytes, plane_bytes, out, &word, err));
        for (unsigned k = 0; k < 4; k++)
            out->bytes[start + 4 * p + k] = (uint8_t)(word >> (8 * k));
    }
    buffer_put_u32le(index, (uint32_t)(out->length - start));
    return buffer_check(index, err);
}

static enum sidestep_status encode(struct codec_encoder *encoder, const struct codec_item *item,
                                   const struct codec_part *part, struct buffer *out,
                                   struct buffer *index, struct sidestep_error *err)
{
    struct planes_header header = planes_header_for_item(item);
    uint64_t at = part->begin, end = part->begin + part->length;
    uint64_t data_end = item->data_offset + item->data_bytes;

    if (at == 0)
        put_header(&header, out);
    if (at < item->data_offset) {
        uint64_t head_end = min_u64(end, item->data_offset);
        buffer_put(out, part->bytes, (size_t)(head_end - at));
        at = head_end;
    }
    while (at < end && at < data_end) {
        uint64_t length = min_u64(CODEC_CHUNK_BYTES, min_u64(end, data_end) - at);
        assert((at - item->data_offset) % CODEC_CHUNK_BYTES == 0);
        TRY(put_chunk(encoder, &header, part->bytes + (at - part->begin), (size_t)length, out,
                      index, err));
        at += length;
    }
    if (at < end)
        buffer_put(out, part->bytes + (at - part->begin), (size_t)(end - at));
    return buffer_check(out, err);
}

const struct codec codec_planes = {.descriptor = "sidestep.planes/1",
                                   .encoder_new = encoder_new,
                                   .encoder_free = encoder_free,
                                   .encode = encode,
                                   .decode = planes_decode,
                                   .chunks = &planes_chunk_ops};
