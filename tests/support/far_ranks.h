/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * far_ranks.h -- runs the commit protocol alone for many ranks as threads, each with a shard of a
 * few bytes.
 */
#ifndef SUPPORT_FAR_RANKS_H
#define SUPPORT_FAR_RANKS_H

#include "commit/commit.h"

struct far_ranks {
    /* Set by the caller. */
    struct store *store;
    const char *path;
    uint32_t size;
    uint64_t timeout_ms;
    int64_t late;     /* a rank that writes late; -1: none */
    uint64_t late_ms; /* how late it writes; UINT64_MAX: never */
    uint8_t save_id[SAVE_ID_BYTES];
    /* The outcome, as the ranks report it. */
    unsigned committed, aborted, unknown;
    struct sidestep_error why; /* of rank 0 */
    /* Seconds from the start to the last vote, from there to the commit, and from there until the
     * last rank has learned of it. */
    double vote_s, commit_s, learn_s;
};

/* False: not all threads could be started. */
bool far_ranks_save(struct far_ranks *ranks);

#endif
