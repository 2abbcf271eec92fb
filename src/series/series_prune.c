/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_prune.c -- deletes a series' old checkpoints, on a thread of rank 0.
 *
 * The thread waits for each save and then runs selection/prune.h.  After a crash, the next opening
 * and the next commit remove what is left.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "catalog/catalog.h"
#include "selection/selection.h"
#include "series/series.h"

/* Rank 0: may this incarnation delete anything now?  ELOCKED with the reason if not. */
static enum sidestep_status check_can_delete(struct sidestep_series *series,
                                             struct sidestep_error *err)
{
    lock_acquire(&series->shared.lock);
    bool has_committed = series->shared.has_committed, has_unknown = series->shared.has_unknown;
    lock_release(&series->shared.lock);
    if (has_unknown)
        return FAIL(err, SIDESTEP_ELOCKED, "the outcome of a save is unknown");
    if (!has_committed)
        return FAIL(err, SIDESTEP_ELOCKED,
                    "this run has committed nothing yet since it opened the series, and deletes "
                    "nothing before its first commit");
    return lease_check(&series->lease, err);
}

/* ---- callbacks of prune_run() ---- */

static enum sidestep_status may_delete(void *context, struct sidestep_error *err)
{
    return check_can_delete(context, err);
}

/* False while a save of this name is pending: what is visible may not be durable yet. */
static bool is_settled(void *context, const struct sidestep_listed *entry)
{
    struct sidestep_series *series = context;

    lock_acquire(&series->shared.lock);
    bool is_unsettled = series_is_pending(series, entry->name);
    lock_release(&series->shared.lock);
    return !is_unsettled;
}

static bool claim(void *context, const struct sidestep_listed *entry)
{
    struct sidestep_series *series = context;

    lock_acquire(&series->shared.lock);
    bool is_busy = series_is_pending(series, entry->name);
    if (!is_busy)
        snprintf(series->shared.deleting, FILE_NAME_BYTES, "%s", entry->name);
    lock_release(&series->shared.lock);
    return !is_busy;
}

static void unclaim(void *context)
{
    struct sidestep_series *series = context;

    lock_acquire(&series->shared.lock);
    series->shared.deleting[0] = '\0';
    lock_wake_all(&series->shared.changed);
    lock_release(&series->shared.lock);
}

static void emit_deleted(void *context, const struct sidestep_listed *entry, uint64_t bytes)
{
    struct sidestep_series *series = context;

    events_emit(&series->engine->events, "deleted",
                json_pack("{s:o, s:I, s:I}", "path", events_text(entry->path), "step",
                          (json_int_t)entry->step, "bytes", (json_int_t)bytes));
}

static void emit_failed(struct sidestep_series *series, const struct sidestep_error *why)
{
    events_emit(&series->engine->events, "delete_failed",
                json_pack("{s:o, s:o}", "path", events_text(series->root), "message",
                          events_text(why->message)));
}

/* Deletions add up in the report until the caller takes it.  What is kept is as of the last run. */
static enum sidestep_status prune(struct sidestep_series *series, const struct retention *retention,
                                  struct sidestep_error *err) REQUIRES(&series->prune_lock)
{
    if (series->prune_report == NULL)
        series->prune_report = gc_report_new(series->root);
    if (series->prune_report != NULL)
        series->prune_report->kept_count = 0;
    struct prune prune = {.store = series->store,
                          .path = series->root,
                          .root = series->lease.root,
                          .annotations_dir = series->lease.dir,
                          .retention = retention,
                          .naming = &series->naming,
                          .run_id = series->run_id,
                          .is_whole = series_has_parts(series) ? series_is_whole : NULL,
                          .is_settled = is_settled,
                          .may_delete = may_delete,
                          /* To make room is worth more than the mirror. */
                          .needs = retention == &series->retention ? series_mirror_needs : NULL,
                          .claim = claim,
                          .unclaim = unclaim,
                          .deleted = emit_deleted,
                          .context = series,
                          .report = series->prune_report};
    enum sidestep_status status = prune_run(&prune, err);
    if (prune.failure.status != SIDESTEP_OK)
        emit_failed(series, &prune.failure);
    return status;
}

enum sidestep_status sidestep_series_prune(struct sidestep_series *series,
                                           struct sidestep_gc_report *report,
                                           struct sidestep_error *err)
{
    TRY(series_check(series, err));
    if (report == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "report is NULL");
    *report = (struct sidestep_gc_report){0};
    if (!series_leads(series))
        return SIDESTEP_OK;
    series_record_outcomes(series); /* the thread may not have recorded them yet */
    lock_acquire(&series->prune_lock);
    enum sidestep_status status = prune(series, &series->retention, err);
    struct gc_report *prune_report = TAKE(series->prune_report);
    lock_release(&series->prune_lock);
    if (status != SIDESTEP_OK)
        gc_report_free(prune_report);
    else if (prune_report == NULL)
        status = FAIL_NOMEM(err, sizeof(*prune_report));
    else
        status = gc_report_finish(prune_report, report, err);
    return WRAP(status, err, "prune '%s'", series->root);
}

/* ---- delete one step ---- */

static enum sidestep_status may_delete_step(struct sidestep_series *series, const char *name,
                                            uint64_t step, struct sidestep_error *err)
{
    char rejected[SERIES_REJECTED_BYTES] = "";
    uint64_t newest = 0;

    if (series_find_in_flight(series, NULL) != NULL)
        return FAIL(err, SIDESTEP_ELOCKED, "a save is in flight");
    series_record_outcomes(series);
    TRY(check_can_delete(series, err));
    TRY(series_choose(series, SIDESTEP_VERIFY_STRUCTURE, &newest, rejected, err));
    if (newest == step)
        return FAIL(err, SIDESTEP_ELOCKED, "it is the newest valid checkpoint");
    if (annotations_may_exist(series->lease.dir, ANNOTATION_PIN, name))
        return FAIL(err, SIDESTEP_ELOCKED, "it is pinned");
    return lease_check(&series->lease, err);
}

static enum sidestep_status delete_step(struct sidestep_series *series, const char *name,
                                        uint64_t step, struct sidestep_error *err)
{
    struct store_stat stat;

    TRY(store_stat(series->lease.root, name, &stat, err));
    TRY(may_delete_step(series, name, step, err));
    return prune_delete(series->lease.root, series->lease.dir, name, NULL, NULL, err);
}

enum sidestep_status sidestep_series_delete(struct sidestep_series *series, uint64_t step,
                                            struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;
    char name[FILE_NAME_BYTES];

    TRY(series_check(series, err));
    name_template_format_name(&series->naming, step, name);
    if (series_has_parts(series))
        return FAIL(
            err, SIDESTEP_EUNSUPPORTED,
            "delete '%s/%s': it is made of parts in the directories of several nodes, which "
            "only retention deletes",
            series->root, name);
    if (series->engine->comm.rank == 0) {
        lock_acquire(&series->prune_lock);
        status = delete_step(series, name, step, err);
        lock_release(&series->prune_lock);
    }
    status = comm_agree_all(&series->engine->comm, status, err);
    return WRAP(status, err, "delete '%s/%s'", series->root, name);
}

/* ---- the thread ---- */

/* Wait until ${save} has ended.  True: it is committed. */
static bool wait_until_ended(struct sidestep_series *series, struct sidestep_save *save)
{
    turn_await(save);
    series_record_outcome(series, save);
    return save_get_state(save) == SIDESTEP_SAVE_COMMITTED;
}

/* Take the oldest save to wait for; NULL: none. */
static struct sidestep_save *take_awaited(struct sidestep_series *series)
    REQUIRES(&series->shared.lock)
{
    struct sidestep_save **awaited = series->shared.awaited, *oldest = awaited[0];

    if (series->shared.awaited_count == 0)
        return NULL;
    series->shared.awaited_count--;
    memmove(awaited, awaited + 1, series->shared.awaited_count * sizeof(awaited[0]));
    return oldest;
}

void series_prune_once(struct sidestep_series *series)
{
    if (!series->retention.wanted)
        return;
    lock_acquire(&series->prune_lock);
    (void)prune(series, &series->retention, NULL); /* the next save tries again */
    lock_release(&series->prune_lock);
}

static void *pruner_main(void *argument)
{
    struct sidestep_series *series = argument;

    lock_acquire(&series->shared.lock);
    for (;;) {
        while (series->shared.awaited_count == 0 && !series->shared.stop)
            lock_wait(&series->shared.lock, &series->shared.changed);
        struct sidestep_save *save = take_awaited(series);
        if (save == NULL)
            break;
        lock_release(&series->shared.lock);
        bool committed = wait_until_ended(series, save);
        save_release(save);
        if (committed)
            series_prune_once(series);
        lock_acquire(&series->shared.lock);
    }
    lock_release(&series->shared.lock);
    return NULL;
}

enum sidestep_status series_start_pruner(struct sidestep_series *series, struct sidestep_error *err)
{
    if (!series->retention.wanted)
        return SIDESTEP_OK;
    assert(!series->has_pruner && series_leads(series));
    TRY(thread_start(&series->pruner, "sidestep-prune", pruner_main, series, err));
    series->has_pruner = true;
    return SIDESTEP_OK;
}

void series_notify_pruner(struct sidestep_series *series, struct sidestep_save *save)
{
    if (!series->has_pruner)
        return;
    save_retain(save);
    lock_acquire(&series->shared.lock);
    struct sidestep_save *before = NULL;
    if (series->shared.awaited_count != 0 && turn_has_ended(series->shared.awaited[0])) {
        before = take_awaited(series); /* to prune after the next one is enough */
        series_record_outcome_locked(series, before);
    }
    assert(series->shared.awaited_count < ARRAY_LENGTH(series->shared.awaited));
    series->shared.awaited[series->shared.awaited_count++] = save;
    lock_wake_all(&series->shared.changed);
    lock_release(&series->shared.lock);
    if (before != NULL)
        save_release(before);
}

void series_stop_pruner(struct sidestep_series *series)
{
    if (!series->has_pruner)
        return;
    lock_acquire(&series->shared.lock);
    series->shared.stop = true;
    lock_wake_all(&series->shared.changed);
    lock_release(&series->shared.lock);
    pthread_join(series->pruner, NULL);
    series->has_pruner = false;
}

/* ---- space ---- */

static enum sidestep_status measure_space(struct sidestep_series *series, uint64_t needed,
                                          bool *has, uint64_t *left, struct sidestep_error *err)
{
    struct store_traits traits = {0};

    TRY(store_dir_traits(series->lease.root, &traits, err));
    *left = traits.free_bytes;
    *has = !traits.has_free_bytes || traits.free_bytes >= needed;
    return SIDESTEP_OK;
}

/* The number of saves that have not allocated their space yet, because another one writes. */
static unsigned count_waiting(const struct sidestep_series *series)
{
    unsigned count = 0;

    for (unsigned i = 0; i < series->save_count; i++)
        count += !turn_has_ended(series->saves[i]);
    return count > 1 ? count - 1 : 0;
}

enum sidestep_status series_check_space(struct sidestep_series *series, struct sidestep_error *err)
{
    static const struct retention only_newest = {.wanted = true};
    struct sidestep_error why = {0};
    char usage[SPACE_REPORT_BYTES] = "";
    bool has = true;
    uint64_t left = 0;

    if (!series_should_check_space(series))
        return SIDESTEP_OK;
    lock_acquire(&series->shared.lock);
    uint64_t needed = series->shared.newest_bytes;
    lock_release(&series->shared.lock);
    needed += needed * count_waiting(series);
    TRY(measure_space(series, needed, &has, &left, err));
    if (!has && (series->flags & SIDESTEP_SERIES_MAKE_ROOM) != 0) {
        lock_acquire(&series->prune_lock);
        (void)prune(series, &only_newest, &why); /* the freed space is measured below */
        lock_release(&series->prune_lock);
        TRY(measure_space(series, needed, &has, &left, err));
    }
    if (has)
        return SIDESTEP_OK;
    if ((series->flags & SIDESTEP_SERIES_MAKE_ROOM) == 0)
        space_describe(series->lease.root, series->root, series->run_id, usage);
    return FAIL(err, SIDESTEP_ENOSPC,
                "the newest checkpoint takes %s, and '%s' has %s left%s%.400s%s",
                display_bytes(needed).text, series->root, display_bytes(left).text,
                why.message[0] != '\0' ? "; nothing could be deleted: " : "", why.message, usage);
}
