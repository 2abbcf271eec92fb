/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compressed_item.h -- decodes only the chunks of a compressed item that are needed, on any number
 * of threads.
 *
 * A chunk of decoded data is as large as a hash block.  Stored blocks are checked before the
 * decoder sees them.  If all chunks are decoded, the hash of the decoded bytes is checked, too; for
 * a part of them there is no hash.  An item that cannot be decoded in chunks, or looks wrong, is
 * decoded from its beginning (fetch_item.h), which finds out what is wrong with it.
 */
#ifndef LOAD_COMPRESSED_ITEM_H
#define LOAD_COMPRESSED_ITEM_H

#include "codec/codec.h"
#include "checkpoint/checkpoint.h"

/* Bytes per read request.  Two adjacent requests both read the stored block that has bytes of
 * chunks of both. */
#define COMPRESSED_ITEM_READ_BYTES (4 * (uint64_t)HASH_BLOCK_BYTES)

struct compressed_item {
    const struct reader_item *item;
    const struct codec_chunk_ops *chunks; /* NULL: the item must be decoded from its beginning */
    struct codec_item raw;
    uint64_t count;
    uint64_t *places;      /* see struct codec_chunk_ops */
    uint64_t *hashes;      /* of the decoded chunks; NULL: not all chunks are decoded */
    _Atomic uint64_t left; /* number of chunks that are not decoded yet */
};

/* Decoders that no thread uses now. */
struct compressed_item_decoders {
    struct lock lock LOCK_KIND(DECODERS);
    struct compressed_item_decoder *free GUARDED_BY(&lock); /* linked list */
};

/* Find the chunks of ${item}, which must outlive ${out}.  ${all}: all chunks will be decoded. */
enum sidestep_status compressed_item_open(const struct reader_item *item, bool all,
                                          struct compressed_item *out, struct sidestep_error *err);
void compressed_item_close(struct compressed_item *compressed);

/* The byte range [*begin, *end) of the file to read for chunks from ${first} on, at most up to
 * ${end}.  It consists of whole stored blocks.  Returns the last chunk in the range, plus 1. */
uint64_t compressed_item_next_range(const struct compressed_item *compressed, uint64_t first,
                                    uint64_t end, uint64_t *file_begin, uint64_t *file_end);
/* Decode chunks [first, end) from ${bytes}, the contents of that byte range.  Any thread; each
 * chunk once. */
enum sidestep_status compressed_item_decode(struct compressed_item *compressed,
                                            struct compressed_item_decoders *decoders,
                                            uint64_t first, uint64_t end, const uint8_t *bytes,
                                            const struct reader_sink *sink,
                                            struct sidestep_error *err);

void compressed_item_decoders_init(struct compressed_item_decoders *decoders);
void compressed_item_decoders_release(struct compressed_item_decoders *decoders);

#endif
