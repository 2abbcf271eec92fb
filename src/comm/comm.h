/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm.h -- runs collectives between ranks, through the callbacks of the program.
 *
 * Functions that end in _all are collective: every rank calls them, unconditionally, with no early
 * return between two of them.  A rank that fails on its own passes its status to comm_agree_all(),
 * after which all ranks have the same status.
 *
 * What comes in: the communicator of the program (struct sidestep_comm: all-reduce, broadcast,
 * gather, scatter), or none, for one rank.
 * What goes out: a common status, the error of the lowest rank that failed, maxima, and tables at
 * rank 0.
 *
 * Ownership: the program's communicator must live as long as the engine.
 *
 * Threads: the thread that calls collective functions, one at a time.  Background threads never
 * call them; they exchange files instead (commit/).
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

/* Copy and check the program's callbacks.  NULL: a single process. */
enum sidestep_status comm_init(struct comm *comm, const struct sidestep_comm *host,
                               struct sidestep_error *err);

/* EPEER, in all functions below: a callback failed ("collective 'gather' failed"). */
enum sidestep_status comm_reduce_max_all(struct comm *comm, uint64_t *values, size_t count,
                                         struct sidestep_error *err);
enum sidestep_status comm_broadcast_all(struct comm *comm, void *buffer, size_t bytes, int32_t root,
                                        struct sidestep_error *err);
/* The bytes of rank 0, of which the others do not know how many there are; theirs is empty. ENOMEM:
 * also if rank 0 had none when it put them there. */
enum sidestep_status comm_broadcast_buffer_all(struct comm *comm, struct buffer *buffer,
                                               struct sidestep_error *err);

/* The bytes of all ranks, on rank 0.  On other ranks all fields are NULL. */
struct comm_parts {
    unsigned char *bytes;
    size_t *sizes;   /* per rank */
    size_t *offsets; /* per rank, in ${bytes}; without gaps */
};
void comm_parts_release(struct comm_parts *parts);
enum sidestep_status comm_gather_all(struct comm *comm, const void *send, size_t bytes,
                                     struct comm_parts *parts, struct sidestep_error *err);
/* Send each rank its part of rank 0's ${parts}.  The caller frees ${*received}. */
enum sidestep_status comm_scatter_all(struct comm *comm, const struct comm_parts *parts,
                                      void **received, size_t *bytes, struct sidestep_error *err);

/*
 * Each rank passes its status.  All ranks return OK, or the status and the message of the lowest
 * rank that failed (err->rank says which).  So programs that branch on the status do the same on
 * every rank.  It takes one all-reduce, and on failure one broadcast.
 */
enum sidestep_status comm_agree_all(struct comm *comm, enum sidestep_status mine,
                                    struct sidestep_error *err);

/* The headers of this folder that other folders use. */
#include "comm/local_ranks.h"
#include "comm/rank_list.h"

#endif
