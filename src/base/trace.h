/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace.h -- prints messages for developers to stderr, one line each.  SIDESTEP_TRACE=save,commit
 * chooses topics; SIDESTEP_TRACE=all chooses all.
 *
 * If it is off, a TRACE costs one load and one test.  What a user must know goes into
 * struct sidestep_error and the event stream instead.
 */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

#define TRACE_TOPICS(X) X(save) X(load) X(commit) X(object)

enum trace_topic {
#define TRACE_TOPIC_ENUM(topic) TRACE_##topic,
    TRACE_TOPICS(TRACE_TOPIC_ENUM)
#undef TRACE_TOPIC_ENUM
};

extern unsigned trace_mask; /* a bit per topic; set by trace_init() */
/* Read the environment.  May be called again. */
void trace_init(void);
void trace_print(enum trace_topic topic, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#define TRACE(topic, ...)                                                                          \
    do {                                                                                           \
        if (trace_mask & 1u << TRACE_##topic)                                                      \
            trace_print(TRACE_##topic, __VA_ARGS__);                                               \
    } while (0)

#endif
