/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.c -- see trace.h. */
#include "base/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

unsigned trace_mask;

static const char *const topic_names[] = {
#define TRACE_TOPIC_NAME(topic) #topic,
    TRACE_TOPICS(TRACE_TOPIC_NAME)
#undef TRACE_TOPIC_NAME
};

void trace_init(void)
{
    const char *wanted = getenv("SIDESTEP_TRACE");
    unsigned mask = 0;

    if (wanted != NULL)
        for (unsigned i = 0; i < sizeof(topic_names) / sizeof(topic_names[0]); i++)
            if (strcmp(wanted, "all") == 0 || strstr(wanted, topic_names[i]) != NULL)
                mask |= 1u << i;
    __atomic_store_n(&trace_mask, mask, __ATOMIC_RELAXED);
}

void trace_print(enum trace_topic topic, const char *fmt, ...)
{
    char line[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    fprintf(stderr, "sidestep %.6f %s %s\n", (double)clock_now(clock_system()) / 1e9,
            topic_names[topic], line);
}
