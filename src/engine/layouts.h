/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layouts.h -- what other programs' checkpoints look like, and how to tell a whole one from one
 * that was cut short: one table, one test for each.  Nothing here is trusted to be ours, and
 * nothing that is found here is ever deleted or renamed.
 */
#ifndef ENGINE_LAYOUTS_H
#define ENGINE_LAYOUTS_H

#include "base/memory.h"
#include "commit/name_list.h"
#include "store/store.h"

/* What lies in a root under ${name}. */
struct layouts_look {
    struct store_dir *root;
    const char *name;
    struct store_dir *dir;         /* the directory; NULL: ${name} is a file */
    const struct name_list *names; /* in it */
    int64_t step;                  /* by its name */
    struct arena *arena;           /* for ${reason} */
    /* The answer: */
    const char *layout; /* "hf", ...; NULL: none that is known */
    const char *reason; /* why it is not whole; NULL: it is */
};

/* May a file of this name be a checkpoint? */
bool layouts_is_file(const char *name);
/* Which layout is it, and is it whole?  Fails for want of memory only. */
enum sidestep_status layouts_look(struct layouts_look *look, struct sidestep_error *err);

#endif
