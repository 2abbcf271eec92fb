/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * planes.h -- the codec "sidestep.planes/1": splits elements into planes, and encodes each plane on
 * its own.  A plane has one byte of each element, all of the same significance.
 *
 * The exponents of weights have few values, the mantissas all.  So planes of exponents shrink to a
 * third, and planes of mantissas are stored as they are.  Floats are first rotated by one bit, so
 * that the highest plane has the exponent without the sign.
 *
 *      header (40 bytes) | head | chunks | tail | index: u32 per chunk, its bytes
 *
 * A chunk is 1 MiB of the data; the last one may be shorter.  It can be decoded on its own:
 *
 *      u32 per plane, highest first: method (2 bits) and bytes (30 bits) | the planes
 *
 * docs/FORMAT.md specifies the bytes.
 */
#ifndef CODEC_PLANES_H
#define CODEC_PLANES_H

#include "codec/codec.h"

#define PLANES_HEADER_BYTES 40u
#define PLANES_MAX_WIDTH 8u
/* The largest encoded chunk. */
#define PLANES_CHUNK_MAX_BYTES (CODEC_CHUNK_BYTES + 4 * PLANES_MAX_WIDTH)
#define PLANES_MAX_ENVELOPE_BYTES ((uint64_t)1 << 20) /* of the head, and of the tail */

struct planes_header {
    unsigned width;       /* bytes of an element: 1, 2, 4, 8 */
    bool rotated;         /* by one bit to the left */
    uint64_t bytes;       /* of the decoded item */
    uint64_t data_bytes;  /* a multiple of ${width} */
    uint64_t data_offset; /* of the data in the decoded item: bytes of the head */
};

#endif
