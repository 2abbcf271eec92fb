/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lease.h -- who owns a series: a lock that dies with its holder, and an incarnation number that
 * grows with every holder, so that a zombie of an earlier one can be told, and fenced.
 */
#ifndef CATALOG_LEASE_H
#define CATALOG_LEASE_H

#include "commit/commit.h"

struct lease {
    struct store *store;
    struct store_dir *root; /* of the series */
    struct store_dir *dir;  /* ROOT/.sidestep */
    struct store_file *lock;
    bool is_locked; /* else there are no locks here */
    char run_id[SAVE_ID_HEX];
    uint64_t incarnation;
};

/* Make ${root} if it is missing, take the lock, start a new incarnation (durable).  Who only
 * deletes is waited for, for half a minute.  ELOCKED names the holder. */
enum sidestep_status lease_acquire(struct lease *lease, struct store *store, const char *root,
                                   struct sidestep_error *err);
/* What the newest incarnation is, of the run whose series ${dir} (ROOT/.sidestep) is, without the
 * lock.  ENOTFOUND or ECORRUPT: it was lost, or there never was one. */
enum sidestep_status lease_read(struct store_dir *dir, char run_id[SAVE_ID_HEX],
                                uint64_t *incarnation, struct sidestep_error *err);
/* The same for who only deletes: where there is no run yet, none begins; and where there is no
 * space to write the next incarnation down, which deleting is to make, the lock alone does. */
enum sidestep_status lease_acquire_to_delete(struct lease *lease, struct store *store,
                                             const char *root, struct sidestep_error *err);
/* Is it still ours?  EABORTED if a later incarnation has taken over.  Any thread. */
enum sidestep_status lease_check(struct lease *lease, struct sidestep_error *err);
/* Is ${root} the directory that was locked?  EABORTED: it was moved away, and another one has its
 * name. */
enum sidestep_status lease_check_root(struct lease *lease, struct store_dir *root,
                                      struct sidestep_error *err);
/* Give the lock back.  A zeroed lease is a no-op. */
void lease_release(struct lease *lease);

#endif
