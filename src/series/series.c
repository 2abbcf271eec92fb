/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series.c -- opens, closes and saves a series: the checkpoints of one run under a root.
 *
 * Rank 0 owns the lease and decides; one small broadcast tells the other ranks.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/base.h"
#include "commit/commit.h"
#include "catalog/catalog.h"
#include "load/load.h"
#include "object/object.h"
#include "series/series.h"
#include "verify/verify.h"

_Static_assert(sizeof(struct sidestep_series_options) == 96, "a field was added: apply it below");

#define SERIES_KNOWN_FLAGS                                                                         \
    (SIDESTEP_SERIES_REQUESTS | SIDESTEP_SERIES_SKIP_BUSY | SIDESTEP_SERIES_ANY_RUN |              \
     SIDESTEP_SERIES_CHECK_SPACE | SIDESTEP_SERIES_MAKE_ROOM | SIDESTEP_SERIES_INCREMENTAL |       \
     SIDESTEP_SERIES_PER_NODE)

/* Record how saves have ended.  After the first commit, no restart from the loaded checkpoint has
 * failed. */
static void record_outcomes(struct sidestep_series *series)
{
    series_record_outcomes(series);
    lock_acquire(&series->shared.lock);
    bool has_committed = series->shared.has_committed;
    lock_release(&series->shared.lock);
    if (!has_committed || series->has_progressed || series->lease.dir == NULL)
        return;
    series->has_progressed = true;
    series_reset_restarts(series);
}

/* ---- open and close ---- */

static enum sidestep_status set_schedule(struct sidestep_series *series,
                                         const struct sidestep_series_options *options,
                                         struct sidestep_error *err)
{
    const uint64_t max_ms = INT64_MAX / 1000000;
    uint64_t check_ms = options->check_ms != 0 ? options->check_ms : SCHEDULE_DEFAULT_CHECK_MS;

    if (options->interval_ms > max_ms || check_ms > max_ms || options->mtbf_ms > max_ms ||
        !(options->max_lost >= 0 && options->max_lost < 1))
        return FAIL(err, SIDESTEP_EINVAL,
                    "series options: a time is too long, or max_lost is not between 0 and 1");
    series->due =
        (struct schedule){.interval_steps = options->interval_steps,
                          .interval_ns = options->interval_ms * 1000000,
                          .check_ns = check_ms * 1000000,
                          .mtbf_ns = options->mtbf_ms * 1000000,
                          .max_lost = options->max_lost,
                          .listens = (options->flags & SIDESTEP_SERIES_REQUESTS) != 0,
                          .skips_busy = (options->flags & SIDESTEP_SERIES_SKIP_BUSY) != 0};
    return SIDESTEP_OK;
}

static enum sidestep_status set_naming(struct sidestep_series *series,
                                       const struct sidestep_series_options *options,
                                       struct sidestep_error *err)
{
    if (options->name == NULL)
        return name_template_from_prefix(options->prefix != NULL ? options->prefix : "step-",
                                         &series->naming, err);
    if (options->prefix != NULL)
        return FAIL(err, SIDESTEP_EINVAL,
                    "series options: prefix and name are both given; give only one");
    return name_template_from_text(options->name, &series->naming, err);
}

static enum sidestep_status set_options(struct sidestep_series *series, const char *root,
                                        const struct sidestep_series_options *theirs,
                                        struct sidestep_error *err)
{
    struct sidestep_series_options options;

    TRY(options_copy(&options, sizeof(options), theirs, "series options", err));
    if ((options.flags & ~SERIES_KNOWN_FLAGS) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "series options: unknown flags 0x%x",
                    options.flags);
    TRY(retention_copy(&series->retention, options.retention, err));
    TRY(set_schedule(series, &options, err));
    series->flags = options.flags;
    series->max_restarts = options.max_restarts;
    if (root == NULL || strlen(root) + NAME_TEMPLATE_MAX_NAME + sizeof("/") > sizeof(series->root))
        return FAIL(err, SIDESTEP_EINVAL, "root is NULL or too long");
    TRY(set_naming(series, &options, err));
    snprintf(series->root, sizeof(series->root), "%.*s", (int)object_url_trimmed(root), root);
    return SIDESTEP_OK;
}

struct sidestep_series *series_shut_down(struct sidestep_series *series)
{
    struct sidestep_series *next = series->next;

    if (series->save_count != 0)
        turn_join(series->saves[0]); /* earlier ones end before it; they need our guard */
    record_outcomes(series);
    series_end_view(series);
    series_stop_pruner(series);
    if (series->mirror != NULL && series_has_parts(series))
        series->mirror->gives_up = true;
    (void)series_stop_mirror(series, NULL);
    while (series->save_count != 0) /* the thread of the mirror looks at them */
        save_release(series->saves[--series->save_count]);
    if (series->lease.dir != NULL)
        series_reset_restarts(series); /* a restart that was closed has not failed */
    lock_alone(&series->prune_lock);
    gc_report_free(TAKE(series->prune_report));
    series_free_annotations(series);
    series_end_events(series);
    lease_release(&series->lease);
    assert(!series->is_shut && !series->has_pruner);
    series->next = NULL;
    series->is_shut = true;
    return next;
}

static void series_free(struct sidestep_series *series)
{
    struct sidestep_series **at = &series->engine->series;

    while (*at != NULL && *at != series)
        at = &(*at)->next;
    if (*at != NULL)
        *at = series_shut_down(series);
    engine_release(series->engine);
    sight_groups_release(&series->groups);
    lock_alone(&series->shared.lock);
    name_list_release(&series->shared.whole);
    name_list_release(&series->shared.settled);
    series_free_mirror(series);
    lock_condition_destroy(&series->shared.changed);
    lock_destroy(&series->shared.lock);
    lock_destroy(&series->prune_lock);
    free(series);
}

/* Check that all ranks see the lease of rank 0. */
static enum sidestep_status check_lease_visible_all(struct sidestep_series *series,
                                                    struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    struct store *store = NULL;
    bool sees = true;

    if (comm->size == 1)
        return SIDESTEP_OK;
    enum sidestep_status mine = engine_find_store(series->engine, series->root, &store, err);
    TRY(comm_agree_all(comm, mine, err));
    if (comm->rank != 0)
        sees = lease_is_visible(store, series->engine->clock, series->root, series->run_id,
                                series->incarnation, SIGHT_WAIT_NS);
    return sight_agree_all(comm, sees, series->root, err);
}

/* Check that the settings that decide when to save are the same on all ranks.  Otherwise one rank
 * would wait for the others forever. */
static enum sidestep_status check_settings_all(struct sidestep_series *series,
                                               struct sidestep_error *err)
{
    const struct schedule *due = &series->due;
    struct agreed_settings {
        uint64_t root, mirror, naming, flags, interval_steps, interval_ns, check_ns, mtbf_ns;
        double max_lost;
    } mine = {.flags = series->flags,
              .interval_steps = due->interval_steps,
              .interval_ns = due->interval_ns,
              .check_ns = due->check_ns,
              .mtbf_ns = due->mtbf_ns,
              .max_lost = due->max_lost};
    char template[NAME_TEMPLATE_MAX_BYTES + 1];

    name_template_to_text(&series->naming, template);
    if ((series->flags & SIDESTEP_SERIES_PER_NODE) == 0)
        mine.root = XXH3_64bits(series->root, strlen(series->root));
    else if (series->mirror != NULL)
        mine.mirror = XXH3_64bits(series->mirror->root, strlen(series->mirror->root));
    mine.naming = XXH3_64bits(template, strlen(template));
    uint64_t digest = XXH3_64bits(&mine, sizeof(mine)), words[] = {digest, ~digest};
    TRY(comm_reduce_max_all(&series->engine->comm, words, ARRAY_LENGTH(words), err));
    if (words[0] == ~words[1])
        return SIDESTEP_OK;
    return FAIL(
        err, SIDESTEP_EDISAGREE,
        "the ranks do not open the same series: root, prefix or name, flags, intervals, check_ms, "
        "mtbf_ms, max_lost, and with PER_NODE the mirror must be equal");
}

static enum sidestep_status open_all(struct sidestep_series *series, const char *root,
                                     const struct sidestep_series_options *options,
                                     struct sidestep_error *err)
{
    static const struct lease_elsewhere unknown;
    struct comm *comm = &series->engine->comm;
    enum sidestep_status status = set_options(series, root, options, err);
    bool per_node = (series->flags & SIDESTEP_SERIES_PER_NODE) != 0;

    if (status == SIDESTEP_OK && (comm->rank == 0 || per_node))
        status = series_set_mirror(series, options, err);
    series->has_mirror = series->mirror != NULL;
    if (status == SIDESTEP_OK && comm->rank == 0 && !per_node)
        status = series_open_lease(series, &unknown, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(series_share_identity_all(series, err));
    TRY(check_settings_all(series, err));
    if (per_node)
        TRY(series_open_parts_all(series, err));
    if (!series_has_parts(series))
        TRY(check_lease_visible_all(series, err));
    series_begin_events(series);
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_series_open(struct sidestep_engine *engine, const char *root,
                                          const struct sidestep_series_options *options,
                                          struct sidestep_series **out, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};

    TRY(engine_check(engine, err));
    if (out == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "series is NULL");
    *out = NULL;
    struct sidestep_series *series = memory_new(1, sizeof(*series));
    enum sidestep_status status = series != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, sizeof(*series));
    status = comm_agree_all(&engine->comm, status, err);
    if (status != SIDESTEP_OK) {
        free(series);
        return status;
    }
    lock_init(&series->shared.lock, LOCK_SERIES);
    lock_init(&series->prune_lock, LOCK_PRUNE);
    lock_condition_init(&series->shared.changed);
    lock_alone(&series->shared.lock);
    engine_retain(engine);
    series->engine = engine;
    series->next = engine->series;
    engine->series = series;
    status = open_all(series, root, options, &why);
    if (status != SIDESTEP_OK) {
        series_free(series);
        error_wrap(&why, "open series '%s'", root != NULL ? root : "");
        error_copy(err, &why);
        return status;
    }
    *out = series;
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_series_close(struct sidestep_series **out, struct sidestep_error *err)
{
    struct sidestep_series *series = out != NULL ? *out : NULL;

    THREAD_IS(CALLER);
    if (series == NULL)
        return SIDESTEP_OK;
    TRY(engine_check(series->engine, err));
    *out = NULL;
    enum sidestep_status status = SIDESTEP_OK;
    if (series->save_count != 0 && turn_contains(&series->engine->saver->turns, series->saves[0]))
        status = turn_drain_all(series->engine, err);
    if (series_has_parts(series) && !series->is_shut) { /* what the last save was may go now */
        series_take_whole(series);
        series_record_outcomes(series);
        if (series_leads(series))
            series_prune_once(series);
    }
    if (!series->is_shut) {
        struct sidestep_error *where = status == SIDESTEP_OK ? err : NULL;
        enum sidestep_status sent = series_has_parts(series) ? series_stop_mirror_all(series, where)
                                                             : series_stop_mirror(series, where);
        status = status == SIDESTEP_OK ? sent : status;
    }
    series_free(series);
    return status;
}

/* ---- save ---- */

/* The time that a save, which has ended, was under way. */
static uint64_t get_duration_ns(struct sidestep_save *save)
{
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;

    (void)sidestep_save_poll(save, &info);
    return info.stage_ns + info.write_ns + info.commit_ns;
}

/* The time that the trainer spent in the call of a save, without allocating the pool, which happens
 * once. */
static uint64_t get_cost_ns(struct sidestep_save *save)
{
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;

    (void)sidestep_save_poll(save, &info);
    return info.call_ns > info.pool_ns ? info.call_ns - info.pool_ns : 0;
}

/* Release the saves that have ended, except the newest.  Returns how long the last of them was
 * under way; 0: none. */
static uint64_t release_ended(struct sidestep_series *series)
{
    uint64_t busy_ns = 0;

    while (series->save_count > 1) {
        struct sidestep_save *oldest = series->saves[series->save_count - 1];
        if (!turn_has_ended(oldest))
            break;
        series_record_outcome(series, oldest);
        busy_ns = get_duration_ns(oldest);
        series_pending_remove(series, oldest);
        lock_acquire(&series->shared.lock);
        series->save_count--;
        lock_release(&series->shared.lock);
        save_release(oldest);
    }
    return busy_ns;
}

static void add_save(struct sidestep_series *series, struct sidestep_save *save)
{
    assert(series->save_count < ARRAY_LENGTH(series->saves));
    save_retain(save);
    lock_acquire(&series->shared.lock);
    memmove(series->saves + 1, series->saves, series->save_count * sizeof(series->saves[0]));
    series->saves[0] = save;
    series->save_count++;
    lock_release(&series->shared.lock);
}

/* Fail this save, because one of the same name is under way and the caller does not want to wait.
 */
static void fail_busy(const struct sidestep_save *same, struct sidestep_save_options *options,
                      struct sidestep_error *why)
{
    if (options->failure != NULL)
        return;
    (void)FAIL(why, SIDESTEP_EBUSY, "the save of '%s' is still being written", same->commit.path);
    options->failure = why;
}

/* Rank 0, before a save: handle annotations, check whether the save may replace what exists, and
 * check space.  Returns whether series_pending_add() was called. */
static bool prepare_save(struct sidestep_series *series, const char *name,
                         struct sidestep_save_options *options, struct sidestep_error *why)
{
    struct sidestep_save *same = series_find_in_flight(series, name);

    if (same != NULL && (options->flags & SIDESTEP_SAVE_NOWAIT) != 0) {
        fail_busy(same, options, why);
        return false;
    }
    if (same != NULL)
        turn_join(same); /* it still uses the entry of its name */
    series_pending_add(series, name);
    record_outcomes(series); /* what may be deleted depends on how earlier saves ended */
    if (options->failure != NULL)
        return true;
    if (series_can_replace(series, name)) {
        /* A part is never replaced in place. */
        if (series_has_parts(series) &&
            prune_make_way(series->lease.root, series->lease.dir, name, why) != SIDESTEP_OK)
            options->failure = why;
    } else {
        options->flags |= SIDESTEP_SAVE_NO_REPLACE;
        if (series_check_free(series, name, why) != SIDESTEP_OK)
            options->failure = why;
    }
    if (options->failure == NULL && series_check_space(series, why) != SIDESTEP_OK)
        options->failure = why;
    return true;
}

static enum sidestep_status start_all(struct sidestep_series *series, uint64_t step,
                                      const struct sidestep_state_dict *state,
                                      const struct sidestep_save_options *theirs, bool blocking,
                                      struct sidestep_save **save, struct sidestep_error *err)
{
    struct sidestep_save_options options;
    struct save_series part = {.run_id = series->run_id,
                               .incarnation = series->incarnation,
                               .naming = &series->naming,
                               .guard = series_leads(series) ? &series->guard : NULL,
                               .group = &series->groups.mine,
                               .incremental = (series->flags & SIDESTEP_SERIES_INCREMENTAL) != 0};
    char path[COMMIT_PATH_BYTES], name[FILE_NAME_BYTES];
    struct sidestep_error why = {0};
    uint64_t began_ns = clock_now(series->engine->clock);

    TRY(series_end_view_all(series, err));
    TRY(series_share_settled_all(series, err));
    enum sidestep_status status =
        options_copy(&options, sizeof(options), theirs, "save options", err);
    if (status != SIDESTEP_OK) /* save_start_all() fails because of these flags, on all ranks */
        options = (struct sidestep_save_options){.struct_size = sizeof(options), .flags = ~0u};
    options.has_step = true;
    options.step = step;
    name_template_format_name(&series->naming, step, name);
    snprintf(path, sizeof(path), "%s/%s", series->root, name);
    bool has_added = part.guard != NULL && prepare_save(series, name, &options, &why);
    status = save_start_all(series->engine, path, state, &options, &part, blocking, save, err);
    if (has_added && status != SIDESTEP_OK)
        series_pending_cancel(series, name);
    TRY(status);
    series_take_whole(series);
    add_save(series, *save);
    series_note_step(series, step, began_ns);
    if (part.guard != NULL)
        series_pending_attach(series, name, *save);
    uint64_t busy_ns = release_ended(series);
    if (part.guard != NULL) {
        series_notify_pruner(series, *save);
        series_notify_mirror(series, *save);
    }
    series->queued += (save_get_flags(*save) & SIDESTEP_SAVE_QUEUED) != 0;
    schedule_record_save(&series->due, began_ns, get_cost_ns(*save), busy_ns);
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_series_save_async(struct sidestep_series *series, uint64_t step,
                                                const struct sidestep_state_dict *state,
                                                const struct sidestep_save_options *options,
                                                struct sidestep_save **save,
                                                struct sidestep_error *err)
{
    TRY(series_check(series, err));
    if (save == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "save is NULL");
    return start_all(series, step, state, options, false, save, err);
}

enum sidestep_status sidestep_series_save(struct sidestep_series *series, uint64_t step,
                                          const struct sidestep_state_dict *state,
                                          const struct sidestep_save_options *options,
                                          struct sidestep_save_info *info,
                                          struct sidestep_error *err)
{
    struct sidestep_save *save = NULL;

    TRY(series_check(series, err));
    TRY(start_all(series, step, state, options, true, &save, err));
    return turn_finish_all(&save, info, err);
}
