/* SPDX-License-Identifier: BSD-3-Clause */
/* refresh_names.h -- makes this host look at the names in a directory anew. */
#ifndef COMMIT_REFRESH_NAMES_H
#define COMMIT_REFRESH_NAMES_H

#include "base/base.h"
#include "store/store.h"

/*
 * A host may keep for a minute that a name is not there (NFS: negative entries, acdirmax). What it
 * changes in a directory itself ends that for the directory. So this makes a file and removes it.
 * Its name is that of an outcome file, which sweeps remove, should a kill come between. Best
 * effort.
 */
void refresh_names(struct store_dir *dir);

/* Looks for a name that another host has made. */
struct refresh_wait {
    struct clock *clock;
    uint64_t limit_ns; /* give up after so long, but not before a few looks */
    uint64_t began_ns, refreshed_ns;
    unsigned looks;
    struct backoff backoff;
};
/* After a look that did not find it: make the host look anew in ${dir} (NULL: nothing to refresh)
 * at most every half second, and pause. False: do not look again. */
bool refresh_wait_again(struct refresh_wait *wait, struct store_dir *dir);

#endif
