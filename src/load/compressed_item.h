/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compressed_item.h -- compressed items of which chunks can be decoded by themselves: only those
 * that are wanted, and by any number of threads.
 *
 * A chunk is as large as a hash block, before its coding.  Stored blocks are checked before the
 * decoder sees them.  Where all chunks are decoded, so is the hash of what came out; of a part of
 * them there is none to compare with.  What cannot be decoded so, or looks wrong, is decoded from
 * its beginning (fetch_item.h), which finds out what is wrong with it.
 */
#ifndef LOAD_COMPRESSED_ITEM_H
#define LOAD_COMPRESSED_ITEM_H

#include <pthread.h>

#include "codec/codec.h"
#include "checkpoint/checkpoint.h"

/* Read at once.  Of two neighbours both read the block that their chunks meet in. */
#define COMPRESSED_ITEM_READ_BYTES (4 * (uint64_t)HASH_BLOCK_BYTES)

struct compressed_item {
    const struct reader_item *item;
    const struct codec_chunk_ops *chunks; /* NULL: it is to be decoded from its beginning */
    struct codec_item raw;
    uint64_t count;
    uint64_t *places;      /* see struct codec_chunk_ops */
    uint64_t *hashes;      /* of what came out; NULL: some of it is not wanted */
    _Atomic uint64_t left; /* chunks that have not come out */
};

/* What a thread needs to decode, kept for the next that does. */
struct compressed_item_decoders {
    pthread_mutex_t lock;
    struct compressed_item_decoder *free; /* a list */
};

/* Find the chunks of ${item}, which must outlive ${out}.  ${all}: all of them are wanted. */
enum sidestep_status compressed_item_open(const struct reader_item *item, bool all,
                                          struct compressed_item *out, struct sidestep_error *err);
void compressed_item_close(struct compressed_item *coded);

/* Where to read chunks from ${first} on, up to ${end} of them: the last one that is in, plus 1, and
 * the stretch of the file, which has whole stored blocks. */
uint64_t compressed_item_next_range(const struct compressed_item *coded, uint64_t first,
                                    uint64_t end, uint64_t *file_begin, uint64_t *file_end);
/* Decode chunks [first, end) out of the ${bytes} of that stretch.  Any thread; each chunk once. */
enum sidestep_status compressed_item_decode(struct compressed_item *coded,
                                            struct compressed_item_decoders *benches,
                                            uint64_t first, uint64_t end, const uint8_t *bytes,
                                            const struct reader_sink *place,
                                            struct sidestep_error *err);

void compressed_item_decoders_init(struct compressed_item_decoders *benches);
void compressed_item_decoders_release(struct compressed_item_decoders *benches);

#endif
