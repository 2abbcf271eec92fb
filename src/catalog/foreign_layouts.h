/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * foreign_layouts.h -- what other programs' checkpoints look like, and how to tell a whole one from
 * one that was cut short: one table, one test for each.  Nothing here is trusted to be ours, and
 * nothing that is found here is ever deleted or renamed.
 */
#ifndef CATALOG_FOREIGN_LAYOUTS_H
#define CATALOG_FOREIGN_LAYOUTS_H

#include "base/base.h"
#include "commit/commit.h"
#include "catalog/file_probe.h"
#include "store/store.h"

/* What lies in a root under ${name}. */
struct foreign_layouts_probe {
    struct store_dir *root;
    const char *name;
    const char *path;              /* of that: its root, '/', and its name */
    struct store_dir *dir;         /* the directory; NULL: ${name} is a file */
    const struct name_list *names; /* in it */
    int64_t step;                  /* by its name */
    struct arena *arena;           /* for ${reason} */
    /* The answer: */
    const char *layout; /* "hf", ...; NULL: none that is known */
    const char *reason; /* why it is not whole; NULL: it is */
};

/* May a file of this name and form be a checkpoint? */
bool foreign_layouts_is_file(const char *name, enum file_probe_format form);
/* Of a directory that is no checkpoint: "safetensors" or "torch" if files with tensors are in it,
 * by their names; else NULL. */
const char *foreign_layouts_find_tensors(const struct name_list *names);
/* Of any directory: are the weights in it, in a form of Hugging Face's, all there and whole? */
enum sidestep_status foreign_layouts_check_weights(struct foreign_layouts_probe *look,
                                                   struct sidestep_error *err);
/* Which layout is it, and is it whole?  Fails if that cannot be told: something cannot be read. */
enum sidestep_status foreign_layouts_probe(struct foreign_layouts_probe *look,
                                           struct sidestep_error *err);

#endif
