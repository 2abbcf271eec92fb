/* SPDX-License-Identifier: BSD-3-Clause */
/* planes_decode.c -- see planes.h: decodes items.  Its input is not trusted. */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/base.h"
#include "codec/planes_layout.h"

#define FAIL_PLANES(err, fmt, ...)                                                                 \
    FAIL(err, SIDESTEP_ECORRUPT, "planes: " fmt __VA_OPT__(, ) __VA_ARGS__)

struct codec_decoder {
    ZSTD_DCtx *zstd;
    uint8_t planes[CODEC_CHUNK_BYTES]; /* decoded, and not yet joined */
};

static void decoder_free(struct codec_decoder *decoder)
{
    if (decoder != NULL)
        ZSTD_freeDCtx(decoder->zstd);
    free(decoder);
}

static enum sidestep_status decoder_new(struct codec_decoder **out, struct sidestep_error *err)
{
    struct codec_decoder *decoder = memory_resize(NULL, 1, sizeof(*decoder));

    if (decoder == NULL)
        return FAIL_NOMEM(err, sizeof(*decoder));
    /* ${planes} is not zeroed, because that would take as long as decoding a part of it. */
    decoder->zstd = fault_hit("memory") ? NULL : ZSTD_createDCtx();
    if (decoder->zstd == NULL) {
        decoder_free(decoder);
        return FAIL(err, SIDESTEP_ENOMEM, "planes: no memory for a decoder");
    }
    *out = decoder;
    return SIDESTEP_OK;
}

static enum sidestep_status read_header(const uint8_t bytes[PLANES_HEADER_BYTES], uint64_t max,
                                        struct planes_header *out, struct sidestep_error *err)
{
    struct cursor c = cursor_from_memory(bytes, PLANES_HEADER_BYTES);
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
        return FAIL_PLANES(err, "its header has elements of %u bytes in data of %llu", out->width,
                           (unsigned long long)out->data_bytes);
    if (out->bytes > max)
        return FAIL_PLANES(err, "it holds %llu bytes, at most %llu fit",
                           (unsigned long long)out->bytes, (unsigned long long)max);
    if (!checked_add(out->data_offset, out->data_bytes, &data_end) || data_end > out->bytes ||
        out->data_offset > PLANES_MAX_ENVELOPE_BYTES ||
        out->bytes - data_end > PLANES_MAX_ENVELOPE_BYTES)
        return FAIL_PLANES(err, "data at %llu + %llu in %llu bytes",
                           (unsigned long long)out->data_offset,
                           (unsigned long long)out->data_bytes, (unsigned long long)out->bytes);
    return SIDESTEP_OK;
}

/* Decode one plane to exactly ${bytes}.  ${word} is its method and size.  Set ${*plane} to the
 * result, in ${room} or ${coded}. */
static enum sidestep_status decode_plane(struct codec_decoder *decoder, uint32_t word,
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
                   : FAIL_PLANES(err, "a plane has %zu bytes instead of %zu", coded_bytes, bytes);
    case PLANES_CONSTANT:
        if (coded_bytes != 1)
            return FAIL_PLANES(err, "a constant has %zu bytes", coded_bytes);
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
        return FAIL_PLANES(err, "a plane has %zu bytes instead of %zu", decoded, bytes);
    return SIDESTEP_OK;
}

/* An encoded chunk.  The planes may follow the words, or lie elsewhere. */
struct coded_chunk {
    const uint8_t *words, *planes;
    size_t planes_bytes;
};

/* Decode ${chunk} to exactly ${bytes}. */
static enum sidestep_status decode_chunk(struct codec_decoder *decoder,
                                         const struct planes_header *header,
                                         const struct coded_chunk *chunk, uint8_t *to, size_t bytes,
                                         struct sidestep_error *err)
{
    struct cursor words = cursor_from_memory(chunk->words, 4 * header->width);
    struct cursor c = cursor_from_memory(chunk->planes, chunk->planes_bytes);
    const uint8_t *planes[PLANES_MAX_WIDTH];
    size_t plane_bytes = bytes / header->width;

    if (bytes % header->width != 0)
        return FAIL_PLANES(err, "a chunk of %zu bytes", bytes);
    for (unsigned p = 0; p < header->width; p++) {
        uint32_t word = cursor_u32le(&words);
        const uint8_t *plane = cursor_take(&c, word & PLANES_BYTES_MASK);
        if (plane == NULL)
            return FAIL_PLANES(err, "a chunk is cut off");
        TRY(decode_plane(decoder, word, plane, plane_bytes, decoder->planes + p * plane_bytes,
                         &planes[p], err));
    }
    if (cursor_remaining(&c) != 0)
        return FAIL_PLANES(err, "%zu bytes behind the planes of a chunk", cursor_remaining(&c));
    planes_join(planes, bytes, header->width, header->rotated, to);
    return SIDESTEP_OK;
}

/* Copy ${bytes} from ${input} to ${sink}. */
static enum sidestep_status copy_bytes(struct codec_input *input, uint64_t bytes,
                                       struct codec_sink *sink, struct sidestep_error *err)
{
    while (bytes != 0) {
        const uint8_t *piece;
        size_t length;
        if (input->left == 0)
            return FAIL_PLANES(err, "it is truncated");
        TRY(input->take(input, (size_t)bytes, &piece, &length, err));
        TRY(sink->put(sink, piece, length, err));
        bytes -= length;
    }
    return SIDESTEP_OK;
}

/* The memory to decode a whole item, chunk by chunk. */
struct chunks {
    struct codec_decoder *decoder;
    uint8_t coded[PLANES_CHUNK_MAX_BYTES];
    uint8_t bytes[CODEC_CHUNK_BYTES];
};

static void free_chunks(struct chunks **chunks)
{
    if (*chunks != NULL)
        decoder_free((*chunks)->decoder);
    free(*chunks);
}

/* Get the next ${bytes}.  ${*at} points to them: in the input, if in one piece, else in ${room}. */
static enum sidestep_status take_all(struct codec_input *input, size_t bytes, uint8_t *room,
                                     const uint8_t **at, struct sidestep_error *err)
{
    size_t length = 0;

    *at = room;
    if (bytes == 0 || bytes > input->left)
        return codec_input_read(input, room, bytes, err);
    TRY(input->take(input, bytes, at, &length, err));
    if (length == bytes)
        return SIDESTEP_OK;
    memcpy(room, *at, length);
    *at = room;
    return codec_input_read(input, room + length, bytes - length, err);
}

static enum sidestep_status read_chunk(struct codec_input *input, unsigned width,
                                       struct chunks *chunks, struct coded_chunk *chunk,
                                       struct sidestep_error *err)
{
    struct cursor c = cursor_from_memory(chunks->coded, 4 * width);
    uint64_t bytes = 0;

    TRY(codec_input_read(input, chunks->coded, 4 * width, err));
    for (unsigned p = 0; p < width; p++)
        bytes += cursor_u32le(&c) & PLANES_BYTES_MASK;
    if (bytes > sizeof(chunks->coded) - 4 * width)
        return FAIL_PLANES(err, "a chunk has %llu bytes", (unsigned long long)bytes);
    chunk->words = chunks->coded;
    chunk->planes_bytes = (size_t)bytes;
    return take_all(input, chunk->planes_bytes, chunks->coded + 4 * width, &chunk->planes, err);
}

static enum sidestep_status decode_chunks(struct codec_input *input,
                                          const struct planes_header *header, struct chunks *chunks,
                                          struct codec_sink *sink, struct buffer *index,
                                          struct sidestep_error *err)
{
    for (uint64_t at = 0; at < header->data_bytes; at += CODEC_CHUNK_BYTES) {
        size_t bytes = (size_t)min_u64(CODEC_CHUNK_BYTES, header->data_bytes - at);
        struct coded_chunk chunk;
        uint8_t *to = sink->room != NULL ? sink->room(sink, bytes) : NULL;

        if (to == NULL)
            to = chunks->bytes;
        TRY(read_chunk(input, header->width, chunks, &chunk, err));
        TRY(decode_chunk(chunks->decoder, header, &chunk, to, bytes, err));
        TRY(sink->put(sink, to, bytes, err));
        buffer_put_u32le(index, (uint32_t)(4 * header->width + chunk.planes_bytes));
    }
    return buffer_check(index, err);
}

enum sidestep_status planes_decode(const struct codec *self, struct codec_input *input,
                                   uint64_t max, struct codec_sink *sink,
                                   struct sidestep_error *err)
{
    uint8_t bytes[PLANES_HEADER_BYTES];
    struct planes_header header;
    OWNED_BUFFER index = {0};

    (void)self;
    TRY(codec_input_read(input, bytes, sizeof(bytes), err));
    TRY(read_header(bytes, max, &header, err));
    OWNED_BY(free_chunks) struct chunks *chunks = memory_resize(NULL, 1, sizeof(*chunks));
    if (chunks == NULL)
        return FAIL_NOMEM(err, sizeof(*chunks));
    chunks->decoder = NULL;
    TRY(decoder_new(&chunks->decoder, err));
    TRY(copy_bytes(input, header.data_offset, sink, err));
    TRY(decode_chunks(input, &header, chunks, sink, &index, err));
    TRY(copy_bytes(input, header.bytes - header.data_offset - header.data_bytes, sink, err));
    if (input->left != index.length)
        return FAIL_PLANES(err, "the index has %llu bytes instead of %zu",
                           (unsigned long long)input->left, index.length);
    for (size_t at = 0; at < index.length;) {
        const uint8_t *piece;
        size_t length;
        TRY(input->take(input, index.length - at, &piece, &length, err));
        if (memcmp(piece, index.bytes + at, length) != 0)
            return FAIL_PLANES(err, "the index does not match the chunks");
        at += length;
    }
    return SIDESTEP_OK;
}

/* ---- single chunks */

/* Read the index, which has the bytes of each chunk.  Their sum must fill [begin, end). */
static enum sidestep_status read_index(const struct source *source, uint64_t at, uint64_t begin,
                                       uint64_t end, uint64_t count, uint64_t *places,
                                       struct sidestep_error *err)
{
    OWNED uint8_t *index = memory_new(count, 4);

    if (index == NULL)
        return FAIL_NOMEM(err, count * 4);
    TRY(source_read(source, index, (size_t)count * 4, at, err));
    struct cursor c = cursor_from_memory(index, (size_t)count * 4);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bytes = cursor_u32le(&c);
        places[i] = begin;
        if (bytes > PLANES_CHUNK_MAX_BYTES || bytes > end - begin)
            return FAIL_PLANES(err, "the index has a chunk of %u bytes", bytes);
        begin += bytes;
    }
    places[count] = begin;
    return begin == end
               ? SIDESTEP_OK
               : FAIL_PLANES(err, "the index omits %llu bytes", (unsigned long long)(end - begin));
}

static enum sidestep_status locate(const struct codec_item *item, const struct source *source,
                                   uint64_t offset, uint64_t stored_bytes, uint64_t *places,
                                   struct sidestep_error *err)
{
    uint8_t bytes[PLANES_HEADER_BYTES];
    struct planes_header header, expected = planes_header_for_item(item);
    uint64_t count = codec_chunk_count(item->data_bytes),
             overhead = PLANES_HEADER_BYTES + 4 * count;

    if (offset > source->length || stored_bytes > source->length - offset ||
        overhead > stored_bytes)
        return FAIL_PLANES(err, "it is truncated");
    TRY(source_read(source, bytes, sizeof(bytes), offset, err));
    TRY(read_header(bytes, UINT64_MAX, &header, err));
    if (header.width != expected.width || header.rotated != expected.rotated ||
        header.data_bytes != expected.data_bytes || header.data_offset != expected.data_offset)
        return FAIL_PLANES(err, "its header does not match the tensor");
    uint64_t tail = header.bytes - header.data_bytes - header.data_offset;
    if (header.data_offset + tail > stored_bytes - overhead)
        return FAIL_PLANES(err, "it is truncated");
    return read_index(source, offset + stored_bytes - 4 * count,
                      PLANES_HEADER_BYTES + header.data_offset, stored_bytes - 4 * count - tail,
                      count, places, err);
}

static enum sidestep_status decode_single(struct codec_decoder *decoder,
                                          const struct codec_item *item, const uint8_t *coded,
                                          size_t coded_bytes, uint8_t *to, size_t bytes,
                                          struct sidestep_error *err)
{
    struct planes_header header = planes_header_for_item(item);
    size_t words = 4 * (size_t)header.width;

    if (coded_bytes < words)
        return FAIL_PLANES(err, "a chunk is cut off");
    struct coded_chunk chunk = {
        .words = coded, .planes = coded + words, .planes_bytes = coded_bytes - words};
    return decode_chunk(decoder, &header, &chunk, to, bytes, err);
}

const struct codec_chunk_ops planes_chunk_ops = {.locate = locate,
                                                 .decoder_new = decoder_new,
                                                 .decoder_free = decoder_free,
                                                 .decode = decode_single};
