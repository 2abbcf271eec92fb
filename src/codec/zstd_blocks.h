/* SPDX-License-Identifier: BSD-3-Clause */
/* zstd_blocks.h -- inspects blocks of zstd (RFC 8878, 3.1.1.2): may the blocks of one part follow
 * those of another part in one frame? */
#ifndef CODEC_ZSTD_BLOCKS_H
#define CODEC_ZSTD_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZSTD_BLOCK_HEADER_BYTES 3u

enum zstd_block_type { ZSTD_BLOCK_RAW, ZSTD_BLOCK_RLE, ZSTD_BLOCK_COMPRESSED };

/* What blocks may need from the blocks before them. */
enum zstd_dependency {
    ZSTD_DEPENDENCY_NONE,    /* nothing: they have no sequences */
    ZSTD_DEPENDENCY_OFFSETS, /* they have sequences, which may refer to bytes or repeated offsets
                                from before: only decoding tells */
    ZSTD_DEPENDENCY_FULL,    /* a table of symbols; or they are not whole blocks */
};

/* Inspect the blocks that fill ${length} bytes, and set or clear the last block's mark as the last
 * of its frame. */
enum zstd_dependency zstd_blocks_find_dependency(uint8_t *bytes, size_t length, bool last);
void zstd_block_write_header(uint8_t to[ZSTD_BLOCK_HEADER_BYTES], enum zstd_block_type type,
                             size_t size, bool last);

#endif
