/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * box.h -- a shard's place in its global tensor, and moving elements between memory with
 * strides and the row-major bytes of a stored chunk.
 *
 * All functions expect boxes that box_check() has accepted: no negative number, no overflow.
 */
#ifndef MODEL_BOX_H
#define MODEL_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* Offsets and lengths count elements; the arrays belong to somebody else. */
struct box {
    uint32_t ndim;
    const int64_t *offsets;
    const int64_t *lengths;
};

/* ${box} lies inside ${shape} (ndim elements), nothing is negative, and the shape's volume times
 * ${item_bytes} fits in 62 bits.  EINVAL otherwise, saying what is wrong. */
enum sidestep_status box_check(const struct box *box, const int64_t *shape, size_t item_bytes,
                               struct sidestep_error *err);

/* Elements; 1 for a 0-d box. */
uint64_t box_volume(const struct box *box);
bool box_equal(const struct box *a, const struct box *b);

/* The common part of two boxes of one tensor, into ${offsets} and ${lengths} (ndim elements);
 * false, and the arrays unspecified, if it has no element.  0-d boxes always meet. */
bool box_intersect(const struct box *a, const struct box *b, int64_t *offsets, int64_t *lengths);

/* Strides of a row-major tensor of these lengths, in elements. */
void box_row_major_strides(uint32_t ndim, const int64_t *lengths, int64_t *strides);
/* Row-major without gaps?  Dimensions of length 1 or 0 do not matter. */
bool box_is_row_major(uint32_t ndim, const int64_t *lengths, const int64_t *strides);

/* A box of a tensor as it lies in memory. */
struct box_memory {
    struct box box;
    const int64_t *strides; /* in elements; may be negative or zero */
    void *data;             /* the element at box.offsets */
    size_t item_bytes;
};

enum box_direction { BOX_GATHER, BOX_SCATTER };

/*
 * ${stored} is a chunk whose elements lie row-major, without gaps.  Move those of its bytes in
 * [begin, begin + bytes) that belong to elements of memory->box as well: BOX_GATHER from memory
 * into ${buffer}, BOX_SCATTER from ${buffer} into memory.  buffer[0] is byte ${begin} of the chunk;
 * ${begin} and ${bytes} need not be multiples of the element size (a partial element at either
 * end is moved in part).  Bytes of ${buffer} outside memory->box are left alone.
 * Returns the number of bytes moved.  Cost: one memcpy per run, no per-element arithmetic, and
 * runs outside the range are skipped without being visited.
 */
uint64_t box_transfer(const struct box *stored, uint64_t begin, uint64_t bytes, void *buffer,
                      const struct box_memory *memory, enum box_direction direction);

/* Rows of bytes that box_transfer() would move: on both sides each a constant step after the one
 * before. */
struct box_rows {
    uint64_t at;     /* where the first row lies in the buffer */
    void *memory;    /* and where in memory */
    uint64_t bytes;  /* of a row */
    uint64_t count;  /* of rows; at least 1 */
    int64_t at_step; /* from row to row; with one row, 0 */
    int64_t memory_step;
};

/* As box_transfer(), for memory that the processor cannot reach: ${visit} is called with what is to
 * be moved, and nothing is. */
uint64_t box_visit_rows(const struct box *stored, uint64_t begin, uint64_t bytes,
                        const struct box_memory *memory,
                        void (*visit)(void *context, const struct box_rows *rows), void *context);

/* Copy the common elements of two boxes in memory. */
void box_copy(const struct box_memory *from, const struct box_memory *to);

/* Set bit i (of ${bitmap}, one byte per block: 1) for each block of ${block_bytes} of the row-major
 * bytes of ${stored} that holds an element of ${wanted}. */
void box_mark_blocks(const struct box *stored, const struct box *wanted, size_t item_bytes,
                     size_t block_bytes, uint8_t *bitmap);

#endif
