/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * priority.h -- how much of processors and disks a thread may take: what happens behind a
 * trainer's back should cost it nothing, and what it waits for should be done at once.
 *
 * Everybody may give way; to be raised again needs RLIMIT_NICE or CAP_SYS_NICE.  So a thread that
 * could not be raised is not lowered as far: under a trainer that uses all processors a thread of
 * the idle class would hardly get on, however long somebody waits for it.
 */
#ifndef BASE_PRIORITY_H
#define BASE_PRIORITY_H

#include <stdbool.h>
#include <sys/types.h>

struct priority_rights {
    bool idle;    /* the idle class of the processor may be entered */
    bool raise;   /* ... and left again */
    bool idle_io; /* the idle class of the disk */
};

/* Try it out on a thread of its own.  What cannot be tried is not allowed. */
struct priority_rights priority_probe(void);
/* The calling thread, as the functions below name it. */
pid_t priority_self(void);
/* A thread of this process gives way to others as far as ${rights} make sense; or no longer, which
 * does nothing where ${rights} do not allow it. */
void priority_lower(pid_t thread, const struct priority_rights *rights);
void priority_raise(pid_t thread, const struct priority_rights *rights);

#endif
