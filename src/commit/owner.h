/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * owner.h -- finds out who is writing a save, and whether that process has ended.
 *
 * It is for callers that only look. It takes no lock, because even a lock held for a moment could
 * make a save fail that is about to take it.
 */
#ifndef COMMIT_OWNER_H
#define COMMIT_OWNER_H

#include "commit/commit_marker.h"
#include "commit/name_list.h"

struct owner {
    struct commit_marker marker;
    /* The process has ended, so nobody will finish the save, and `sidestep gc` removes it. False
     * where that cannot be decided: for another host's save on network storage, or on storage
     * without locks. */
    bool is_dead;
};

/* Find the owner of save ${save_id}, whose files are in ${dir}. A save without a marker has none; a
 * process that is killed before it makes the marker leaves that. Fails where the marker cannot be
 * read. */
enum sidestep_status owner_read(struct store_dir *dir, const char *save_id, struct owner *owner,
                                struct sidestep_error *err);

/* The ids of the saves that have a marker in ${dir}, a directory with ${names}. */
enum sidestep_status owner_find_saves(struct store_dir *dir, const struct name_list *names,
                                      struct name_list *save_ids, struct sidestep_error *err);

#endif
