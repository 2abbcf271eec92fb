/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hash.h -- checksums.  XXH3-64 of each block of an item's data, XXH3-128 over the list of
 * block hashes, CRC32 (zip's) for other readers, SHA-256 for what binds files together.
 */
#ifndef CODEC_HASH_H
#define CODEC_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

#define HASH_BLOCK_BYTES ((size_t)1 << 20)
#define HASH_SHA256_BYTES 32

struct hash128 {
    uint64_t low;
    uint64_t high;
};

uint64_t hash_block(const void *bytes, size_t length); /* XXH3-64, seed 0 */
/* hash_block() of what comes piece by piece.  NULL: no memory. */
struct hash_stream;
struct hash_stream *hash_stream_new(void);
void hash_stream_free(struct hash_stream *stream);
void hash_stream_update(struct hash_stream *stream, const void *bytes, size_t length);
uint64_t hash_stream_finish(struct hash_stream *stream); /* and begin anew */
/* XXH3-128 over the block hashes, each as 8 little-endian bytes. */
struct hash128 hash_block_list(const uint64_t *blocks, size_t count);

/* CRC-32 as in zip and zlib: start from 0. */
uint32_t hash_crc32(uint32_t crc, const void *bytes, size_t length);
/* CRC of A followed by B, from crc(A), crc(B) and B's length. */
uint32_t hash_crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b);

void hash_sha256(const void *bytes, size_t length, uint8_t digest[HASH_SHA256_BYTES]);
/* The same of all of ${source}, read in pieces: without the memory for all of it. */
enum sidestep_status hash_sha256_source(const struct source *source,
                                        uint8_t digest[HASH_SHA256_BYTES],
                                        struct sidestep_error *err);
/* 64 hexadecimal digits and a NUL; and back (false: not 64 lower-case digits). */
void hash_to_hex(const uint8_t *digest, size_t bytes, char *hex);
_Bool hash_from_hex(const char *hex, size_t bytes, uint8_t *digest);

/* Blocks of HASH_BLOCK_BYTES in ${bytes}; 0 for 0. */
static inline uint64_t hash_block_count(uint64_t bytes)
{
    return bytes / HASH_BLOCK_BYTES + (bytes % HASH_BLOCK_BYTES != 0);
}

#endif
