/* SPDX-License-Identifier: BSD-3-Clause */
/* local_ranks.h -- ranks that are threads of one process: a communicator for work that one process
 * does as if it were many. */
#ifndef COMM_LOCAL_RANKS_H
#define COMM_LOCAL_RANKS_H

#include "base/base.h"

/* Run ${main} on ${size} ranks, each a thread; rank 0 is the caller.  Returns the status and error
 * of the lowest rank that failed, of those that say more than that another one has; once one has
 * returned a failure, collectives fail.  ENOMEM or EIO, before any rank runs anything that others
 * wait for: the threads could not be had. */
enum sidestep_status local_ranks_run(int32_t size,
                                     enum sidestep_status (*main)(const struct sidestep_comm *comm,
                                                                  void *context,
                                                                  struct sidestep_error *err),
                                     void *context, struct sidestep_error *err);

#endif
