/* SPDX-License-Identifier: BSD-3-Clause */
/* save_handle.c -- a save as its caller sees it: states, waiting, the outcome, errors until
 * reported. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "save/save.h"

/* A rank that polls waits this many times as long as the coordinator, because the coordinator
 * counts its deadline from the last progress. */
#define TIMEOUT_FACTOR 2u
#define WAIT_SLICE_MS 2000u

enum sidestep_status save_new(struct sidestep_engine *engine, struct sidestep_save **out,
                              struct sidestep_error *err)
{
    struct sidestep_save *save = memory_new(1, sizeof(*save));

    *out = NULL;
    if (save == NULL)
        return FAIL_NOMEM(err, sizeof(*save));
    engine_retain(engine);
    save->engine = engine;
    save->saver = engine->saver;
    save->touch_threshold = UINT64_MAX;
    lock_init(&save->shared.lock, LOCK_SAVE);
    lock_condition_init(&save->shared.changed);
    lock_alone(&save->shared.lock);
    save->shared.references = 1;
    *out = save;
    return SIDESTEP_OK;
}

void save_retain(struct sidestep_save *save)
{
    lock_acquire(&save->shared.lock);
    assert(save->shared.references != 0);
    save->shared.references++;
    lock_release(&save->shared.lock);
}

void save_release(struct sidestep_save *save)
{
    lock_acquire(&save->shared.lock);
    assert(save->shared.references != 0);
    bool last = --save->shared.references == 0;
    lock_release(&save->shared.lock);
    if (!last)
        return;
    turn_join(save);
    assert(!save->has_runner);
    if (save->previous != NULL) /* its runner was never started */
        save_release(save->previous);
    commit_close(&save->commit);
    free(save->group_ranks);
    pipeline_release(&save->pipeline);
    compressor_free(&save->compressor);
    lock_condition_destroy(&save->shared.changed);
    lock_destroy(&save->shared.lock);
    engine_release(save->engine);
    free(save);
}

bool save_state_is_final(enum sidestep_save_state state)
{
    return state >= SIDESTEP_SAVE_COMMITTED;
}

static const char *const state_events[] = {
    [SIDESTEP_SAVE_STAGING] = "started",     [SIDESTEP_SAVE_STAGED] = "staged",
    [SIDESTEP_SAVE_RELEASED] = "released",   [SIDESTEP_SAVE_WRITTEN] = "written",
    [SIDESTEP_SAVE_COMMITTED] = "committed", [SIDESTEP_SAVE_ABORTED] = "aborted",
    [SIDESTEP_SAVE_UNKNOWN] = "unknown",
};
_Static_assert(ARRAY_LENGTH(state_events) == SIDESTEP_SAVE_UNKNOWN + 1, "each state has an event");

static const char *io_name(const struct sidestep_save_info *info)
{
    if (info->flags & SIDESTEP_SAVE_URING)
        return "uring";
    return info->flags & SIDESTEP_SAVE_DIRECT_IO ? "direct" : "buffered";
}

/* The error in shared.err and on storage does not name the save.  Add its name before it is
 * reported. */
static void add_save_name(const struct sidestep_save *save, struct sidestep_error *err)
{
    error_wrap(err, "save '%s'", save->commit.path);
}

/* Locked: the status that is reported to the caller. */
static enum sidestep_status report_end(const struct sidestep_save *save, struct sidestep_error *err)
    REQUIRES(&save->shared.lock)
{
    assert(save->shared.state > SIDESTEP_SAVE_COMMITTED);
    assert(save->shared.err.status != SIDESTEP_OK);
    error_copy(err, &save->shared.err);
    add_save_name(save, err);
    return (enum sidestep_status)save->shared.err.status;
}

static void emit_state(struct sidestep_save *save, enum sidestep_save_state state,
                       const struct sidestep_save_info *info, const struct sidestep_error *err)
{
    if (!events_is_enabled(&save->engine->events))
        return;
    json_t *fields = json_pack(
        "{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "save_id", save->commit.save_id, "path",
        events_text(save->commit.path), "step", (json_int_t)save->commit.request.step, "bytes",
        (json_int_t)info->bytes_total, "call_ns", (json_int_t)info->call_ns, "wait_ns",
        (json_int_t)info->wait_ns, "stage_ns", (json_int_t)info->stage_ns, "write_ns",
        (json_int_t)info->write_ns, "commit_ns", (json_int_t)info->commit_ns);
    if (fields != NULL && (state == SIDESTEP_SAVE_WRITTEN || state == SIDESTEP_SAVE_COMMITTED))
        (void)json_object_update_new(
            fields,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "io", io_name(info),
                      "io_depth", (json_int_t)info->io_depth, "held_ns", (json_int_t)info->held_ns,
                      "backed_off_ns", (json_int_t)info->backed_off_ns, "raw_bytes",
                      (json_int_t)info->raw_bytes, "stored_bytes", (json_int_t)info->stored_bytes,
                      "encode_ns", (json_int_t)info->encode_ns, "linked_bytes",
                      (json_int_t)info->linked_bytes, "link_reason", info->link_reason));
    if (fields != NULL && state >= SIDESTEP_SAVE_STAGED)
        snapshot_policy_report_event(info, fields);
    if (fields != NULL && err != NULL) {
        struct sidestep_error named = *err;
        add_save_name(save, &named);
        (void)json_object_set_new(fields, "message", events_text(named.message));
        (void)json_object_set_new(
            fields, "status", json_string(error_status_name((enum sidestep_status)err->status)));
    }
    events_emit(&save->engine->events, state_events[state], fields);
}

void save_emit_started(struct sidestep_save *save)
{
    emit_state(save, SIDESTEP_SAVE_STAGING, &save->shared.info, NULL);
}

/* Close the storage of a save whose runner has ended, on ranks other than the coordinator.  A rank
 * that knows of the commit no longer needs storage, which may then be unmounted.  While a thread
 * polls, nothing is closed; the thread calls this again afterwards. */
static void close_storage(struct sidestep_save *save)
{
    struct commit handles = {0};

    lock_acquire(&save->shared.lock);
    if (save->shared.state == SIDESTEP_SAVE_COMMITTED && !save->shared.is_polling) {
        handles.dir = TAKE(save->commit.dir);
        handles.files.spare = TAKE(save->commit.files.spare);
        handles.parent = TAKE(save->commit.parent);
    }
    lock_release(&save->shared.lock);
    commit_close(&handles);
}

void save_advance(struct sidestep_save *save, enum sidestep_save_state state,
                  const struct sidestep_error *err)
{
    lock_acquire(&save->shared.lock);
    bool forward = state > save->shared.state && !save_state_is_final(save->shared.state);
    assert(state <= SIDESTEP_SAVE_COMMITTED || (err != NULL && err->status != SIDESTEP_OK));
    if (forward) {
        /* This rank has voted yes, so its shards are durable. */
        assert(state != SIDESTEP_SAVE_COMMITTED || save->shared.state == SIDESTEP_SAVE_WRITTEN);
        save->shared.state = state;
        if (err != NULL)
            save->shared.err = *err;
        lock_wake_all(&save->shared.changed);
    }
    struct sidestep_save_info info = save->shared.info;
    lock_release(&save->shared.lock);
    if (forward)
        emit_state(save, state, &info, err);
    if (state == SIDESTEP_SAVE_COMMITTED && !commit_is_coordinator(&save->commit))
        close_storage(save);
}

enum sidestep_save_state save_get_state(struct sidestep_save *save)
{
    lock_acquire(&save->shared.lock);
    enum sidestep_save_state state = save->shared.state;
    lock_release(&save->shared.lock);
    return state;
}

uint32_t save_get_flags(struct sidestep_save *save)
{
    lock_acquire(&save->shared.lock);
    uint32_t flags = save->shared.info.flags;
    lock_release(&save->shared.lock);
    return flags;
}

/* Read the coordinator's decision from storage once.  ${waited_ns}: since the caller waits. */
static void poll_outcome(struct sidestep_save *save, uint64_t waited_ns)
{
    struct sidestep_error err = {0};

    switch (commit_poll_outcome(&save->commit, &err)) {
    case COMMIT_COMMITTED:
        save_advance(save, SIDESTEP_SAVE_COMMITTED, NULL);
        break;
    case COMMIT_ABORTED:
        save_advance(save, SIDESTEP_SAVE_ABORTED, &err);
        break;
    case COMMIT_UNKNOWN:
        save_advance(save, SIDESTEP_SAVE_UNKNOWN, &err);
        break;
    case COMMIT_UNDECIDED:
        if (waited_ns <= save->commit.request.timeout_ns * TIMEOUT_FACTOR)
            break;
        (void)FAIL(
            &err, SIDESTEP_EUNKNOWN,
            "rank 0 has not decided for %.0f s; verify that path to see whether it holds save "
            "%s, or save again",
            (double)waited_ns / 1e9, save->commit.save_id);
        save_advance(save, SIDESTEP_SAVE_UNKNOWN, &err);
        break;
    }
}

static void timed_wait(struct sidestep_save *save, uint64_t ms) REQUIRES(&save->shared.lock)
{
    (void)lock_wait_until(&save->shared.lock, &save->shared.changed,
                          clock_now(clock_system()) + ms * 1000000);
}

/* Locked: wait once, for a wait that began at ${from_ns}.  Polls storage first, if only the
 * coordinator's decision is missing. */
static void wait_once(struct sidestep_save *save, uint64_t from_ns, uint64_t left_ms)
    REQUIRES(&save->shared.lock)
{
    bool polls = !commit_is_coordinator(&save->commit) && save->shared.runner_ended &&
                 !save->shared.is_polling && save->shared.state == SIDESTEP_SAVE_WRITTEN;

    if (polls) {
        save->shared.is_polling = true;
        lock_release(&save->shared.lock);
        poll_outcome(save, clock_now(save->engine->clock) - from_ns);
        lock_acquire(&save->shared.lock);
        save->shared.is_polling = false;
        lock_wake_all(&save->shared.changed);
        lock_release(&save->shared.lock);
        close_storage(save);
        lock_acquire(&save->shared.lock);
        if (save_state_is_final(save->shared.state))
            return;
    }
    uint64_t waited_ms = (clock_now(save->engine->clock) - from_ns) / 1000000;
    timed_wait(save, min_u64(commit_poll_pause_ms(&save->commit, waited_ms), left_ms));
}

enum sidestep_status sidestep_save_watch(struct sidestep_save *save, enum sidestep_save_state state,
                                         int64_t timeout_ms, struct sidestep_error *err)
{
    if (save == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "save is NULL");
    TRY(engine_check(save->engine, err));
    uint64_t from_ns = clock_now(save->engine->clock);
    enum sidestep_status status = SIDESTEP_OK;

    lock_acquire(&save->shared.lock);
    while (save->shared.state < state && !save_state_is_final(save->shared.state)) {
        uint64_t waited = (clock_now(save->engine->clock) - from_ns) / 1000000;
        if (timeout_ms >= 0 && waited >= (uint64_t)timeout_ms) {
            status =
                FAIL(err, SIDESTEP_ETIMEDOUT, "save '%s' is %s after %lld ms", save->commit.path,
                     state_events[save->shared.state], (long long)timeout_ms);
            break;
        }
        wait_once(save, from_ns, timeout_ms < 0 ? WAIT_SLICE_MS : (uint64_t)timeout_ms - waited);
    }
    if (save->shared.state > SIDESTEP_SAVE_COMMITTED && save->shared.state != state) {
        save->shared.is_reported = true;
        status = report_end(save, err);
    }
    lock_release(&save->shared.lock);
    return status;
}

enum sidestep_status sidestep_save_wait(struct sidestep_save *save, enum sidestep_save_state state,
                                        int64_t timeout_ms, struct sidestep_error *err)
{
    if (save == NULL || engine_check(save->engine, NULL) != SIDESTEP_OK)
        return sidestep_save_watch(save, state, timeout_ms, err);
    throttle_wait_begin(&save->engine->throttle);
    enum sidestep_status status = sidestep_save_watch(save, state, timeout_ms, err);
    throttle_wait_end(&save->engine->throttle);
    return status;
}

void sidestep_save_cancel(struct sidestep_save *save)
{
    struct sidestep_error why = {0};

    if (save == NULL || engine_check(save->engine, NULL) != SIDESTEP_OK)
        return;
    lock_acquire(&save->shared.lock);
    bool runs = !save->shared.runner_ended;
    save->shared.is_reported = save->shared.is_reported || runs; /* the program cancelled it */
    lock_release(&save->shared.lock);
    if (!runs)
        return;
    atomic_store(&save->cancelled, true);
    (void)commit_check_cancelled(&save->commit, &why);
    pipeline_fail(&save->pipeline, &why);
    sidestep_save_hurry(save);
}

enum sidestep_status sidestep_save_poll(struct sidestep_save *save, struct sidestep_save_info *info)
{
    if (save == NULL || info == NULL || info->struct_size < sizeof(size_t) ||
        save->engine->pid != getpid())
        return SIDESTEP_EINVAL;
    size_t size = info->struct_size;
    lock_acquire(&save->shared.lock);
    struct sidestep_save_info now = save->shared.info;
    now.state = save->shared.state;
    lock_release(&save->shared.lock);
    if (save->pipeline.slots != NULL)
        pipeline_get_progress(&save->pipeline, &now.bytes_staged, &now.bytes_written);
    if (now.state >= SIDESTEP_SAVE_WRITTEN && now.state <= SIDESTEP_SAVE_COMMITTED)
        now.bytes_written = now.bytes_total; /* includes the footer */
    memcpy(now.save_id, save->commit.save_id, sizeof(save->commit.save_id));
    now.struct_size = size;
    memcpy(info, &now, size < sizeof(now) ? size : sizeof(now));
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_save_finish(struct sidestep_save **out,
                                          struct sidestep_save_info *info,
                                          struct sidestep_error *err)
{
    struct sidestep_save *save = out != NULL ? *out : NULL;

    if (save == NULL)
        return SIDESTEP_OK;
    TRY(engine_check(save->engine, err));
    *out = NULL;
    enum sidestep_status status = sidestep_save_wait(save, SIDESTEP_SAVE_COMMITTED, -1, err);
    if (info != NULL && status == SIDESTEP_OK)
        status = sidestep_save_poll(save, info);
    else if (info != NULL)
        (void)sidestep_save_poll(save, info);
    save_release(save);
    return status;
}

enum sidestep_status save_take_unreported_error(struct sidestep_save *save,
                                                struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    lock_acquire(&save->shared.lock);
    if (save->shared.state > SIDESTEP_SAVE_COMMITTED && !save->shared.is_reported) {
        save->shared.is_reported = true;
        status = report_end(save, err);
    }
    lock_release(&save->shared.lock);
    return WRAP(status, err, "the save before this one failed");
}

void save_mark_reported(struct sidestep_save *save)
{
    lock_acquire(&save->shared.lock);
    save->shared.is_reported = true;
    lock_release(&save->shared.lock);
}
