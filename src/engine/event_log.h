/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * event_log.h -- keeps the events of a series beside its checkpoints, so that somebody can read
 * them later who has set up nothing.
 *
 *   ROOT/.sidestep/events.rank-0      of rank 0
 *   ROOT/.sidestep/events.on-HOST     of all other ranks of a host
 *   ROOT/.sidestep/events.*.old       what was there before
 *   ROOT/.sidestep/progress           how far the run has come: one line, written over and over
 *
 * A file holds lines of JSON.  One that has become too large is renamed to *.old, whose earlier
 * text is lost.  Nothing is synced: after a power loss the last lines may be missing.  A log harms
 * nothing: if it cannot be written, the line is dropped.
 *
 * Threads: the caller has a lock (events.h).  Ranks of one host append to one file.
 */
#ifndef ENGINE_EVENT_LOG_H
#define ENGINE_EVENT_LOG_H

#include "base/base.h"

struct event_log {
    struct event_log *next; /* for a list of the owner */
    char *root;             /* as the caller gave it */
    char *absolute;         /* the same, absolute */
    char *mirror;           /* of the series; NULL: it has none */
    uint64_t incarnation;
    int dir; /* ROOT/.sidestep */
    int fd;
    int progress;   /* -1: none yet */
    uint64_t limit; /* of one file, in bytes */
    bool is_torn;   /* the last line was written in part */
    char name[80];
};

/* Open the log of this rank in the directory ${root}, which has a series, with this ${mirror} or
 * NULL.  ${ranks}: how many share the space.  NULL: there can be none. */
struct event_log *event_log_open(const char *root, const char *mirror, uint64_t incarnation,
                                 int32_t rank, int32_t ranks);
void event_log_close(struct event_log *log);
/* Append a line, without its line feed. */
void event_log_write(struct event_log *log, const char *line);
#define EVENT_LOG_PROGRESS_BYTES 160u
/* Replace the line about the progress by ${text}, which is always as long.  A kill in the middle
 * may leave parts of two lines: a reader checks the form. */
void event_log_keep_progress(struct event_log *log, const char *text);
/* Read it, of any series. False: there is none. */
bool event_log_read_progress(const char *root, char text[EVENT_LOG_PROGRESS_BYTES]);
/* Is ${path} the root or the mirror, or in one of them?  Paths of saves are absolute, others are as
 * they were given. */
bool event_log_covers(const struct event_log *log, const char *path);

#endif
