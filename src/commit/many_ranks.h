/* SPDX-License-Identifier: BSD-3-Clause */
/* many_ranks.h -- threads for steps in which rank 0 makes a call of storage for each rank. If
 * storage is far away, each call takes milliseconds. */
#ifndef COMMIT_MANY_RANKS_H
#define COMMIT_MANY_RANKS_H

#include "base/base.h"

#define MANY_RANKS_THREADS 16u

/* Start threads for ${world_size} ranks. NULL: they are too few to gain anything, or no thread
 * starts. To be freed with workers_free(). */
struct workers *many_ranks_workers(uint32_t world_size);
/* Run copies of ${run} on the threads and on this one; without threads, one copy on this one. */
void many_ranks_run(struct workers *workers, void (*run)(void *context), void *context);

#endif
