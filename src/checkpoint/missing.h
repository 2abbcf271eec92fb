/* SPDX-License-Identifier: BSD-3-Clause */
/* missing.h -- explains a directory that has no `.metadata`. */
#ifndef CHECKPOINT_MISSING_H
#define CHECKPOINT_MISSING_H

#include "store/store.h"

/* Report that ${dir} has no .metadata, as EUNCOMMITTED, or as ENOTFOUND if nothing is there at all.
 * The message says what helps if ${dir} is a checkpoint of sidestep that lost it, or if ${dir}
 * contains checkpoints: a user easily passes the root of a series instead of one of them. If ${dir}
 * cannot be listed, returns that error. */
enum sidestep_status missing_metadata_error(struct store_dir *dir, struct sidestep_error *err);

/* Is ${path} a checkpoint of sidestep that lost its .metadata, and not a running or dead save? */
bool missing_metadata_is_lost(struct store *store, const char *path);

#endif
