/* SPDX-License-Identifier: BSD-3-Clause */
/* missing.h -- what to say of a directory that is no checkpoint. */
#ifndef CHECKPOINT_MISSING_H
#define CHECKPOINT_MISSING_H

#include "store/store.h"

/* EUNCOMMITTED: there is no .metadata in ${dir}.  The message says what helps: a checkpoint of ours
 * has lost it, or checkpoints lie in ${dir}, since the root of a series is easily given for one of
 * them.  Else why ${dir} cannot be listed. */
enum sidestep_status missing_metadata_error(struct store_dir *dir, struct sidestep_error *err);

/* Is it a checkpoint of ours that has lost its .metadata, and no save that is under way or dead? */
bool absent_is_lost(struct store *store, const char *path);

#endif
