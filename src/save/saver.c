/* SPDX-License-Identifier: BSD-3-Clause */
/* saver.c -- opens and closes what an engine keeps from one save to the next; see saver.h. */
#include "save/save.h"

#include <assert.h>
#include <stdlib.h>

static enum sidestep_status check_options(const struct sidestep_engine_options *options,
                                          struct sidestep_error *err)
{
    if (options->pool_bytes != 0 && options->pool_bytes < PIPELINE_MIN_POOL_BYTES)
        return FAIL(err, SIDESTEP_EINVAL, "engine options: pool_bytes must be at least %llu",
                    (unsigned long long)PIPELINE_MIN_POOL_BYTES);
    if (options->snapshot > SIDESTEP_SNAPSHOT_COW)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "engine options: unknown snapshot %u",
                    (unsigned)options->snapshot);
    if (options->copy_ahead > SIDESTEP_COPY_AHEAD_NEVER)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "engine options: unknown copy_ahead %u",
                    (unsigned)options->copy_ahead);
    if (options->replicas > SIDESTEP_REPLICAS_SHARE)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "engine options: unknown replicas %u",
                    (unsigned)options->replicas);
    return SIDESTEP_OK;
}

enum sidestep_status saver_new(struct sidestep_engine *engine,
                               const struct sidestep_engine_options *options,
                               struct sidestep_error *err)
{
    assert(engine->saver == NULL);
    TRY(check_options(options, err));
    struct saver *saver = memory_new(1, sizeof(*saver));
    if (saver == NULL)
        return FAIL_NOMEM(err, sizeof(*saver));
    THREAD_IS(CALLER);
    THREAD_IS(RUNNER); /* nothing is saved yet */
    *saver =
        (struct saver){.pool_cap = options->pool_bytes,
                       .replicas = {.wanted = options->replicas, .min_bytes = REPLICAS_MIN_BYTES},
                       .incremental = {.min_bytes = INCREMENTAL_MIN_BYTES}};
    saver->snapshot_policy.requested = options->snapshot;
    saver->snapshot_policy.copy_ahead = options->copy_ahead;
    saver->snapshot_policy.user_mode_only =
        (options->flags & SIDESTEP_ENGINE_USER_MODE_FAULTS) != 0;
    offload_init(&saver->offload, &engine->devices);
    engine->saver = saver;
    return SIDESTEP_OK;
}

void saver_finish(struct sidestep_engine *engine)
{
    THREAD_IS(CALLER);
    if (engine->saver == NULL)
        return;
    turn_release(&engine->saver->turns);
    cow_close(&engine->saver->snapshot_policy.cow);
}

void saver_close_offload(struct sidestep_engine *engine)
{
    if (engine->saver != NULL)
        offload_close(&engine->saver->offload);
}

void saver_free(struct sidestep_engine *engine)
{
    struct saver *saver = engine->saver;

    THREAD_IS(CALLER);
    if (saver == NULL)
        return;
    assert(saver->turns.count == 0 && saver->snapshot_policy.cow == NULL); /* saver_finish() */
    commit_shared_release(&saver->incremental.shared);
    save_plan_release(&saver->plan);
    replicas_release(&saver->replicas);
    for (size_t i = 0; i < TURN_MAX_SAVES; i++) {
        image_release(&saver->slots[i].image);
        pool_release(&saver->slots[i].pool);
    }
    compressor_buffers_release(&saver->compressor_buffers);
    name_list_release(&saver->whole);
    name_list_release(&saver->torn);
    free(saver);
    engine->saver = NULL;
}
