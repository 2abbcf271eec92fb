/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commit_marker.h -- the pending marker: a locked file that says that a process is writing a save.
 *
 * Its text says whose save it is. Its lock says that its owner, rank 0, is alive (lock_file.h).
 */
#ifndef COMMIT_COMMIT_MARKER_H
#define COMMIT_COMMIT_MARKER_H

#include "format/format.h"
#include "store/store.h"

struct commit;

/* The fields of a pending marker. In the file they are text, one per line: "target NAME", "owner
 * PID", "host NAME", "run ID", "step N", and of a copy that a later one may go on with, "resumable
 * yes". */
struct commit_marker {
    char target[FILE_NAME_BYTES];
    char run_id[SAVE_ID_HEX];
    char owner[64]; /* process id */
    char host[64];
    int64_t step; /* -1: the save has none, or the marker has no such line */
    bool is_resumable;
};

/* Create the marker in ${commit->dir}, and hold it locked as ${commit->files.marker}. Errors are
 * those of lock_file_create(). If storage has no locks, leftovers are reported, and not swept. */
enum sidestep_status commit_marker_create(struct commit *commit, struct sidestep_error *err);
/* Take over the marker of a dead process in ${commit->dir}, or create it if there is none. ELOCKED:
 * its owner is alive, or this storage has no locks, so nobody can tell. */
enum sidestep_status commit_marker_adopt(struct commit *commit, struct sidestep_error *err);
/* Link the marker of rank 0 as ${name} in ${dir}. Serves as a vote or as a failure report where a
 * file cannot be created, because the name alone says enough. It takes no descriptor, inode, block
 * or memory. */
enum sidestep_status commit_marker_link(struct commit *commit, struct store_dir *dir,
                                        const char *name);
/* Does ${dir} contain the marker of rank 0? Also true if storage does not answer. */
bool commit_has_marker(const struct commit *commit, struct store_dir *dir);
/* Read a marker. A damaged one gives empty fields. */
enum sidestep_status commit_marker_read(struct store_file *file, struct commit_marker *marker,
                                        struct sidestep_error *err);
/* Is the owner on another host, on network storage, where this host may not see its lock? Also true
 * if storage does not answer. */
bool commit_marker_is_elsewhere(struct store_dir *dir, const struct commit_marker *marker);
/* Read why a rank gave up: the text of its failure file, or of rank 0's outcome file. "" if it has
 * none. */
enum sidestep_status commit_read_reason(struct store_dir *dir, const char *name,
                                        struct sidestep_error *reason, struct sidestep_error *err);

#endif
