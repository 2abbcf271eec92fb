/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * open_all.h -- opens a checkpoint on all ranks together; each opens only the files that it reads.
 *
 * Rank 0 reads the records: `.metadata`, the manifest that lists it, and the index of chunks, if
 * there is one. It sends the manifest and the index (or `.metadata`) to all. Each rank plans from
 * them, opens the shards that it needs, and checks their footers against the manifest. Of the
 * others it compares the sizes of its share.
 *
 * If no manifest lists the `.metadata`, each rank reads it, and does the same with its files.
 */
#ifndef LOAD_OPEN_ALL_H
#define LOAD_OPEN_ALL_H

#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "load/load.h"
#include "plan/plan.h"

/* Open ${path} and plan what this rank reads. All ranks see the same save. ${bring}: NULL:
 * all files are there. ${all_names}: the plan lists unexpected names. After a failure there is no
 * reader. Release the plan in any case. */
enum sidestep_status open_and_plan_all(struct sidestep_engine *engine, const char *path,
                                       uint32_t flags, const struct load_bring *bring,
                                       struct sidestep_state_dict *state, bool all_names,
                                       struct reader **reader, struct load_plan *plan,
                                       struct sidestep_error *err);

#endif
