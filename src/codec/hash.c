/* SPDX-License-Identifier: BSD-3-Clause */
/* hash.c -- see hash.h.  The algorithms come from libxxhash, ISA-L, zlib and nettle. */
#include "codec/hash.h"

#include <isa-l/crc.h>
#include <nettle/sha2.h>
#include <xxhash.h>
#include <zlib.h>

#include "base/base.h"

/* Variants of libxxhash for each CPU: the same hashes, a third faster. */
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#define SHA256_PIECE_BYTES ((size_t)256 << 10) /* stays in the processor's caches */

_Static_assert(HASH_SHA256_BYTES == SHA256_DIGEST_SIZE, "a SHA-256 is 32 bytes");

uint64_t hash_block(const void *bytes, size_t length)
{
    return XXH3_64bits(bytes, length);
}

/* A struct hash_stream is a state of libxxhash. */
struct hash_stream *hash_stream_new(void)
{
    XXH3_state_t *state = fault_hit("memory") ? NULL : XXH3_createState();

    if (state != NULL)
        XXH3_64bits_reset(state);
    return (struct hash_stream *)state;
}

void hash_stream_free(struct hash_stream *stream)
{
    XXH3_freeState((XXH3_state_t *)stream);
}

void hash_stream_update(struct hash_stream *stream, const void *bytes, size_t length)
{
    XXH3_64bits_update((XXH3_state_t *)stream, bytes, length);
}

uint64_t hash_stream_finish(struct hash_stream *stream)
{
    uint64_t hash = XXH3_64bits_digest((const XXH3_state_t *)stream);

    XXH3_64bits_reset((XXH3_state_t *)stream);
    return hash;
}

struct hash128 hash_block_list(const uint64_t *blocks, size_t count)
{
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "hash_block_list() hashes little-endian words as they lie in memory"
#endif
    XXH128_hash_t hash = XXH3_128bits(blocks, count * sizeof(*blocks));

    return (struct hash128){.low = hash.low64, .high = hash.high64};
}

uint32_t hash_crc32(uint32_t crc, const void *bytes, size_t length)
{
    return crc32_gzip_refl(crc, bytes, length);
}

uint32_t hash_crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b)
{
    /* zlib takes a signed length.  No length is large enough for this to matter. */
    return (uint32_t)crc32_combine(crc_a, crc_b, (z_off_t)(length_b & INT64_MAX));
}

void hash_sha256(const void *bytes, size_t length, uint8_t digest[HASH_SHA256_BYTES])
{
    struct sha256_ctx context;

    sha256_init(&context);
    sha256_update(&context, length, bytes);
    sha256_digest(&context, HASH_SHA256_BYTES, digest);
}

enum sidestep_status hash_sha256_source(const struct source *source,
                                        uint8_t digest[HASH_SHA256_BYTES],
                                        struct sidestep_error *err)
{
    OWNED uint8_t *piece = memory_new(SHA256_PIECE_BYTES, 1);
    struct sha256_ctx context;

    if (piece == NULL)
        return FAIL_NOMEM(err, SHA256_PIECE_BYTES);
    sha256_init(&context);
    for (uint64_t at = 0; at < source->length; at += SHA256_PIECE_BYTES) {
        size_t length = min_u64(SHA256_PIECE_BYTES, source->length - at);
        TRY(source_read(source, piece, length, at, err));
        sha256_update(&context, length, piece);
    }
    sha256_digest(&context, HASH_SHA256_BYTES, digest);
    return SIDESTEP_OK;
}

void hash_id(const void *bytes, size_t length, uint64_t seed, uint8_t id[16])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits_withSeed(bytes, length, seed));
    memcpy(id, canonical.digest, sizeof(canonical.digest));
}

void hash_to_hex(const uint8_t *digest, size_t bytes, char *hex)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < bytes; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * bytes] = '\0';
}

/* -1: not a lower-case hexadecimal digit. */
static int hex_value(char c)
{
    return c >= 'A' && c <= 'F' ? -1 : utf8_hex_digit(c);
}

_Bool hash_from_hex(const char *hex, size_t bytes, uint8_t *digest)
{
    for (size_t i = 0; i < bytes; i++) {
        int high = hex_value(hex[2 * i]);
        int low = high < 0 ? -1 : hex_value(hex[2 * i + 1]);

        if (low < 0)
            return 0;
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return hex[2 * bytes] == '\0';
}
