/* SPDX-License-Identifier: BSD-3-Clause */
/* zstd_blocks.h -- the blocks that libzstd made of a part, looked at from outside (RFC
 * 8878, 3.1.1.2): may they stand in a frame behind those of another part? */
#ifndef CODEC_ZSTD_BLOCKS_H
#define CODEC_ZSTD_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZSTD_BLOCK_HEADER_BYTES 3u

enum zstd_block_type { ZSTD_BLOCK_RAW, ZSTD_BLOCK_RLE, ZSTD_BLOCK_COMPRESSED };

/* What blocks need of those before them.  Matches further back than the part, and repeated offsets,
 * are not told: that takes decoding. */
enum zstd_dependency {
    ZSTD_DEPENDENCY_NONE,    /* ... and they have no sequences */
    ZSTD_DEPENDENCY_OFFSETS, /* they have sequences; tables of symbols are their own */
    ZSTD_DEPENDENCY_FULL,    /* a table from before, or they are no whole blocks */
};

/* Looks at all ${length} bytes, and marks the last block as the frame's last, or not. */
enum zstd_dependency zstd_blocks_find_dependency(uint8_t *bytes, size_t length, bool last);
void zstd_block_write_header(uint8_t to[ZSTD_BLOCK_HEADER_BYTES], enum zstd_block_type type,
                             size_t size, bool last);

#endif
