/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * box_range.h -- finds the bytes of a stored chunk that hold a stretch of the bytes of a box.
 *
 * Box and chunk are boxes of one tensor, both row-major.  So bytes that both have come in the same
 * order in both.  If stretches follow each other in the box, the ranges that they need follow each
 * other in the chunk.  If the box contains the chunk, and the stretches cover the box, the ranges
 * cover the chunk.
 */
#ifndef MODEL_BOX_RANGE_H
#define MODEL_BOX_RANGE_H

#include "model/box.h"

/* Set [*first, *last) to the smallest range of ${chunk}'s bytes that holds all bytes [begin, end)
 * of ${box} that lie in the chunk.  False: none lies there.  Some bytes of the range may lie
 * outside the box. */
bool box_range(const struct box *box, uint64_t begin, uint64_t end, size_t item_bytes,
               const struct box *chunk, uint64_t *first, uint64_t *last);

#endif
