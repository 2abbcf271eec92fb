/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * foreign_layouts.h -- recognizes checkpoints of other programs, and tells whole ones from
 * truncated ones.
 *
 * There is one table, with one check per program. Nothing found here is trusted to be written by
 * sidestep, and nothing is ever deleted or renamed.
 */
#ifndef CATALOG_FOREIGN_LAYOUTS_H
#define CATALOG_FOREIGN_LAYOUTS_H

#include "base/base.h"
#include "commit/commit.h"
#include "catalog/file_probe.h"
#include "store/store.h"

/* An entry of a root, and what was found out about it. */
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

/* May a file of this name and form be a checkpoint? */
bool foreign_layouts_is_file(const char *name, enum file_probe_format form);
/* For a directory that is not a checkpoint: "safetensors" or "torch" if the names of its files say
 * that they hold tensors; otherwise NULL. */
const char *foreign_layouts_find_tensors(const struct name_list *names);
/* For any directory: if it has weights in a form of Hugging Face's libraries, are they all there
 * and whole? */
enum sidestep_status foreign_layouts_check_weights(struct foreign_layouts_probe *probe,
                                                   struct sidestep_error *err);
/* Which layout is it, and is it whole? Fails if something cannot be read. */
enum sidestep_status foreign_layouts_probe(struct foreign_layouts_probe *probe,
                                           struct sidestep_error *err);

#endif
