/* SPDX-License-Identifier: BSD-3-Clause */
/* diff.h -- the work of comparing two checkpoints, shared by what pairs names (diff.c) and what
 * reads and compares tensors (diff_data.c). */
#ifndef INSPECT_DIFF_H
#define INSPECT_DIFF_H

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"

/* Of each side, at once; more only where torch wrote a chunk that is larger: without hashes of
 * blocks it can be checked only whole. */
#define DIFF_BATCH_BYTES ((uint64_t)48 << 20)

enum diff_kind {
    DIFF_SAME,
    DIFF_ONLY_A,
    DIFF_ONLY_B,
    DIFF_KIND, /* a tensor here, an object there */
    DIFF_DTYPE,
    DIFF_SHAPE,
    DIFF_VALUE, /* of objects */
    DIFF_DATA,  /* of tensors */
};

/* A name that is in one of the two, or in both. */
struct diff_pair {
    const struct metadata_entry *a; /* NULL: not in it */
    const struct metadata_entry *b;
    enum diff_kind kind;
    bool by_hash; /* its hashes say that it is the same */
    struct tensor_difference sum;
};

struct diff {
    const char *paths[2];
    struct reader *readers[2];
    struct workers *workers;
    const struct sidestep_diff_options *options;
    struct diff_pair *pairs; /* by name */
    size_t count;
    uint64_t total_bytes; /* to be read, of one side */
    uint64_t done_bytes;
};

/* Tensors of one dtype and shape: set ${by_hash} where all chunks have the same boxes and hashes.
 */
enum sidestep_status diff_compare_hashes(struct diff *diff, struct diff_pair *pair,
                                         struct sidestep_error *err);
/* Read and compare all pairs of tensors that are left.  ECANCELLED. */
enum sidestep_status diff_compare_tensors(struct diff *diff, struct sidestep_error *err);

#endif
