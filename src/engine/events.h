/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * events.h -- writes one line of JSON per step of a save, to a file, a callback, and the logs of
 * open series (event_log.h):
 *   {"event":"staged","time":<seconds since 1970>,"rank":0,"save_id":"...","path":"...", ...}
 */
#ifndef ENGINE_EVENTS_H
#define ENGINE_EVENTS_H

#include <jansson.h>

#include "base/base.h"

struct buckets;
struct event_log;
struct metrics;

struct events {
    int fd; /* -1: none */
    int32_t rank;
    void (*on_event)(void *context, const char *json_line);
    void *context;
    struct lock lock LOCK_KIND(EVENTS);
    struct event_log *logs GUARDED_BY(&lock);
    struct metrics *metrics; /* what it counts changes under ${lock}; NULL: none */
    struct buckets *buckets; /* for the metrics */
};

/* Events that go nowhere yet; events_close() ends them, whether they were opened or not. */
void events_init(struct events *events);
enum sidestep_status events_open(struct events *events,
                                 const struct sidestep_engine_options *options, int32_t rank,
                                 struct buckets *buckets, struct sidestep_error *err);
void events_close(struct events *events);
/* From now on also keep what concerns the series in ${root}, if it is a directory, and its
 * ${mirror}; NULL: it has none.  Ends with events_end_log(). */
void events_begin_log(struct events *events, const char *root, const char *mirror,
                      uint64_t incarnation, int32_t ranks);
void events_end_log(struct events *events, const char *root);
/* Keep how far the run of the series in ${root} has come, beside its log if it has one. */
void events_keep_progress(struct events *events, const char *root, const char *text);
bool events_is_enabled(struct events *events);
/* A text for ${fields}, which may be a path of any bytes: what is not UTF-8 becomes U+FFFD.  The
 * caller owns it; "s:o" of json_pack() takes it.  NULL: there is no memory. */
json_t *events_text(const char *text);
/* Emit ${event} with the members of the object ${fields} (may be NULL; takes ownership).  Failures
 * are ignored: an event never fails a save. */
void events_emit(struct events *events, const char *event, json_t *fields);

#endif
