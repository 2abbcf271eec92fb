/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * far_ranks.h -- a save of many ranks as threads, each with a shard of a few bytes: the commit
 * protocol without anything else.
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
    int64_t late;     /* this rank writes so late ... */
    uint64_t late_ms; /* ... and not at all if that is UINT64_MAX */
    uint8_t save_id[SAVE_ID_BYTES];
    /* The outcome, as the ranks report it. */
    unsigned committed, aborted, unknown;
    struct sidestep_error why; /* of rank 0 */
    /* Seconds: from the begin to the last vote, from there to the commit, and from there until the
     * last rank knew. */
    double vote_s, commit_s, learn_s;
};

/* false: threads failed. */
bool far_ranks_save(struct far_ranks *ranks);

#endif
