/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * workers.h -- a fixed number of threads that run jobs.
 *
 * A job is a function that takes pieces of work (from an atomic counter, for example) until none is
 * left.  The workers run up to ${width} copies of it at once, and the caller may run one, too.  All
 * signals are blocked in the threads.
 */
#ifndef BASE_WORKERS_H
#define BASE_WORKERS_H

#include "base/error.h"

struct workers;

struct workers_job {
    void (*run)(void *context);
    void *context;
    /* Used by the workers. */
    unsigned wanted;  /* copies not yet started */
    unsigned running; /* copies that run now */
    struct workers_job *next;
};

/* Start ${count} threads.  0 is allowed: then only callers run jobs.  ${name}: at most 15
 * characters. */
enum sidestep_status workers_new(unsigned count, const char *name, struct workers **out,
                                 struct sidestep_error *err);
/* Every job must have ended in workers_wait(). */
void workers_free(struct workers **workers);
unsigned workers_count(const struct workers *workers);

/* Queue ${job} for up to ${width} threads.  ${job} must stay valid until workers_wait(). */
void workers_start(struct workers *workers, struct workers_job *job, unsigned width);
/* Drop the copies that have not started, and wait until no copy runs.  A job is done when one copy
 * has returned and none runs.  If no thread may have been free to start one, the caller runs
 * job->run before it waits. */
void workers_wait(struct workers *workers, struct workers_job *job);

/* Run a copy on the caller and on each free thread.  Return when all copies have returned. */
void workers_run(struct workers *workers, void (*run)(void *context), void *context);
/* The same, with at most ${width} copies, the caller's included. */
void workers_run_limited(struct workers *workers, unsigned width, void (*run)(void *context),
                         void *context);

#endif
