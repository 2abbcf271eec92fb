/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save.c -- starts a save, on the thread that calls, on all ranks.
 *
 * Each rank prepares alone.  Then the ranks agree, once.  If a layout has changed, they plan
 * together.  Then the snapshot is taken, which is all that the trainer waits for.
 *
 * Everything that can fail on one rank is done before the agreement, which carries the result.  A
 * rank that fails after the agreement votes no on storage, and the save aborts on all ranks.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "save/save.h"

_Static_assert(sizeof(struct sidestep_save_options) == 80, "a field was added: apply it below");

#define SAVE_FLAGS                                                                                 \
    (SIDESTEP_SAVE_NOWAIT | SIDESTEP_SAVE_NO_REPLACE | SIDESTEP_SAVE_STILL |                       \
     SIDESTEP_SAVE_NOT_STICKY)
/* Pool bytes of a save whose state nobody changes in the meantime: enough to keep the disk busy,
 * and so few that most are still in the processor's caches when they are hashed and written. */
#define BACKGROUND_POOL_BYTES ((uint64_t)48 << 20)

/* What the ranks tell each other, by one element-wise maximum.  A pair x, ~x shows whether all
 * ranks have the same x. */
enum agreement {
    AGREE_FAILED,  /* 1: a rank cannot go on */
    AGREE_CHANGED, /* 1: a rank's layout is not that of the plan */
    AGREE_REQUEST, /* digest of path, step, flags, counter ... */
    AGREE_REQUEST_NOT,
    AGREE_PLAN, /* digest of the plan */
    AGREE_PLAN_NOT,
    AGREE_ID_0, /* the save id: set by rank 0, zero on the others */
    AGREE_ID_1,
    AGREE_IN_PLACE, /* set by rank 0 */
    AGREE_PREVIOUS, /* set by rank 0 */
    AGREE_VERDICTS, /* set by rank 0: how earlier saves ended */
    AGREE_REPORTED, /* place in the queue of the failed save that this call reports; 0: none */
    AGREE_COUNT,
};

_Static_assert(SAVE_ID_BYTES == 2 * sizeof(uint64_t), "it is AGREE_ID_0 and AGREE_ID_1");

/* One call of save_start_all() on one rank. */
struct starting {
    struct sidestep_engine *engine;
    const struct sidestep_state_dict *state;
    const struct save_series *series;
    struct sidestep_save *save;
    struct sidestep_save_info *info;
    bool blocking;
    bool still; /* nobody changes the state before it is STAGED */
    uint64_t verdicts;
    uint64_t reported;
    bool has_begun; /* coordinator: the directory and the pending marker exist */
    uint64_t digest;
    uint64_t began_ns;
};

static uint64_t since(const struct starting *s, uint64_t from_ns)
{
    return clock_now(s->engine->clock) - from_ns;
}

/* How many saves may be under way when this one starts.  Pool and image exist once per save.  The
 * hashes of an incremental save and the streams of devices exist only once per engine. */
static unsigned allowed(struct starting *s) ON_THREAD(CALLER)
{
    const struct sidestep_save *last = save_queue_newest_unfinished(s->engine);
    bool alone = (s->series != NULL && s->series->incremental) ||
                 (last != NULL && (last->incremental || last->pipeline.offload != NULL)) ||
                 (last != NULL && save_has_device_tensors(s->engine, s->state));

    return alone ? 0 : s->save->options.queue;
}

/* Wait for earlier saves that must end first, or refuse.  An error of theirs that was not reported
 * yet becomes the error of this call. */
static enum sidestep_status enter_queue(struct starting *s, struct sidestep_error *err)
    ON_THREAD(CALLER)
{
    bool nowait = (s->save->options.flags & SIDESTEP_SAVE_NOWAIT) != 0;
    uint64_t from = clock_now(s->engine->clock);
    enum sidestep_status status =
        save_queue_acquire_slot(s->engine, s->save, allowed(s), nowait, err);

    s->info->wait_ns = since(s, from);
    TRY(status);
    return save_queue_take_unreported_error(s->engine, &s->reported, err);
}

static enum sidestep_status make_save_id(struct starting *s, const char *name,
                                         uint8_t id[SAVE_ID_BYTES], struct sidestep_error *err)
    ON_THREAD(CALLER)
{
    OWNED_BUFFER text = {0};

    if (s->series == NULL)
        return random_bytes(id, SAVE_ID_BYTES, err);
    buffer_printf(&text, "%s %llu %llu %s", s->series->run_id,
                  (unsigned long long)s->series->incarnation,
                  (unsigned long long)s->engine->saver->save_counter, name);
    TRY(buffer_check(&text, err));
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.bytes, text.length));
    memcpy(id, canonical.digest, SAVE_ID_BYTES);
    return SIDESTEP_OK;
}

static void set_commit(struct starting *s, const struct sidestep_save_options *options)
{
    struct commit *commit = &s->save->commit;
    uint64_t timeout_ms = options->deadline_ms != 0 ? options->deadline_ms : s->engine->timeout_ms;

    assert(commit->parent == NULL && commit->dir == NULL);
    *commit = (struct commit){
        .clock = s->engine->clock,
        .cancelled = &s->save->cancelled,
        .rank = (uint32_t)s->engine->comm.rank,
        .world_size = (uint32_t)s->engine->comm.size,
        .timeout_ns = timeout_ms * 1000000u,
        .step = options->has_step != 0 ? (int64_t)options->step : -1,
        .no_replace = (options->flags & SIDESTEP_SAVE_NO_REPLACE) != 0,
    };
    if (s->series != NULL) {
        memcpy(commit->run_id, s->series->run_id, sizeof(commit->run_id));
        commit->incarnation = s->series->incarnation;
        if (!name_template_is_prefix_only(s->series->naming))
            name_template_to_text(s->series->naming, commit->naming);
        commit->guard = s->series->guard;
    }
    s->save->incremental = s->series != NULL && s->series->incremental;
    if (s->save->incremental)
        commit->shared = &s->engine->saver->incremental.shared;
}

static enum sidestep_status build_image(struct starting *s, struct sidestep_error *err)
    ON_THREAD(CALLER)
{
    struct save_slot *slot = s->save->slot;

    slot->plan_number = 0;
    TRY(image_build(&slot->image, &s->engine->saver->plan, s->state, err));
    slot->plan_number = s->engine->saver->plan_number;
    return SIDESTEP_OK;
}

/* Bind the addresses and objects of this save to the image, and reserve the pool. */
static enum sidestep_status bind_image(struct starting *s, struct sidestep_error *err)
    ON_THREAD(CALLER)
{
    struct sidestep_engine *engine = s->engine;
    struct save_slot *slot = s->save->slot;
    bool held = !s->still && save_queue_newest_unfinished(engine) == NULL &&
                snapshot_policy_can_use_cow(&engine->saver->snapshot_policy);

    assert(slot != NULL); /* enter_queue() was called */
    if (slot->plan_number != engine->saver->plan_number)
        TRY(build_image(s, err));
    slot->image.splits_file = s->save->incremental;
    if (s->save->incremental)
        TRY(incremental_plan(&engine->saver->incremental, &slot->image, err));
    TRY(image_bind(&slot->image, &engine->saver->plan, s->state, err));
    TRY(offload_prepare(&engine->saver->offload, &slot->image, s->save->options.streams,
                        s->save->options.stream_count, err));
    uint64_t wanted = pipeline_full_pool_bytes(&slot->image);
    bool pin = engine->saver->offload.bytes != 0;
    bool in_background = s->still && !pin;
    if (in_background)
        wanted = min_u64(wanted, BACKGROUND_POOL_BYTES);
    if (engine->saver->pool_cap != 0 && wanted > engine->saver->pool_cap)
        wanted = engine->saver->pool_cap;
    uint64_t from = clock_now(engine->clock), waited_ns = s->info->wait_ns;
    /* A protected save needs the pool gradually, and maybe only a part of it.  A pinned pool is
     * needed at once.  A save that waits for its memory turn does not need it yet. */
    bool now = (!held || pin) && engine->saver->turn == NULL;
    TRY(save_queue_reserve_pool(engine, s->save, wanted, now, pin, err));
    s->info->pool_ns += since(s, from) - (s->info->wait_ns - waited_ns);
    pipeline_release(&s->save->pipeline);
    TRY(pipeline_init(&s->save->pipeline, &slot->image, &slot->pool,
                      in_background ? wanted : slot->pool.length, err));
    s->save->pipeline.pool_is_pinned = engine->devices.pinned != NULL;
    return SIDESTEP_OK;
}

/* This rank cannot take part.  Keep an error of an earlier save for another call. */
static enum sidestep_status start_failed(struct starting *s,
                                         const struct sidestep_save_options *options,
                                         struct sidestep_error *err) ON_THREAD(CALLER)
{
    if ((options->flags & SIDESTEP_SAVE_NOWAIT) == 0)
        (void)save_queue_acquire_slot(s->engine, s->save,
                                      min_u64(options->queue, SIDESTEP_MAX_QUEUE), false, NULL);
    return engine_copy_failure(options->failure, err);
}

/* Do everything that this rank can do without the others. */
static enum sidestep_status start_local(struct starting *s, const char *path,
                                        const struct sidestep_save_options *theirs,
                                        struct sidestep_error *err) ON_THREAD(CALLER)
{
    struct sidestep_save *save = s->save;
    uint8_t id[SAVE_ID_BYTES];

    TRY(options_copy(&save->options, sizeof(save->options), theirs, "save options", err));
    if (save->options.failure != NULL)
        return start_failed(s, &save->options, err);
    if (path == NULL || s->state == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "%s is NULL", path == NULL ? "path" : "state");
    if (save->options.stream_count != 0 && save->options.streams == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "save options: streams is NULL");
    if ((save->options.flags & ~SAVE_FLAGS) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "save options: unknown flags 0x%x",
                    save->options.flags);
    if (save->options.has_step != 0 && save->options.step > INT64_MAX)
        return FAIL(err, SIDESTEP_EINVAL, "step %llu is too large",
                    (unsigned long long)save->options.step);
    s->still = s->blocking || (save->options.flags & SIDESTEP_SAVE_STILL) != 0;
    lock_alone(&save->shared.lock); /* no other thread knows it yet */
    save->shared.is_reported = (save->options.flags & SIDESTEP_SAVE_NOT_STICKY) != 0;
    if (save->options.queue > SIDESTEP_MAX_QUEUE)
        return FAIL(err, SIDESTEP_EINVAL, "save options: a queue of %u is more than %u",
                    save->options.queue, SIDESTEP_MAX_QUEUE);
    TRY(enter_queue(s, err));
    TRY(save_choose_codec(save, err));
    set_commit(s, &save->options);
    TRY(engine_find_store(s->engine, path, &save->commit.store, err));
    TRY(commit_open(&save->commit, path, err));
    if (!utf8_is_valid(save->commit.path, strlen(save->commit.path)))
        return FAIL(err, SIDESTEP_EINVAL, "the path is not UTF-8, and .metadata has to record it");
    TRY(save_queue_wait_for_path(s->engine, save, (save->options.flags & SIDESTEP_SAVE_NOWAIT) != 0,
                                 err));
    s->digest = save_plan_digest(s->state);
    if (s->digest == s->engine->saver->layout_digest)
        TRY(bind_image(s, err));
    TRY(thread_start(&save->runner, "sidestep-save", save_runner_main, save, err));
    save->has_runner = true;
    if (s->blocking) /* its caller waits from the first byte on */
        sidestep_save_hurry(save);
    if (save->commit.rank != 0)
        return SIDESTEP_OK;
    TRY(make_save_id(s, save->commit.name, id, err));
    save->commit.checked = &s->engine->saver->checked_storage;
    TRY(commit_begin(&save->commit, id, err));
    save->commit.checked = NULL;
    s->has_begun = true;
    return SIDESTEP_OK;
}

static void fill_agreement(struct starting *s, enum sidestep_status mine,
                           uint64_t words[AGREE_COUNT]) ON_THREAD(CALLER)
{
    const struct commit *commit = &s->save->commit;
    struct sidestep_engine *engine = s->engine;
    uint64_t request[] = {XXH3_64bits(commit->path, strlen(commit->path)),
                          (uint64_t)commit->step,
                          engine->saver->save_counter,
                          s->blocking,
                          commit->incarnation == 0 &&
                              commit->no_replace, /* in a series, rank 0 decides */
                          commit->incarnation,
                          SIDESTEP_VERSION_MAJOR << 16 | SIDESTEP_VERSION_MINOR};

    memset(words, 0, AGREE_COUNT * sizeof(*words));
    words[AGREE_FAILED] = mine != SIDESTEP_OK;
    words[AGREE_CHANGED] = s->digest != engine->saver->layout_digest;
    words[AGREE_REQUEST] = XXH3_64bits(request, sizeof(request));
    words[AGREE_REQUEST_NOT] = ~words[AGREE_REQUEST];
    words[AGREE_PLAN] = engine->saver->plan.global_digest;
    words[AGREE_PLAN_NOT] = ~words[AGREE_PLAN];
    words[AGREE_REPORTED] = s->reported;
    if (engine->comm.rank == 0) {
        memcpy(&words[AGREE_ID_0], commit->save_id_bytes, SAVE_ID_BYTES);
        words[AGREE_IN_PLACE] = commit->in_place;
        words[AGREE_PREVIOUS] = commit->previous;
        words[AGREE_VERDICTS] = save_queue_pack_verdicts(engine);
    }
}

static void take_agreement(struct starting *s, const uint64_t words[AGREE_COUNT]) ON_THREAD(CALLER)
{
    struct commit *commit = &s->save->commit;
    uint8_t id[SAVE_ID_BYTES];

    s->verdicts = words[AGREE_VERDICTS];
    save_queue_apply_verdicts(s->engine, s->verdicts);
    save_queue_mark_reported(s->engine, words[AGREE_REPORTED]);
    if (commit->rank == 0)
        return;
    memcpy(id, &words[AGREE_ID_0], SAVE_ID_BYTES);
    commit_set_save_id(commit, id);
    commit->in_place = words[AGREE_IN_PLACE] != 0;
    commit->previous = words[AGREE_PREVIOUS];
}

/* Plan together, then prepare again.  Every rank returns with the same answer. */
static enum sidestep_status replan_all(struct starting *s, struct sidestep_error *err)
    ON_THREAD(CALLER)
{
    enum sidestep_status status = save_plan_all(s->engine, s->state, err);

    if (status != SIDESTEP_OK) /* on all ranks */
        return status;
    incremental_reset(&s->engine->saver->incremental);
    s->engine->saver->plan_number++;
    status = bind_image(s, err);
    if (status == SIDESTEP_OK)
        s->engine->saver->layout_digest = s->digest;
    status = comm_agree_all(&s->engine->comm, status, err);
    if (status != SIDESTEP_OK)
        s->engine->saver->layout_digest = 0; /* plan again next time, on all ranks */
    return status;
}

static enum sidestep_status agree_all(struct starting *s, enum sidestep_status mine,
                                      struct sidestep_error *err) ON_THREAD(CALLER)
{
    uint64_t words[AGREE_COUNT];

    fill_agreement(s, mine, words);
    TRY(comm_reduce_max_all(&s->engine->comm, words, AGREE_COUNT, err));
    take_agreement(s, words);
    if (words[AGREE_FAILED] != 0)
        return comm_agree_all(&s->engine->comm, mine, err);
    if (words[AGREE_REQUEST] != ~words[AGREE_REQUEST_NOT])
        return FAIL(err, SIDESTEP_EDISAGREE,
                    "the ranks do not save the same thing: path, step, order of calls, whether a "
                    "checkpoint may be replaced, and library version must be equal (here: '%s', "
                    "step %lld)",
                    s->save->commit.path, (long long)s->save->commit.step);
    if (words[AGREE_CHANGED] != 0 || words[AGREE_PLAN] != ~words[AGREE_PLAN_NOT])
        TRY(replan_all(s, err));
    else
        s->info->flags |= SIDESTEP_SAVE_PLAN_REUSED;
    s->save->commit.layout_digest = s->engine->saver->plan.global_digest;
    return save_look_all(s->save, err);
}

/* Undo the preparation.  Only the coordinator's directory was visible to others. */
static void undo_start(struct starting *s, const struct sidestep_error *why)
{
    save_unblock_runner(s->save, true);
    save_join_runner(s->save);
    if (s->has_begun)
        commit_abort(&s->save->commit, why);
    if (s->has_begun)
        commit_remove_outcome(&s->save->commit); /* all ranks already know */
    save_release(s->save);
    s->save = NULL;
}

static void set_staged(struct starting *s, uint64_t from)
{
    struct sidestep_save *save = s->save;

    lock_acquire(&save->shared.lock);
    save->staged_ns = clock_now(s->engine->clock);
    s->info->stage_ns = save->staged_ns - from;
    s->info->call_ns = save->staged_ns - s->began_ns;
    if (save->pipeline.offload != NULL)
        s->info->device_ns = s->info->call_ns;
    lock_release(&save->shared.lock);
    save_advance(save, SIDESTEP_SAVE_STAGED, NULL);
}

/* Stage by copy.  If the pool holds the whole file, writing starts afterwards.  If it is smaller,
 * writing runs at the same time to free slots. */
static void stage(struct starting *s) ON_THREAD(CALLER)
{
    struct sidestep_save *save = s->save;
    bool shares_pool = save->pipeline.shares_pool;
    uint64_t from = clock_now(s->engine->clock);

    if (shares_pool) {
        s->info->flags |= SIDESTEP_SAVE_STREAMED; /* before the runner adds its own flags */
        save_unblock_runner(save, false);
        throttle_wait_begin(&s->engine->throttle);
    }
    pipeline_stage(&save->pipeline, s->engine->stagers);
    if (shares_pool)
        throttle_wait_end(&s->engine->throttle);
    set_staged(s, from);
    if (!shares_pool && s->engine->saver->offload.bytes == 0)
        snapshot_policy_record_copy(&s->engine->saver->snapshot_policy,
                                    save->slot->image.body_bytes, s->info->stage_ns);
    save_advance(save, SIDESTEP_SAVE_RELEASED, NULL);
    if (!shares_pool)
        save_unblock_runner(save, false);
}

/* Everything is copied in the background.  Called on a thread of the pipeline. */
static void on_staged_in_background(void *context)
{
    struct sidestep_save *save = context;
    struct sidestep_save_info *info = &save->shared.info;

    lock_acquire(&save->shared.lock);
    uint64_t from = save->staged_ns;
    save->staged_ns = clock_now(save->engine->clock);
    info->stage_ns = save->staged_ns - from;
    info->call_ns += info->stage_ns;
    lock_release(&save->shared.lock);
    save_advance(save, SIDESTEP_SAVE_STAGED, NULL);
    save_advance(save, SIDESTEP_SAVE_RELEASED, NULL);
}

/* Nobody changes the state, so copy it in the background, as fast as it is written.  A small part
 * of the pool is enough. */
static void stage_in_background(struct starting *s)
{
    struct sidestep_save *save = s->save;
    struct sidestep_engine *engine = s->engine;

    assert(s->still);
    if (save->pipeline.shares_pool && save->pipeline.pool_bytes == engine->saver->pool_cap)
        s->info->flags |= SIDESTEP_SAVE_STREAMED;
    save_memory_turn_begin(save);
    save->staged_ns = clock_now(engine->clock); /* the start, until it is STAGED */
    s->info->call_ns = save->staged_ns - s->began_ns;
    pipeline_defer_staging(&save->pipeline, engine->stagers, on_staged_in_background, save);
    pipeline_start_staging(&save->pipeline, 0);
    save_unblock_runner(save, false);
}

/* All protected memory is copied or written.  Called on a thread of the pipeline. */
static void on_released(void *context)
{
    struct sidestep_save *save = context;
    struct cow_stats stats;

    assert(save->pipeline.cow != NULL);
    cow_get_stats(save->pipeline.cow, &stats);
    lock_acquire(&save->shared.lock);
    snapshot_policy_report_stats(&stats, &save->shared.info);
    save->shared.info.release_ns = clock_now(save->engine->clock) - save->staged_ns;
    lock_release(&save->shared.lock);
    save_advance(save, SIDESTEP_SAVE_RELEASED, NULL);
}

/* Take the snapshot by write protection.  RELEASED must not come before STAGED, so the copiers
 * start after it.  Nobody looks at STAGED before the call has returned. */
static bool protect(struct starting *s, struct cow *cow) ON_THREAD(CALLER)
{
    struct sidestep_save *save = s->save;
    uint64_t from = clock_now(s->engine->clock);
    struct cow_stats stats;

    if (!pipeline_protect(&save->pipeline, cow, s->engine->stagers, on_released, save))
        return false;
    cow_get_stats(cow, &stats);
    cow_add_protect_failure(cow, s->info->copy_reason, sizeof(s->info->copy_reason));
    snapshot_policy_report_stats(&stats, s->info);
    s->info->snapshot = SIDESTEP_SNAPSHOT_COW;
    set_staged(s, from);
    s->engine->saver->snapshot_policy.protect_ns = s->info->stage_ns;
    save->pipeline.trims_pool = snapshot_policy_can_trim_pool(&s->engine->saver->snapshot_policy);
    pipeline_start_staging(
        &save->pipeline, snapshot_policy_choose_copy_threshold(&s->engine->saver->snapshot_policy));
    save_unblock_runner(save, false);
    return true;
}

static void hold_or_stage(struct starting *s) ON_THREAD(CALLER)
{
    struct sidestep_engine *engine = s->engine;
    struct save_slot *slot = s->save->slot;
    struct cow *cow = NULL;

    if (s->engine->saver->offload.bytes != 0 && save_offload(s->save, s->blocking, s->began_ns))
        return;
    if (s->still)
        snprintf(s->info->copy_reason, sizeof(s->info->copy_reason), "%s",
                 "the caller waits for it anyway");
    else if (engine->saver->offload.bytes != 0)
        snprintf(s->info->copy_reason, sizeof(s->info->copy_reason), "%s",
                 s->save->pipeline.shares_pool ? SAVE_REASON_SMALL_POOL : "a device has failed");
    else if (s->save->previous != NULL)
        snprintf(s->info->copy_reason, sizeof(s->info->copy_reason), "%s",
                 "an earlier save is being written");
    else
        cow = snapshot_policy_choose(&engine->saver->snapshot_policy, &slot->image,
                                     slot->pool.length, s->info->copy_reason);
    s->info->snapshot = SIDESTEP_SNAPSHOT_COPY;
    s->info->copy_bytes = cow_host_tensor_bytes(&slot->image);
    if (cow != NULL && protect(s, cow))
        return;
    if (cow != NULL)
        snapshot_policy_note_cow_failure(&engine->saver->snapshot_policy, s->info->copy_reason);
    if (s->still && engine->saver->offload.bytes == 0)
        stage_in_background(s);
    else
        stage(s);
}

/* All ranks have agreed on this save: count it among those under way. */
static void add_to_queue(struct starting *s) ON_THREAD(CALLER)
{
    struct sidestep_engine *engine = s->engine;
    struct sidestep_save *last = save_queue_newest(engine);

    incremental_begin_save(&engine->saver->incremental,
                           last != NULL && save_get_state(last) == SIDESTEP_SAVE_COMMITTED,
                           s->save->incremental);
    save_queue_remove_ended(engine, s->verdicts);
    save_queue_add(engine, s->save);
}

enum sidestep_status save_start_all(struct sidestep_engine *engine, const char *path,
                                    const struct sidestep_state_dict *state,
                                    const struct sidestep_save_options *options,
                                    const struct save_series *series, bool blocking,
                                    struct sidestep_save **out, struct sidestep_error *err)
{
    struct starting s = {.engine = engine, .state = state, .series = series, .blocking = blocking};
    struct sidestep_error why = {0};

    THREAD_IS(CALLER);
    *out = NULL;
    s.began_ns = clock_now(engine->clock);
    engine->saver->save_counter++;
    enum sidestep_status mine = save_new(engine, &s.save, &why);
    if (mine != SIDESTEP_OK) { /* even this failed: still meet the others */
        uint64_t words[AGREE_COUNT] = {[AGREE_FAILED] = 1};
        (void)comm_reduce_max_all(&engine->comm, words, AGREE_COUNT, NULL);
        error_copy(err, &why);
        return comm_agree_all(&engine->comm, mine, err);
    }
    s.info = &s.save->shared.info;
    mine = start_local(&s, path, options, &why);
    uint64_t planning = clock_now(engine->clock);
    enum sidestep_status status = agree_all(&s, mine, &why);
    s.info->plan_ns = since(&s, planning);
    if (status != SIDESTEP_OK) {
        undo_start(&s, &why);
        error_wrap(&why, "save '%s'", path != NULL ? path : "");
        error_copy(err, &why);
        return status;
    }
    s.save->body_bytes = s.info->bytes_total = s.save->slot->image.body_bytes;
    if (s.save->commit.is_volatile)
        s.info->flags |= SIDESTEP_SAVE_VOLATILE;
    add_to_queue(&s);
    save_emit_started(s.save);
    hold_or_stage(&s);
    TRACE(save, "rank %d: '%s' staged %llu bytes", engine->comm.rank, s.save->commit.path,
          (unsigned long long)s.info->bytes_total);
    *out = s.save;
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_save_async(struct sidestep_engine *engine, const char *path,
                                         const struct sidestep_state_dict *state,
                                         const struct sidestep_save_options *options,
                                         struct sidestep_save **save, struct sidestep_error *err)
{
    TRY(engine_check(engine, err));
    if (save == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "save is NULL");
    return save_start_all(engine, path, state, options, NULL, false, save, err);
}

enum sidestep_status sidestep_save(struct sidestep_engine *engine, const char *path,
                                   const struct sidestep_state_dict *state,
                                   const struct sidestep_save_options *options,
                                   struct sidestep_save_info *info, struct sidestep_error *err)
{
    struct sidestep_save *save = NULL;

    TRY(engine_check(engine, err));
    TRY(save_start_all(engine, path, state, options, NULL, true, &save, err));
    return save_finish_all(&save, info, err);
}
