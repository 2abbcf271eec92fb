/* SPDX-License-Identifier: BSD-3-Clause */
/* zstd.c -- see zstd.h. */
#include "codec/zstd.h"

#include <zstd.h>
#include <zstd_errors.h>

#include "base/base.h"

#define FIRST_CAPACITY ((uint64_t)64 << 10)
#define MIN_BLOCK_BYTES 4u
#define SKIPPABLE_MAGIC 0x184D2A50u /* and the 15 above */
#define NO_CONTENT_SIZE UINT64_MAX
#define FRAME_HEADER_MAX_BYTES 18u
#define STREAM_BYTES ((size_t)256 << 10)

static void free_decoder(ZSTD_DCtx **decoder)
{
    ZSTD_freeDCtx(*decoder); /* accepts NULL */
}

/* The header of a frame (RFC 8878, 3.1.1.1). */
struct frame {
    uint64_t window_bytes;
    uint64_t content_bytes; /* NO_CONTENT_SIZE: not recorded */
    uint32_t dictionary;
};

static enum sidestep_status read_frame_header(const void *stored, size_t stored_bytes,
                                              struct frame *frame, struct sidestep_error *err)
{
    static const unsigned content_widths[4] = {0, 2, 4, 8};
    static const unsigned dictionary_widths[4] = {0, 1, 2, 4};
    struct cursor c = cursor_from_memory(stored, stored_bytes);
    uint32_t magic = cursor_u32le(&c);

    if (!c.overrun && (magic & ~15u) == SKIPPABLE_MAGIC)
        return FAIL(err, SIDESTEP_ECORRUPT, "zstd: skippable frames are refused");
    if (c.overrun || magic != ZSTD_MAGICNUMBER)
        return FAIL(err, SIDESTEP_ECORRUPT, "zstd: %zu bytes do not start a zstd frame",
                    stored_bytes);
    uint8_t descriptor = cursor_u8(&c);
    bool single_segment = (descriptor & 0x20) != 0;
    if (!single_segment) {
        uint8_t window = cursor_u8(&c);
        uint64_t base = (uint64_t)1 << (10 + (window >> 3));
        frame->window_bytes = base + base / 8 * (window & 7);
    }
    frame->dictionary = (uint32_t)cursor_le(&c, dictionary_widths[descriptor & 3]);
    unsigned width = content_widths[descriptor >> 6];
    if (width == 0 && single_segment)
        width = 1;
    frame->content_bytes =
        width != 0 ? cursor_le(&c, width) + (width == 2 ? 256 : 0) : NO_CONTENT_SIZE;
    if (single_segment)
        frame->window_bytes = frame->content_bytes;
    return c.overrun ? FAIL(err, SIDESTEP_ECORRUPT, "zstd: the frame is truncated") : SIDESTEP_OK;
}

/* Refuse a frame by its header, before decoding. */
static enum sidestep_status check_header(const void *stored, size_t stored_bytes,
                                         uint64_t max_bytes, struct sidestep_error *err)
{
    struct frame frame = {0};

    TRY(read_frame_header(stored, stored_bytes, &frame, err));
    if (frame.dictionary != 0)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zstd: the frame needs dictionary %u; sidestep has none", frame.dictionary);
    if (frame.window_bytes > (uint64_t)1 << ZSTD_WINDOW_LOG_MAX)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zstd: a window of %llu bytes is over the limit of %llu",
                    (unsigned long long)frame.window_bytes, 1ull << ZSTD_WINDOW_LOG_MAX);
    if (frame.content_bytes != NO_CONTENT_SIZE && frame.content_bytes > max_bytes)
        return FAIL(err, SIDESTEP_ECORRUPT, "zstd: the frame holds %llu bytes, at most %llu fit",
                    (unsigned long long)frame.content_bytes, (unsigned long long)max_bytes);
    return SIDESTEP_OK;
}

static enum sidestep_status check_frame(const void *stored, size_t stored_bytes, uint64_t max_bytes,
                                        struct sidestep_error *err)
{
    TRY(check_header(stored, stored_bytes, max_bytes, err));
    size_t frame_bytes = ZSTD_findFrameCompressedSize(stored, stored_bytes);
    if (ZSTD_isError(frame_bytes))
        return FAIL(err, SIDESTEP_ECORRUPT, "zstd: the frame is truncated or damaged: %s",
                    ZSTD_getErrorName(frame_bytes));
    if (frame_bytes != stored_bytes)
        return FAIL(err, SIDESTEP_ECORRUPT, "zstd: %zu bytes follow the frame",
                    stored_bytes - frame_bytes);
    return SIDESTEP_OK;
}

/* Double the capacity, up to ${limit}. */
static enum sidestep_status grow(void **bytes, ZSTD_outBuffer *out, uint64_t limit,
                                 struct sidestep_error *err)
{
    uint64_t capacity = out->size == 0 ? FIRST_CAPACITY : (uint64_t)out->size * 2;

    capacity = min_u64(capacity, limit);
    void *grown = memory_resize(*bytes, (size_t)capacity, 1);
    if (grown == NULL)
        return FAIL_NOMEM(err, capacity);
    *bytes = grown;
    out->dst = grown;
    out->size = (size_t)capacity;
    return SIDESTEP_OK;
}

/* Decode the frame into ${*bytes}, which grows up to ${max_bytes}. */
static enum sidestep_status decode_frame(ZSTD_DCtx *decoder, ZSTD_inBuffer *in, uint64_t max_bytes,
                                         void **bytes, size_t *length, struct sidestep_error *err)
{
    /* One byte more than allowed, to notice a frame that is too large. */
    uint64_t limit = min_u64(max_bytes, SIZE_MAX / 2 - 1) + 1;
    ZSTD_outBuffer out = {0};
    size_t wanted = 1;

    while (wanted != 0) {
        if (out.pos == out.size)
            TRY(grow(bytes, &out, limit, err));
        wanted = ZSTD_decompressStream(decoder, &out, in);
        if (ZSTD_isError(wanted) && ZSTD_getErrorCode(wanted) == ZSTD_error_memory_allocation)
            return FAIL(err, SIDESTEP_ENOMEM, "zstd: no memory for the decoder's window");
        if (ZSTD_isError(wanted))
            return FAIL(err, SIDESTEP_ECORRUPT, "zstd: byte %zu of %zu: %s", in->pos, in->size,
                        ZSTD_getErrorName(wanted));
        if (out.pos == limit)
            return FAIL(err, SIDESTEP_ECORRUPT, "zstd: the frame holds more than %llu bytes",
                        (unsigned long long)max_bytes);
        if (wanted != 0 && in->pos == in->size && out.pos < out.size)
            return FAIL(err, SIDESTEP_ECORRUPT, "zstd: the frame is truncated");
    }
    *length = out.pos;
    return SIDESTEP_OK;
}

uint64_t zstd_max_memory(uint64_t stored_bytes, uint64_t max_bytes)
{
    uint64_t blocks = stored_bytes / MIN_BLOCK_BYTES + 1, raw;

    if (!checked_mul(blocks, ZSTD_BLOCKSIZE_MAX, &raw))
        raw = UINT64_MAX;
    raw = min_u64(raw, min_u64(max_bytes, UINT64_MAX / 4));
    return raw + min_u64(raw, (uint64_t)1 << ZSTD_WINDOW_LOG_MAX);
}

static enum sidestep_status new_decoder(ZSTD_DCtx **out, struct sidestep_error *err)
{
    *out = fault_hit("memory") ? NULL : ZSTD_createDCtx();
    if (*out == NULL)
        return FAIL(err, SIDESTEP_ENOMEM, "zstd: no memory for a decoder");
    ZSTD_DCtx_setParameter(*out, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
    return SIDESTEP_OK;
}

enum sidestep_status zstd_decode(const void *stored, size_t stored_bytes, uint64_t max_bytes,
                                 void **raw, size_t *raw_bytes, struct sidestep_error *err)
{
    OWNED void *bytes = NULL;
    size_t length = 0;

    TRY(check_frame(stored, stored_bytes, max_bytes, err));
    OWNED_BY(free_decoder) ZSTD_DCtx *decoder = NULL;
    TRY(new_decoder(&decoder, err));
    ZSTD_inBuffer in = {.src = stored, .size = stored_bytes};
    TRY(decode_frame(decoder, &in, max_bytes, &bytes, &length, err));
    if (in.pos != stored_bytes)
        return FAIL(err, SIDESTEP_ECORRUPT, "zstd: %zu bytes follow the frame",
                    stored_bytes - in.pos);
    *raw = TAKE(bytes);
    *raw_bytes = length;
    return SIDESTEP_OK;
}

/* Decode all of ${in} into ${sink}, which may take ${*room} bytes more.  ${*wanted} is 0 at the end
 * of the frame. */
static enum sidestep_status push(ZSTD_DCtx *decoder, ZSTD_inBuffer *in, ZSTD_outBuffer *out,
                                 uint64_t *room, struct codec_sink *sink, size_t *wanted,
                                 struct sidestep_error *err)
{
    do {
        out->pos = 0;
        *wanted = ZSTD_decompressStream(decoder, out, in);
        if (ZSTD_isError(*wanted) && ZSTD_getErrorCode(*wanted) == ZSTD_error_memory_allocation)
            return FAIL(err, SIDESTEP_ENOMEM, "zstd: no memory for the decoder's window");
        if (ZSTD_isError(*wanted))
            return FAIL(err, SIDESTEP_ECORRUPT, "zstd: the frame is damaged: %s",
                        ZSTD_getErrorName(*wanted));
        if (out->pos > *room)
            return FAIL(err, SIDESTEP_ECORRUPT,
                        "zstd: the frame holds more bytes than are allowed");
        *room -= out->pos;
        if (out->pos != 0)
            TRY(sink->put(sink, out->dst, out->pos, err));
    } while (*wanted != 0 && (in->pos < in->size || out->pos == out->size));
    return SIDESTEP_OK;
}

enum sidestep_status zstd_decode_stream(struct codec_input *input, uint64_t max_bytes,
                                        struct codec_sink *sink, struct sidestep_error *err)
{
    uint8_t header[FRAME_HEADER_MAX_BYTES];
    OWNED_BY(free_decoder) ZSTD_DCtx *decoder = NULL;
    ZSTD_inBuffer in = {.src = header, .size = (size_t)min_u64(sizeof(header), input->left)};
    size_t wanted = 1;

    TRY(codec_input_read(input, header, in.size, err));
    TRY(check_header(header, in.size, max_bytes, err));
    TRY(new_decoder(&decoder, err));
    ZSTD_outBuffer out = {.size = STREAM_BYTES};
    OWNED uint8_t *bytes = memory_resize(NULL, STREAM_BYTES, 1);
    if (bytes == NULL)
        return FAIL_NOMEM(err, STREAM_BYTES);
    out.dst = bytes;
    for (;;) {
        TRY(push(decoder, &in, &out, &max_bytes, sink, &wanted, err));
        if (wanted == 0)
            break;
        if (input->left == 0)
            return FAIL(err, SIDESTEP_ECORRUPT, "zstd: the frame is truncated");
        const uint8_t *piece;
        TRY(input->take(input, STREAM_BYTES, &piece, &in.size, err));
        in.src = piece;
        in.pos = 0;
    }
    if (in.pos != in.size || input->left != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "zstd: %llu bytes follow the frame",
                    (unsigned long long)(in.size - in.pos + input->left));
    return SIDESTEP_OK;
}
