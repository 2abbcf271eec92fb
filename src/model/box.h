/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * box.h -- intersects boxes of tensors, and moves elements between memory with strides and the
 * row-major bytes of a stored chunk.
 *
 * All functions but box_check() expect boxes that it accepted: no negative number, no overflow.
 */
#ifndef MODEL_BOX_H
#define MODEL_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* Offsets and lengths count elements.  The box does not own the arrays. */
struct box {
    uint32_t ndim;
    const int64_t *offsets;
    const int64_t *lengths;
};

/* Check that ${box} lies inside ${shape} (ndim elements), that no number is negative, and that the
 * shape's volume times ${item_bytes} fits in 62 bits.  EINVAL: one of these is false. */
enum sidestep_status box_check(const struct box *box, const int64_t *shape, size_t item_bytes,
                               struct sidestep_error *err);

/* The number of elements; 1 for a 0-d box. */
uint64_t box_volume(const struct box *box);
bool box_equal(const struct box *a, const struct box *b);
/* Is it the whole tensor of this shape? */
bool box_is_whole(const struct box *box, const int64_t *shape);

/* Set ${offsets} and ${lengths} (ndim elements) to the common part of two boxes of one tensor.
 * False: they have no common element, and the arrays are undefined.  0-d boxes always intersect. */
bool box_intersect(const struct box *a, const struct box *b, int64_t *offsets, int64_t *lengths);

/* The strides of a row-major tensor of these lengths, in elements. */
void box_row_major_strides(uint32_t ndim, const int64_t *lengths, int64_t *strides);
/* Is it row-major, without gaps?  Dimensions of length 1 or 0 do not matter. */
bool box_is_row_major(uint32_t ndim, const int64_t *lengths, const int64_t *strides);

/* A box of a tensor in memory. */
struct box_memory {
    struct box box;
    const int64_t *strides; /* in elements; may be negative or zero */
    void *data;             /* the element at box.offsets */
    size_t item_bytes;
};

enum box_direction { BOX_GATHER, BOX_SCATTER };

/*
 * Move elements between memory and a chunk: BOX_GATHER from memory into ${buffer}, BOX_SCATTER from
 * ${buffer} into memory.  ${stored} is the chunk's box; its elements are row-major, without gaps.
 * buffer[0] is byte ${begin} of the chunk.  Of the bytes [begin, begin + bytes), those move that
 * belong to elements of memory->box, too; the others do not change.  ${begin} and ${bytes} need not
 * be multiples of the element size: of an element at either end, a part may move.
 * Returns the number of bytes moved.  It calls memcpy() once per run, computes nothing per element,
 * and does not visit runs outside the range.
 */
uint64_t box_transfer(const struct box *stored, uint64_t begin, uint64_t bytes, void *buffer,
                      const struct box_memory *memory, enum box_direction direction);

/* Rows of bytes that box_transfer() would move.  On both sides, the distance from each row to the
 * next is the same. */
struct box_rows {
    uint64_t at;     /* the offset of the first row in the buffer */
    void *memory;    /* its address in memory */
    uint64_t bytes;  /* of a row */
    uint64_t count;  /* of rows; at least 1 */
    int64_t at_step; /* bytes from row to row; 0 if there is one row */
    int64_t memory_step;
};

/* As box_transfer(), but it calls ${visit} with the rows to move, and moves nothing.  For memory
 * that the processor cannot reach. */
uint64_t box_visit_rows(const struct box *stored, uint64_t begin, uint64_t bytes,
                        const struct box_memory *memory,
                        void (*visit)(void *context, const struct box_rows *rows), void *context);

/* Copy the common elements of two boxes in memory. */
void box_copy(const struct box_memory *from, const struct box_memory *to);

/* Cut the row-major bytes of ${stored} into blocks of ${block_bytes}, and set marks[i] to 1 for
 * each block i that holds an element of ${wanted}. */
void box_mark_blocks(const struct box *stored, const struct box *wanted, size_t item_bytes,
                     size_t block_bytes, uint8_t *marks);

#endif
