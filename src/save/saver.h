/* SPDX-License-Identifier: BSD-3-Clause */
/* saver.h -- what an engine keeps from one save to the next: memory, plan, measurements. */
#ifndef SAVE_SAVER_H
#define SAVE_SAVER_H

#include <semaphore.h>

#include "plan/plan.h"
#include "save/compression_policy.h"
#include "save/compressor.h"
#include "save/incremental.h"
#include "save/queue_depth.h"
#include "save/save_queue.h"
#include "save/snapshot_policy.h"
#include "snapshot/snapshot.h"

#define SAVER_SEEN_PLACES 8u

struct saver {
    /* Constant. */
    sem_t *turn;       /* NULL, or see save_memory_turn.c; set before the first save */
    uint64_t pool_cap; /* bytes; 0: as large as needed */
    /* Saves under way. */
    struct save_queue queue OWNED_BY_THREAD(CALLER);
    uint64_t save_counter OWNED_BY_THREAD(CALLER);
    struct snapshot_policy snapshot_policy OWNED_BY_THREAD(CALLER);
    struct compression_policy compression_policy OWNED_BY_THREAD(CALLER);
    /* Of the state that the plan was made for; 0: no plan. */
    uint64_t layout_digest OWNED_BY_THREAD(CALLER);
    struct save_plan plan OWNED_BY_THREAD(CALLER);
    uint64_t plan_number OWNED_BY_THREAD(CALLER); /* counts the plans */
    /* Hashes of the last places where all ranks were seen to see the same storage; 0: none. The
     * same on all ranks. */
    uint64_t seen[SAVER_SEEN_PLACES] OWNED_BY_THREAD(CALLER);
    unsigned seen_next OWNED_BY_THREAD(CALLER);
    uint64_t checked_storage OWNED_BY_THREAD(CALLER); /* rank 0: for commit->checked */
    /* Of writes through io_uring. */
    struct queue_depth queue_depth OWNED_BY_THREAD(RUNNER);
    /* Changed by the caller's thread, while no save that uses them is under way, and by a save
     * that is. */
    struct offload offload;
    struct incremental_state incremental;
    struct compressor_buffers compressor_buffers;
};

/*
 * Make ->saver of ${engine}.  ${options}: the engine's, complete.
 * ENOMEM, EINVAL, EUNSUPPORTED.
 */
enum sidestep_status saver_new(struct sidestep_engine *engine,
                               const struct sidestep_engine_options *options,
                               struct sidestep_error *err);
/* Free everything, in three steps, because other parts are closed between them.  Each step is a
 * no-op if there is no saver. */
/* Wait until no save is under way.  Afterwards the engine's threads may end. */
void saver_finish(struct sidestep_engine *engine);
/* Afterwards the engine's devices may be closed. */
void saver_leave_devices(struct sidestep_engine *engine);
/* The pools go last: devices may have them pinned. */
void saver_free(struct sidestep_engine *engine);

#endif
