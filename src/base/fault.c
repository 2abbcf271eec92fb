/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.c -- see fault.h.  The only mutable statics besides the trace mask, and for tests only. */
#include "base/fault.h"

#ifdef SIDESTEP_FAULTS
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

static struct {
    pthread_mutex_t lock;
    const char *prefix;
    unsigned long nth;
    bool sticky;
    int sys_errno;
    unsigned long hits;
    const char *fired;
    const char *slow_prefix;
    unsigned slow_us;
    unsigned seed;
} fault = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Locked: how long to sleep at ${point}. */
static unsigned delay_us(const char *point)
{
    if (fault.slow_us == 0 || strncmp(point, fault.slow_prefix, strlen(fault.slow_prefix)) != 0)
        return 0;
    fault.seed = fault.seed * 1103515245u + 12345u;
    return (fault.seed >> 8) % fault.slow_us;
}

/* Does ${point} start with one of ${prefixes}, "one|two|three"? */
static bool matches(const char *point, const char *prefixes)
{
    for (;;) {
        size_t length = strcspn(prefixes, "|");
        if (strncmp(point, prefixes, length) == 0)
            return true;
        if (prefixes[length] == '\0')
            return false;
        prefixes += length + 1;
    }
}

bool fault_hit(const char *point)
{
    bool fire = false;

    pthread_mutex_lock(&fault.lock);
    unsigned us = delay_us(point);
    if (fault.nth != 0 && matches(point, fault.prefix)) {
        fault.hits++;
        fire = fault.hits == fault.nth || (fault.sticky && fault.hits > fault.nth);
        if (fire && fault.fired == NULL)
            fault.fired = point;
    }
    int sys_errno = fault.sys_errno;
    pthread_mutex_unlock(&fault.lock);
    if (us != 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
    if (fire)
        errno = sys_errno;
    return fire;
}

void fault_arm(const char *prefix, unsigned long nth, bool sticky, int sys_errno)
{
    pthread_mutex_lock(&fault.lock);
    fault.prefix = prefix;
    fault.nth = nth;
    fault.sticky = sticky;
    fault.sys_errno = sys_errno;
    fault.hits = 0;
    fault.fired = NULL;
    pthread_mutex_unlock(&fault.lock);
}

void fault_delay(const char *prefix, unsigned max_us)
{
    pthread_mutex_lock(&fault.lock);
    fault.slow_prefix = prefix;
    fault.slow_us = max_us;
    pthread_mutex_unlock(&fault.lock);
}

const char *fault_fired(void)
{
    pthread_mutex_lock(&fault.lock);
    const char *fired = fault.fired;
    pthread_mutex_unlock(&fault.lock);
    return fired;
}

unsigned long fault_hits(void)
{
    pthread_mutex_lock(&fault.lock);
    unsigned long hits = fault.hits;
    pthread_mutex_unlock(&fault.lock);
    return hits;
}
#else
typedef int fault_is_empty; /* ISO C wants a declaration */
#endif
