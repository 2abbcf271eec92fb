/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_mirror.c -- keeps the mirror of a series up to date, on a thread of rank 0, and brings
 * checkpoints back from it. series_mirror_parts.c: where each node has a directory for itself.
 *
 * The thread waits for each save and then runs mirror/mirror.h. What it remembers saves it looks;
 * after a crash, the next incarnation finds out the same from both places.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mirror/mirror.h"
#include "object/object.h"
#include "series/series.h"

#define RETRY_NS 10000000000ull       /* after a look that has failed ... */
#define PROGRESS_NS 10000000000ull    /* between events that tell of progress */
#define MOST_RETRY_NS 300000000000ull /* ... and after many of them */

/* ---- open */

enum sidestep_status series_not_absent(enum sidestep_status status, struct sidestep_error *err)
{
    if (status != SIDESTEP_ENOTFOUND)
        return status;
    if (err != NULL)
        err->status = SIDESTEP_EIO;
    return SIDESTEP_EIO;
}

static enum sidestep_status copy_retention(struct series_mirror *mirror, struct sidestep_error *err)
{
    const struct sidestep_retention *theirs = mirror->options.retention;
    struct retention checked;

    TRY(retention_copy(&checked, theirs, err));
    if (theirs == NULL)
        return SIDESTEP_OK;
    memcpy(mirror->metric, checked.metric, sizeof(mirror->metric));
    mirror->keep = (struct sidestep_retention){
        .struct_size = sizeof(mirror->keep),
        .flags = checked.best_is_max ? SIDESTEP_RETENTION_MAX : 0,
        .keep_last = checked.keep_last,
        .keep_every = checked.keep_every,
        .keep_best = checked.keep_best,
        .metric = mirror->metric,
    };
    mirror->options.retention = &mirror->keep;
    return SIDESTEP_OK;
}

enum sidestep_status series_set_mirror(struct sidestep_series *series,
                                       const struct sidestep_series_options *theirs,
                                       struct sidestep_error *err)
{
    struct sidestep_series_options options;

    TRY(options_copy(&options, sizeof(options), theirs, "series options", err));
    if (options.mirror == NULL)
        return options.mirror_options == NULL
                   ? SIDESTEP_OK
                   : FAIL(err, SIDESTEP_EINVAL, "series options: mirror_options without a mirror");
    struct series_mirror *mirror = series->mirror = memory_new(1, sizeof(*mirror));
    if (mirror == NULL)
        return FAIL_NOMEM(err, sizeof(*mirror));
    if (strlen(options.mirror) + NAME_TEMPLATE_MAX_NAME + sizeof("/") > sizeof(mirror->root))
        return FAIL(err, SIDESTEP_EINVAL, "the mirror's path is too long");
    TRY(options_copy(&mirror->options, sizeof(mirror->options), options.mirror_options,
                     "mirror options", err));
    TRY(mirror_check_options(&mirror->options, err));
    TRY(copy_retention(mirror, err));
    snprintf(mirror->root, sizeof(mirror->root), "%.*s", (int)object_url_trimmed(options.mirror),
             options.mirror);
    return engine_find_store(series->engine, mirror->root, &mirror->store, err);
}

void series_free_mirror(struct sidestep_series *series)
{
    if (series->mirror != NULL)
        name_list_release(&series->mirror->refused);
    free(TAKE(series->mirror));
}

static struct mirror_level level_of(const struct series_mirror *mirror)
{
    return (struct mirror_level){.root = mirror->root, .store = mirror->store};
}

/* Tell of the progress only when somebody waits for it. From any thread of a copy. */
static void tell_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct sidestep_series *series = context;
    struct series_mirror *mirror = series->mirror;
    uint64_t now = clock_now(clock_system()), told = mirror->told_ns;

    if (series_has_parts(series))
        (void)series_mirror_gives_up(series); /* the copy asks for that */
    if (!mirror->is_awaited || series->engine->comm.rank != 0)
        return;
    if (mirror->options.on_progress != NULL)
        mirror->options.on_progress(mirror->options.context, done_bytes, total_bytes);
    if ((told == 0 || now - told >= PROGRESS_NS) &&
        atomic_compare_exchange_strong(&mirror->told_ns, &told, now))
        events_emit(&series->engine->events, "mirroring",
                    json_pack("{s:o, s:I, s:I}", "path", events_text(mirror->root), "done_bytes",
                              (json_int_t)done_bytes, "bytes", (json_int_t)total_bytes));
}

struct mirror_look series_begin_look(struct sidestep_series *series)
{
    bool has_parts = series_has_parts(series);
    struct mirror_look m = {.options = series->mirror->options,
                            .near = {.root = series->root, .store = series->store},
                            .far = level_of(series->mirror),
                            .is_claimed = true,
                            .clock = series->engine->clock};

    m.options.on_progress = tell_progress;
    m.options.context = series;
    if (has_parts)
        m.options.cancel = &series->mirror->gives_up;
    return m;
}

/* Other directories of the run may know it, too. */
static enum sidestep_status add_elsewhere(struct lease_elsewhere *elsewhere,
                                          const struct lease_elsewhere *owner,
                                          struct sidestep_error *err)
{
    if (owner->run_id[0] == '\0')
        return SIDESTEP_OK;
    if (elsewhere->run_id[0] != '\0' && strcmp(elsewhere->run_id, owner->run_id) != 0)
        return FAIL(err, SIDESTEP_EMISMATCH,
                    "the directories of the nodes have run %s, and the mirror has run %s: give "
                    "each run a mirror of its own; nothing was changed",
                    elsewhere->run_id, owner->run_id);
    memcpy(elsewhere->run_id, owner->run_id, sizeof(elsewhere->run_id));
    elsewhere->incarnation = max_u64(elsewhere->incarnation, owner->incarnation);
    return SIDESTEP_OK;
}

bool series_remembers_mirror(const struct sidestep_series *series)
{
    struct store *store = NULL;
    char path[COMMIT_PATH_BYTES + sizeof(FILE_NAME_SERIES_DIR)];
    OWNED_DIR *dir = NULL;

    snprintf(path, sizeof(path), "%s/%s", series->root, FILE_NAME_SERIES_DIR);
    return engine_find_store(series->engine, path, &store, NULL) == SIDESTEP_OK &&
           store_dir_open(store, NULL, path, &dir, NULL) == SIDESTEP_OK &&
           mirror_is_remembered(dir, series->mirror->root);
}

static enum sidestep_status fail_lost(const struct sidestep_series *series, const char *what,
                                      struct sidestep_error *err)
{
    return FAIL(err, SIDESTEP_EIO,
                "'%s' had this run, and is %s now: is its file system mounted? (If that was done "
                "on purpose, remove '%s/%s/%s'%s)",
                series->mirror->root, what, series->root, FILE_NAME_SERIES_DIR, MIRROR_AT,
                series_has_parts(series) ? " on each node" : "");
}

enum sidestep_status series_mirror_read(struct sidestep_series *series,
                                        struct lease_elsewhere *elsewhere,
                                        struct sidestep_error *err)
{
    if (series->mirror == NULL)
        return SIDESTEP_OK;
    struct mirror_level far = level_of(series->mirror);
    struct lease_elsewhere owner = {0};
    bool is_remembered = series->mirror->is_remembered || series_remembers_mirror(series);
    series->mirror->is_remembered = is_remembered;
    enum sidestep_status status = mirror_level_read(&far, !is_remembered, err);
    if (status == SIDESTEP_ENOTFOUND && is_remembered)
        status = fail_lost(series, "not there", err);
    if (status == SIDESTEP_OK)
        status = mirror_read_owner(&far, &owner, err);
    mirror_level_release(&far);
    series->mirror->had_run = owner.run_id[0] != '\0';
    if (status == SIDESTEP_OK)
        status = add_elsewhere(elsewhere, &owner, err);
    return series_not_absent(
        WRAP(status, err,
             "the mirror must be readable, because it may have newer checkpoints "
             "(without it, the run goes on from its root alone)"),
        err);
}

enum sidestep_status series_remember_mirror(const struct sidestep_series *series,
                                            struct sidestep_error *err)
{
    const char *root = series->mirror->root;

    return series_remembers_mirror(series)
               ? SIDESTEP_OK
               : small_file_replace(series->lease.dir, MIRROR_AT, MIRROR_AT ".new", root,
                                    strlen(root), err);
}

/* A mirror that has no run yet must not be one that had this run. */
static enum sidestep_status check_has_run(const struct sidestep_series *series,
                                          const struct mirror_level *far,
                                          struct sidestep_error *err)
{
    struct lease_elsewhere owner;

    TRY(mirror_read_owner(far, &owner, err));
    if (owner.run_id[0] != '\0' || (!series->mirror->had_run && !series->mirror->is_remembered))
        return SIDESTEP_OK;
    return fail_lost(series, "empty", err);
}

/* The root remembers the mirror only once that has the run: a crash between the two is no mirror
 * that was lost. */
enum sidestep_status series_mirror_claim(struct sidestep_series *series, struct sidestep_error *err)
{
    struct lease_elsewhere self = {.incarnation = series->lease.incarnation};

    if (series->mirror == NULL)
        return SIDESTEP_OK;
    memcpy(self.run_id, series->lease.run_id, sizeof(self.run_id));
    struct mirror_level far = level_of(series->mirror);
    enum sidestep_status status = mirror_level_read(&far, false, err);
    if (status == SIDESTEP_OK)
        status = mirror_check_places(series->lease.root, far.dir, err);
    if (status == SIDESTEP_OK)
        status = check_has_run(series, &far, err); /* it may be another one than was read before */
    if (status == SIDESTEP_OK)
        status = mirror_record_owner(&far, &self, err);
    if (status == SIDESTEP_OK)
        status = series_remember_mirror(series, err);
    mirror_level_release(&far);
    return series_not_absent(WRAP(status, err, "record this run at its mirror"), err);
}

/* ---- the thread */

void series_emit_mirror_failed(struct sidestep_series *series, const struct sidestep_error *why)
{
    events_emit(&series->engine->events, "mirror_failed",
                json_pack("{s:o, s:o}", "path", events_text(series->mirror->root), "message",
                          events_text(why->message)));
}

static void emit_outcome(struct sidestep_series *series, enum sidestep_status status,
                         const struct sidestep_mirror_report *report)
{
    struct events *events = &series->engine->events;

    for (size_t i = 0; i < report->sent_count; i++)
        events_emit(events, "mirrored", json_pack("{s:o}", "path", events_text(report->sent[i])));
    for (size_t i = 0; i < report->removed_count; i++)
        events_emit(events, "deleted", json_pack("{s:o}", "path", events_text(report->removed[i])));
    for (size_t i = 0; i < report->passed_count && report->sent_count != 0; i++)
        events_emit(events, "not_mirrored",
                    json_pack("{s:o, s:o}", "path", events_text(series->mirror->root), "message",
                              events_text(report->passed[i])));
    if (status != SIDESTEP_OK)
        series_emit_mirror_failed(series, &series->mirror->err);
}

static bool is_equal(const struct name_list *a, const struct name_list *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (strcmp(a->names[i], b->names[i]) != 0)
            return false;
    return a->count == b->count;
}

void series_set_settled(struct sidestep_series *series, struct name_list *settled)
{
    lock_acquire(&series->shared.lock);
    struct name_list before = series->shared.settled;
    series->shared.has_news |= !is_equal(&before, settled);
    series->shared.settled = *settled;
    lock_release(&series->shared.lock);
    *settled = before;
}

static enum sidestep_status look(struct sidestep_series *series, bool is_awaited)
{
    struct mirror_look m = series_begin_look(series);
    struct sidestep_mirror_report report = {0};

    if (is_awaited)
        m.options.every = 0;
    if (series_has_parts(series))
        m.parts = &series->mirror->parts;
    series->mirror->err = (struct sidestep_error){.rank = -1};
    enum sidestep_status status = mirror_run(&m, &report, &series->mirror->err);
    series_note_refused(series, &m);
    emit_outcome(series, status, &report);
    if (m.is_read) /* also if it failed later */
        series_set_settled(series, &m.settled);
    name_list_release(&m.settled);
    if (report.sent_count != 0) /* what was locked while it was read, or had to wait */
        series_prune_once(series);
    sidestep_mirror_report_release(&report);
    return status;
}

void series_let_mirror_begin(struct sidestep_series *series)
{
    lock_acquire(&series->shared.lock);
    series->shared.mirror_begins = true;
    lock_wake_all(&series->shared.changed);
    lock_release(&series->shared.lock);
}

static void await_begin(struct sidestep_series *series)
{
    lock_acquire(&series->shared.lock);
    while (!series->shared.mirror_begins && !series->shared.mirror_stops)
        lock_wait(&series->shared.lock, &series->shared.changed);
    lock_release(&series->shared.lock);
}

bool series_await_mirror_work(struct sidestep_series *series, uint64_t retry_ns)
{
    uint64_t until = clock_now(clock_system()) + retry_ns;
    struct sidestep_save *save;

    lock_acquire(&series->shared.lock);
    while (series->shared.to_mirror == NULL && !series->shared.mirror_stops &&
           !series->shared.mirror_wakes)
        if (retry_ns == 0)
            lock_wait(&series->shared.lock, &series->shared.changed);
        else if (!lock_wait_until(&series->shared.lock, &series->shared.changed, until))
            break;
    save = TAKE(series->shared.to_mirror);
    series->shared.mirror_wakes = false;
    bool stops = series->shared.mirror_stops;
    lock_release(&series->shared.lock);
    if (save != NULL) {
        turn_await(save);
        save_release(save);
    }
    return stops;
}

/* The number of the look that somebody waits for; 0: nobody does. */
static uint64_t find_asked(struct sidestep_series *series)
{
    lock_acquire(&series->shared.lock);
    uint64_t asked = series->shared.mirror_asked != series->shared.mirror_answered
                         ? series->shared.mirror_asked
                         : 0;
    lock_release(&series->shared.lock);
    return asked;
}

/* Make the look ${asked}, and say how it ended. */
static enum sidestep_status look_for(struct sidestep_series *series, uint64_t asked)
{
    const bool volatile *cancel = series->mirror->options.cancel;
    struct sidestep_error *err = &series->mirror->err;
    enum sidestep_status status = series->mirror->gives_up || (cancel != NULL && *cancel)
                                      ? FAIL(err, SIDESTEP_ECANCELLED, "the call was cancelled")
                                      : look(series, true);

    lock_acquire(&series->shared.lock);
    series->shared.mirror_answered = asked;
    series->shared.mirror_err = *err;
    lock_wake_all(&series->shared.changed);
    lock_release(&series->shared.lock);
    return status;
}

static void keep_up(struct sidestep_series *series)
{
    uint64_t retry_ns = 0, asked = 0;
    bool stops = false;

    /* The first look sends what an earlier incarnation has left. With parts, the one that somebody
     * waits for also sweeps what nodes that answered late have left. */
    do {
        enum sidestep_status status = asked != 0 ? look_for(series, asked) : look(series, false);
        retry_ns =
            status == SIDESTEP_OK ? 0 : min_u64(MOST_RETRY_NS, max_u64(RETRY_NS, 2 * retry_ns));
        stops = series_await_mirror_work(series, retry_ns);
        asked = find_asked(series);
    } while (asked != 0 || !stops);
}

static void *mirror_main(void *argument)
{
    struct sidestep_series *series = argument;

    await_begin(series);
    if (series->engine->comm.rank == 0)
        keep_up(series);
    else
        series_answer_mirror(series);
    return NULL;
}

enum sidestep_status series_start_mirror(struct sidestep_series *series, struct sidestep_error *err)
{
    if (series->mirror == NULL)
        return SIDESTEP_OK;
    TRY(thread_start(&series->mirror->thread, "sidestep-mirror", mirror_main, series, err));
    series->mirror->has_thread = true;
    return SIDESTEP_OK;
}

void series_notify_mirror(struct sidestep_series *series, struct sidestep_save *save)
{
    if (series->mirror == NULL)
        return;
    if (series->engine->comm.rank != 0) { /* rank 0 says what is sent */
        series_wake_mirror(series);
        return;
    }
    save_retain(save);
    lock_acquire(&series->shared.lock);
    struct sidestep_save *before = series->shared.to_mirror; /* it ends before ${save} does */
    series->shared.to_mirror = save;
    series->shared.mirror_begins = true;
    lock_wake_all(&series->shared.changed);
    lock_release(&series->shared.lock);
    if (before != NULL)
        save_release(before);
}

/* Will it be at the mirror, which keeps its step by number? What another run saved, or was renamed,
 * is never sent; nor is what is not whole. */
static bool will_be_mirrored(struct sidestep_series *series, const struct sidestep_listed *entry)
{
    uint64_t every = series->mirror != NULL ? series->mirror->keep.keep_every : 0;

    return every != 0 && (uint64_t)entry->step % every == 0 && !entry->is_abandoned &&
           !entry->is_renamed && entry->save_id != NULL && entry->run_id != NULL &&
           strcmp(entry->run_id, series->run_id) == 0 &&
           (entry->state != SIDESTEP_PART || series_is_whole(series, entry));
}

const char *series_mirror_needs(void *context, const struct sidestep_listed *entry)
{
    struct sidestep_series *series = context;

    if (!will_be_mirrored(series, entry))
        return NULL;
    lock_acquire(&series->shared.lock);
    bool is_settled = name_list_contains(&series->shared.settled, entry->save_id);
    lock_release(&series->shared.lock);
    return is_settled ? NULL : "the mirror does not have it yet";
}

uint64_t series_ask_mirror(struct sidestep_series *series, bool stops)
{
    series->mirror->is_awaited = true;
    lock_acquire(&series->shared.lock);
    series->shared.mirror_asked += !series->shared.mirror_stops; /* the last was asked for */
    series->shared.mirror_stops |= stops;
    series->shared.mirror_begins = true;
    series->shared.mirror_wakes = true;
    uint64_t asked = series->shared.mirror_asked;
    lock_wake_all(&series->shared.changed);
    lock_release(&series->shared.lock);
    return asked;
}

bool series_await_look(struct sidestep_series *series, uint64_t look, uint64_t until_ns)
{
    lock_acquire(&series->shared.lock);
    while (series->shared.mirror_answered < look)
        if (!lock_wait_until(&series->shared.lock, &series->shared.changed, until_ns))
            break;
    bool is_made = series->shared.mirror_answered >= look;
    lock_release(&series->shared.lock);
    return is_made;
}

enum sidestep_status series_stop_mirror(struct sidestep_series *series, struct sidestep_error *err)
{
    struct series_mirror *mirror = series->mirror;

    if (mirror == NULL || !mirror->has_thread)
        return SIDESTEP_OK;
    (void)series_ask_mirror(series, true);
    pthread_join(mirror->thread, NULL);
    mirror->has_thread = false;
    if (mirror->err.status == SIDESTEP_OK)
        return SIDESTEP_OK;
    error_wrap(&mirror->err,
               "series '%s' is closed, and its checkpoints are safe there, but '%s' does not have "
               "the newest (%s)",
               series->root, mirror->root,
               series_has_parts(series) ? "the next job sends it" : "'sidestep mirror' sends it");
    return error_copy(err, &mirror->err);
}

/* ---- bring back */

struct rejecting {
    struct sidestep_series *series;
    char *rejected;
};

static void reject(void *context, const char *path, const char *why)
{
    struct rejecting *r = context;
    char text[COMMIT_PATH_BYTES + sizeof(((struct sidestep_error *)0)->message)];

    snprintf(text, sizeof(text), "'%s': %s", path, why);
    series_note_rejected(r->series, r->rejected, path, text);
}

enum sidestep_status series_report_none(enum sidestep_status near, bool has_damaged,
                                        const char *rejected, const struct sidestep_error *why,
                                        struct sidestep_error *err)
{
    if (near == SIDESTEP_ENOTFOUND && has_damaged)
        return FAIL(err, SIDESTEP_ECORRUPT, "no checkpoint of the mirror is valid: %s", rejected);
    return error_copy(err, why);
}

enum sidestep_status series_fetch(struct sidestep_series *series, int64_t newer_than,
                                  int64_t at_most, char rejected[SERIES_REJECTED_BYTES],
                                  int64_t *step, struct sidestep_error *err)
{
    struct rejecting rejecting = {.series = series, .rejected = rejected};

    *step = -1;
    if (series->mirror == NULL)
        return SIDESTEP_OK;
    struct mirror_look m = series_begin_look(series);
    TRY(series_not_absent(
        mirror_fetch(&m, newer_than, at_most, &series->naming, reject, &rejecting, step, err),
        err));
    if (*step >= 0)
        events_emit(&series->engine->events, "fetched",
                    json_pack("{s:o, s:I, s:o}", "path", events_text(series->root), "step",
                              (json_int_t)*step, "from", events_text(series->mirror->root)));
    return SIDESTEP_OK;
}

enum sidestep_status series_mirror_go_back(struct sidestep_series *series, uint64_t step,
                                           const char *save_id, struct sidestep_error *err)
{
    if (series->mirror == NULL)
        return SIDESTEP_OK;
    struct mirror_look m = series_begin_look(series);
    return mirror_go_back(&m, (int64_t)step, save_id, err);
}
