/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * location.h -- tells paths from URLs, and refuses URLs where only a path can be used.
 *
 * object/object_path.h handles the URLs of object stores, so none comes here.  If any other URL
 * were used as a path, it would become a directory "gs:" in the working directory, and a run that
 * looks for its checkpoints there would find none and start from the beginning.
 */
#ifndef STORE_LOCATION_H
#define STORE_LOCATION_H

#include "base/base.h"

/* The length of the scheme, if ${path} is a URL: SCHEME://..., where SCHEME is a letter and then
 * letters, digits, '+', '-' and '.'.  0: it is a path, like "a:b", "./s3:/x" and "./s3://x". */
size_t location_scheme(const char *path);

/*
 * EINVAL: ${path} is empty.  EUNSUPPORTED: it is a URL, or "s3:/x", which has lost a slash; the
 * message says what to give instead.
 *
 * store_dir_open() checks every path that it opens.  Code that joins, splits or resolves a caller's
 * path checks it first, because afterwards a URL may not look like one.
 */
enum sidestep_status location_check(const char *path, struct sidestep_error *err);

#endif
