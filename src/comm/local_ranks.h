/* SPDX-License-Identifier: BSD-3-Clause */
/* local_ranks.h -- runs several ranks as threads of one process, with a communicator. */
#ifndef COMM_LOCAL_RANKS_H
#define COMM_LOCAL_RANKS_H

#include "base/base.h"

/*
 * Run ${main} on ${size} ranks, each on a thread of its own.  Rank 0 runs on the caller's thread.
 * Returns the status and the error of the lowest rank that failed.  EPEER says only that another
 * rank failed, so any other status takes precedence over it.  Once a rank has returned a failure,
 * collectives fail on all ranks.
 * ENOMEM: a thread did not start.  Then collectives fail on the ranks that started.
 */
enum sidestep_status local_ranks_run(int32_t size,
                                     enum sidestep_status (*main)(const struct sidestep_comm *comm,
                                                                  void *context,
                                                                  struct sidestep_error *err),
                                     void *context, struct sidestep_error *err);

#endif
