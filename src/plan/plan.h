/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan.h -- decides which rank writes what, and which bytes a rank reads.
 *
 * For a save plan (save_plan.h), each rank encodes its state as a table.  Rank 0 gathers the
 * tables, removes replicas, balances the ranks by bytes, checks that the boxes tile every tensor,
 * and sends each rank its part.  A load plan (load_plan.h) lists the stored chunks that a state
 * needs, each once.
 *
 * What comes in: state dicts and metadata of model/, and tables of other ranks, which are not
 * trusted.
 * What goes out: plans, which are lists of boxes to write or of chunks to read.
 *
 * Ownership: a plan owns its arena.  A load plan points into its metadata and its state, which must
 * outlive it.
 *
 * Threads: planning runs on one thread.  Any thread may read a finished plan.
 *
 * Nothing here talks to other ranks or to storage: save/ and load/ send the tables.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "plan/load_plan.h"
#include "plan/save_plan.h"
#include "plan/tiling.h"

#endif
