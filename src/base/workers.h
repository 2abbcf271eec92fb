/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * workers.h -- a fixed gang of threads.  A job is a function that pulls its own work (from an
 * atomic counter, say) until there is none; the gang runs up to ${width} copies of it at once.
 * The caller may run a copy itself.  All signals are blocked in the threads.
 */
#ifndef BASE_WORKERS_H
#define BASE_WORKERS_H

#include "base/error.h"

struct workers;

struct workers_job {
    void (*run)(void *context);
    void *context;
    /* The gang's. */
    unsigned wanted;  /* copies not yet started */
    unsigned running; /* copies being run */
    struct workers_job *next;
};

/* ${count} threads; 0 is legal (then only callers run jobs).  ${name}: 15 characters at most. */
enum sidestep_status workers_new(unsigned count, const char *name, struct workers **out,
                                 struct sidestep_error *err);
/* Waits for nothing: all jobs must have been waited for. */
void workers_free(struct workers **workers);
unsigned workers_count(const struct workers *workers);

/* Queue ${job} (the caller's memory, until workers_wait()) for ${width} threads. */
void workers_start(struct workers *workers, struct workers_job *job, unsigned width);
/* Until no copy is running.  Copies not yet started by then are dropped: so the job must be
 * complete whenever one copy has returned and none is running, and with no thread free (or
 * with 0 threads) the caller runs job->run itself first. */
void workers_wait(struct workers *workers, struct workers_job *job);

/* run() on the caller and on up to all threads; returns when all copies have returned. */
void workers_run(struct workers *workers, void (*run)(void *context), void *context);
/* The same, ${width} copies at most, the caller's among them. */
void workers_run_limited(struct workers *workers, unsigned width, void (*run)(void *context),
                         void *context);

#endif
