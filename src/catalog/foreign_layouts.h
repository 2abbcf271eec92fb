/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * foreign_layouts.h -- recognizes checkpoints of other programs, and tells whole ones from
 * truncated ones.
 *
 * A table has one check per program. Nothing is deleted or renamed.
 */
#ifndef CATALOG_FOREIGN_LAYOUTS_H
#define CATALOG_FOREIGN_LAYOUTS_H

#include "base/base.h"
#include "commit/commit.h"
#include "catalog/file_probe.h"
#include "store/store.h"

/* An entry of a root, and the result of the check. */
struct foreign_layouts_probe {
    struct store_dir *root;
    const char *name;
    const char *path;              /* of the entry: root, '/', and name */
    struct store_dir *dir;         /* the entry, if a directory; NULL: it is a file */
    const struct name_list *names; /* in ${dir} */
    int64_t step;                  /* from its name; -1: none */
    struct arena *arena;           /* of ${reason} */
    /* Results: */
    const char *layout; /* "transformers", ...; NULL: not a known layout */
    const char *reason; /* why it is not whole; NULL: it is whole */
};

/* May a file of this name and format be a checkpoint? */
bool foreign_layouts_is_file(const char *name, enum file_probe_format format);
/* For a directory that is not a checkpoint: "safetensors" or "torch" if the names of its files say
 * that they hold tensors; otherwise NULL. */
const char *foreign_layouts_find_tensors(const struct name_list *names);
/* If a directory has weights in a form of Hugging Face's libraries, check that they are all there
 * and whole. */
enum sidestep_status foreign_layouts_check_weights(struct foreign_layouts_probe *probe,
                                                   struct sidestep_error *err);
/* Find the layout of an entry, and check that the entry is whole. Fails if something cannot be
 * read. */
enum sidestep_status foreign_layouts_probe(struct foreign_layouts_probe *probe,
                                           struct sidestep_error *err);

#endif
