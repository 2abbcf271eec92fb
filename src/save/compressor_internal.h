/* SPDX-License-Identifier: BSD-3-Clause */
/* compressor_internal.h -- what compressor.c (threads and their steps), compressor_encode.c (a
 * window) and compressor_append.c (the file) share, and nobody else includes. */
#ifndef SAVE_COMPRESSOR_INTERNAL_H
#define SAVE_COMPRESSOR_INTERNAL_H

#include "save/pipeline_internal.h"
#include "save/compressor.h"

#define PRESS_BLOCK_BYTES ((uint64_t)2 << 20)
/* A window with all that comes between its items, and an item's index, fits into so many. */
#define PRESS_WINDOW_BLOCKS 6u

/* A part may not become larger than it is by more than this: one in so many, and some bytes. */
#define PRESS_MAX_GROWTH 256u
#define PRESS_MAX_GROWTH_BYTES ((uint64_t)64 << 10)
#define PRESS_MAX_INDEX_BYTES ((uint64_t)1 << 20) /* of an item */

enum press_choice { PRESS_UNKNOWN, PRESS_TRYING, PRESS_ENCODE, PRESS_PLAIN };

struct press_item {
    struct footer_item footer; /* as it is stored; complete when its last part was appended */
    enum press_choice choice;  /* in the pipeline's shared.lock */
};

/* The part of an item that lies in a window, and what is stored of it. */
struct press_part {
    size_t item;
    struct codec_part raw;
    bool encoded;
    size_t begin; /* in pressed.out, if encoded */
    size_t length;
    size_t index_begin; /* in pressed.index */
    size_t index_length;
};

/* A window that is encoded and not yet appended. */
struct pressed {
    bool ready; /* in the pipeline's shared.lock */
    struct buffer out;
    struct buffer index;
    struct press_part *parts;
    size_t part_count, part_room;
};

struct press_block {
    uint8_t *bytes;
    uint64_t offset; /* in the file */
    size_t length;
    struct press_block *next;
};

/* What one thread has at hand to append; only the thread that appends touches it. */
struct press_tail {
    struct press_block *block; /* that is being filled, or NULL */
    uint64_t at;               /* of the next byte, in the file */
    struct hash_stream *hash;  /* of the stored block that is not full yet ... */
    uint64_t hashed;           /* ... which has so many bytes */
    uint64_t *blocks;          /* hashes of the item so far */
    uint64_t room;             /* for so many */
    struct buffer index;       /* of the item so far */
};

struct press {
    struct pipeline *p;
    const struct codec *codec;
    struct clock *clock;
    double ns_per_byte; /* that encoding may take; 0: any time */
    struct arena arena;
    struct press_item *items;
    struct press_gain gains[SIDESTEP_DTYPE_END];
    struct press_room *room;
    struct press_block *blocks;
    struct press_tail tail;
    struct { /* the pipeline's lock */
        size_t encode_next;
        size_t append_next;
        bool appending;
        struct press_block *free; /* a list */
        size_t free_count;
        struct press_block *full, **full_end; /* to be written, in order */
        size_t writing;
    } shared;
};

/* compressor_encode.c.  Encode window ${i}, which is hashed.  Any thread, any order. */
enum sidestep_status press_encode(struct press *press, struct codec_encoder *encoder, size_t i,
                                  struct sidestep_error *err);
/* compressor_append.c.  Append window ${i}; PRESS_WINDOW_BLOCKS are free.  In order, one at a time.
 */
enum sidestep_status press_append(struct press *press, size_t i, struct sidestep_error *err);

#endif
