/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * priority.h -- lowers and raises the priority of a thread for processors and disks.
 *
 * Work in the background should not slow the trainer down.  Work that the trainer waits for should
 * be done at once.
 *
 * Any thread may be lowered.  To raise it again, the process needs RLIMIT_NICE or CAP_SYS_NICE.
 * Without these, a thread is not lowered to the idle class: if the trainer uses all processors, it
 * would make almost no progress, however long somebody waits for it.
 */
#ifndef BASE_PRIORITY_H
#define BASE_PRIORITY_H

#include <stdbool.h>
#include <sys/types.h>

struct priority_rights {
    bool idle;    /* a thread may enter the idle class of the processor ... */
    bool raise;   /* ... and leave it again */
    bool idle_io; /* a thread may enter the idle class of the disk */
};

/* Find out the rights, by a trial on a new thread.  If no thread starts, there are none. */
struct priority_rights priority_probe(void);
/* The id of the calling thread, for the functions below. */
pid_t priority_self(void);
/* Lower a thread of this process, as far as it can be raised again or still makes progress. */
void priority_lower(pid_t thread, const struct priority_rights *rights);
/* Undo priority_lower(), as far as ${rights} allow. */
void priority_raise(pid_t thread, const struct priority_rights *rights);

#endif
