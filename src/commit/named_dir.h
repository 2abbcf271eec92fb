/* SPDX-License-Identifier: BSD-3-Clause */
/* named_dir.h -- opens a directory that a user named. */
#ifndef COMMIT_NAMED_DIR_H
#define COMMIT_NAMED_DIR_H

#include "store/store.h"

/* Like store_dir_open().  If there is no such directory, the message names those that look like
 * it. */
enum sidestep_status named_dir_open(struct store *store, const char *path, struct store_dir **dir,
                                    struct sidestep_error *err);

#endif
