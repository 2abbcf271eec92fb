/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan.h -- who writes what, and who reads which bytes.
 *
 * A save plan (save_plan.h): each rank encodes its state as a table.  Rank 0 gathers the tables,
 * removes replicas, balances the ranks by bytes, checks that the boxes tile every tensor, and
 * sends each rank its part.  A load plan (load_plan.h): from the metadata of a checkpoint and the
 * state that is to be filled, the stored chunks that are needed, each once.
 *
 * What comes in: state dicts and metadata of model/; tables of other ranks, which are not trusted.
 * What goes out: plans: lists of boxes with the file and the item that each belongs to.
 *
 * Ownership: a plan owns its arena.  It points to names of the state that it was made for, so the
 * state must live as long.
 *
 * Threads: planning runs on one thread.  A finished plan is only read, by any thread.
 *
 * Nothing here talks to other ranks or to storage; save/ and load/ carry the tables.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "plan/load_plan.h"
#include "plan/save_plan.h"
#include "plan/tiling.h"

#endif
