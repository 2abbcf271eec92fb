/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * codec.h -- transforms of whole items, and the hashes of all bytes.
 *
 * What goes in is the item as it would lie in the file (head, data and tail of a tensor's archive;
 * an object); what comes out is stored instead.  The codecs: zstd, planes (bytes of floats
 * regrouped, then zstd), and those that a program registers.
 *
 * An encoder is given an item in parts, which need not come in order, nor in one thread: a part is
 * encoded by itself, and the parts, one behind the other, are the stored item.  So many threads
 * encode a large item, and no one waits until all of it is there.
 *
 * A decoder pulls stored bytes from a codec_input and pushes decoded ones into a codec_sink.  Its
 * input is hostile: it allocates what its limits say, never what the input says.
 *
 * Ownership: an encoder or decoder belongs to the caller that made it, and is used by one thread
 * at a time.  Hashes (hash.h) have no state that threads share.
 */
#ifndef CODEC_CODEC_H
#define CODEC_CODEC_H

#include "base/base.h"

/* Data are cut into parts at multiples of this only: planes are taken from as much at once. */
#define CODEC_CHUNK_BYTES ((uint64_t)1 << 20)

struct codec_item {
    uint64_t bytes;
    uint64_t data_offset; /* the elements lie in [data_offset, data_offset + data_bytes) */
    uint64_t data_bytes;
    enum sidestep_dtype dtype; /* NONE: an object */
};

/* Bytes [begin, begin + length) of an item; begin, if it lies in the data, at a multiple of
 * CODEC_CHUNK_BYTES of them. */
struct codec_part {
    const uint8_t *bytes;
    uint64_t begin;
    uint64_t length;
};

/* Where stored bytes come from, in order.  take(): some more of them, at most ${most}, at least 1;
 * never called when none are left. */
struct codec_input {
    uint64_t left;
    enum sidestep_status (*take)(struct codec_input *input, size_t most, const uint8_t **bytes,
                                 size_t *length, struct sidestep_error *err);
};
/* Exactly ${bytes} of them; ECORRUPT if there are fewer. */
enum sidestep_status codec_input_read(struct codec_input *input, void *to, size_t bytes,
                                      struct sidestep_error *err);

/* Where decoded bytes go, in order. */
struct codec_sink {
    enum sidestep_status (*put)(struct codec_sink *sink, const uint8_t *bytes, size_t length,
                                struct sidestep_error *err);
    /* NULL, or: room for the next ${length} bytes where they are wanted in the end, from where they
     * are put then; NULL: there is none. */
    uint8_t *(*room)(struct codec_sink *sink, size_t length);
};

/* An input over memory, for who has all of it. */
struct codec_memory_input {
    struct codec_input input;
    const uint8_t *bytes;
};
void codec_memory_input_init(struct codec_memory_input *in, const void *bytes, size_t length);

struct codec_encoder; /* of one thread, for any number of items */
struct codec_decoder; /* likewise, for chunks */

/* For items whose data was coded in chunks of CODEC_CHUNK_BYTES, the last one less, that can be
 * decoded by themselves.  What is read is as hostile as for decode(). */
struct codec_chunk_ops {
    /* Where they lie among the ${stored_bytes} that ${source} has from ${offset} on: chunk i in
     * [places[i], places[i + 1]), counted from ${offset}.  ${places} has room for one more than
     * there are.  Not OK: decode() is to say what is wrong.  (item->bytes is not asked for.) */
    enum sidestep_status (*locate)(const struct codec_item *item, const struct source *source,
                                   uint64_t offset, uint64_t stored_bytes, uint64_t *places,
                                   struct sidestep_error *err);
    enum sidestep_status (*decoder_new)(struct codec_decoder **out, struct sidestep_error *err);
    void (*decoder_free)(struct codec_decoder *decoder); /* accepts NULL */
    /* One of them, to exactly ${bytes}. */
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
    /* Append ${part}, encoded, to ${out}, and to ${index} what is to stand behind the last part:
     * the indices of all parts, one behind the other. */
    enum sidestep_status (*encode)(struct codec_encoder *encoder, const struct codec_item *item,
                                   const struct codec_part *part, struct buffer *out,
                                   struct buffer *index, struct sidestep_error *err);
    /* Decode one item of at most ${most} bytes.  ECORRUPT: it is not one that encode() makes, or
     * larger.  All of the input is read. */
    enum sidestep_status (*decode)(const struct codec *self, struct codec_input *input,
                                   uint64_t most, struct codec_sink *sink,
                                   struct sidestep_error *err);
    const struct codec_chunk_ops *chunks; /* NULL: items are decoded from their beginning only */
};

extern const struct codec codec_zstd;   /* torch's own "stream.zstd": one frame */
extern const struct codec codec_planes; /* planes.h */
/* codec_zstd, which looks for no matches (0), or one that does, at a level of libzstd. */
#define CODEC_ZSTD_LEVELS 19u
const struct codec *codec_zstd_level(unsigned level);

/* By the descriptor of stored items; NULL: neither one of ours nor one that was registered. */
const struct codec *codec_find(const char *descriptor);

/* The rest of what other folders use of this one. */
#include "codec/hash.h"
#include "codec/zstd.h"

#endif
