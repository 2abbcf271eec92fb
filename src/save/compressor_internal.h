/* SPDX-License-Identifier: BSD-3-Clause */
/* compressor_internal.h -- what compressor.c (threads and their steps), compressor_encode.c (a
 * window) and compressor_append.c (the file) share, and nobody else includes. */
#ifndef SAVE_COMPRESSOR_INTERNAL_H
#define SAVE_COMPRESSOR_INTERNAL_H

#include "save/pipeline_internal.h"
#include "save/compressor.h"

#define COMPRESSOR_BLOCK_BYTES ((uint64_t)2 << 20)
/* A window with all that comes between its items, and an item's index, fits into so many. */
#define COMPRESSOR_WINDOW_BLOCKS 6u

/* A part may not become larger than it is by more than this: one in so many, and some bytes. */
#define COMPRESSOR_MAX_GROWTH_DIVISOR 256u
#define COMPRESSOR_MAX_GROWTH_BYTES ((uint64_t)64 << 10)
#define COMPRESSOR_MAX_INDEX_BYTES ((uint64_t)1 << 20) /* of an item */

enum compressor_decision {
    COMPRESSOR_UNDECIDED,
    COMPRESSOR_SAMPLING,
    COMPRESSOR_ENCODE,
    COMPRESSOR_STORE
};

struct compressor_item {
    struct footer_item footer;       /* as it is stored; complete when its last part was appended */
    enum compressor_decision choice; /* in the pipeline's shared.lock */
};

/* The part of an item that lies in a window, and what is stored of it. */
struct compressor_part {
    size_t item;
    struct codec_part raw;
    bool encoded;
    size_t begin; /* in pressed.out, if encoded */
    size_t length;
    size_t index_begin; /* in pressed.index */
    size_t index_length;
};

/* A window that is encoded and not yet appended. */
struct compressed_window {
    bool ready; /* in the pipeline's shared.lock */
    struct buffer out;
    struct buffer index;
    struct compressor_part *parts;
    size_t part_count, part_room;
};

struct compressor_block {
    uint8_t *bytes;
    uint64_t offset; /* in the file */
    size_t length;
    struct compressor_block *next;
};

/* What one thread has at hand to append; only the thread that appends touches it. */
struct compressor_output {
    struct compressor_block *block; /* that is being filled, or NULL */
    uint64_t at;                    /* of the next byte, in the file */
    struct hash_stream *hash;       /* of the stored block that is not full yet ... */
    uint64_t hashed;                /* ... which has so many bytes */
    uint64_t *blocks;               /* hashes of the item so far */
    uint64_t room;                  /* for so many */
    struct buffer index;            /* of the item so far */
};

struct compressor {
    struct pipeline *p;
    const struct codec *codec;
    struct clock *clock;
    double ns_per_byte; /* that encoding may take; 0: any time */
    struct arena arena;
    struct compressor_item *items;
    struct compressor_gain gains[SIDESTEP_DTYPE_END];
    struct compressor_buffers *room;
    struct compressor_block *blocks;
    struct compressor_output tail;
    struct { /* the pipeline's lock */
        size_t encode_next;
        size_t append_next;
        bool appending;
        struct compressor_block *free; /* a list */
        size_t free_count;
        struct compressor_block *full, **full_end; /* to be written, in order */
        size_t writing;
    } shared;
};

/* compressor_encode.c.  Encode window ${i}, which is hashed.  Any thread, any order. */
enum sidestep_status compressor_encode(struct compressor *press, struct codec_encoder *encoder,
                                       size_t i, struct sidestep_error *err);
/* compressor_append.c.  Append window ${i}; COMPRESSOR_WINDOW_BLOCKS are free.  In order, one at a
 * time.
 */
enum sidestep_status compressor_append(struct compressor *press, size_t i,
                                       struct sidestep_error *err);

#endif
