/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_threads.h -- ranks as threads of one process, with collectives over shared memory, and
 * ranks that die. The callbacks check that all ranks make the same call, with the same root, the
 * same length and matching sizes; a mismatch fails on every rank.
 */
#ifndef SUPPORT_COMM_THREADS_H
#define SUPPORT_COMM_THREADS_H

#include <stdio.h>

#include "sidestep/sidestep.h"

/* Run ${main} as ranks 0 to ${size} - 1. Returns the sum of their results, or -1 if threads
 * failed. */
int comm_threads_run(int size, int (*main)(struct sidestep_comm *comm, void *context),
                     void *context);

/* The same, but ${dying_rank} dies before its ${nth} collective call (from 1). That call, and every
 * later one, fails on all ranks. The thread of the dead rank continues, so that it can return. */
int comm_threads_run_dying(int size, int dying_rank, unsigned long nth,
                           int (*main)(struct sidestep_comm *comm, void *context), void *context);

/* Open an engine of this rank, with one thread. */
enum sidestep_status comm_threads_open(const struct sidestep_comm *comm,
                                       struct sidestep_engine **engine, struct sidestep_error *err);

/* The number of collective calls that this rank has started. */
unsigned long comm_threads_calls(const struct sidestep_comm *comm);

/* In such a main() with ${comm}, ${err} and ${bad}: print a failure, and count it.  (The asserts of
 * cmocka work on the test's own thread only.) */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "# rank %d, line %d: %s; '%s'\n", comm->rank, __LINE__, #condition,    \
                    err.message);                                                                  \
            bad++;                                                                                 \
        }                                                                                          \
    } while (0)

#endif
