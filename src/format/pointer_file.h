/* SPDX-License-Identifier: BSD-3-Clause */
/* pointer_file.h -- recognizes the small files that git repositories hold in place of large ones:
 * pointers of Git LFS and of git-annex. */
#ifndef FORMAT_POINTER_FILE_H
#define FORMAT_POINTER_FILE_H

#include "base/base.h"

#define POINTER_FILE_MAX_BYTES 1024u /* no pointer is larger */

/* Is ${source} a pointer? Then fail with EUNCOMMITTED, and say how to get the file: what it leads
 * to has not arrived. OK: it is none, or cannot be read. */
enum sidestep_status pointer_file_check(const struct source *source, struct sidestep_error *err);
enum sidestep_status pointer_file_check_bytes(const void *bytes, size_t length,
                                              struct sidestep_error *err);

#endif
