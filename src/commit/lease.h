/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lease.h -- who owns a series: a lock that dies with its holder, and an incarnation number that
 * grows with every holder, so that a zombie of an earlier one can be told, and fenced.
 */
#ifndef COMMIT_LEASE_H
#define COMMIT_LEASE_H

#include "commit/commit.h"

struct lease {
    struct store *store;
    struct store_dir *root; /* of the series */
    struct store_dir *dir;  /* ROOT/.sidestep */
    struct store_file *lock;
    char run_id[SAVE_ID_HEX];
    uint64_t incarnation;
};

/* Make ${root} if it is missing, take the lock, start a new incarnation (durable).  ELOCKED names
 * the holder. */
enum sidestep_status lease_take(struct lease *lease, struct store *store, const char *root,
                                struct sidestep_error *err);
/* Is it still ours?  EABORTED if a later incarnation has taken over.  Any thread. */
enum sidestep_status lease_check(struct lease *lease, struct sidestep_error *err);
/* Give the lock back.  A zeroed lease is a no-op. */
void lease_release(struct lease *lease);

#endif
