/* SPDX-License-Identifier: BSD-3-Clause */
/* workers.c -- see workers.h. */
#include "base/workers.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/fault.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/thread.h"

struct workers {
    const char *name;
    unsigned count; /* threads that were started */
    pthread_t *threads;
    struct {
        struct lock lock LOCK_KIND(WORKERS);
        struct lock_condition changed;
        struct workers_job *first GUARDED_BY(&lock); /* jobs with copies that have not started */
        bool stop GUARDED_BY(&lock);
    } shared;
};

static void unlink_job(struct workers *w, struct workers_job *job)
{
    for (struct workers_job **at = &w->shared.first; *at != NULL; at = &(*at)->next)
        if (*at == job) {
            *at = job->next;
            return;
        }
}

static void *worker_main(void *argument)
{
    struct workers *w = argument;

    lock_acquire(&w->shared.lock);
    while (!w->shared.stop) {
        struct workers_job *job = w->shared.first;
        if (job == NULL) {
            lock_wait(&w->shared.lock, &w->shared.changed);
            continue;
        }
        assert(job->wanted > 0);
        job->running++;
        if (--job->wanted == 0)
            unlink_job(w, job);
        lock_release(&w->shared.lock);
        job->run(job->context);
        lock_acquire(&w->shared.lock);
        job->running--;
        lock_wake_all(&w->shared.changed);
    }
    lock_release(&w->shared.lock);
    return NULL;
}

enum sidestep_status workers_new(unsigned count, const char *name, struct workers **out,
                                 struct sidestep_error *err)
{
    struct workers *w = memory_new(1, sizeof(*w));

    *out = NULL;
    if (w == NULL)
        return FAIL_NOMEM(err, sizeof(*w));
    w->name = name;
    lock_init(&w->shared.lock, LOCK_WORKERS);
    lock_condition_init(&w->shared.changed);
    w->threads = memory_new(count, sizeof(*w->threads));
    if (w->threads == NULL) {
        workers_free(&w);
        return FAIL_NOMEM(err, count * sizeof(*w->threads));
    }
    for (unsigned i = 0; i < count; i++) {
        enum sidestep_status status = thread_start(&w->threads[i], name, worker_main, w, err);
        if (status != SIDESTEP_OK) {
            workers_free(&w);
            return status;
        }
        w->count++;
    }
    *out = w;
    return SIDESTEP_OK;
}

void workers_free(struct workers **workers)
{
    struct workers *w = *workers;

    if (w == NULL)
        return;
    *workers = NULL;
    lock_acquire(&w->shared.lock);
    assert(w->shared.first == NULL);
    w->shared.stop = true;
    lock_wake_all(&w->shared.changed);
    lock_release(&w->shared.lock);
    for (unsigned i = 0; i < w->count; i++)
        pthread_join(w->threads[i], NULL);
    lock_condition_destroy(&w->shared.changed);
    lock_destroy(&w->shared.lock);
    free(w->threads);
    free(w);
}

unsigned workers_count(const struct workers *workers)
{
    return workers->count;
}

void workers_start(struct workers *w, struct workers_job *job, unsigned width)
{
    job->wanted = width < w->count ? width : w->count;
    job->running = 0;
    job->next = NULL;
    if (job->wanted == 0)
        return;
    lock_acquire(&w->shared.lock);
    struct workers_job **at = &w->shared.first;
    while (*at != NULL)
        at = &(*at)->next;
    *at = job;
    lock_wake_all(&w->shared.changed);
    lock_release(&w->shared.lock);
}

void workers_wait(struct workers *w, struct workers_job *job)
{
    lock_acquire(&w->shared.lock);
    if (job->wanted != 0) {
        job->wanted = 0;
        unlink_job(w, job);
    }
    while (job->running != 0)
        lock_wait(&w->shared.lock, &w->shared.changed);
    lock_release(&w->shared.lock);
}

void workers_run_limited(struct workers *w, unsigned width, void (*run)(void *context),
                         void *context)
{
    struct workers_job job = {.run = run, .context = context};

    assert(width != 0);
    workers_start(w, &job, width - 1);
    run(context);
    workers_wait(w, &job);
}

void workers_run(struct workers *w, void (*run)(void *context), void *context)
{
    workers_run_limited(w, w->count + 1, run, context);
}
