/* SPDX-License-Identifier: BSD-3-Clause */
/* object_path.h -- which store a path of a caller's leads to: the host's file systems, or a
 * bucket. */
#ifndef OBJECT_OBJECT_PATH_H
#define OBJECT_OBJECT_PATH_H

#include "store/store.h"

/* Open the store of ${path}. A path gives store_posix(); "s3://BUCKET/..." gives a new store with
 * a client of its own, configured by the environment. Any other URL is refused (EUNSUPPORTED). */
enum sidestep_status object_path_open(const char *path, struct store **out,
                                      struct sidestep_error *err);
/* Free what object_path_open() made. Accepts NULL. */
void object_path_close(struct store **store);

#define OWNED_STORE __attribute__((cleanup(object_path_close))) struct store

#endif
