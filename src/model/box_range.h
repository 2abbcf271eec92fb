/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * box_range.h -- which bytes of a stored chunk hold the bytes of a stretch of a box.
 *
 * Box and chunk are boxes of one tensor, both row-major.  What of a stretch lies in the chunk comes
 * in the same order there, so the stretch's neighbours in the box are neighbours in the chunk, too:
 * stretches that follow each other and cover a box that holds the whole chunk ask for stretches of
 * the chunk that follow each other and cover it.
 */
#ifndef MODEL_BOX_RANGE_H
#define MODEL_BOX_RANGE_H

#include "model/box.h"

/* The smallest stretch [*first, *last) of ${chunk}'s bytes that holds all bytes [begin, end) of
 * ${box} that lie in the chunk; false: none does.  Bytes between them may lie outside the box. */
bool box_range(const struct box *box, uint64_t begin, uint64_t end, size_t item_bytes,
               const struct box *chunk, uint64_t *first, uint64_t *last);

#endif
