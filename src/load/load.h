/* SPDX-License-Identifier: BSD-3-Clause */
/* load.h -- the way of a load, shared by paths and series. */
#ifndef LOAD_LOAD_H
#define LOAD_LOAD_H

#include "engine/engine.h"

/* Load ${path} on all ranks, the same save everywhere.  Collective.  ${flags}: STORE_DROP_CACHE. */
enum sidestep_status load_path_all(struct sidestep_engine *engine, const char *path,
                                   struct sidestep_state_dict *state,
                                   const struct sidestep_load_options *options, uint32_t flags,
                                   struct sidestep_load_report *report, struct sidestep_error *err);
/* Copy and check the caller's options. */
enum sidestep_status load_options_copy(struct sidestep_load_options *ours,
                                       const struct sidestep_load_options *theirs,
                                       struct sidestep_error *err);

#endif
