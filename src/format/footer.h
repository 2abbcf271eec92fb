/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * footer.h -- writes and reads the footer of a shard file, which describes its items.
 *
 *      items and zero padding | footer | trailer (64 bytes)
 *
 * The footer lists the items with their boxes, places and hashes.  The trailer, at the very end,
 * has the footer's size and hash.  torch never reads either.  All integers are little-endian.
 * docs/FORMAT.md specifies the bytes.
 */
#ifndef FORMAT_FOOTER_H
#define FORMAT_FOOTER_H

#include "base/base.h"
#include "codec/codec.h"
#include "format/extra_file.h"
#include "model/model.h"

#define FOOTER_TRAILER_BYTES 64u
#define FOOTER_MAX_BYTES ((uint64_t)1 << 30)
#define FOOTER_MAX_ITEMS ((uint64_t)1 << 24)
/* Code that reads a whole file does not split gaps or envelopes, so it needs memory for the
 * largest. */
#define FOOTER_MAX_GAP_BYTES ((uint64_t)4 << 20)      /* before, between and after items */
#define FOOTER_MAX_ENVELOPE_BYTES ((uint64_t)1 << 20) /* head and tail of a tensor together */
#define FOOTER_MAX_TRANSFORMS 255u
#define FOOTER_MAX_TRANSFORM_BYTES 1100u /* of a name; enough for all of `.metadata`, joined */
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
                             item before the transform */
    uint64_t data_bytes;  /* stored bytes of the data, which the block hashes cover; for objects and
                             with a transform: ${bytes} */
    uint64_t raw_bytes;   /* of the data before any transform */
    uint32_t transform;   /* 0: none; else footer.transforms[transform - 1] */
    uint64_t envelope_hash;  /* hash_block() of the head and the tail, before any transform; 0 for
                                objects */
    struct hash128 raw_hash; /* hash_block_list() of the raw data's block hashes */
    uint64_t block_count;    /* hash_block_count(data_bytes) */
    const uint64_t *blocks;  /* hash_block() of each block of the stored data */
};

struct footer {
    uint8_t save_id[SAVE_ID_BYTES]; /* of the save that wrote the file */
    uint32_t rank;
    uint32_t shard;       /* its number among the shards of this rank */
    uint32_t shard_count; /* shards of this rank in the checkpoint */
    uint32_t world_size;
    uint64_t layout_digest;     /* of the layout that the ranks agreed on */
    uint64_t required_features; /* the reader refuses the file if it does not know a bit */
    uint64_t optional_features; /* the reader ignores bits that it does not know */
    size_t count;
    struct footer_item *items; /* sorted by offset, not overlapping */
    uint64_t begin;            /* set by footer_read(): offset of the footer in the file */
    size_t transform_count;
    const char *const *transforms;   /* as in `.metadata`: "stream.zstd/1" */
    size_t extra_count;              /* only in shard 0 */
    const struct extra_file *extras; /* of this rank, by their numbers; ->stored is not kept */
};
/* The features that footer_encode() sets if they apply. */
#define FOOTER_REQUIRED_TRANSFORMS 1u /* items may have transforms */
#define FOOTER_KNOWN_REQUIRED FOOTER_REQUIRED_TRANSFORMS
#define FOOTER_OPTIONAL_INT_KEYS 1u   /* some keys of paths are integers */
#define FOOTER_OPTIONAL_TRANSFORMS 2u /* the names of transforms; set with the required feature */
#define FOOTER_OPTIONAL_EXTRAS 4u     /* the extra files of the rank */

/* The bytes that footer_encode() will append.  They do not depend on the hashes. */
uint64_t footer_encoded_bytes(const struct footer *footer);
/* Append the footer and the trailer, which start at ${file_offset} of the file. */
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
 * ENOTFOUND: there is no trailer of sidestep.  torch wrote the file, or its end is lost; only the
 * manifest can tell which.  ECORRUPT: the trailer is damaged.
 */
enum sidestep_status footer_trailer_read(const struct source *file, struct footer_trailer *out,
                                         struct sidestep_error *err);
/*
 * Read and check the trailer and the footer of ${file}.  ${out} lives in ${arena}.  Checks all
 * numbers: items lie inside the file, boxes inside shapes; counts, names, features.  Sets
 * ${sha256}, unless it is NULL, to the SHA-256 of the footer and the trailer, which the manifest
 * has, too.
 */
enum sidestep_status footer_read(const struct source *file, struct arena *arena, struct footer *out,
                                 uint8_t sha256[HASH_SHA256_BYTES], struct sidestep_error *err);

#endif
