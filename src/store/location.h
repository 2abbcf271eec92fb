/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * location.h -- what a path that a caller gives names: a place in the file systems of this host,
 * or, as a URL, storage of another kind.
 *
 * This is the seam for stores that are reached by a URL.  None is built in yet, so a URL is
 * refused.  Taken for a path, it would become a directory "s3:" in the working directory, and a
 * run that looks there for its checkpoints would find none and begin anew.
 */
#ifndef STORE_LOCATION_H
#define STORE_LOCATION_H

#include "base/base.h"

/* Bytes of the scheme of ${path}, which is a URL: SCHEME://..., where SCHEME is a letter and then
 * letters, digits, '+', '-' and '.'.  0: it is a path, as "a:b", "s3:/x" and "./s3://x" are. */
size_t location_scheme(const char *path);

/*
 * EINVAL: ${path} is empty.  EUNSUPPORTED: it is a URL; the message says what to give instead.
 *
 * store_dir_open() asks this for every path that it opens.  Who joins, splits or resolves a path
 * of a caller's asks first: what comes of a URL then does not look like one.
 */
enum sidestep_status location_check(const char *path, struct sidestep_error *err);

#endif
