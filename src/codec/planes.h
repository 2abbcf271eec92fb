/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * planes.h -- "sidestep.planes/1": elements taken apart into planes of bytes of equal significance,
 * each coded by itself.
 *
 * Exponents of weights take few values, mantissas all of them.  Apart, the former shrink to a
 * third, and the latter are left alone, which costs nothing.  Floating numbers are rotated by one
 * bit first, so that the plane on top is the exponent without the sign.
 *
 *      header (40 bytes) | head | chunks | tail | index: u32 per chunk, its bytes
 *
 * A chunk is 1 MiB of the data, the last one less; it stands for itself:
 *
 *      u32 per plane, highest first: method (2 bits) and bytes (30 bits) | the planes
 *
 * docs/FORMAT.md has the bytes.
 */
#ifndef CODEC_PLANES_H
#define CODEC_PLANES_H

#include "codec/codec.h"

#define PLANES_HEADER_BYTES 40u
#define PLANES_MAX_WIDTH 8u
/* More than this a chunk does not take, encoded. */
#define PLANES_CHUNK_MAX_BYTES (CODEC_CHUNK_BYTES + 4 * PLANES_MAX_WIDTH)
#define PLANES_MAX_ENVELOPE_BYTES ((uint64_t)1 << 20) /* head, and tail */

struct planes_header {
    unsigned width;       /* bytes of an element: 1, 2, 4, 8 */
    bool rotated;         /* by one bit to the left */
    uint64_t bytes;       /* decoded, all of it */
    uint64_t data_bytes;  /* a multiple of ${width} */
    uint64_t data_offset; /* of the data in the decoded item: bytes of the head */
};

enum sidestep_status planes_header_read(const uint8_t bytes[PLANES_HEADER_BYTES], uint64_t most,
                                        struct planes_header *out, struct sidestep_error *err);

#endif
