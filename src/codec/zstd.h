/* SPDX-License-Identifier: BSD-3-Clause */
/* zstd.h -- torch's "stream.zstd" transform: each item is one independent frame. */
#ifndef CODEC_ZSTD_H
#define CODEC_ZSTD_H

#include "codec/codec.h"

#define ZSTD_WINDOW_LOG_MAX 27 /* 128 MiB of decoder memory */

/* More memory than this the decoding of a frame of ${stored_bytes} cannot take, its result and its
 * window together: a block has at least 4 bytes and holds at most 128 KiB (RFC 8878, 3.1.1.2). */
uint64_t zstd_max_memory(uint64_t stored_bytes, uint64_t max_bytes);

/*
 * Decode exactly one frame that fills ${stored}, of unknown raw size, into a malloc'ed buffer of at
 * most ${max_bytes} (more: ECORRUPT).  Skippable or trailing frames, dictionaries and larger
 * windows are refused.  Memory grows with what was decoded, not with what the frame claims.
 */
enum sidestep_status zstd_decode(const void *stored, size_t stored_bytes, uint64_t max_bytes,
                                 void **raw, size_t *raw_bytes, struct sidestep_error *err);

/* The same, of an input and into a sink: memory for one block and one window. */
enum sidestep_status zstd_decode_stream(struct codec_input *input, uint64_t max_bytes,
                                        struct codec_sink *sink, struct sidestep_error *err);

#endif
