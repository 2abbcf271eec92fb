/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * owner.h -- finds out who is writing a save, and whether that process has ended.
 *
 * It is for callers that only look. It takes no lock, because even a lock held for a moment could
 * make a save fail that is about to take it.
 */
#ifndef ROOT_OWNER_H
#define ROOT_OWNER_H

#include "commit/commit.h"

struct owner {
    struct commit_marker marker;
    /* The process has ended, so nobody will finish the save, and `sidestep gc` removes it. False
     * where that cannot be decided: for another host's save on network storage, or on storage
     * without locks. */
    bool is_dead;
};

/*
 * root_read_owner(): find the owner of save ${save_id}, whose files are in ${dir}. A save without a
 * marker has none; a process that is killed before it makes the marker leaves that. Fails where the
 * marker cannot be read.
 *
 * root_find_saves(): the ids of the saves that have a marker in ${dir}, a directory with ${names}.
 */

#endif
