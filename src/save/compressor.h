/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compressor.h -- encodes the windows of a shard file between hashing and writing.
 *
 *      stage (copy)  ->  hash  ->  finish (tails) and encode  ->  append  ->  write
 *
 * The same bytes are staged as without a codec, so the trainer does not wait longer.  Any thread
 * encodes a window, in any order, within a few windows of each other.  One thread at a time appends
 * windows, in order, to blocks of the file.  Each block is one write request.  The offset of an
 * item in the file is known when the item is appended.  Items have the same order as without a
 * codec, and the same input makes the same file.
 *
 * An item is stored uncompressed if compression saves too little.  An item inside one window is
 * encoded to find out; of an item in several windows, one chunk is encoded as a sample.
 */
#ifndef SAVE_COMPRESSOR_H
#define SAVE_COMPRESSOR_H

#include "base/base.h"
#include "codec/codec.h"
#include "save/pipeline.h"

#define COMPRESSOR_MIN_ITEM_BYTES ((uint64_t)4096)     /* smaller items are not encoded */
#define COMPRESSOR_MAX_ITEM_BYTES ((uint64_t)64 << 30) /* nor larger ones: too large an index */
#define COMPRESSOR_MIN_GAIN_DIVISOR ((uint64_t)32)     /* encoding must save 1 / this of an item */

struct compressor_gain {
    uint64_t raw_bytes;
    uint64_t stored_bytes;
    _Atomic uint64_t encode_ns; /* sum over all threads */
};

struct compressor;
struct compressed_window;

/* Memory of encoded windows and of blocks, beside the pool of staged windows.  It is kept
 * between saves, because the kernel clears new memory, and that takes time.  Zeroed: none. */
struct compressor_buffers {
    struct pool blocks;
    struct compressed_window *windows; /* a ring: window i is at i % window_count */
    size_t window_count;
};
void compressor_buffers_release(struct compressor_buffers *buffers);

enum sidestep_status compressor_new(const struct codec *codec, struct clock *clock,
                                    struct compressor **out, struct sidestep_error *err);
void compressor_free(struct compressor **compressor);
/* Call before compressor_write(): encode only what takes a thread no longer than this (0: all that
 * shrinks). */
void compressor_set_time_limit(struct compressor *compressor, double ns_per_byte);
/* Encode and write the windows as pipeline_write() writes them, with all of ${workers}.  Call it
 * once. */
enum sidestep_status compressor_write(struct compressor *compressor, struct pipeline *p,
                                      struct compressor_buffers *buffers, struct store_file *file,
                                      const struct store_queue_config *config,
                                      struct workers *workers, struct sidestep_error *err);

/* Call after compressor_write().  Return where the footer starts, the footer's entry for item ${i},
 * and the bytes saved, by dtype ([0]: objects).  The results live as long as the compressor. */
uint64_t compressor_body_bytes(const struct compressor *compressor);
const struct footer_item *compressor_footer_item(const struct compressor *compressor, size_t i);
const struct compressor_gain *compressor_gains(const struct compressor *compressor);

#endif
