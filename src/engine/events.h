/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * events.h -- one line of JSON per phase edge, to a file or a callback:
 *   {"event":"staged","time":<seconds since 1970>,"rank":0,"save_id":"...","path":"...", ...}
 */
#ifndef ENGINE_EVENTS_H
#define ENGINE_EVENTS_H

#include <jansson.h>
#include <pthread.h>

#include "base/base.h"

struct events {
    int fd; /* -1: none */
    int32_t rank;
    void (*on_event)(void *context, const char *json_line);
    void *context;
};

enum sidestep_status events_open(struct events *events,
                                 const struct sidestep_engine_options *options, int32_t rank,
                                 struct sidestep_error *err);
void events_close(struct events *events);
bool events_is_enabled(const struct events *events);
/* ${fields} (taken, may be NULL) is an object whose members are added.  Failures are dropped:
 * events never hurt a save. */
void events_emit(struct events *events, const char *event, json_t *fields);

#endif
