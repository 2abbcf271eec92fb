/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_runner.c -- the background thread of a save: write this rank's shard, seal it, vote.
 *
 * On rank 0 it also collects the votes and commits.  It calls no collective: the votes are on
 * storage.
 */
#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "save/collapse.h"
#include "save/save.h"
#include "save/save_shard.h"
#include "snapshot/snapshot.h"

static enum sidestep_status write_and_vote(struct sidestep_save *save, struct sidestep_error *err)
    ON_THREAD(RUNNER)
{
    TRY(commit_join(&save->commit, err));
    TRY(save_write_shards(save, err));
    TRY(commit_check_cancelled(&save->commit, err));
    TRY(commit_vote_yes(&save->commit, err));
    if (save->incremental)
        unchanged_record(save->pipeline.image);
    return SIDESTEP_OK;
}

static void fail(struct sidestep_save *save, enum sidestep_save_state state,
                 struct sidestep_error *why)
{
    assert(state > SIDESTEP_SAVE_COMMITTED && why->status != SIDESTEP_OK);
    save_explain_space(save, why);
    TRACE(save, "rank %u: save '%s': %s", save->commit.rank, save->commit.path, why->message);
    pipeline_fail(&save->pipeline, why); /* staging may still be under way */
    pipeline_finish_staging(&save->pipeline);
    slot_end_memory_turn(save);
    if (state == SIDESTEP_SAVE_ABORTED && commit_is_coordinator(&save->commit))
        commit_abort(&save->commit, why);
    else if (state == SIDESTEP_SAVE_ABORTED) {
        commit_vote_no(&save->commit, why);
        commit_retract(&save->commit);
    }
    save_advance(save, state, why);
}

static enum sidestep_status collect_and_publish(struct sidestep_save *save,
                                                enum commit_outcome *outcome,
                                                struct sidestep_error *err)
{
    struct commit_contents contents = {0};

    assert(commit_is_coordinator(&save->commit));
    *outcome = COMMIT_ABORTED;
    enum sidestep_status status = commit_collect_votes(&save->commit, &contents, err);
    if (status == SIDESTEP_OK)
        status = commit_publish(&save->commit, &contents, outcome, err);
    if (save->incremental && status == SIDESTEP_OK) {
        commit_shared_release(&save->saver->incremental.shared);
        save->saver->incremental.shared = contents.shared;
        contents.shared = (struct commit_shared){0};
    }
    commit_contents_release(&contents);
    return status;
}

static void set_time(struct sidestep_save *save, uint64_t *field, uint64_t from_ns)
{
    uint64_t now = clock_now(save->engine->clock);

    lock_acquire(&save->shared.lock);
    *field = now - from_ns;
    lock_release(&save->shared.lock);
}

/* Replace ${why} by its cause, if storage has it: the coordinator has aborted and removed what this
 * rank was about to rename, or another run has taken over the series and removed the files. */
static void read_abort_reason(struct sidestep_save *save, struct sidestep_error *why)
{
    const struct commit_guard *guard = save->commit.request.guard;
    struct sidestep_error reason = {.rank = -1};

    if (!commit_is_coordinator(&save->commit) &&
        commit_check_aborted(&save->commit, &reason) != SIDESTEP_OK)
        *why = reason;
    else if (guard != NULL &&
             guard->holds(guard->context, &save->commit, &reason) == SIDESTEP_EABORTED)
        *why = reason;
    else if (why->status == SIDESTEP_ENOTFOUND && save->commit.dir != NULL &&
             !commit_is_pending(&save->commit))
        (void)commit_report_removed(&save->commit, why);
}

/* In the in-place form: has the coordinator aborted?  A shard that is sealed after its sweep is
 * removed by no other rank. */
static bool was_sealed_late(struct sidestep_save *save, struct sidestep_error *why)
{
    return !commit_is_coordinator(&save->commit) && save->commit.files.in_place &&
           commit_check_aborted(&save->commit, why) != SIDESTEP_OK;
}

static void run(struct sidestep_save *save) ON_THREAD(RUNNER)
{
    struct sidestep_error why = {0};
    enum commit_outcome outcome;
    uint64_t began = clock_now(save->engine->clock);

    if (write_and_vote(save, &why) != SIDESTEP_OK || was_sealed_late(save, &why)) {
        read_abort_reason(save, &why);
        fail(save, SIDESTEP_SAVE_ABORTED, &why);
        return;
    }
    set_time(save, &save->shared.info.write_ns, began);
    save_advance(save, SIDESTEP_SAVE_WRITTEN, NULL);
    if (!commit_is_coordinator(&save->commit))
        return;
    began = clock_now(save->engine->clock);
    enum sidestep_status status = collect_and_publish(save, &outcome, &why);
    set_time(save, &save->shared.info.commit_ns, began);
    if (status != SIDESTEP_OK && outcome == COMMIT_ABORTED)
        read_abort_reason(save, &why);
    assert((status == SIDESTEP_OK) == (outcome == COMMIT_COMMITTED));
    if (status == SIDESTEP_OK) {
        commit_close(&save->commit); /* storage is not needed any more: it may be unmounted */
        save_advance(save, SIDESTEP_SAVE_COMMITTED, NULL);
    } else
        fail(save, outcome == COMMIT_UNKNOWN ? SIDESTEP_SAVE_UNKNOWN : SIDESTEP_SAVE_ABORTED, &why);
}

/* The last step of a save, for which nobody waits. */
static void make_huge_pages(struct sidestep_save *save)
{
    struct sidestep_engine *engine = save->engine;
    struct sidestep_save_info *info = &save->shared.info;
    struct collapse made;

    if (info->snapshot != SIDESTEP_SNAPSHOT_COW || save_get_state(save) > SIDESTEP_SAVE_COMMITTED ||
        !collapse_is_due(info))
        return;
    collapse_run(save->pipeline.cow, &engine->throttle, engine->clock, &made);
    lock_acquire(&save->shared.lock);
    info->huge_bytes = made.bytes;
    info->huge_ns = made.took_ns;
    lock_release(&save->shared.lock);
    events_emit(&engine->events, "huge_pages",
                json_pack("{s:s, s:I, s:I}", "save_id", save->commit.save_id, "huge_bytes",
                          (json_int_t)made.bytes, "huge_ns", (json_int_t)made.took_ns));
}

/* Who waited for the end of a save needs this long at most to wake up. Who waits longer waits for
 * another save. */
#define MAX_HELD_MS 10u

/* The next save is by copy, or copies ahead.  Nobody waits now, so touch its pool. */
static void warm_pool(struct sidestep_save *save)
{
    struct throttle *throttle = &save->engine->throttle;
    const struct sidestep_save_info *info = &save->shared.info;
    const struct pool *pool = &save->slot->pool;
    uint64_t at = 0;
    bool more = true;

    if (info->faults < save->touch_threshold || save_get_state(save) > SIDESTEP_SAVE_COMMITTED ||
        !snapshot_policy_may_touch_pool(&save->saver->snapshot_policy, pool->length))
        return;
    throttle_attach_thread(throttle);
    for (unsigned held_ms = 0; more && held_ms < MAX_HELD_MS;) {
        if (throttle_is_idle(throttle)) {
            more = pool_touch_next(pool, &at);
        } else {
            save->engine->clock->sleep_ms(save->engine->clock, 1);
            held_ms++;
        }
    }
    throttle_detach_thread(throttle);
    save->warmed_pool = !more;
}

void save_run(struct sidestep_save *save)
{
    THREAD_IS(RUNNER);
    run(save);
    turn_end_hurry(save);
    make_huge_pages(save);
    warm_pool(save);
}
