/* SPDX-License-Identifier: BSD-3-Clause */
/* store_custom.h -- makes a struct store of the program's own store (sidestep_extend.h). */
#ifndef STORE_STORE_CUSTOM_H
#define STORE_STORE_CUSTOM_H

#include "sidestep/sidestep_extend.h"
#include "store/store.h"

/* Copies ${theirs}.  EINVAL: it lacks a function. */
enum sidestep_status store_custom_new(const struct sidestep_store *theirs, struct store **out,
                                      struct sidestep_error *err);
/* Call it after all handles are closed.  Accepts NULL. */
void store_custom_free(struct store **store);

#endif
