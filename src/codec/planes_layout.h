/* SPDX-License-Identifier: BSD-3-Clause */
/* planes_layout.h -- declares what the encoder and the decoder of planes share. */
#ifndef CODEC_PLANES_LAYOUT_H
#define CODEC_PLANES_LAYOUT_H

#include "codec/planes.h"

#define PLANES_MAGIC "SSPLANES"
#define PLANES_MAGIC_BYTES 8u
#define PLANES_VERSION 1u
#define PLANES_ROTATED 1u
#define PLANES_METHOD_SHIFT 30u
#define PLANES_BYTES_MASK ((1u << PLANES_METHOD_SHIFT) - 1)

enum planes_method {
    PLANES_STORED,   /* as it is */
    PLANES_CONSTANT, /* one byte, which all bytes of the plane equal */
    PLANES_ZSTD,     /* one zstd frame */
};

/* Split ${bytes} of elements into planes, highest byte first, each of bytes / width. */
void planes_split(const uint8_t *from, size_t bytes, unsigned width, bool rotate, uint8_t *to);
/* The reverse. */
void planes_join(const uint8_t *const planes[], size_t bytes, unsigned width, bool rotate,
                 uint8_t *to);

/* The header that encoders write for ${item}. */
struct planes_header planes_header_for_item(const struct codec_item *item);

/* codec_planes.chunks */
extern const struct codec_chunk_ops planes_chunk_ops;
/* codec_planes.decode */
enum sidestep_status planes_decode(const struct codec *self, struct codec_input *input,
                                   uint64_t max, struct codec_sink *sink,
                                   struct sidestep_error *err);

#endif
