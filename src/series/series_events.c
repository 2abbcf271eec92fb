/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_events.c -- tells in the events what a series does, and how far its run has come.
 *
 * Rank 0 keeps the newest step that it has seen in a small file (engine/event_log.h), so that the
 * next run, after a kill, can say how many steps its resume loses.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "object/object.h"
#include "series/series.h"

#define PROGRESS_NS UINT64_C(1000000000) /* between two writes */
#define PROGRESS_FORM "run %s incarnation %20llu step %20llu %s\n"
#define IS_CLOSED "closed "
#define IS_RUNNING "running"

/* ---- how far a run has come ---- */

/* What the run before has left; series->reached stays -1 if it has left nothing. */
static void read_progress(struct sidestep_series *series)
{
    char text[EVENT_LOG_PROGRESS_BYTES], run_id[SAVE_ID_HEX] = "", how[8] = "";
    unsigned long long incarnation, step;

    if (!event_log_read_progress(series->root, text) ||
        sscanf(text, "run %32s incarnation %llu step %llu %7s\n", run_id, &incarnation, &step,
               how) != 4 ||
        strcmp(run_id, series->run_id) != 0 || step > INT64_MAX)
        return;
    series->reached = (int64_t)step;
    series->before = strcmp(how, "closed") == 0 ? "closed" : "killed";
}

static void write_progress(struct sidestep_series *series, const char *how)
{
    char text[EVENT_LOG_PROGRESS_BYTES];

    if (series->engine->comm.rank != 0 || series->reached < 0 || !series->is_open)
        return;
    snprintf(text, sizeof(text), PROGRESS_FORM, series->run_id,
             (unsigned long long)series->incarnation, (unsigned long long)series->reached, how);
    events_keep_progress(&series->engine->events, series->root, text);
}

void series_note_step(struct sidestep_series *series, uint64_t step, uint64_t now_ns)
{
    if (step > INT64_MAX)
        return;
    series->reached = (int64_t)step;
    series->before = "running";
    if (series->progress_ns != 0 && now_ns - series->progress_ns < PROGRESS_NS)
        return;
    series->progress_ns = now_ns;
    write_progress(series, IS_RUNNING);
}

/* ---- events ---- */

static json_t *fields_at(const struct sidestep_series *series, uint64_t step)
{
    return json_pack("{s:o, s:I}", "path", events_text(series->root), "step", (json_int_t)step);
}

void series_begin_events(struct sidestep_series *series)
{
    struct sidestep_engine *engine = series->engine;
    struct store *store = NULL;
    char host[64] = "";

    series->reached = series->told_due = -1;
    if (engine_find_store(engine, series->root, &store, NULL) == SIDESTEP_OK &&
        store == store_posix()) {
        if (engine->comm.rank == 0)
            read_progress(series);
        events_begin_log(&engine->events, series->root,
                         series->mirror != NULL ? series->mirror->root : NULL, series->incarnation,
                         engine->comm.size);
    }
    (void)gethostname(host, sizeof(host) - 1);
    events_emit(&engine->events, "opened",
                json_pack("{s:o, s:s, s:I, s:i, s:I, s:o, s:I}", "path", events_text(series->root),
                          "run_id", series->run_id, "incarnation", (json_int_t)series->incarnation,
                          "ranks", (int)engine->comm.size, "directories",
                          (json_int_t)series_directories(series), "host", events_text(host), "pid",
                          (json_int_t)getpid()));
    series->is_open = true;
    if (!series_has_parts(series)) /* which are whole is known after a resume */
        series_let_mirror_begin(series);
}

void series_end_events(struct sidestep_series *series)
{
    struct events *events = &series->engine->events;

    if (!series->is_open)
        return;
    write_progress(series, IS_CLOSED);
    series->is_open = false;
    events_emit(events, "closed", json_pack("{s:o}", "path", events_text(series->root)));
    events_end_log(events, series->root);
}

void series_emit_due(struct sidestep_series *series, uint64_t step, uint32_t why)
{
    json_t *fields;

    if (series->engine->comm.rank != 0 || why == 0 || series->told_due == (int64_t)step)
        return;
    series->told_due = (int64_t)step;
    fields = fields_at(series, step);
    if (fields != NULL)
        (void)json_object_set_new(fields, "why",
                                  json_string((why & SIDESTEP_DUE_STOP) != 0   ? "stop"
                                              : (why & SIDESTEP_DUE_SAVE) != 0 ? "request"
                                                                               : "interval"));
    events_emit(&series->engine->events, "due", fields);
}

void series_emit_agreed(struct sidestep_series *series, uint64_t step, bool skips, bool stops)
{
    struct events *events = &series->engine->events;

    if (skips)
        events_emit(events, "skipped", fields_at(series, step));
    if (stops)
        events_emit(events, "stopping", fields_at(series, step));
}

void series_emit_asked(struct sidestep_series *series, uint64_t step, uint32_t what)
{
    struct events *events = &series->engine->events;
    int number = atomic_exchange(&series->signal, 0);
    json_t *fields = fields_at(series, step);
    const char *asked = (what & SIDESTEP_DUE_STOP) != 0 ? "stop" : "save";

    if (fields != NULL)
        (void)json_object_set_new(fields, "why", json_string(asked));
    if (number == 0) {
        events_emit(events, "requested", fields);
        return;
    }
    if (fields != NULL)
        (void)json_object_set_new(fields, "signal", json_integer(number));
    events_emit(events, "signal", fields);
}

/* Rank 0 alone knows how far the run before had come. */
static void add_lost(const struct sidestep_series *series, uint64_t step, json_t *fields)
{
    bool is_known = series->reached >= 0;
    int64_t lost =
        is_known && (uint64_t)series->reached > step ? series->reached - (int64_t)step : 0;

    (void)json_object_set_new(fields, "reached",
                              is_known ? json_integer(series->reached) : json_null());
    (void)json_object_set_new(fields, "lost_steps", is_known ? json_integer(lost) : json_null());
    (void)json_object_set_new(fields, "before",
                              series->before != NULL ? json_string(series->before) : json_null());
}

void series_emit_resumed(struct sidestep_series *series, const char *path, uint64_t step,
                         const char *why)
{
    json_t *fields = json_pack("{s:o, s:I, s:s, s:s}", "path", events_text(path), "step",
                               (json_int_t)step, "run_id", series->run_id, "why", why);

    if (fields != NULL)
        add_lost(series, step, fields);
    events_emit(&series->engine->events, "resumed", fields);
    series->progress_ns = 0; /* the file may have a later step: write at once */
    series_note_step(series, step, clock_now(series->engine->clock));
}

enum sidestep_status sidestep_series_exported(struct sidestep_series *series, uint64_t step,
                                              const char *path, struct sidestep_error *err)
{
    TRY(series_check(series, err));
    if (path == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "path is NULL");
    json_t *fields = fields_at(series, step);
    if (fields != NULL)
        (void)json_object_set_new(fields, "to", events_text(path));
    events_emit(&series->engine->events, "exported", fields);
    return SIDESTEP_OK;
}
