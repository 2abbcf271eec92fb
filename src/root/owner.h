/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * owner.h -- finds out who is writing a save, and whether that process has ended.
 *
 * It is for callers that only look. It takes no lock, because a save that wants the lock at that
 * moment would fail.
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
 * root_read_owner() finds the owner of save ${save_id}, whose files are in ${dir}. A save without a
 * marker has no owner; a process that is killed before it makes the marker leaves such a save.
 * Fails if the marker cannot be read.
 *
 * root_find_saves() finds the ids of the saves that have a marker in ${dir}, which has ${names}.
 */

#endif
