/* SPDX-License-Identifier: BSD-3-Clause */
/* events.c -- writes events as lines of JSON; see events.h. */
#include "engine/events.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "engine/buckets.h"
#include "engine/event_log.h"
#include "engine/metrics.h"
#include "store/store.h"

void events_init(struct events *events)
{
    *events = (struct events){.fd = -1};
    lock_init(&events->lock, LOCK_EVENTS);
}

enum sidestep_status events_open(struct events *events,
                                 const struct sidestep_engine_options *options, int32_t rank,
                                 struct buckets *buckets, struct sidestep_error *err)
{
    events->rank = rank;
    events->buckets = buckets;
    events->on_event = options->on_event;
    events->context = options->event_context;
    if (options->metrics_path != NULL && rank == 0) {
        TRY(WRAP(location_check(options->metrics_path, err), err, "the metrics file"));
        TRY(metrics_new(options->metrics_path, &events->metrics, err));
    }
    if (options->event_path == NULL)
        return SIDESTEP_OK;
    TRY(WRAP(location_check(options->event_path, err), err, "the event file"));
    events->fd = open(options->event_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (events->fd < 0)
        return FAIL_SYS(err, "open the event file '%s'", options->event_path);
    return SIDESTEP_OK;
}

void events_close(struct events *events)
{
    if (events->fd >= 0)
        (void)close(events->fd);
    events->fd = -1;
    events->on_event = NULL;
    metrics_free(&events->metrics);
    lock_destroy(&events->lock);
}

void events_begin_log(struct events *events, const char *root, const char *mirror,
                      uint64_t incarnation, int32_t ranks)
{
    struct event_log *log = event_log_open(root, mirror, incarnation, events->rank, ranks);

    if (log == NULL)
        return;
    lock_acquire(&events->lock);
    log->next = events->logs;
    events->logs = log;
    lock_release(&events->lock);
}

void events_end_log(struct events *events, const char *root)
{
    struct event_log *log = NULL;

    lock_acquire(&events->lock);
    for (struct event_log **at = &events->logs; *at != NULL && log == NULL; at = &(*at)->next)
        if (strcmp((*at)->root, root) == 0) {
            log = *at;
            *at = log->next;
            break;
        }
    lock_release(&events->lock);
    event_log_close(log);
}

void events_keep_progress(struct events *events, const char *root, const char *text)
{
    lock_acquire(&events->lock);
    for (struct event_log *log = events->logs; log != NULL; log = log->next)
        if (strcmp(log->root, root) == 0)
            event_log_keep_progress(log, text);
    lock_release(&events->lock);
}

bool events_is_enabled(struct events *events)
{
    lock_acquire(&events->lock);
    bool is_kept = events->logs != NULL;
    lock_release(&events->lock);
    return is_kept || events->metrics != NULL || events->fd >= 0 || events->on_event != NULL;
}

json_t *events_text(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
    OWNED_BUFFER out = {0};

    for (size_t length = strlen(text), valid; length != 0; text += valid, length -= valid) {
        valid = utf8_prefix(text, length);
        buffer_put(&out, text, valid);
        if (valid == length)
            break;
        buffer_put(&out, replacement, strlen(replacement));
        valid++;
    }
    return buffer_check(&out, NULL) == SIDESTEP_OK
               ? json_stringn((const char *)out.bytes, out.length)
               : NULL;
}

/* To each log of a series that ${line} concerns, with the incarnation.  A line without a path
 * concerns all. */
static void keep(struct events *events, json_t *line)
{
    const char *path = json_string_value(json_object_get(line, "path"));

    lock_acquire(&events->lock);
    for (struct event_log *log = events->logs; log != NULL; log = log->next) {
        if (path != NULL && !event_log_covers(log, path))
            continue;
        (void)json_object_set_new(line, "incarnation", json_integer((json_int_t)log->incarnation));
        char *text = json_dumps(line, JSON_COMPACT);
        if (text != NULL)
            event_log_write(log, text);
        free(text);
    }
    lock_release(&events->lock);
}

/* To the file and the callback of the engine. */
static void tell(struct events *events, const json_t *line)
{
    if (events->fd < 0 && events->on_event == NULL)
        return;
    char *text = json_dumps(line, JSON_COMPACT);
    if (text != NULL && events->fd >= 0) {
        /* One write, so that lines of several ranks do not mix. */
        struct iovec parts[] = {{text, strlen(text)}, {(void *)"\n", 1}};
        ssize_t ignored = writev(events->fd, parts, 2);
        (void)ignored;
    }
    if (text != NULL && events->on_event != NULL)
        events->on_event(events->context, text);
    free(text);
}

/* Into the metrics of this process. They are written without a lock, because storage may be slow.
 */
static void count(struct events *events, const char *event, const json_t *line)
{
    OWNED_BUFFER text = {0};

    if (events->metrics == NULL)
        return;
    uint64_t retries = buckets_count_retries(events->buckets);
    lock_acquire(&events->lock);
    if (metrics_count(events->metrics, event, line))
        metrics_format(events->metrics, retries, &text);
    lock_release(&events->lock);
    if (text.length != 0 && buffer_check(&text, NULL) == SIDESTEP_OK)
        (void)metrics_write(events->metrics, &text, NULL);
}

void events_emit(struct events *events, const char *event, json_t *fields)
{
    struct timespec now;

    if (!events_is_enabled(events)) {
        json_decref(fields);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    json_t *line = json_pack("{s:s, s:f, s:i}", "event", event, "time",
                             (double)now.tv_sec + (double)now.tv_nsec / 1e9, "rank", events->rank);
    if (line != NULL && fields != NULL)
        (void)json_object_update(line, fields);
    if (line != NULL) {
        tell(events, line);
        count(events, event, line);
        keep(events, line);
    }
    json_decref(line);
    json_decref(fields);
}
