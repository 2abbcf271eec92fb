/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compressor.h -- how windows are written when items are encoded on the way.
 *
 *      stage (copy)  ->  hash  ->  finish (tails) and encode  ->  append  ->  write
 *
 * What was staged is the same as without a codec, so the trainer waits no longer.  Windows are
 * encoded by any thread, in any order, within a few of each other; and appended in order, by one
 * thread at a time, to blocks of the file, of which each is one request.  So where an item lies in
 * the file is known when it is appended; the items are there in the same order as without a codec,
 * and the same bytes make the same file.
 *
 * An item that gains too little is stored as it is: one that lies in one window is tried, of a
 * larger one a sample.
 */
#ifndef SAVE_COMPRESSOR_H
#define SAVE_COMPRESSOR_H

#include "base/base.h"
#include "codec/codec.h"
#include "save/pipeline.h"

#define COMPRESSOR_MIN_ITEM_BYTES ((uint64_t)4096) /* of an item that is tried ... */
#define COMPRESSOR_MAX_ITEM_BYTES                                                                  \
    ((uint64_t)64 << 30)                           /* ... and at most, for the sake of its index */
#define COMPRESSOR_MIN_GAIN_DIVISOR ((uint64_t)32) /* one part in so many */

struct compressor_gain {
    uint64_t raw_bytes;
    uint64_t stored_bytes;
    _Atomic uint64_t encode_ns; /* of all threads together */
};

struct compressor;
struct compressed_window;

/* Memory of encoded windows and of blocks, beside the pool of staged ones: kept between saves, for
 * the kernel clears what is new, which takes as long as a part of the encoding.  Zeroed: none. */
struct compressor_buffers {
    struct pool blocks;
    struct compressed_window *windows; /* a ring: that of window i is i % window_count */
    size_t window_count;
};
void compressor_buffers_release(struct compressor_buffers *room);

enum sidestep_status compressor_new(const struct codec *codec, struct clock *clock,
                                    struct compressor **out, struct sidestep_error *err);
void compressor_free(struct compressor **press);
/* Before that: encode only what takes a thread no longer than this (0: whatever shrinks). */
void compressor_set_time_limit(struct compressor *press, double ns_per_byte);
/* As pipeline_write(), with all of ${workers}; once. */
enum sidestep_status compressor_write(struct compressor *press, struct pipeline *p,
                                      struct compressor_buffers *room, struct store_file *file,
                                      const struct store_queue_config *kind,
                                      struct workers *workers, struct sidestep_error *err);

/* After that: where the footer starts, what it says of item ${i}, and what was gained, by dtype
 * ([0]: objects).  It lives as long as the press. */
uint64_t compressor_body_bytes(const struct compressor *press);
const struct footer_item *compressor_footer_item(const struct compressor *press, size_t i);
const struct compressor_gain *compressor_gains(const struct compressor *press);

#endif
