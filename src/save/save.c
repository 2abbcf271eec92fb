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

/* The words of the agreement, an all-reduce by maximum.  A pair x, ~x shows whether all ranks have
 * the same x. */
enum agreement {
    AGREE_FAILED,  /* 1: a rank has failed */
    AGREE_CHANGED, /* 1: a rank's layout differs from that of the plan */
    AGREE_REQUEST, /* digest of path, step, flags, counter ... */
    AGREE_REQUEST_NOT,
    AGREE_PLAN, /* digest of the plan */
    AGREE_PLAN_NOT,
    AGREE_ID_0, /* the save id: set by rank 0, zero on the others */
    AGREE_ID_1,
    AGREE_IN_PLACE, /* set by rank 0 */
    AGREE_PREVIOUS, /* set by rank 0 */
    AGREE_VERDICTS, /* set by rank 0: how earlier saves ended */
    AGREE_REPORTED, /* queue place of the failed save that this call reports; 0: none */
    AGREE_LOWEST,   /* 1: a rank does not share what all ranks have; see replicas.h */
    AGREE_OTHER,    /* 1: a rank's plan is of a save that shares, and this one does not, or v. v. */
    AGREE_VALUES,   /* digest of what the ranks shared in the save before */
    AGREE_VALUES_NOT,
    AGREE_FILES, /* 1: a rank of several nodes without a common root gives small files */
    AGREE_COUNT,
};

_Static_assert(SAVE_ID_BYTES == 2 * sizeof(uint64_t), "AGREE_ID_0 and AGREE_ID_1 hold a save id");

/* One call of save_start_all() on one rank. */
struct save_start {
    struct sidestep_engine *engine;
    struct saver *saver; /* ${engine->saver} */
    const struct sidestep_state_dict *state;
    const struct save_series *series;
    struct sidestep_save *save;
    struct sidestep_save_info *info;
    bool blocking;
    bool still;            /* nobody changes the state before it is STAGED */
    bool shares;           /* this rank would share what all ranks have; see replicas.h */
    struct turn_news news; /* of earlier saves */
    bool has_begun;        /* coordinator: the directory and the pending marker exist */
    uint64_t digest;       /* of the layout */
    uint64_t began_ns;
};

static uint64_t elapsed_ns(const struct save_start *start, uint64_t from_ns)
{
    return clock_now(start->engine->clock) - from_ns;
}

/* How many saves may be under way when this one starts.  Each save has a pool and an image.  But
 * the hashes of incremental saves and the streams of devices exist once per engine. */
static unsigned queue_limit(struct save_start *start) ON_THREAD(CALLER)
{
    const struct sidestep_save *last =
        turn_count(&start->saver->turns) != 0 ? turn_newest(&start->saver->turns) : NULL;
    bool alone = (start->series != NULL && start->series->incremental) ||
                 (last != NULL && (last->incremental || last->pipeline.offload != NULL)) ||
                 (last != NULL && save_has_device_tensors(start->engine, start->state));

    return alone ? 0 : start->save->options.queue;
}

/* Wait for the earlier saves that must end first, or refuse.  If one failed and no call has
 * reported that yet, this call fails with its error. */
static enum sidestep_status enter_queue(struct save_start *start, struct sidestep_error *err)
    ON_THREAD(CALLER)
{
    TRY(turn_wait(start->save, queue_limit(start), NULL, err));
    TRY(turn_look(&start->saver->turns, &start->news, err));
    start->save->slot = slot_take(start->engine);
    return SIDESTEP_OK;
}

static void set_commit(struct save_start *start, const struct sidestep_save_options *options)
{
    struct commit *commit = &start->save->commit;
    uint64_t timeout_ms =
        options->deadline_ms != 0 ? options->deadline_ms : start->engine->timeout_ms;

    assert(commit->parent == NULL && commit->dir == NULL);
    *commit = (struct commit){
        .clock = start->engine->clock,
        .rank = (uint32_t)start->engine->comm.rank,
        .world_size = (uint32_t)start->engine->comm.size,
        .request = {.timeout_ns = timeout_ms * 1000000u,
                    .step = options->has_step ? (int64_t)options->step : -1,
                    .cancelled = &start->save->cancelled,
                    .no_replace = (options->flags & SIDESTEP_SAVE_NO_REPLACE) != 0},
    };
    if (start->series != NULL) {
        memcpy(commit->request.run_id, start->series->run_id, sizeof(commit->request.run_id));
        commit->request.incarnation = start->series->incarnation;
        if (!name_template_is_prefix_only(start->series->naming))
            name_template_to_text(start->series->naming, commit->request.naming);
        commit->request.guard = start->series->guard;
    }
    start->save->incremental = start->series != NULL && start->series->incremental;
    if (start->save->incremental)
        commit->request.shared = &start->saver->incremental.shared;
}

static enum sidestep_status build_image(struct save_start *start, struct sidestep_error *err)
    ON_THREAD(CALLER)
{
    struct save_slot *slot = start->save->slot;

    slot->plan_number = 0;
    TRY(image_build(&slot->image, &start->saver->plan, start->state, err));
    slot->plan_number = start->saver->plan_number;
    return SIDESTEP_OK;
}

/* Bind the addresses and objects of this save to the image, and reserve the pool. */
static enum sidestep_status bind_image(struct save_start *start, struct sidestep_error *err)
    ON_THREAD(CALLER)
{
    struct sidestep_engine *engine = start->engine;
    struct save_slot *slot = start->save->slot;
    bool by_cow = !start->still && turn_count(&start->saver->turns) == 0 &&
                  snapshot_policy_can_use_cow(&start->saver->snapshot_policy);

    assert(slot != NULL); /* enter_queue() was called */
    if (slot->plan_number != start->saver->plan_number)
        TRY(build_image(start, err));
    slot->image.splits_file = start->save->incremental;
    if (start->save->incremental)
        TRY(incremental_plan(&start->saver->incremental, &slot->image, err));
    TRY(image_bind(&slot->image, &start->saver->plan, start->state, err));
    TRY(offload_prepare(&start->saver->offload, &slot->image, start->save->options.streams,
                        start->save->options.stream_count, err));
    uint64_t wanted = pipeline_full_pool_bytes(&slot->image);
    bool pin = start->saver->offload.bytes != 0;
    bool in_background = start->still && !pin;
    if (in_background)
        wanted = min_u64(wanted, BACKGROUND_POOL_BYTES);
    wanted = slot_fit_pool(engine, &slot->pool, wanted, start->info->pool_reason);
    uint64_t from = clock_now(engine->clock), waited_ns = start->info->wait_ns;
    /* A protected save needs the pool gradually, and maybe only a part of it.  A pinned pool is
     * needed at once.  A save that waits for its memory turn does not need the pool yet. */
    bool at_once = (!by_cow || pin) && start->saver->memory_turn == NULL;
    TRY(slot_reserve_pool(start->save, wanted, at_once, pin, err));
    start->info->pool_ns += elapsed_ns(start, from) - (start->info->wait_ns - waited_ns);
    pipeline_release(&start->save->pipeline);
    TRY(pipeline_init(&start->save->pipeline, &slot->image, &slot->pool,
                      in_background ? wanted : slot->pool.length, err));
    start->save->pipeline.pool_is_pinned = engine->devices.pinned != NULL;
    return SIDESTEP_OK;
}

/* Prepare this rank's part by the plan of the save before, if there is one for this save. */
static enum sidestep_status use_last_plan(struct save_start *start, struct sidestep_error *err)
    ON_THREAD(CALLER)
{
    struct replicas *replicas = &start->saver->replicas;
    bool copies = !start->still && !snapshot_policy_can_use_cow(&start->saver->snapshot_policy);

    start->digest = save_plan_digest(start->state);
    if (start->save->incremental) /* from now on: another plan would have other files */
        replicas->wanted = SIDESTEP_REPLICAS_LOWEST;
    start->shares = replicas_are_wanted(replicas, start->engine, start->still, copies);
    replicas->hashed = false;
    if (start->digest != start->saver->layout_digest || start->shares != replicas->planned)
        return SIDESTEP_OK;
    TRY(bind_image(start, err));
    if (start->shares)
        replicas_hash(start->engine, start->state, start->info);
    return SIDESTEP_OK;
}

/* Do everything that this rank can do without the others. */
static enum sidestep_status start_local(struct save_start *start, const char *path,
                                        const struct sidestep_save_options *options,
                                        struct sidestep_error *err) ON_THREAD(CALLER)
{
    struct sidestep_save *save = start->save;
    uint8_t id[SAVE_ID_BYTES];

    TRY(options_copy(&save->options, sizeof(save->options), options, "save options", err));
    if (save->options.failure != NULL) { /* a later call reports the errors of earlier saves */
        (void)turn_wait(save, save->options.queue, NULL, NULL);
        return engine_copy_failure(save->options.failure, err);
    }
    if (path == NULL || start->state == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "%s is NULL", path == NULL ? "path" : "state");
    if (save->options.stream_count != 0 && save->options.streams == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "save options: streams is NULL");
    if ((save->options.flags & ~SAVE_FLAGS) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "save options: unknown flags 0x%x",
                    save->options.flags);
    if (save->options.has_step && save->options.step > INT64_MAX)
        return FAIL(err, SIDESTEP_EINVAL, "step %llu is too large",
                    (unsigned long long)save->options.step);
    start->still = start->blocking || (save->options.flags & SIDESTEP_SAVE_STILL) != 0;
    lock_alone(&save->shared.lock); /* no other thread knows it yet */
    save->shared.is_reported = (save->options.flags & SIDESTEP_SAVE_NOT_STICKY) != 0;
    if (save->options.queue > SIDESTEP_MAX_QUEUE)
        return FAIL(err, SIDESTEP_EINVAL, "save options: a queue of %u is more than %u",
                    save->options.queue, SIDESTEP_MAX_QUEUE);
    TRY(enter_queue(start, err));
    TRY(save_choose_codec(save, err));
    set_commit(start, &save->options);
    TRY(save_set_group(save, start->series, err));
    TRY(engine_find_store(start->engine, path, &save->commit.store, err));
    TRY(commit_open(&save->commit, path, err));
    TRY(turn_wait(save, SIDESTEP_MAX_QUEUE, save->commit.path, err));
    TRY(use_last_plan(start, err));
    TRY(turn_start(save, save_run, err));
    if (start->blocking) /* the caller waits from the first byte on */
        sidestep_save_hurry(save);
    if (!commit_is_coordinator(&save->commit))
        return SIDESTEP_OK;
    TRY(save_make_id(save, start->series, id, err));
    save->commit.request.checked = &start->saver->checked_storage;
    TRY(commit_begin(&save->commit, id, err));
    save->commit.request.checked = NULL;
    start->has_begun = true;
    return SIDESTEP_OK;
}

static void fill_agreement(struct save_start *start, enum sidestep_status mine,
                           uint64_t words[AGREE_COUNT]) ON_THREAD(CALLER)
{
    const struct commit *commit = &start->save->commit;
    struct sidestep_engine *engine = start->engine;
    const char *path = commit->group.count != 0 ? commit->name : commit->path; /* equal on all */
    uint64_t request[] = {XXH3_64bits(path, strlen(path)),
                          (uint64_t)commit->request.step,
                          start->saver->save_counter,
                          start->blocking,
                          commit->group.groups,
                          commit->request.incarnation == 0 &&
                              commit->request.no_replace, /* in a series, rank 0 decides */
                          commit->request.incarnation,
                          SIDESTEP_VERSION_MAJOR << 16 | SIDESTEP_VERSION_MINOR};

    memset(words, 0, AGREE_COUNT * sizeof(*words));
    words[AGREE_FAILED] = mine != SIDESTEP_OK;
    words[AGREE_CHANGED] = start->digest != start->saver->layout_digest;
    words[AGREE_REQUEST] = XXH3_64bits(request, sizeof(request));
    words[AGREE_REQUEST_NOT] = ~words[AGREE_REQUEST];
    words[AGREE_PLAN] = start->saver->plan.global_digest;
    words[AGREE_PLAN_NOT] = ~words[AGREE_PLAN];
    words[AGREE_REPORTED] = start->news.reported;
    words[AGREE_LOWEST] = !start->shares;
    words[AGREE_OTHER] = start->shares != start->saver->replicas.planned;
    replicas_digest(&start->saver->replicas, &words[AGREE_VALUES]);
    words[AGREE_FILES] = commit->group.count != 0 && start->state->file_count != 0;
    if (engine->comm.rank == 0) {
        memcpy(&words[AGREE_ID_0], commit->save_id_bytes, SAVE_ID_BYTES);
        words[AGREE_IN_PLACE] = commit->files.in_place;
        words[AGREE_PREVIOUS] = commit->previous;
        words[AGREE_VERDICTS] = start->saver->has_parts ? 0 : start->news.verdicts;
    }
}

static void take_agreement(struct save_start *start, const uint64_t words[AGREE_COUNT])
    ON_THREAD(CALLER)
{
    struct commit *commit = &start->save->commit;
    uint8_t id[SAVE_ID_BYTES];

    start->news.verdicts = start->saver->has_parts ? start->news.verdicts : words[AGREE_VERDICTS];
    start->news.reported = words[AGREE_REPORTED];
    turn_learn(&start->saver->turns, &start->news);
    if (commit_is_coordinator(commit))
        return;
    memcpy(id, &words[AGREE_ID_0], SAVE_ID_BYTES);
    commit_set_save_id(commit, id);
    commit->files.in_place = words[AGREE_IN_PLACE] != 0;
    commit->previous = words[AGREE_PREVIOUS];
}

/* Plan together, then prepare again.  All ranks return the same status. */
static enum sidestep_status replan_all(struct save_start *start, bool shares,
                                       struct sidestep_error *err) ON_THREAD(CALLER)
{
    enum sidestep_status status =
        shares ? replicas_plan_all(start->engine, start->state, start->info, err)
               : save_plan_all(start->engine, start->state, NULL, err);

    if (status != SIDESTEP_OK) /* on all ranks */
        return status;
    start->saver->replicas.planned = shares;
    incremental_reset(&start->saver->incremental);
    start->saver->plan_number++;
    status = bind_image(start, err);
    if (status == SIDESTEP_OK)
        start->saver->layout_digest = start->digest;
    status = comm_agree_all(&start->engine->comm, status, err);
    if (status != SIDESTEP_OK)
        start->saver->layout_digest = 0; /* plan again next time, on all ranks */
    return status;
}

static enum sidestep_status agree_all(struct save_start *start, enum sidestep_status mine,
                                      struct sidestep_error *err) ON_THREAD(CALLER)
{
    uint64_t words[AGREE_COUNT];

    TRY(turn_agree_parts_all(start->engine, &start->news, err));
    fill_agreement(start, mine, words);
    TRY(comm_reduce_max_all(&start->engine->comm, words, AGREE_COUNT, err));
    take_agreement(start, words);
    if (words[AGREE_FAILED] != 0)
        return comm_agree_all(&start->engine->comm, mine, err);
    if (words[AGREE_REQUEST] != ~words[AGREE_REQUEST_NOT])
        return FAIL(err, SIDESTEP_EDISAGREE,
                    "the ranks do not save the same thing: path, step, order of calls, whether a "
                    "checkpoint may be replaced, and library version must be equal (here: '%s', "
                    "step %lld)",
                    start->save->commit.path, (long long)start->save->commit.request.step);
    bool changed = words[AGREE_CHANGED] != 0 || words[AGREE_PLAN] != ~words[AGREE_PLAN_NOT];
    bool shares = words[AGREE_LOWEST] == 0;
    bool differ = words[AGREE_VALUES] != ~words[AGREE_VALUES_NOT] &&
                  !fault_hit("trust.replicas"); /* negative control of replicas_test.c */
    if (changed)
        replicas_forget(&start->saver->replicas);
    if (start->shares && !shares)
        replicas_note_outvoted(&start->saver->replicas, start->still);
    if (changed || words[AGREE_OTHER] != 0 || (shares && differ))
        TRY(replan_all(start, shares, err));
    else
        start->info->flags |= SIDESTEP_SAVE_PLAN_REUSED;
    if (words[AGREE_FILES] != 0)
        TRY(save_agree_files_all(start->save, err));
    start->save->commit.layout_digest = start->saver->plan.global_digest;
    return save_check_sight_all(start->save, err);
}

/* Undo the preparation.  Others could see only the coordinator's directory. */
static void undo_start(struct save_start *start, const struct sidestep_error *why)
{
    turn_begin(start->save, true);
    turn_join(start->save);
    if (start->has_begun)
        commit_abort(&start->save->commit, why);
    if (start->has_begun)
        commit_remove_outcome(&start->save->commit); /* all ranks already know */
    save_release(start->save);
    start->save = NULL;
}

static void set_staged(struct save_start *start, uint64_t from)
{
    struct sidestep_save *save = start->save;

    lock_acquire(&save->shared.lock);
    save->staged_ns = clock_now(start->engine->clock);
    start->info->stage_ns = save->staged_ns - from;
    start->info->call_ns = save->staged_ns - start->began_ns;
    if (save->pipeline.offload != NULL)
        start->info->device_ns = start->info->call_ns;
    lock_release(&save->shared.lock);
    save_advance(save, SIDESTEP_SAVE_STAGED, NULL);
}

/* Stage by copy.  If the pool holds the whole file, writing starts afterwards.  If it is smaller,
 * writing runs at the same time to free slots. */
static void stage(struct save_start *start) ON_THREAD(CALLER)
{
    struct sidestep_save *save = start->save;
    bool shares_pool = save->pipeline.shares_pool;
    uint64_t from = clock_now(start->engine->clock);

    if (shares_pool) {
        start->info->flags |= SIDESTEP_SAVE_STREAMED; /* before the runner adds its own flags */
        turn_begin(save, false);
        throttle_wait_begin(&start->engine->throttle);
    }
    pipeline_stage(&save->pipeline, start->engine->stagers);
    if (shares_pool)
        throttle_wait_end(&start->engine->throttle);
    set_staged(start, from);
    save->teaches = !shares_pool && start->saver->offload.bytes == 0;
    save_advance(save, SIDESTEP_SAVE_RELEASED, NULL);
}

/* The background has copied everything.  Called on a thread of the pipeline. */
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

/* Nobody changes the state, so copy it in the background, as fast as it is written.  A small pool
 * is enough. */
static void stage_in_background(struct save_start *start)
{
    struct sidestep_save *save = start->save;
    struct sidestep_engine *engine = start->engine;

    assert(start->still);
    if (save->pipeline.shares_pool && save->pipeline.pool_bytes == start->saver->pool_cap)
        start->info->flags |= SIDESTEP_SAVE_STREAMED;
    slot_begin_memory_turn(save);
    save->staged_ns = clock_now(engine->clock); /* the start of staging, until the save is STAGED */
    start->info->call_ns = save->staged_ns - start->began_ns;
    pipeline_defer_staging(&save->pipeline, engine->stagers, on_staged_in_background, save);
    pipeline_start_staging(&save->pipeline, 0);
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
static bool protect(struct save_start *start, struct cow *cow) ON_THREAD(CALLER)
{
    struct sidestep_save *save = start->save;
    uint64_t from = clock_now(start->engine->clock);
    struct cow_stats stats;

    if (!pipeline_protect(&save->pipeline, cow, start->engine->stagers, on_released, save))
        return false;
    cow_get_stats(cow, &stats);
    cow_add_protect_failure(cow, start->info->copy_reason, sizeof(start->info->copy_reason));
    snapshot_policy_report_stats(&stats, start->info);
    start->info->snapshot = SIDESTEP_SNAPSHOT_COW;
    set_staged(start, from);
    save->teaches = true;
    save->touch_threshold = snapshot_policy_choose_touch_threshold(&start->saver->snapshot_policy);
    save->pipeline.trims_pool = snapshot_policy_can_trim_pool(&start->saver->snapshot_policy);
    pipeline_start_staging(&save->pipeline,
                           snapshot_policy_choose_copy_threshold(&start->saver->snapshot_policy));
    return true;
}

/* Take the snapshot: by offload, by write protection, or by copy. */
static void take_snapshot(struct save_start *start) ON_THREAD(CALLER)
{
    struct save_slot *slot = start->save->slot;
    const char *reason = NULL;
    struct cow *cow = NULL;

    if (start->saver->offload.bytes != 0 &&
        save_offload(start->save, start->blocking, start->began_ns))
        return;
    if (start->still)
        reason = "the caller waits for it anyway";
    else if (start->saver->offload.bytes != 0)
        reason = start->save->pipeline.shares_pool ? SAVE_REASON_SMALL_POOL : "a device has failed";
    else if (start->save->previous != NULL)
        reason = "an earlier save is being written";
    if (reason != NULL)
        snprintf(start->info->copy_reason, sizeof(start->info->copy_reason), "%s", reason);
    else
        cow = snapshot_policy_choose(&start->saver->snapshot_policy, &slot->image,
                                     slot->pool.length, start->info->copy_reason);
    start->info->snapshot = SIDESTEP_SNAPSHOT_COPY;
    start->info->copy_bytes = cow_host_tensor_bytes(&slot->image);
    if (cow != NULL && protect(start, cow))
        return;
    if (cow != NULL)
        snapshot_policy_note_cow_failure(&start->saver->snapshot_policy, start->info->copy_reason);
    if (start->still && start->saver->offload.bytes == 0)
        stage_in_background(start);
    else
        stage(start);
}

/* All ranks have agreed on this save. */
static void join_turns(struct save_start *start) ON_THREAD(CALLER)
{
    struct sidestep_save *last = turn_newest(&start->saver->turns);

    incremental_begin_save(&start->saver->incremental,
                           last != NULL && save_get_state(last) == SIDESTEP_SAVE_COMMITTED,
                           start->save->incremental);
    turn_take(start->save, &start->news);
}

enum sidestep_status save_start_all(struct sidestep_engine *engine, const char *path,
                                    const struct sidestep_state_dict *state,
                                    const struct sidestep_save_options *options,
                                    const struct save_series *series, bool blocking,
                                    struct sidestep_save **out, struct sidestep_error *err)
{
    struct save_start start = {.engine = engine,
                               .saver = engine->saver,
                               .state = state,
                               .series = series,
                               .blocking = blocking};
    struct sidestep_error why = {0};

    THREAD_IS(CALLER);
    *out = NULL;
    start.began_ns = clock_now(engine->clock);
    engine->saver->save_counter++;
    enum sidestep_status mine = save_new(engine, &start.save, &why);
    if (mine != SIDESTEP_OK) { /* the other ranks wait for this one to agree */
        uint64_t words[AGREE_COUNT] = {[AGREE_FAILED] = 1};
        (void)turn_agree_parts_all(engine, &start.news, NULL);
        (void)comm_reduce_max_all(&engine->comm, words, AGREE_COUNT, NULL);
        error_copy(err, &why);
        return comm_agree_all(&engine->comm, mine, err);
    }
    start.info = &start.save->shared.info;
    mine = start_local(&start, path, options, &why);
    uint64_t planning_from_ns = clock_now(engine->clock);
    enum sidestep_status status = agree_all(&start, mine, &why);
    start.info->plan_ns = elapsed_ns(&start, planning_from_ns);
    if (status != SIDESTEP_OK) {
        undo_start(&start, &why);
        error_wrap(&why, "save '%s'", path != NULL ? path : "");
        error_copy(err, &why);
        return status;
    }
    start.save->body_bytes = start.info->bytes_total = start.save->slot->image.body_bytes;
    if (start.save->commit.files.is_volatile)
        start.info->flags |= SIDESTEP_SAVE_VOLATILE;
    join_turns(&start);
    save_emit_started(start.save);
    take_snapshot(&start);
    turn_begin(start.save, false);
    TRACE(save, "rank %d: '%s' staged %llu bytes", engine->comm.rank, start.save->commit.path,
          (unsigned long long)start.info->bytes_total);
    *out = start.save;
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
    return turn_finish_all(&save, info, err);
}
