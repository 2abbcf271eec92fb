/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commit_marker.h -- the mark of a save under way: a file that says whose save it is, and whose
 * lock says that its owner, C, is alive (lock_file.h).
 */
#ifndef COMMIT_COMMIT_MARKER_H
#define COMMIT_COMMIT_MARKER_H

#include "format/format.h"
#include "store/store.h"

struct commit;

/* What C's mark says, as text: "target NAME", "owner PID", "host NAME", "run ID", "step N" (-1: it
 * has none), one per line. */
struct commit_marker {
    char target[FILE_NAME_BYTES];
    char run_id[SAVE_ID_HEX];
    char owner[64]; /* process id */
    char host[64];
    int64_t step; /* -1: it has none, or the mark does not tell */
};

/* Make it in ${commit->dir}, and hold it locked as ${commit->mark}.  See lock_file_create(); where
 * storage has no locks, leftovers are reported instead of swept. */
enum sidestep_status commit_marker_create(struct commit *commit, struct sidestep_error *err);
/* The mark of C under a second name in ${dir}: says by its name alone, where a file cannot be made.
 * It takes no descriptor, inode, block or memory. */
enum sidestep_status commit_marker_link(struct commit *commit, struct store_dir *dir,
                                        const char *name);
/* Does C's mark lie in ${dir}?  Also if storage does not answer. */
bool commit_has_marker(const struct commit *commit, struct store_dir *dir);
/* Read a mark; a damaged one gives empty fields. */
enum sidestep_status commit_marker_read(struct store_file *file, struct commit_marker *mark,
                                        struct sidestep_error *err);
/* Is its owner on another host than ours, on network storage, where a lock of another host may not
 * be seen here?  Also if storage does not answer. */
bool commit_marker_is_elsewhere(struct store_dir *dir, const struct commit_marker *mark);
/* Why a rank, or C, gave up: the text of such a file; "" if it has none. */
enum sidestep_status commit_read_reason(struct store_dir *dir, const char *name,
                                        struct sidestep_error *reason, struct sidestep_error *err);

#endif
