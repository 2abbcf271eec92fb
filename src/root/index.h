/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * index.h -- keeps copies of the manifests and annotations of a root in a bucket together in one
 * object, ROOT/.sidestep/index, so that a listing reads one object instead of a thousand.
 *
 * The index decides nothing: a copy counts only if the flat listing of the root shows the original
 * with the same key, size and entity tag. The index may be missing, old or damaged; then the
 * originals are read, several at once. docs/FORMAT.md specifies its format.
 */
#ifndef ROOT_INDEX_H
#define ROOT_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#define INDEX_NAME "index"
#define INDEX_MAX_BYTES ((size_t)64 << 20)

/* Is ${file}, in ROOT/.sidestep, an annotation? */
typedef bool index_is_annotation(const char *file);

#endif
