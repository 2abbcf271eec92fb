/* SPDX-License-Identifier: BSD-3-Clause */
/* compressor_internal.h -- internal header of compressor.c (threads and their steps),
 * compressor_encode.c (one window) and compressor_append.c (the file). */
#ifndef SAVE_COMPRESSOR_INTERNAL_H
#define SAVE_COMPRESSOR_INTERNAL_H

#include "save/pipeline_internal.h"
#include "save/compressor.h"

#define COMPRESSOR_BLOCK_BYTES ((uint64_t)2 << 20)
/* Blocks that one window needs at most, including the padding between its items and the index of
 * an item. */
#define COMPRESSOR_WINDOW_BLOCKS 6u

/* An encoded part may be larger than its input by 1 / this of the input, plus this many bytes. */
#define COMPRESSOR_MAX_GROWTH_DIVISOR 256u
#define COMPRESSOR_MAX_GROWTH_BYTES ((uint64_t)64 << 10)
#define COMPRESSOR_MAX_INDEX_BYTES ((uint64_t)1 << 20) /* of one item */

enum compressor_decision {
    COMPRESSOR_UNDECIDED,
    COMPRESSOR_SAMPLING,
    COMPRESSOR_ENCODE,
    COMPRESSOR_STORE
};

struct compressor_item {
    struct footer_item footer;         /* as stored; complete when the last part was appended */
    enum compressor_decision decision; /* under the pipeline's shared.lock */
};

/* The part of an item that is in one window, and its stored form. */
struct compressor_part {
    size_t item; /* index in the image */
    struct codec_part raw;
    bool encoded;
    size_t begin; /* in the window's ->out, if encoded */
    size_t length;
    size_t index_begin; /* in the window's ->index */
    size_t index_length;
};

/* A window that is encoded and not yet appended. */
struct compressed_window {
    bool ready; /* under the pipeline's shared.lock */
    struct buffer out;
    struct buffer index;
    struct compressor_part *parts;
    size_t part_count, part_capacity;
};

struct compressor_block {
    uint8_t *bytes;
    uint64_t offset; /* in the file */
    size_t length;
    struct compressor_block *next;
};

/* The state of appending. */
struct compressor_output {
    struct compressor_block *block; /* the block being filled, or NULL */
    uint64_t offset;                /* offset of the next byte in the file */
    struct hash_stream *hash;       /* of the current hash block of stored bytes */
    uint64_t hashed;                /* bytes in that hash block so far */
    uint64_t *blocks;               /* hashes of the current item's hash blocks so far */
    uint64_t block_capacity;        /* capacity of ${blocks} */
    struct buffer index;            /* index of the current item so far */
};

struct compressor {
    struct pipeline *p;
    const struct codec *codec;
    struct clock *clock;
    double ns_per_byte; /* time limit of encoding; 0: none */
    struct arena arena;
    struct compressor_item *items;
    struct compressor_gain gains[SIDESTEP_DTYPE_END];
    struct compressor_buffers *buffers;
    struct compressor_block *blocks;
    struct compressor_output output OWNED_BY_THREAD(APPENDER);
    struct { /* under the lock of the pipeline, which functions that use it REQUIRE */
        size_t encode_next; /* windows */
        size_t append_next;
        bool appending;                /* a thread appends a window */
        struct compressor_block *free; /* list of free blocks */
        size_t free_count;
        struct compressor_block *write_queue; /* list of blocks to be written, in order */
        struct compressor_block **write_queue_end;
        size_t writing; /* blocks that threads write now */
    } shared;
};

/* The buffers of window ${i}. */
static inline struct compressed_window *compressor_window_at(const struct compressor *compressor,
                                                             size_t i)
{
    return &compressor->buffers->windows[i % compressor->buffers->window_count];
}

/* compressor_encode.c: encode window ${i}, which must be hashed.  Any thread, any order. */
enum sidestep_status compressor_encode(struct compressor *compressor, struct codec_encoder *encoder,
                                       size_t i, struct sidestep_error *err);
/* compressor_append.c: append window ${i}.  In order, one thread at a time, and only while
 * COMPRESSOR_WINDOW_BLOCKS blocks are free. */
enum sidestep_status compressor_append(struct compressor *compressor, size_t i,
                                       struct sidestep_error *err) ON_THREAD(APPENDER);

#endif
