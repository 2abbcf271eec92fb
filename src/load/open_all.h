/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * open_all.h -- opens a checkpoint on all ranks together; each opens only the files that it reads.
 *
 * Rank 0 compares `.metadata` with the manifest, and sends the manifest to all. The ranks then take
 * the stored chunks from the index of chunks, if there is one, and each compares the sizes of its
 * share of the shards. Otherwise each rank lists the chunks in the footers of its share of the
 * shards, and the lists go to all ranks. Each rank plans from the chunks, opens the shards that it
 * needs, and checks their footers against the manifest.
 *
 * If no manifest lists the `.metadata`, each rank parses it, opens its share of the files (or only
 * compares their sizes, if there are many), and opens the files that it needs.
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
