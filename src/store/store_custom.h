/* SPDX-License-Identifier: BSD-3-Clause */
/* store_custom.h -- a store that a program brings along (sidestep_extend.h), as one of ours. */
#ifndef STORE_STORE_CUSTOM_H
#define STORE_STORE_CUSTOM_H

#include "sidestep/sidestep_extend.h"
#include "store/store.h"

/* ${theirs} is copied.  EINVAL: it lacks a function. */
enum sidestep_status store_custom_new(const struct sidestep_store *theirs, struct store **out,
                                      struct sidestep_error *err);
/* Of store_custom_new(), or NULL; after all handles are closed. */
void store_custom_free(struct store **store);

#endif
