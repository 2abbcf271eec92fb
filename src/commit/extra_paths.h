/* SPDX-License-Identifier: BSD-3-Clause */
/* extra_paths.h -- the directories in a checkpoint in which extra files lie (extra_files.h). */
#ifndef COMMIT_EXTRA_PATHS_H
#define COMMIT_EXTRA_PATHS_H

#include "format/format.h"
#include "store/store.h"

/* Open the directory of ${path} below ${dir}, and make it if ${make}. ${*owned}: to be closed by
 * the caller; NULL if ${*parent} is ${dir}. ${*last}: the last component of ${path}. No link is
 * followed. */
enum sidestep_status extra_path_open(struct store_dir *dir, const char *path, bool make,
                                     struct store_dir **owned, struct store_dir **parent,
                                     const char **last, struct sidestep_error *err);
/* Sync each directory below ${dir} in which extra files lie, or directories of them. */
enum sidestep_status extra_path_sync_all(struct store_dir *dir, const struct manifest *manifest,
                                         struct sidestep_error *err);
/* Remove the directories of ${path} below ${dir} that are empty. */
void extra_path_remove_empty(struct store_dir *dir, const char *path);

#endif
