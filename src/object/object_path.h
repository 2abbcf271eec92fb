/* SPDX-License-Identifier: BSD-3-Clause */
/* object_path.h -- opens the store of a path: the host's file systems, or a bucket. */
#ifndef OBJECT_OBJECT_PATH_H
#define OBJECT_OBJECT_PATH_H

#include "store/store.h"

/* Open the store of ${path}: a new one with its own client, configured by the environment, for
 * "s3://BUCKET/..."; store_posix() for a path. Any other URL is refused (EUNSUPPORTED). */
enum sidestep_status object_path_open(const char *path, struct store **out,
                                      struct sidestep_error *err);
/* Can a bucket be opened by this build, in this process?  EUNSUPPORTED: no, and what to install. */
enum sidestep_status object_stores_probe(struct sidestep_error *err);
/* Free a store from object_path_open(), or NULL. */
void object_path_close(struct store **store);

#define OWNED_STORE __attribute__((cleanup(object_path_close))) struct store

#endif
