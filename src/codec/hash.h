/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hash.h -- computes hashes: XXH3-64 of each block of an item's data, XXH3-128 of the list of block
 * hashes, CRC32 (as in zip) for other readers, and SHA-256 where one file has the hash of another.
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
static inline bool hash128_equal(struct hash128 a, struct hash128 b)
{
    return a.low == b.low && a.high == b.high;
}

uint64_t hash_block(const void *bytes, size_t length); /* XXH3-64, seed 0 */
/* hash_block() of bytes that come in pieces.  NULL: out of memory. */
struct hash_stream;
struct hash_stream *hash_stream_new(void);
void hash_stream_free(struct hash_stream *stream);
void hash_stream_update(struct hash_stream *stream, const void *bytes, size_t length);
/* Return the hash, and begin a new one. */
uint64_t hash_stream_finish(struct hash_stream *stream);
/* XXH3-128 over the block hashes, each as 8 little-endian bytes. */
struct hash128 hash_block_list(const uint64_t *blocks, size_t count);

/* CRC-32 as in zip and zlib.  Start with 0. */
uint32_t hash_crc32(uint32_t crc, const void *bytes, size_t length);
/* The CRC of A followed by B, from those of A and B and the length of B. */
uint32_t hash_crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b);

void hash_sha256(const void *bytes, size_t length, uint8_t digest[HASH_SHA256_BYTES]);
/* The same for all of ${source}, which it reads in pieces. */
enum sidestep_status hash_sha256_source(const struct source *source,
                                        uint8_t digest[HASH_SHA256_BYTES],
                                        struct sidestep_error *err);
/* An id that follows from ${bytes} and ${seed}: XXH3-128, in its canonical form. */
void hash_id(const void *bytes, size_t length, uint64_t seed, uint8_t id[16]);
/* Write ${bytes} of ${digest} as lower-case hexadecimal digits and a NUL. */
void hash_to_hex(const uint8_t *digest, size_t bytes, char *hex);
/* The reverse.  False: ${hex} is something else. */
_Bool hash_from_hex(const char *hex, size_t bytes, uint8_t *digest);

/* The number of blocks in ${bytes}, the last of which may be shorter. */
static inline uint64_t hash_block_count(uint64_t bytes)
{
    return bytes / HASH_BLOCK_BYTES + (bytes % HASH_BLOCK_BYTES != 0);
}

#endif
