/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm.h -- ranks talking, in words of 64 bits.
 *
 * Functions that end in _all are collective: every rank calls them, unconditionally, with no early
 * return between two of them; a local failure is carried into comm_agree_all() instead, after
 * which all ranks agree.
 *
 * What comes in: the communicator of the program (struct sidestep_comm: barrier, broadcast,
 * gather), or none, for one rank.
 * What goes out: agreed statuses, the first error of any rank, sums, and tables at rank 0.
 *
 * Ownership: the program's communicator must live as long as the engine.
 *
 * Threads: one thread at a time, the one that calls collective functions.  Background threads
 * never communicate: they speak through files (commit/).
 *
 * local_ranks.h runs several ranks as threads of one process, for conversions and tests.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "base/base.h"

struct comm {
    struct sidestep_comm host;
    int32_t rank;
    int32_t size;
};

/* Copy and check the host's callbacks; NULL: a single process. */
enum sidestep_status comm_init(struct comm *comm, const struct sidestep_comm *host,
                               struct sidestep_error *err);

/* A callback that fails is SIDESTEP_EPEER: "collective 'gather' failed". */
enum sidestep_status comm_reduce_max_all(struct comm *comm, uint64_t *values, size_t count,
                                         struct sidestep_error *err);
enum sidestep_status comm_broadcast_all(struct comm *comm, void *buffer, size_t bytes, int32_t root,
                                        struct sidestep_error *err);

/* What rank 0 gets from comm_gather_all(); elsewhere all NULL. */
struct comm_parts {
    unsigned char *bytes;
    size_t *sizes;   /* per rank */
    size_t *offsets; /* per rank, in ${bytes}: one behind the other, without gaps */
};
void comm_parts_release(struct comm_parts *parts);
enum sidestep_status comm_gather_all(struct comm *comm, const void *send, size_t bytes,
                                     struct comm_parts *parts, struct sidestep_error *err);
/* ${parts} of rank 0 to everybody; ${*received} is malloc'ed. */
enum sidestep_status comm_scatter_all(struct comm *comm, const struct comm_parts *parts,
                                      void **received, size_t *bytes, struct sidestep_error *err);

/*
 * Everybody brings its status; everybody leaves with success, or with the status and the message of
 * the lowest rank that failed (err->rank says which), so that programs that branch on the status do
 * the same thing on every rank.  One all-reduce, and one broadcast on failure.
 */
enum sidestep_status comm_agree_all(struct comm *comm, enum sidestep_status mine,
                                    struct sidestep_error *err);

/* The rest of what other folders use of this one. */
#include "comm/local_ranks.h"

#endif
