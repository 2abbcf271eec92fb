/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zstd_encode.h -- libzstd as an entropy coder: literals only, no matches.
 *
 * Numbers of a model repeat in their statistics, not in their bytes: on weights, looking for
 * matches costs time and finds nothing.  And blocks that hold no sequence depend on nothing before
 * them, so that blocks which several threads made can stand in one frame.
 */
#ifndef CODEC_ZSTD_ENCODE_H
#define CODEC_ZSTD_ENCODE_H

#include <zstd.h>

#include "base/base.h"
#include "codec/codec.h"

/* Of the frames that coders make, which are taken apart: magic number, descriptor, window. */
#define ZSTD_ENCODED_HEADER_BYTES 6u

enum sidestep_status zstd_encoder_new(ZSTD_CCtx **out, struct sidestep_error *err);
/* Append ${length} bytes as one frame of its own. */
enum sidestep_status zstd_encode_frame(ZSTD_CCtx *coder, const void *bytes, size_t length,
                                       struct buffer *out, struct sidestep_error *err);
/* What libzstd says of a failure: ${code} is one of its error codes. */
enum sidestep_status zstd_encoder_error(size_t code, struct sidestep_error *err);
/* The header of an item's frame. */
void zstd_write_frame_header(uint64_t content_bytes, unsigned window_log, struct buffer *out);
/* decode() of all codecs that make zstd frames. */
enum sidestep_status zstd_decode_item(const struct codec *self, struct codec_input *input,
                                      uint64_t most, struct codec_sink *sink,
                                      struct sidestep_error *err);

#endif
