/* SPDX-License-Identifier: BSD-3-Clause */
/* refresh_names.h -- makes this host read the names in a directory again. */
#ifndef COMMIT_REFRESH_NAMES_H
#define COMMIT_REFRESH_NAMES_H

#include "base/base.h"
#include "store/store.h"

/*
 * A host may cache for a minute that a name does not exist (NFS: negative entries, acdirmax). A
 * change that it makes in the directory itself empties that cache. So this makes a file and removes
 * it. Its name is that of an outcome file, which sweeps remove if a kill comes between. Best
 * effort.
 */
void refresh_names(struct store_dir *dir);

/* The wait for a name that another host has made. */
struct refresh_wait {
    struct clock *clock;
    uint64_t limit_ns; /* give up after so long, but not before a few attempts */
    uint64_t began_ns, refreshed_ns;
    unsigned looks;
    struct backoff backoff;
};
/* Call after an attempt that did not find the name: refresh ${dir} (NULL: nothing) at most every
 * half second, and pause. False: do not try again. */
bool refresh_wait_again(struct refresh_wait *wait, struct store_dir *dir);

#endif
