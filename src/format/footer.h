/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * footer.h -- what makes a shard file self-describing.
 *
 *      items and zero padding | footer | trailer (64 bytes)
 *
 * The footer lists the items with their boxes, places and hashes; the trailer, at the very end,
 * finds and guards it.  Stock readers never look there.  All integers little-endian; docs/FORMAT.md
 * has the bytes.
 */
#ifndef FORMAT_FOOTER_H
#define FORMAT_FOOTER_H

#include "base/base.h"
#include "codec/codec.h"
#include "model/model.h"

#define FOOTER_TRAILER_BYTES 64u
#define FOOTER_MAX_BYTES ((uint64_t)1 << 30)
#define FOOTER_MAX_ITEMS ((uint64_t)1 << 24)
/* Whoever reads a whole file does it in pieces of some MiB that end in neither of these. */
#define FOOTER_MAX_GAP_BYTES ((uint64_t)4 << 20)      /* in front of, between and behind items */
#define FOOTER_MAX_ENVELOPE_BYTES ((uint64_t)1 << 20) /* head and tail of a tensor together */
#define FOOTER_MAX_TRANSFORMS 255u
#define FOOTER_MAX_TRANSFORM_BYTES 1100u /* of a name: as many as `.metadata` may have, joined */
#define SAVE_ID_BYTES 16u
#define SAVE_ID_HEX 33u /* 32 digits and a NUL */

struct footer_item {
    const char *name;
    bool is_object;
    bool requires_grad;
    enum sidestep_dtype dtype;
    uint32_t ndim;
    const int64_t *shape; /* of the global tensor */
    struct box box;
    uint32_t path_length; /* >= 1 */
    const struct sidestep_path_item *path;
    uint64_t offset;      /* of the item in the file */
    uint64_t bytes;       /* of the item in the file: head + data + tail */
    uint64_t data_offset; /* of the data, from ${offset}; 0 for objects.  With a transform: in the
                             item as it is when the transform is undone */
    uint64_t data_bytes;  /* stored bytes of the data: what block hashes cover; objects: ${bytes} */
    uint64_t raw_bytes;   /* before any transform */
    uint32_t transform;   /* 0: none; else all of the item is data, and footer.transforms[it - 1] */
    uint64_t envelope_hash;  /* hash_block() of head followed by tail, before any transform; 0 for
                                objects */
    struct hash128 raw_hash; /* hash_block_list() of the raw data's block hashes */
    uint64_t block_count;    /* hash_block_count(data_bytes) */
    const uint64_t *blocks;  /* hash_block() of each block of the stored data */
};

struct footer {
    uint8_t save_id[SAVE_ID_BYTES]; /* of the save that wrote the file: its origin */
    uint32_t rank;
    uint32_t shard;       /* number among the shards of this rank */
    uint32_t shard_count; /* of this rank, in the checkpoint */
    uint32_t world_size;
    uint64_t layout_digest;     /* of the agreement */
    uint64_t required_features; /* a bit unknown to the reader: refuse */
    uint64_t optional_features; /* a bit unknown to the reader: ignore */
    size_t count;
    struct footer_item *items; /* by offset, not overlapping */
    uint64_t begin;            /* where in the file a footer lies that was read */
    size_t transform_count;
    const char *const *transforms; /* as in `.metadata`: "stream.zstd/1" */
};
/* All of these are set, or not, by footer_encode(). */
#define FOOTER_REQUIRED_TRANSFORMS 1u /* items may be transformed; the names are in a part */
#define FOOTER_KNOWN_REQUIRED FOOTER_REQUIRED_TRANSFORMS
#define FOOTER_OPTIONAL_INT_KEYS 1u   /* some keys of paths are integers */
#define FOOTER_OPTIONAL_TRANSFORMS 2u /* with the required feature, for its part */

/* Bytes that footer_encode() will append: known before any hash is. */
uint64_t footer_encoded_bytes(const struct footer *footer);
/* Append footer and trailer; they start at ${file_offset} of the file. */
enum sidestep_status footer_encode(const struct footer *footer, uint64_t file_offset,
                                   struct buffer *out, struct sidestep_error *err);

struct footer_trailer {
    uint8_t save_id[SAVE_ID_BYTES];
    uint32_t rank;
    uint32_t shard;
    uint64_t footer_bytes; /* without the trailer */
    uint64_t footer_hash;
    uint64_t layout_digest;
};
/*
 * ENOTFOUND: there is no trailer of ours: a stock file, or one whose end was lost, which only the
 * manifest can tell.  ECORRUPT: there is, and it is damaged.
 */
enum sidestep_status footer_trailer_read(const struct source *file, struct footer_trailer *out,
                                         struct sidestep_error *err);
/*
 * Read and check trailer and footer of ${file}; ${out} lives in ${arena}.  Every number is checked:
 * items inside the file, boxes inside shapes, counts, names, features.  ${sha256} (may be NULL)
 * receives the SHA-256 of footer and trailer, which the manifest repeats.
 */
enum sidestep_status footer_read(const struct source *file, struct arena *arena, struct footer *out,
                                 uint8_t sha256[HASH_SHA256_BYTES], struct sidestep_error *err);

#endif
