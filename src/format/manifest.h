/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * manifest.h -- writes and reads `.sidestep.manifest.<save id>`, which lists the files of a
 * checkpoint, with their sizes and hashes.
 *
 * It has two lines of text: a JSON object, and "sha256 <hex>" of the first line with its newline.
 */
#ifndef FORMAT_MANIFEST_H
#define FORMAT_MANIFEST_H

#include "base/base.h"
#include "codec/codec.h"
#include "format/extra_file.h"
#include "format/footer.h"
#include "format/name_template.h"

#define MANIFEST_MAX_BYTES ((size_t)256 << 20)
#define MANIFEST_MAX_FILES ((size_t)1 << 22)
#define MANIFEST_VERSION 1
#define MANIFEST_REQUIRED_PART 1u /* it is a part */

struct manifest_file {
    const char *name;
    uint64_t bytes;
    /* Of the footer and the trailer, which have all other hashes. */
    uint8_t footer_sha256[HASH_SHA256_BYTES];
    char origin[SAVE_ID_HEX]; /* the save id in the trailer: of an earlier save for a link */
};

/* The index of chunks (chunk_index.h). */
struct manifest_index {
    uint64_t bytes; /* of the file; 0: there is none */
    uint64_t table_bytes;
    uint8_t table_sha256[HASH_SHA256_BYTES];
};

/* Of a part of a checkpoint (docs/FORMAT.md): its ranks see a directory that others do not see. */
struct manifest_part {
    const uint32_t *ranks; /* ascending, below the world's size */
    uint32_t rank_count;   /* 0: it is no part */
    uint32_t parts;        /* of the whole */
};

struct manifest {
    char save_id[SAVE_ID_HEX];
    char run_id[SAVE_ID_HEX]; /* of a series; "": none */
    uint64_t incarnation;     /* of a series; 0: none */
    int64_t step;             /* -1: none */
    /* The template of the series' names.  "": names are a prefix and the step, or no series. */
    char naming[NAME_TEMPLATE_MAX_BYTES + 1];
    uint32_t world_size;
    int64_t saved_at; /* seconds since 1970, for people */
    uint64_t required_features;
    uint64_t optional_features;
    uint64_t metadata_bytes; /* of .metadata */
    uint8_t metadata_sha256[HASH_SHA256_BYTES];
    struct manifest_index index;
    struct manifest_part part;
    size_t file_count;
    struct manifest_file *files;
    size_t extra_count;
    struct extra_file *extras; /* without ->first_rank */
};

/* The ranks of a part, as people write them: "0-7". A long list ends with how many are left out. */
struct manifest_part_text {
    char text[96];
};
struct manifest_part_text manifest_part_text(const struct manifest *manifest);
/* Are files of ${rank} among those of the manifest? */
bool manifest_has_rank(const struct manifest *manifest, uint32_t rank);

/* Append the text.  EINVAL: manifest_decode() would refuse it.  A saved_at outside the years 1970
 * to 9999 is clamped, because a wrong clock must not fail a save. */
enum sidestep_status manifest_encode(const struct manifest *manifest, struct buffer *out,
                                     struct sidestep_error *err);
/* Parse the text; strings live in ${arena}.  Checks the hash first, then every field: types,
 * ranges, and names of files, which stay beneath the directory, consist of [A-Za-z0-9._/-], and
 * come once.  Ignores unknown JSON keys.  On failure ${out} is zeroed. */
enum sidestep_status manifest_decode(const void *bytes, size_t length, struct arena *arena,
                                     struct manifest *out, struct sidestep_error *err);

#endif
