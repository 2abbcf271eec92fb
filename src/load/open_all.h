/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * open_all.h -- all ranks open a checkpoint together, each only the files from which it reads.
 *
 * Rank 0 compares `.metadata` with the manifest, and gives the manifest to all. Each rank then
 * reads the footers of some shards, which lists all stored chunks once; the list goes to all
 * ranks. Where there are many more shards than ranks, rank 0 takes the list from `.metadata`
 * instead, if it is small, and looks at the sizes of all shards. Each rank plans from the list,
 * opens the shards that it needs, and checks their footers against the manifest.
 *
 * Where no manifest lists the `.metadata`, each rank parses it, opens its share of the files, or
 * looks at their sizes if they are many, and opens the files that it needs.
 */
#ifndef LOAD_OPEN_ALL_H
#define LOAD_OPEN_ALL_H

#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "plan/plan.h"

/* Open ${path} and plan what this rank reads. All ranks see the same save. ${all_names}: the plan
 * lists unexpected names. After a failure there is no reader. Release the plan in any case. */
enum sidestep_status open_and_plan_all(struct sidestep_engine *engine, const char *path,
                                       uint32_t flags, struct sidestep_state_dict *state,
                                       bool all_names, struct reader **reader,
                                       struct load_plan *plan, struct sidestep_error *err);

#endif
