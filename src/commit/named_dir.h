/* SPDX-License-Identifier: BSD-3-Clause */
/* named_dir.h -- opens a directory that a user named, and explains a name that does not exist. */
#ifndef COMMIT_NAMED_DIR_H
#define COMMIT_NAMED_DIR_H

#include "store/store.h"

/* Like store_dir_open().  If there is no such directory, the message names similar ones. */
enum sidestep_status named_dir_open(struct store *store, const char *path, struct store_dir **dir,
                                    struct sidestep_error *err);
/* Call if ${path} does not exist: add similar names to the message, or which part of ${path} is
 * missing. A prefix of keys opens without an error, so its caller finds that out. */
void named_dir_explain(struct store *store, const char *path, struct sidestep_error *err);

#endif
