/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_prune.c -- a series deletes its own old checkpoints: rank 0, in a thread that awaits each
 * save and then does what prune.h does.  A crash leaves what the next opening and the next commit
 * clear away.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "base/thread.h"
#include "engine/list.h"
#include "engine/series.h"

/* ---- what prune_run() asks ---- */

static enum sidestep_status may_delete(void *context, struct sidestep_error *err)
{
    struct sidestep_series *series = context;

    pthread_mutex_lock(&series->shared.lock);
    bool may = series->shared.has_committed && !series->shared.has_unknown;
    pthread_mutex_unlock(&series->shared.lock);
    if (!may)
        return FAIL(err, SIDESTEP_ELOCKED,
                    "nothing was committed yet, or the outcome of a save is unknown");
    return lease_check(&series->lease, err);
}

static bool claim(void *context, const struct sidestep_listed *entry)
{
    struct sidestep_series *series = context;
    bool is_busy = false;

    pthread_mutex_lock(&series->shared.lock);
    for (int i = 0; i < 2; i++)
        is_busy |= entry->is_abandoned && strcmp(series->shared.saving[i].name, entry->name) == 0;
    if (!is_busy)
        snprintf(series->shared.deleting, NAMES_MAX, "%s", entry->name);
    pthread_mutex_unlock(&series->shared.lock);
    return !is_busy;
}

static void unclaim(void *context)
{
    struct sidestep_series *series = context;

    pthread_mutex_lock(&series->shared.lock);
    series->shared.deleting[0] = '\0';
    pthread_cond_broadcast(&series->shared.changed);
    pthread_mutex_unlock(&series->shared.lock);
}

static void tell_deleted(void *context, const struct sidestep_listed *entry, uint64_t bytes)
{
    struct sidestep_series *series = context;

    events_emit(&series->engine->events, "deleted",
                json_pack("{s:s, s:I, s:I}", "path", entry->path, "step", (json_int_t)entry->step,
                          "bytes", (json_int_t)bytes));
}

/* prune_lock is held.  What is kept is not news: only the last look counts. */
static enum sidestep_status prune(struct sidestep_series *series, const struct retention *retention,
                                  struct sidestep_error *err)
{
    if (series->went == NULL)
        series->went = collecting_new(series->root);
    if (series->went != NULL)
        series->went->kept_count = 0;
    struct prune prune = {.store = series->engine->store,
                          .path = series->root,
                          .root = series->lease.root,
                          .marks = series->lease.dir,
                          .retention = retention,
                          .prefix = series->prefix,
                          .run_id = series->run_id,
                          .may_delete = may_delete,
                          .claim = claim,
                          .unclaim = unclaim,
                          .deleted = tell_deleted,
                          .context = series,
                          .report = series->went};
    enum sidestep_status status = prune_run(&prune, err);
    pthread_mutex_lock(&series->shared.lock);
    if (prune.newest_bytes != 0)
        series->shared.newest_bytes = prune.newest_bytes;
    pthread_mutex_unlock(&series->shared.lock);
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
    if (series->engine->comm.rank != 0)
        return SIDESTEP_OK;
    pthread_mutex_lock(&series->prune_lock);
    enum sidestep_status status = prune(series, &series->retention, err);
    struct collecting *went = TAKE(series->went);
    pthread_mutex_unlock(&series->prune_lock);
    if (status != SIDESTEP_OK)
        collecting_free(went);
    else if (went == NULL)
        status = FAIL_NOMEM(err, sizeof(*went));
    else
        status = collecting_report(went, report, err);
    if (status != SIDESTEP_OK)
        error_wrap(err, "prune '%s'", series->root);
    return status;
}

/* ---- the thread ---- */

/* Until it has ended; true: it is committed. */
static bool await(struct sidestep_series *series, struct sidestep_save *save)
{
    pthread_mutex_lock(&save->shared.lock);
    while (!save->shared.ran)
        pthread_cond_wait(&save->shared.changed, &save->shared.lock);
    enum sidestep_save_state state = save->shared.state;
    pthread_mutex_unlock(&save->shared.lock);
    pthread_mutex_lock(&series->shared.lock);
    series->shared.has_committed |= state == SIDESTEP_SAVE_COMMITTED;
    series->shared.has_unknown |= state == SIDESTEP_SAVE_UNKNOWN;
    pthread_mutex_unlock(&series->shared.lock);
    return state == SIDESTEP_SAVE_COMMITTED;
}

static void *pruner_main(void *argument)
{
    struct sidestep_series *series = argument;

    pthread_mutex_lock(&series->shared.lock);
    for (;;) {
        while (series->shared.awaited == NULL && !series->shared.stop)
            pthread_cond_wait(&series->shared.changed, &series->shared.lock);
        struct sidestep_save *save = TAKE(series->shared.awaited);
        if (save == NULL)
            break;
        pthread_mutex_unlock(&series->shared.lock);
        bool committed = await(series, save);
        save_release(save);
        if (committed) {
            pthread_mutex_lock(&series->prune_lock);
            (void)prune(series, &series->retention, NULL); /* again after the next save */
            pthread_mutex_unlock(&series->prune_lock);
        }
        pthread_mutex_lock(&series->shared.lock);
    }
    pthread_mutex_unlock(&series->shared.lock);
    return NULL;
}

enum sidestep_status series_start_pruner(struct sidestep_series *series, struct sidestep_error *err)
{
    if (!series->retention.wanted)
        return SIDESTEP_OK;
    TRY(thread_start(&series->pruner, "sidestep-prune", pruner_main, series, err));
    series->has_pruner = true;
    return SIDESTEP_OK;
}

void series_wake_pruner(struct sidestep_series *series, struct sidestep_save *save)
{
    if (!series->has_pruner)
        return;
    save_retain(save);
    pthread_mutex_lock(&series->shared.lock);
    struct sidestep_save *before =
        series->shared.awaited; /* it has ended, or this would not start */
    series->shared.awaited = save;
    pthread_cond_broadcast(&series->shared.changed);
    pthread_mutex_unlock(&series->shared.lock);
    if (before != NULL)
        save_release(before);
}

void series_stop_pruner(struct sidestep_series *series)
{
    if (!series->has_pruner)
        return;
    pthread_mutex_lock(&series->shared.lock);
    series->shared.stop = true;
    pthread_cond_broadcast(&series->shared.changed);
    pthread_mutex_unlock(&series->shared.lock);
    pthread_join(series->pruner, NULL);
    series->has_pruner = false;
}

/* ---- space ---- */

static enum sidestep_status has_space(struct sidestep_series *series, uint64_t needed, bool *has,
                                      uint64_t *left, struct sidestep_error *err)
{
    struct store_traits traits = {0};

    TRY(store_dir_traits(series->lease.root, &traits, err));
    *left = traits.free_bytes;
    *has = !traits.has_free_bytes || traits.free_bytes >= needed;
    return SIDESTEP_OK;
}

enum sidestep_status series_check_space(struct sidestep_series *series, struct sidestep_error *err)
{
    static const struct retention only_newest = {.wanted = true};
    bool has = true;
    uint64_t left = 0;

    if ((series->flags & (SIDESTEP_SERIES_CHECK_SPACE | SIDESTEP_SERIES_MAKE_ROOM)) == 0)
        return SIDESTEP_OK;
    pthread_mutex_lock(&series->shared.lock);
    uint64_t needed = series->shared.newest_bytes;
    pthread_mutex_unlock(&series->shared.lock);
    TRY(has_space(series, needed, &has, &left, err));
    if (!has && (series->flags & SIDESTEP_SERIES_MAKE_ROOM) != 0) {
        pthread_mutex_lock(&series->prune_lock);
        (void)prune(series, &only_newest, NULL); /* what it has freed is measured below */
        pthread_mutex_unlock(&series->prune_lock);
        TRY(has_space(series, needed, &has, &left, err));
    }
    if (has)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ENOSPC,
                "the newest checkpoint takes %llu bytes, and '%s' has %llu left",
                (unsigned long long)needed, series->root, (unsigned long long)left);
}
