/* SPDX-License-Identifier: BSD-3-Clause */
/* diff.h -- a comparison of two checkpoints: diff.c pairs names, diff_data.c compares tensors,
 * diff_files.c small files, diff_stored.c tensors that only PyTorch can decode. */
#ifndef INSPECT_DIFF_H
#define INSPECT_DIFF_H

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "sidestep/sidestep_tools.h"

enum diff_kind {
    DIFF_SAME,
    DIFF_ONLY_A,
    DIFF_ONLY_B,
    DIFF_KIND, /* one is a tensor, the other an object */
    DIFF_DTYPE,
    DIFF_SHAPE,
    DIFF_VALUE, /* of objects */
    DIFF_DATA,  /* of tensors */
    DIFF_FILE,  /* a small file differs, or only one has it */
};

/* A name in one of the two checkpoints, or in both. */
struct diff_pair {
    const struct metadata_entry *a; /* NULL: the first checkpoint lacks it */
    const struct metadata_entry *b;
    const struct extra_file *files[2]; /* of a small file, instead */
    enum diff_kind kind;
    bool by_hash;       /* its stored hashes are equal */
    bool other_kind[2]; /* a tensor that only PyTorch can decode */
    struct tensor_difference sum;
};

struct diff {
    const char *paths[2];
    struct store *stores[2];
    struct reader *readers[2];
    unsigned threads;
    struct workers *workers; /* one less */
    const struct sidestep_diff_options *options;
    struct diff_pair *pairs; /* sorted by name; those of small files follow */
    size_t count;
    uint64_t total_bytes; /* to read, of each checkpoint */
    uint64_t done_bytes;
};

/* For tensors of one dtype and shape: compare what is stored, if only PyTorch can decode them. */
enum sidestep_status diff_compare_stored(struct diff *diff, struct diff_pair *pair,
                                         struct sidestep_error *err);
/* For tensors of one dtype and shape: set ${by_hash} if all chunks have the same boxes and hashes.
 */
enum sidestep_status diff_compare_hashes(struct diff *diff, struct diff_pair *pair,
                                         struct sidestep_error *err);
/* Read and compare all other pairs of tensors.  ECANCELLED. */
enum sidestep_status diff_compare_tensors(struct diff *diff, struct sidestep_error *err);

/* Append and compare the small files, if both checkpoints have a list of them. */
enum sidestep_status diff_add_files(struct diff *diff, struct sidestep_error *err);
/* What differs, in words.  NULL: memory is short. */
const char *diff_describe_files(struct arena *arena, const struct diff_pair *pair);

#endif
