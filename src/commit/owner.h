/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * owner.h -- who is writing a save, and has that process ended?  For everybody who only looks: no
 * lock is taken, because even a lock that is held for a moment could make a save fail that is about
 * to take it.
 */
#ifndef COMMIT_OWNER_H
#define COMMIT_OWNER_H

#include "commit/commit_marker.h"

struct owner {
    struct commit_marker mark;
    /* The process has ended, so nobody will finish the save, and `sidestep gc` removes it.  False
     * where that cannot be told: another host's save on network storage, or storage without locks.
     */
    bool is_dead;
};

/* The owner of save ${save_id}, whose files are in ${dir}.  A save without a mark has none, which
 * is what a kill before the mark leaves.  Fails where the mark cannot be read. */
enum sidestep_status owner_read(struct store_dir *dir, const char *save_id, struct owner *owner,
                                struct sidestep_error *err);

#endif
