/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * forks.c -- measures saves of a trainer that forks two data-loader workers in every epoch.
 *
 * The workers share the trainer's huge pages, and the next step of the trainer splits them. The
 * rows show the time of the next save's call, the time to make the pages huge again, and the time
 * of the call after that.
 */
#include "bench.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 2
#define COLLAPSE_WAIT_S 20.0

struct forks_bench {
    struct bench_state state;
    struct sidestep_engine *engine;
    char checkpoint[4096];
};

static void step(struct forks_bench *f)
{
    memset(f->state.memory, (int)bench_now() & 0xff, f->state.bytes);
}

static void respawn_workers(struct forks_bench *f)
{
    pid_t workers[WORKERS];

    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        if (workers[i] < 0)
            bench_die("cannot fork");
        if (workers[i] == 0) {
            (void)pause();
            _exit(0);
        }
    }
    step(f);
    for (unsigned i = 0; i < WORKERS; i++) {
        (void)kill(workers[i], SIGKILL);
        (void)waitpid(workers[i], NULL, 0);
    }
}

/* Returns the time of a save's call. ${collapse_s}, unless NULL: how long a thread then worked to
 * make the pages huge again, while the trainer computed. */
static double save(struct forks_bench *f, double *collapse_s)
{
    struct sidestep_error err = {0};
    struct sidestep_save *save = NULL;
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    double began = bench_now();

    bench_check(sidestep_save_async(f->engine, f->checkpoint, f->state.dict, NULL, &save, &err),
                &err);
    double call = bench_now() - began;
    bench_check(sidestep_save_watch(save, SIDESTEP_SAVE_COMMITTED, -1, &err), &err);
    began = bench_now();
    while (collapse_s != NULL && info.huge_ns == 0 && bench_now() - began < COLLAPSE_WAIT_S) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        (void)sidestep_save_poll(save, &info);
    }
    if (collapse_s != NULL)
        *collapse_s = (double)info.huge_ns / 1e9;
    bench_check(sidestep_save_finish(&save, NULL, &err), &err);
    bench_remove(f->checkpoint);
    return call;
}

static void measure(struct forks_bench *f, unsigned runs)
{
    struct bench_row call = {.what = "cow call, 2 workers forked each epoch: the 2nd save",
                             .reference = "the 1st save after it",
                             .kind = BENCH_STALL};
    struct bench_row collapse = {.what = "... between them, huge pages put together again",
                                 .kind = BENCH_DURATION,
                                 .bytes = f->state.bytes};

    for (unsigned i = 0; i < runs; i++) {
        double collapse_s;
        respawn_workers(f);
        bench_add(&call.theirs, save(f, &collapse_s));
        bench_add(&collapse.ours, collapse_s);
        step(f);
        bench_add(&call.ours, save(f, NULL));
    }
    bench_report(&call);
    bench_report(&collapse);
}

void bench_forks(const struct bench *bench, uint64_t bytes)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_error err = {0};
    struct forks_bench f = {0};

    bench_state_make(&f.state, bytes, BENCH_WHOLE, 1, 0);
    bench_state_fill(&f.state, 1);
    snprintf(f.checkpoint, sizeof(f.checkpoint), "%s/checkpoint", bench->dir);
    bench_check(sidestep_state_dict_huge_pages(f.state.dict, NULL, &err), &err);
    options.snapshot = SIDESTEP_SNAPSHOT_COW;
    bench_check(sidestep_engine_open(&f.engine, &options, &err), &err);
    bench_check(sidestep_engine_prepare(f.engine, f.state.dict, &err), &err);
    (void)save(&f, NULL); /* the first save plans */
    measure(&f, bench->runs);
    bench_check(sidestep_engine_close(&f.engine, &err), &err);
    bench_state_free(&f.state);
}
