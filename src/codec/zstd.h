/* SPDX-License-Identifier: BSD-3-Clause */
/* zstd.h -- decodes torch's "stream.zstd": each item is one frame of zstd. */
#ifndef CODEC_ZSTD_H
#define CODEC_ZSTD_H

#include "codec/codec.h"

#define ZSTD_WINDOW_LOG_MAX 27 /* 128 MiB of decoder memory */

/* The most memory that decoding a frame of ${stored_bytes} can take, for the result and the window
 * together.  A block has at least 4 bytes and decodes to at most 128 KiB (RFC 8878, 3.1.1.2). */
uint64_t zstd_max_memory(uint64_t stored_bytes, uint64_t max_bytes);

/*
 * Decode one frame that fills ${stored} into a malloc'ed buffer.  ECORRUPT: it decodes to more than
 * ${max_bytes}, is skippable, has bytes behind it, or needs a dictionary or a larger window.  The
 * memory grows with the bytes that are decoded, not with the size that the frame claims.
 */
enum sidestep_status zstd_decode(const void *stored, size_t stored_bytes, uint64_t max_bytes,
                                 void **raw, size_t *raw_bytes, struct sidestep_error *err);

/* The same, from ${input} to ${sink}, with memory for one block and one window. */
enum sidestep_status zstd_decode_stream(struct codec_input *input, uint64_t max_bytes,
                                        struct codec_sink *sink, struct sidestep_error *err);

#endif
