/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace.c -- `sidestep trace`: what each rank did in its saves, as a trace that Perfetto
 * (https://ui.perfetto.dev) and Chromium show.
 *
 * Format: "Trace Event Format", the JSON object form.  A rank is a process; its threads are the
 * training and the background.
 */
#include "event_log.h"
#include "memory.h"
#include "output.h"

#include <inttypes.h>
#include <stdlib.h>

enum thread { TRAINING = 1, BACKGROUND };

/* A save of a rank, between its first event and its last. */
struct begun {
    int64_t rank;
    const char *save_id;
    double time; /* of its start */
};

struct trace {
    struct cli_json json;
    struct begun *begun;
    size_t begun_count;
};

static void name_thread(struct trace *t, int64_t rank, enum thread thread, const char *name)
{
    cli_json_open(&t->json, NULL, '{');
    cli_json_text(&t->json, "ph", "M");
    cli_json_int(&t->json, "pid", rank);
    if (thread != 0)
        cli_json_int(&t->json, "tid", thread);
    cli_json_text(&t->json, "name", thread != 0 ? "thread_name" : "process_name");
    cli_json_open(&t->json, "args", '{');
    cli_json_text(&t->json, "name", name);
    cli_json_close(&t->json, '}');
    cli_json_close(&t->json, '}');
}

static void name_rank(struct trace *t, const struct cli_event *event)
{
    char name[128];
    const char *host = cli_event_string(event, "host");

    snprintf(name, sizeof(name), "rank %" PRId64 "%s%s", event->rank, host != NULL ? " on " : "",
             host != NULL ? host : "");
    name_thread(t, event->rank, 0, name);
    name_thread(t, event->rank, TRAINING, "training");
    name_thread(t, event->rank, BACKGROUND, "background");
}

/* Times are in seconds.  ${seconds} < 0: a moment. */
static void add(struct trace *t, const struct cli_event *event, enum thread thread,
                const char *name, double begin, double seconds)
{
    char title[96];

    if (event->step >= 0)
        snprintf(title, sizeof(title), "%s %" PRId64, name, event->step);
    else
        snprintf(title, sizeof(title), "%s", name);
    cli_json_open(&t->json, NULL, '{');
    cli_json_text(&t->json, "ph", seconds >= 0 ? "X" : "i");
    cli_json_text(&t->json, "name", title);
    cli_json_int(&t->json, "pid", event->rank);
    cli_json_int(&t->json, "tid", thread);
    cli_json_real(&t->json, "ts", begin * 1e6);
    if (seconds >= 0)
        cli_json_real(&t->json, "dur", seconds * 1e6);
    else
        cli_json_text(&t->json, "s", "p");
    cli_json_raw(&t->json, "args", event->text);
    cli_json_close(&t->json, '}');
}

/* A bar that ends with the event. */
static void add_phase(struct trace *t, const struct cli_event *event, const char *name,
                      const char *duration)
{
    double ns = cli_event_number(event, duration);

    if (ns > 0)
        add(t, event, BACKGROUND, name, event->time - ns / 1e9, ns / 1e9);
}

static struct begun *find_begun(struct trace *t, const struct cli_event *event)
{
    const char *save_id = cli_event_string(event, "save_id");

    for (size_t i = 0; save_id != NULL && i < t->begun_count; i++)
        if (t->begun[i].rank == event->rank && strcmp(t->begun[i].save_id, save_id) == 0)
            return &t->begun[i];
    return NULL;
}

static void begin(struct trace *t, const struct cli_event *event)
{
    const char *save_id = cli_event_string(event, "save_id");

    if (save_id == NULL)
        return;
    t->begun = cli_memory_resize(t->begun, t->begun_count + 1, sizeof(*t->begun));
    t->begun[t->begun_count++] =
        (struct begun){.rank = event->rank, .save_id = save_id, .time = event->time};
}

/* The call of a save: it began with the event "started", and a later one knows how long it took. */
static void add_call(struct trace *t, const struct cli_event *event)
{
    struct begun *begun = find_begun(t, event);
    double ns = cli_event_number(event, "call_ns");

    if (begun == NULL || ns <= 0)
        return;
    add(t, event, TRAINING, "save", begun->time, ns / 1e9);
    *begun = t->begun[--t->begun_count];
}

static void add_event(struct trace *t, const struct cli_event *event)
{
    if (strcmp(event->kind, "opened") == 0)
        name_rank(t, event);
    if (strcmp(event->kind, "started") == 0) {
        begin(t, event);
    } else if (strcmp(event->kind, "staged") == 0) {
        add_phase(t, event, "stage", "stage_ns");
    } else if (strcmp(event->kind, "written") == 0) {
        add_phase(t, event, "write", "write_ns");
        add_call(t, event);
    } else if (cli_event_number(event, "commit_ns") >= 0 && strcmp(event->kind, "released") != 0) {
        add_phase(t, event, "commit", "commit_ns");
        add_call(t, event);
        add(t, event, BACKGROUND, event->kind, event->time, -1);
    } else if (strcmp(event->kind, "released") != 0) {
        add(t, event, TRAINING, event->kind, event->time, -1);
    }
}

int cli_trace_run(const struct cli *cli)
{
    struct cli_event_log log = {.root = cli->operands[0]};
    struct sidestep_error err = {0};
    struct trace t = {0};
    char *text = NULL;
    size_t length = 0;

    if (cli_event_log_next(&log, &err) != SIDESTEP_OK) {
        cli_event_log_release(&log);
        return cli_output_error(cli, &err);
    }
    FILE *out = cli_memory_stream(&text, &length);
    t.json = cli_json_begin(out);
    cli_json_text(&t.json, "displayTimeUnit", "ms");
    cli_json_open(&t.json, "traceEvents", '[');
    for (size_t i = 0; i < log.count; i++)
        add_event(&t, &log.events[i]);
    cli_json_close(&t.json, ']');
    cli_json_end(&t.json);
    cli_memory_stream_close(out);
    int status = cli_output_document(cli, text, length);
    free(text);
    free(t.begun);
    cli_event_log_release(&log);
    return status;
}
