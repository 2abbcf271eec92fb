/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zstd_encode.h -- encodes with libzstd as an entropy coder: literals only, no matches.
 *
 * In weights, some byte values are frequent, but strings of bytes hardly repeat.  So a search for
 * matches costs time and finds nothing.  And blocks without matches depend on nothing before them,
 * so one frame can have blocks from several threads.
 */
#ifndef CODEC_ZSTD_ENCODE_H
#define CODEC_ZSTD_ENCODE_H

#include <zstd.h>

#include "base/base.h"
#include "codec/codec.h"

/* The header of a frame that libzstd makes here: magic number, descriptor, window. */
#define ZSTD_ENCODED_HEADER_BYTES 6u

enum sidestep_status zstd_encoder_new(ZSTD_CCtx **out, struct sidestep_error *err);
/* Encode ${length} bytes as one frame, and append it. */
enum sidestep_status zstd_encode_frame(ZSTD_CCtx *coder, const void *bytes, size_t length,
                                       struct buffer *out, struct sidestep_error *err);
/* Fail with the text of ${code}, an error code of libzstd. */
enum sidestep_status zstd_encoder_error(size_t code, struct sidestep_error *err);
/* Append the header of an item's frame. */
void zstd_write_frame_header(uint64_t content_bytes, unsigned window_log, struct buffer *out);
/* decode() of all codecs that make zstd frames. */
enum sidestep_status zstd_decode_item(const struct codec *self, struct codec_input *input,
                                      uint64_t max, struct codec_sink *sink,
                                      struct sidestep_error *err);

#endif
