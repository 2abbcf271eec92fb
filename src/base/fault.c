/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.c -- see fault.h.  Its state is global and mutable, and only in builds for tests. */
#include "base/fault.h"

#ifdef SIDESTEP_FAULTS
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/lock.h"

static struct {
    struct lock lock LOCK_KIND(FAULT);
    const char *prefix GUARDED_BY(&lock);
    unsigned long nth GUARDED_BY(&lock);
    bool sticky GUARDED_BY(&lock);
    int sys_errno GUARDED_BY(&lock);
    unsigned long hits GUARDED_BY(&lock);
    const char *fired GUARDED_BY(&lock);
    const char *delay_prefix GUARDED_BY(&lock);
    unsigned max_delay_us GUARDED_BY(&lock);
    unsigned seed GUARDED_BY(&lock);
} fault = {.lock = LOCK_INITIALIZER(FAULT)};

/* How long to sleep at ${point}. */
static unsigned delay_us(const char *point) REQUIRES(&fault.lock)
{
    if (fault.max_delay_us == 0 ||
        strncmp(point, fault.delay_prefix, strlen(fault.delay_prefix)) != 0)
        return 0;
    fault.seed = fault.seed * 1103515245u + 12345u;
    return (fault.seed >> 8) % fault.max_delay_us;
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

    lock_acquire(&fault.lock);
    unsigned us = delay_us(point);
    if (fault.nth != 0 && matches(point, fault.prefix)) {
        fault.hits++;
        fire = fault.hits == fault.nth || (fault.sticky && fault.hits > fault.nth);
        if (fire && fault.fired == NULL)
            fault.fired = point;
    }
    int sys_errno = fault.sys_errno;
    lock_release(&fault.lock);
    if (us != 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
    if (fire)
        errno = sys_errno;
    return fire;
}

void fault_arm(const char *prefix, unsigned long nth, bool sticky, int sys_errno)
{
    lock_acquire(&fault.lock);
    fault.prefix = prefix;
    fault.nth = nth;
    fault.sticky = sticky;
    fault.sys_errno = sys_errno;
    fault.hits = 0;
    fault.fired = NULL;
    lock_release(&fault.lock);
}

void fault_delay(const char *prefix, unsigned max_us)
{
    lock_acquire(&fault.lock);
    fault.delay_prefix = prefix;
    fault.max_delay_us = max_us;
    lock_release(&fault.lock);
}

const char *fault_fired(void)
{
    lock_acquire(&fault.lock);
    const char *fired = fault.fired;
    lock_release(&fault.lock);
    return fired;
}

unsigned long fault_hits(void)
{
    lock_acquire(&fault.lock);
    unsigned long hits = fault.hits;
    lock_release(&fault.lock);
    return hits;
}
#else
typedef int fault_is_empty; /* ISO C wants a declaration */
#endif
