/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lease.h -- decides which process owns a series: a lock that ends with its holder, and an
 * incarnation number.
 *
 * The number grows with each holder, so a process that has lost the lease is recognized, and
 * cannot commit.
 */
#ifndef ROOT_LEASE_H
#define ROOT_LEASE_H

#include "commit/commit.h"

/* What another place knows of the run of a series. */
struct lease_elsewhere {
    char run_id[SAVE_ID_HEX]; /* "": nothing */
    uint64_t incarnation;     /* the newest one */
};

#define LEASE_KEEPS_BYTES 512u

struct lease {
    struct store *store;
    struct lease_elsewhere elsewhere;
    struct store_dir *root; /* the root of the series */
    struct store_dir *dir;  /* ROOT/.sidestep */
    struct store_file *lock;
    bool is_locked;          /* false: this storage has no locks */
    char token[SAVE_ID_HEX]; /* in a bucket (bucket_lease.c), proves that the incarnation is ours;
                                "": it is not needed, or no incarnation was taken */
    char run_id[SAVE_ID_HEX];
    uint64_t incarnation;
    char keeps[LEASE_KEEPS_BYTES]; /* for the state: see lease_acquire() */
};

/* Open ${root}, and make it if it is missing. */
enum sidestep_status lease_open_root(struct store *store, const char *root, struct store_dir **dir,
                                     struct sidestep_error *err);
/* Make ${root} if it is missing, take the lock if the storage has locks, and start a new
 * incarnation durably. It is also later than the one that ${elsewhere} knows, and if the root
 * has no run yet, the run is that one. NULL: nothing is known elsewhere. ${keeps} is recorded
 * with the incarnation, for whoever lists the root (selection/kept.h); NULL: nothing is. Waits
 * up to 30 s for a holder that only deletes, and 3 s for one that has not written yet what it
 * does. ELOCKED: the message names the holder. EMISMATCH: the root has another run than
 * ${elsewhere}. */
enum sidestep_status lease_acquire(struct lease *lease, struct store *store, const char *root,
                                   const struct lease_elsewhere *elsewhere, const char *keeps,
                                   struct sidestep_error *err);
/* For the storages: set run and incarnation of the lease to what follows ${run_id} and
 * ${incarnation}, which the root has now; ${is_new}: it has none. */
enum sidestep_status lease_choose_next(struct lease *lease, const char *run_id,
                                       uint64_t incarnation, bool is_new,
                                       struct sidestep_error *err);
/* Read the run id and the newest incarnation of the series in ${dir} (ROOT/.sidestep), without the
 * lock. ENOTFOUND or ECORRUPT: they were lost, or never existed. */
enum sidestep_status lease_read(struct store_dir *dir, char run_id[SAVE_ID_HEX],
                                uint64_t *incarnation, struct sidestep_error *err);
/* Like lease_acquire(), for a caller that only deletes. Does not start a run if there is none yet.
 * Waits as that does, so deletions of two processes follow each other. If there is no space to
 * write the next incarnation, the lock alone is enough, because deleting makes space. In a bucket
 * it takes no incarnation, because that would end the run that saves there, and a deletion does not
 * harm it. */
enum sidestep_status lease_acquire_to_delete(struct lease *lease, struct store *store,
                                             const char *root, struct sidestep_error *err);
/* Has a process of this host the lock of the series in ${dir} (ROOT/.sidestep)? False also where
 * the storage has no locks. */
bool lease_is_held(struct store_dir *dir);
/* Do we still own the series? EABORTED: a later incarnation has taken over. Any thread may call
 * it. */
enum sidestep_status lease_check(struct lease *lease, struct sidestep_error *err);
/* On another rank than the owner: does ${root} show this host that ${incarnation} of ${run_id} was
 * taken? Looks for ${limit_ns} before it returns false. True also if the state cannot be read,
 * because that proves nothing. */
bool lease_is_visible(struct store *store, struct clock *clock, const char *root,
                      const char *run_id, uint64_t incarnation, uint64_t limit_ns);
/* Is ${root} the directory that was locked? EABORTED: that one was moved away, and another
 * directory has its name. */
enum sidestep_status lease_check_root(struct lease *lease, struct store_dir *root,
                                      struct sidestep_error *err);
/* Release the lock. Does nothing with a zeroed lease. */
void lease_release(struct lease *lease);

#endif
