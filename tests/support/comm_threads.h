/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_threads.h -- ranks as threads of one process, with collectives over shared memory, and
 * ranks that die.  The callbacks check what real ones cannot: that all ranks make the same
 * call, with the same root, the same length and matching sizes; a mismatch fails everywhere.
 */
#ifndef SUPPORT_COMM_THREADS_H
#define SUPPORT_COMM_THREADS_H

#include "sidestep/sidestep.h"

/* Run ${main} as ranks 0 to ${size} - 1; the sum of what they return, or -1: no threads. */
int comm_threads_run(int size, int (*main)(struct sidestep_comm *comm, void *context),
                     void *context);

/* The same, but ${dying_rank} dies before its ${nth} collective call (from 1).  That call, and
 * every later one, returns failure on all ranks, the dead one included: its thread goes on, so
 * that it can return, but nobody hears it any more. */
int comm_threads_run_dying(int size, int dying_rank, unsigned long nth,
                           int (*main)(struct sidestep_comm *comm, void *context), void *context);

/* How many collective calls this rank has begun. */
unsigned long comm_threads_calls(const struct sidestep_comm *comm);

#endif
