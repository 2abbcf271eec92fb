/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load.h -- loads a checkpoint into the caller's tensors.
 *
 * All ranks open the checkpoint together (open_all.h).  plan/load_plan.h finds the stored chunks
 * that are needed, each once.  fetch.h reads them in large requests, in file order, with several
 * threads.  Each block is checked by its hash and then copied into the tensors (target.h).
 * compressed_item.h decodes compressed items.  tensor_reader.h reads single tensors, for
 * conversions and comparisons.
 *
 * What comes in: a path and a state dict whose tensors are to be filled.
 * What goes out: filled tensors, objects, and a report; or an error that names tensor and file.
 *
 * Ownership: the caller's tensors are written during the call only.  After a failure their contents
 * are undefined.
 *
 * Threads: the call blocks.  It uses the engine's threads.  Nothing is written, locked or renamed
 * on storage.
 */
#ifndef LOAD_LOAD_H
#define LOAD_LOAD_H

#include "engine/engine.h"

struct load_plan;
struct reader;

/* Where a checkpoint has files that its own directory lacks, or that are nearer.
 * ${all} is called on all ranks when each has planned, and before any opens a data file: brings the
 * files that the plan needs. Collective, and all ranks get the same status. NULL, on all ranks:
 * nothing has to be brought. */
struct load_bring {
    enum sidestep_status (*all)(void *context, const struct reader *reader,
                                const struct load_plan *plan, struct sidestep_error *err);
    void *context;
    const char *path;         /* of the checkpoint, on this rank */
    struct store_dir *beside; /* see reader.h */
    /* Called on all ranks when a load has found damage, or could not read, which may be that of
     * ${beside} on some rank. Takes ${beside} and this function away; then the load is done again.
     * NULL, on all ranks: it is not. */
    void (*blame)(void *context, const struct sidestep_error *why);
};

/* Load ${path} on all ranks, the same save everywhere.  Collective.  ${flags}:
 * STORE_DROP_CACHE.  If that is where engine->bring brings files, it does. */
enum sidestep_status load_path_all(struct sidestep_engine *engine, const char *path,
                                   struct sidestep_state_dict *state,
                                   const struct sidestep_load_options *options, uint32_t flags,
                                   struct sidestep_load_report *report, struct sidestep_error *err);
/* Copy and check the caller's options. */
enum sidestep_status load_options_copy(struct sidestep_load_options *copy,
                                       const struct sidestep_load_options *options,
                                       struct sidestep_error *err);

/* Other folders also use these. */
#include "load/fetch.h"
#include "load/tensor_reader.h"

#endif
