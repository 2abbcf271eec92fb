/* SPDX-License-Identifier: BSD-3-Clause */
/* saver.h -- what an engine keeps from one save to the next: memory, plan, measurements. */
#ifndef SAVE_SAVER_H
#define SAVE_SAVER_H

#include <semaphore.h>

#include "plan/plan.h"
#include "save/compression_policy.h"
#include "save/compressor.h"
#include "save/incremental.h"
#include "save/replicas.h"
#include "save/slot.h"
#include "save/snapshot_policy.h"
#include "snapshot/snapshot.h"

#define SAVER_SIGHTED_PLACES 8u

struct saver {
    /* Constant. */
    sem_t *memory_turn; /* NULL, or see slot.h; set before the first save */
    uint64_t pool_cap;  /* bytes; 0: as large as needed */
    struct turns turns OWNED_BY_THREAD(CALLER);
    /* Some saves are made of parts (commit/commit.h).  Equal on all ranks. */
    bool has_parts OWNED_BY_THREAD(CALLER);
    /* Ids of such saves: of which all parts are known to be there, or that some are not. */
    struct name_list whole OWNED_BY_THREAD(CALLER);
    struct name_list torn OWNED_BY_THREAD(CALLER);
    struct save_slot slots[TURN_MAX_SAVES] OWNED_BY_THREAD(CALLER);
    uint64_t save_counter OWNED_BY_THREAD(CALLER); /* saves so far, of calls that failed too */
    struct snapshot_policy snapshot_policy OWNED_BY_THREAD(CALLER);
    struct compression_policy compression_policy OWNED_BY_THREAD(CALLER);
    /* Digest of the layout that the plan was made for; 0: no plan. */
    uint64_t layout_digest OWNED_BY_THREAD(CALLER);
    struct save_plan plan OWNED_BY_THREAD(CALLER);
    uint64_t plan_number OWNED_BY_THREAD(CALLER); /* counts the plans */
    struct replicas replicas OWNED_BY_THREAD(CALLER);
    /* Hashes of the last places where all ranks see the same storage; 0: none.  Equal on all
     * ranks. */
    uint64_t sighted[SAVER_SIGHTED_PLACES] OWNED_BY_THREAD(CALLER);
    unsigned sighted_next OWNED_BY_THREAD(CALLER);
    uint64_t checked_storage OWNED_BY_THREAD(CALLER); /* rank 0: for commit->checked */
    /* Changed by a save that uses them, and by the caller's thread while no such save is under
     * way. */
    struct offload offload;
    struct incremental_state incremental;
    struct compressor_buffers compressor_buffers;
};

/* Make ->saver of ${engine}.  ${options}: those of the engine, complete.
 * ENOMEM, EINVAL, EUNSUPPORTED. */
enum sidestep_status saver_new(struct sidestep_engine *engine,
                               const struct sidestep_engine_options *options,
                               struct sidestep_error *err);
/* Free everything, in three steps, because other parts are closed between them.  Each step is a
 * no-op if there is no saver. */
/* Wait until no save is under way.  Afterwards the engine's threads may end. */
void saver_finish(struct sidestep_engine *engine);
/* Close the offload.  Afterwards the engine's devices may be closed. */
void saver_close_offload(struct sidestep_engine *engine);
/* The pools go last: devices may have them pinned. */
void saver_free(struct sidestep_engine *engine);

#endif
