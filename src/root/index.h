/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * index.h -- the manifests of all checkpoints under a root on an object store, kept together
 * in one object, ROOT/.sidestep/manifests, so that a listing reads one object instead of a
 * thousand.
 *
 * The index is a copy, and decides nothing: its copy of a manifest counts only if the flat listing
 * of the root shows that manifest with the same key, size and entity tag. It may be missing, old or
 * damaged; then the manifests themselves are read, several at once. docs/FORMAT.md has its format.
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
