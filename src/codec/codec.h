/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * codec.h -- compresses and decodes items by codecs, and hashes bytes.
 *
 * What comes in: an item as it is without a codec (head, data and tail of a tensor's archive, or an
 * object).
 * What goes out: the bytes that are stored instead.  The codecs are zstd, planes (regroups the
 * bytes of floats, then uses zstd), and those that a program registers.
 *
 * An encoder takes an item in parts, in any order, and on any thread.  It encodes each part on its
 * own, and the encoded parts, one after the other, are the stored item.  So many threads can encode
 * one large item, and can begin before all of it exists.
 *
 * A decoder pulls stored bytes from a codec_input, and pushes decoded bytes into a codec_sink.  The
 * input is not trusted: a decoder allocates what its limits allow, not what the input asks for.
 *
 * Ownership: the caller that made an encoder or decoder owns it.
 *
 * Threads: one at a time may use an encoder or decoder.  Hashes (hash.h) share no state.
 */
#ifndef CODEC_CODEC_H
#define CODEC_CODEC_H

#include "base/base.h"

/* Parts begin at multiples of this in the data, because the planes codec works on such chunks. */
#define CODEC_CHUNK_BYTES ((uint64_t)1 << 20)

struct codec_item {
    uint64_t bytes;
    uint64_t data_offset; /* the elements lie in [data_offset, data_offset + data_bytes) */
    uint64_t data_bytes;
    enum sidestep_dtype dtype; /* NONE: an object */
};

/* Bytes [begin, begin + length) of an item.  If ${begin} lies in the data, it is a multiple of
 * CODEC_CHUNK_BYTES after ${data_offset}. */
struct codec_part {
    const uint8_t *bytes;
    uint64_t begin;
    uint64_t length;
};

/* Stored bytes, in order.  take() returns the next ones, at least 1 and at most ${max}.  It must
 * not be called if none are left. */
struct codec_input {
    uint64_t left; /* bytes */
    enum sidestep_status (*take)(struct codec_input *input, size_t max, const uint8_t **bytes,
                                 size_t *length, struct sidestep_error *err);
};
/* Read exactly ${bytes}.  ECORRUPT: there are fewer. */
enum sidestep_status codec_input_read(struct codec_input *input, void *to, size_t bytes,
                                      struct sidestep_error *err);

/* Takes decoded bytes, in order. */
struct codec_sink {
    enum sidestep_status (*put)(struct codec_sink *sink, const uint8_t *bytes, size_t length,
                                struct sidestep_error *err);
    /* Saves a copy: returns the final place of the next ${length} bytes.  The decoder writes them
     * there, and then calls put() with this address.  NULL, as the function too: there is none. */
    uint8_t *(*room)(struct codec_sink *sink, size_t length);
};

/* An input that reads from memory. */
struct codec_memory_input {
    struct codec_input input;
    const uint8_t *bytes;
};
void codec_memory_input_init(struct codec_memory_input *in, const void *bytes, size_t length);

struct codec_encoder; /* for any number of items */
struct codec_decoder; /* for any number of chunks */

/* Decodes single chunks of an item, if its data was encoded in chunks of CODEC_CHUNK_BYTES (the
 * last one may be shorter).  The input is not trusted. */
struct codec_chunk_ops {
    /* Find the chunks in the ${stored_bytes} of ${source} from ${offset} on: chunk i lies in
     * [places[i], places[i + 1]), counted from ${offset}.  ${places} has one element more than
     * there are chunks.  item->bytes is ignored.  After a failure, codec->decode() says what is
     * wrong. */
    enum sidestep_status (*locate)(const struct codec_item *item, const struct source *source,
                                   uint64_t offset, uint64_t stored_bytes, uint64_t *places,
                                   struct sidestep_error *err);
    enum sidestep_status (*decoder_new)(struct codec_decoder **out, struct sidestep_error *err);
    void (*decoder_free)(struct codec_decoder *decoder); /* accepts NULL */
    /* Decode one chunk to exactly ${bytes}. */
    enum sidestep_status (*decode)(struct codec_decoder *decoder, const struct codec_item *item,
                                   const uint8_t *coded, size_t coded_bytes, uint8_t *to,
                                   size_t bytes, struct sidestep_error *err);
};
static inline uint64_t codec_chunk_count(uint64_t data_bytes)
{
    return data_bytes / CODEC_CHUNK_BYTES + (data_bytes % CODEC_CHUNK_BYTES != 0);
}

struct codec {
    const char *descriptor; /* in `.metadata` and footers: "stream.zstd/1" */
    enum sidestep_status (*encoder_new)(const struct codec *self, struct codec_encoder **out,
                                        struct sidestep_error *err);
    void (*encoder_free)(struct codec_encoder *encoder);
    /* Append the encoded ${part} to ${out}, and its index to ${index}.  The indices of all parts,
     * in order, are stored after the last part. */
    enum sidestep_status (*encode)(struct codec_encoder *encoder, const struct codec_item *item,
                                   const struct codec_part *part, struct buffer *out,
                                   struct buffer *index, struct sidestep_error *err);
    /* Decode one item of at most ${max} bytes.  Reads all of the input.  ECORRUPT: it is larger, or
     * encode() did not make it.  Among these are an input that was cut, even to nothing, and one
     * with bytes after its end. */
    enum sidestep_status (*decode)(const struct codec *self, struct codec_input *input,
                                   uint64_t max, struct codec_sink *sink,
                                   struct sidestep_error *err);
    const struct codec_chunk_ops *chunks; /* NULL: items can be decoded only as a whole */
};

extern const struct codec codec_zstd;   /* "stream.zstd" of torch: one frame */
extern const struct codec codec_planes; /* planes.h */
/* 0: codec_zstd, which does not search for matches.  1 to CODEC_ZSTD_LEVELS: the codec that
 * searches at this level of libzstd. */
#define CODEC_ZSTD_LEVELS 19u
const struct codec *codec_zstd_level(unsigned level);

/* The codec with this descriptor, ours or a program's.  NULL: there is none. */
const struct codec *codec_find(const char *descriptor);

/* The headers of this folder that other folders use. */
#include "codec/hash.h"
#include "codec/zstd.h"

#endif
