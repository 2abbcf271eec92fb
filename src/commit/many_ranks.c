/* SPDX-License-Identifier: BSD-3-Clause */
/* many_ranks.c -- starts and runs the threads of rank 0; see many_ranks.h. */
#include "commit/many_ranks.h"

#define RANKS_PER_THREAD 4u /* with fewer ranks, a thread costs more than it gains */

struct workers *many_ranks_workers(uint32_t world_size)
{
    unsigned wanted = (unsigned)min_u64(world_size / RANKS_PER_THREAD, MANY_RANKS_THREADS);
    struct workers *workers = NULL;

    if (wanted > 1) /* the calling thread works, too */
        (void)workers_new(wanted - 1, "sidestep-ranks", &workers, NULL);
    return workers;
}

void many_ranks_run(struct workers *workers, void (*run)(void *context), void *context)
{
    if (workers != NULL)
        workers_run(workers, run, context);
    else
        run(context);
}
