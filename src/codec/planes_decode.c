/* SPDX-License-Identifier: BSD-3-Clause */
/* planes_decode.c -- see planes.h: the decoder.  Every number comes from a file. */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/checked.h"
#include "base/cursor.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/owned.h"
#include "codec/planes_layout.h"

#define FAIL_PLANES(err, fmt, ...)                                                                 \
    FAIL(err, SIDESTEP_ECORRUPT, "planes: " fmt __VA_OPT__(, ) __VA_ARGS__)

struct planes_decoder {
    ZSTD_DCtx *zstd;
    uint8_t planes[CODEC_CHUNK_BYTES]; /* those that were coded */
};

void planes_decoder_free(struct planes_decoder **decoder)
{
    if (*decoder != NULL)
        ZSTD_freeDCtx((*decoder)->zstd);
    free(*decoder);
    *decoder = NULL;
}

enum sidestep_status planes_decoder_new(struct planes_decoder **out, struct sidestep_error *err)
{
    struct planes_decoder *decoder = memory_resize(NULL, 1, sizeof(*decoder));

    if (decoder == NULL)
        return FAIL_NOMEM(err, sizeof(*decoder));
    /* The room is not cleared: that would take as long as decoding some of it. */
    decoder->zstd = fault_hit("memory") ? NULL : ZSTD_createDCtx();
    if (decoder->zstd == NULL) {
        planes_decoder_free(&decoder);
        return FAIL(err, SIDESTEP_ENOMEM, "planes: no memory for a decoder");
    }
    *out = decoder;
    return SIDESTEP_OK;
}

enum sidestep_status planes_header_read(const uint8_t bytes[PLANES_HEADER_BYTES], uint64_t most,
                                        struct planes_header *out, struct sidestep_error *err)
{
    struct cursor c = cursor_over(bytes, PLANES_HEADER_BYTES);
    const uint8_t *magic = cursor_take(&c, PLANES_MAGIC_BYTES);
    unsigned version = cursor_u8(&c);
    uint64_t data_end;

    out->width = cursor_u8(&c);
    unsigned flags = cursor_u16le(&c);
    uint32_t chunk_bytes = cursor_u32le(&c);
    out->bytes = cursor_u64le(&c);
    out->data_bytes = cursor_u64le(&c);
    out->data_offset = cursor_u64le(&c);
    out->rotated = (flags & PLANES_ROTATED) != 0;
    if (memcmp(magic, PLANES_MAGIC, PLANES_MAGIC_BYTES) != 0)
        return FAIL_PLANES(err, "it does not begin with its magic");
    if (version != PLANES_VERSION || (flags & ~PLANES_ROTATED) != 0 ||
        chunk_bytes != CODEC_CHUNK_BYTES)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "planes: version %u with flags 0x%x and chunks of %u bytes", version, flags,
                    chunk_bytes);
    if (out->width == 0 || out->width > PLANES_MAX_WIDTH || (out->width & (out->width - 1)) != 0 ||
        out->data_bytes % out->width != 0 || (out->width == 1 && out->rotated))
        return FAIL_PLANES(err, "elements of %u bytes in data of %llu", out->width,
                           (unsigned long long)out->data_bytes);
    if (out->bytes > most)
        return FAIL_PLANES(err, "it holds %llu bytes, at most %llu fit",
                           (unsigned long long)out->bytes, (unsigned long long)most);
    if (!checked_add(out->data_offset, out->data_bytes, &data_end) || data_end > out->bytes ||
        out->data_offset > PLANES_MAX_ENVELOPE_BYTES ||
        out->bytes - data_end > PLANES_MAX_ENVELOPE_BYTES)
        return FAIL_PLANES(err, "data at %llu + %llu in %llu bytes",
                           (unsigned long long)out->data_offset,
                           (unsigned long long)out->data_bytes, (unsigned long long)out->bytes);
    return SIDESTEP_OK;
}

/* One plane of ${bytes}, coded as ${word} says; ${*plane}: where it is now, ${room} or ${coded}. */
static enum sidestep_status decode_plane(struct planes_decoder *decoder, uint32_t word,
                                         const uint8_t *coded, size_t bytes, uint8_t *room,
                                         const uint8_t **plane, struct sidestep_error *err)
{
    size_t coded_bytes = word & PLANES_BYTES_MASK;

    *plane = room;
    switch ((enum planes_method)(word >> PLANES_METHOD_SHIFT)) {
    case PLANES_STORED:
        *plane = coded;
        return coded_bytes == bytes
                   ? SIDESTEP_OK
                   : FAIL_PLANES(err, "a plane of %zu bytes where %zu belong", coded_bytes, bytes);
    case PLANES_CONSTANT:
        if (coded_bytes != 1)
            return FAIL_PLANES(err, "a constant of %zu bytes", coded_bytes);
        memset(room, coded[0], bytes);
        return SIDESTEP_OK;
    case PLANES_ZSTD:
        break;
    default:
        return FAIL_PLANES(err, "a plane is stored by an unknown method");
    }
    size_t decoded = ZSTD_decompressDCtx(decoder->zstd, room, bytes, coded, coded_bytes);
    if (ZSTD_isError(decoded) && ZSTD_getErrorCode(decoded) == ZSTD_error_memory_allocation)
        return FAIL(err, SIDESTEP_ENOMEM, "planes: no memory to decode");
    if (ZSTD_isError(decoded))
        return FAIL_PLANES(err, "a plane is damaged: %s", ZSTD_getErrorName(decoded));
    if (decoded != bytes)
        return FAIL_PLANES(err, "a plane of %zu bytes where %zu belong", decoded, bytes);
    return SIDESTEP_OK;
}

enum sidestep_status planes_chunk_decode(struct planes_decoder *decoder,
                                         const struct planes_header *header, const uint8_t *coded,
                                         size_t coded_bytes, uint8_t *to, size_t bytes,
                                         struct sidestep_error *err)
{
    struct cursor c = cursor_over(coded, coded_bytes);
    const uint8_t *planes[PLANES_MAX_WIDTH];
    uint32_t words[PLANES_MAX_WIDTH];
    size_t plane_bytes = bytes / header->width;

    for (unsigned p = 0; p < header->width; p++)
        words[p] = cursor_u32le(&c);
    for (unsigned p = 0; p < header->width; p++) {
        const uint8_t *plane = cursor_take(&c, words[p] & PLANES_BYTES_MASK);
        if (plane == NULL)
            return FAIL_PLANES(err, "a chunk is cut off");
        TRY(decode_plane(decoder, words[p], plane, plane_bytes, decoder->planes + p * plane_bytes,
                         &planes[p], err));
    }
    if (cursor_left(&c) != 0)
        return FAIL_PLANES(err, "%zu bytes behind the planes of a chunk", cursor_left(&c));
    planes_join(planes, bytes, header->width, header->rotated, to);
    return SIDESTEP_OK;
}

/* ${bytes} as they are, from input to sink. */
static enum sidestep_status pass(struct codec_input *input, uint64_t bytes, struct codec_sink *sink,
                                 struct sidestep_error *err)
{
    while (bytes != 0) {
        const uint8_t *some;
        size_t length;
        if (input->left == 0)
            return FAIL_PLANES(err, "it is truncated");
        TRY(input->take(input, (size_t)bytes, &some, &length, err));
        TRY(sink->put(sink, some, length, err));
        bytes -= length;
    }
    return SIDESTEP_OK;
}

/* Memory of a decoder of whole items. */
struct chunks {
    struct planes_decoder *decoder;
    uint8_t coded[PLANES_CHUNK_MAX_BYTES];
    uint8_t bytes[CODEC_CHUNK_BYTES];
};

static void free_chunks(struct chunks **chunks)
{
    if (*chunks != NULL)
        planes_decoder_free(&(*chunks)->decoder);
    free(*chunks);
}

/* Read the next chunk; ${*coded}: its bytes. */
static enum sidestep_status read_chunk(struct codec_input *input, unsigned width,
                                       struct chunks *chunks, size_t *coded,
                                       struct sidestep_error *err)
{
    struct cursor c = cursor_over(chunks->coded, 4 * width);
    uint64_t bytes = 4 * width;

    TRY(codec_input_read(input, chunks->coded, 4 * width, err));
    for (unsigned p = 0; p < width; p++)
        bytes += cursor_u32le(&c) & PLANES_BYTES_MASK;
    if (bytes > sizeof(chunks->coded))
        return FAIL_PLANES(err, "a chunk of %llu bytes", (unsigned long long)bytes);
    *coded = (size_t)bytes;
    return codec_input_read(input, chunks->coded + 4 * width, *coded - 4 * width, err);
}

static enum sidestep_status decode_chunks(struct codec_input *input,
                                          const struct planes_header *header, struct chunks *chunks,
                                          struct codec_sink *sink, struct buffer *index,
                                          struct sidestep_error *err)
{
    for (uint64_t at = 0; at < header->data_bytes; at += CODEC_CHUNK_BYTES) {
        size_t bytes = (size_t)min_u64(CODEC_CHUNK_BYTES, header->data_bytes - at), coded = 0;

        TRY(read_chunk(input, header->width, chunks, &coded, err));
        TRY(planes_chunk_decode(chunks->decoder, header, chunks->coded, coded, chunks->bytes, bytes,
                                err));
        TRY(sink->put(sink, chunks->bytes, bytes, err));
        buffer_put_u32le(index, (uint32_t)coded);
    }
    return buffer_check(index, err);
}

enum sidestep_status planes_decode(const struct codec *self, struct codec_input *input,
                                   uint64_t most, struct codec_sink *sink,
                                   struct sidestep_error *err)
{
    uint8_t bytes[PLANES_HEADER_BYTES];
    struct planes_header header;
    OWNED_BUFFER index = {0};

    (void)self;
    TRY(codec_input_read(input, bytes, sizeof(bytes), err));
    TRY(planes_header_read(bytes, most, &header, err));
    OWNED_BY(free_chunks) struct chunks *chunks = memory_resize(NULL, 1, sizeof(*chunks));
    if (chunks == NULL)
        return FAIL_NOMEM(err, sizeof(*chunks));
    chunks->decoder = NULL;
    TRY(planes_decoder_new(&chunks->decoder, err));
    TRY(pass(input, header.data_offset, sink, err));
    TRY(decode_chunks(input, &header, chunks, sink, &index, err));
    TRY(pass(input, header.bytes - header.data_offset - header.data_bytes, sink, err));
    if (input->left != index.length)
        return FAIL_PLANES(err, "an index of %llu bytes where %zu belong",
                           (unsigned long long)input->left, index.length);
    for (size_t at = 0; at < index.length;) {
        const uint8_t *some;
        size_t length;
        TRY(input->take(input, index.length - at, &some, &length, err));
        if (memcmp(some, index.bytes + at, length) != 0)
            return FAIL_PLANES(err, "the index does not say where its chunks are");
        at += length;
    }
    return SIDESTEP_OK;
}
