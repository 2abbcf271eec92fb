/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nodes.c -- measures how ranks find out where a run goes on whose nodes have a directory each: the
 * opening of the series, and a load of the newest step that is whole over all nodes.
 *
 * All ranks are threads of this process, so its processors do the work of all nodes, and wake all
 * ranks for each collective call. As many calls that do nothing are measured beside it, and the
 * processor time of a rank, which on real nodes has a processor for itself.
 */
#include "bench.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "sidestep/sidestep_series.h"
#include "support/comm_threads.h"

#define RANKS_OF_NODE 8

struct nodes_bench {
    char root[4096];
    bool resumes;               /* else saves step 1 */
    _Atomic uint64_t worked_ns; /* processor time of all ranks */
    /* Of rank 0. */
    double took;
    double calls;    /* collective calls */
    double exchange; /* as many calls that exchange one number */
};

/* A tensor of which each rank has a row. */
static struct sidestep_state_dict *make_state(const struct sidestep_comm *comm, float row[8])
{
    const struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                           .name = "rows",
                                           .dtype = SIDESTEP_FLOAT32,
                                           .ndim = 2,
                                           .shape = (const int64_t[]){comm->size, 8},
                                           .offsets = (const int64_t[]){comm->rank, 0},
                                           .lengths = (const int64_t[]){1, 8},
                                           .data = row};
    struct sidestep_state_dict *state = NULL;
    struct sidestep_error err = {0};

    bench_check(sidestep_state_dict_new(&state, &err), &err);
    bench_check(sidestep_state_dict_add_tensor(state, &tensor, &err), &err);
    return state;
}

static void save_or_load(struct sidestep_series *series, const struct nodes_bench *n,
                         const struct sidestep_comm *comm)
{
    float row[8] = {n->resumes ? 0 : (float)(comm->rank + 1)};
    struct sidestep_state_dict *state = make_state(comm, row);
    struct sidestep_error err = {0};
    uint64_t step = 1;

    if (n->resumes)
        bench_check(sidestep_series_load(series, state, NULL, &step, NULL, NULL, &err), &err);
    else
        bench_check(sidestep_series_save(series, step, state, NULL, NULL, &err), &err);
    if (step != 1 || row[0] != (float)(comm->rank + 1))
        bench_die("rank %d loaded something else", comm->rank);
    sidestep_state_dict_free(&state);
}

/* Processor time of this thread. */
static uint64_t worked_ns(void)
{
    struct timespec worked = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &worked);
    return (uint64_t)worked.tv_sec * 1000000000u + (uint64_t)worked.tv_nsec;
}

/* Seconds of ${calls} collective calls that exchange one number. */
static double exchange(const struct sidestep_comm *comm, unsigned long calls)
{
    double began = bench_now();
    uint64_t number = 0;

    for (unsigned long i = 0; i < calls; i++)
        if (comm->all_reduce_max(comm->context, &number, 1) != 0)
            bench_die("rank %d cannot reach the others", comm->rank);
    return bench_now() - began;
}

static int run_rank(struct sidestep_comm *comm, void *context)
{
    struct nodes_bench *n = context;
    const struct sidestep_series_options options = {.struct_size = sizeof(options),
                                                    .flags = SIDESTEP_SERIES_PER_NODE};
    struct sidestep_engine *engine = NULL;
    struct sidestep_series *series = NULL;
    struct sidestep_error err = {0};
    char path[4200];

    snprintf(path, sizeof(path), "%s/%d", n->root, comm->rank / RANKS_OF_NODE);
    bench_check(comm_threads_open(comm, &engine, &err), &err);
    double began = bench_now();
    uint64_t worked = worked_ns();
    unsigned long calls = comm_threads_calls(comm);
    bench_check(sidestep_series_open(engine, path, &options, &series, &err), &err);
    save_or_load(series, n, comm);
    double took = bench_now() - began;
    atomic_fetch_add(&n->worked_ns, worked_ns() - worked);
    calls = comm_threads_calls(comm) - calls;
    double exchanged = exchange(comm, calls);
    if (comm->rank == 0) {
        n->took = took;
        n->calls = (double)calls;
        n->exchange = exchanged;
    }
    bench_check(sidestep_series_close(&series, &err), &err);
    bench_check(sidestep_engine_close(&engine, &err), &err);
    return 0;
}

static void run_all(struct nodes_bench *n, int nodes, bool resumes)
{
    n->resumes = resumes;
    n->worked_ns = 0;
    if (comm_threads_run(nodes * RANKS_OF_NODE, run_rank, n) != 0)
        bench_die("cannot start the ranks");
}

static void measure(const struct bench *bench, int nodes)
{
    struct nodes_bench n = {0};
    char took[80], calls[80], works[80];
    struct bench_row time = {
        .what = took, .reference = "its collective calls alone", .kind = BENCH_STALL};
    struct bench_row count = {.what = calls, .kind = BENCH_COUNT};
    struct bench_row work = {.what = works, .kind = BENCH_COUNT};

    snprintf(took, sizeof(took), "resume of %d nodes of %d ranks", nodes, RANKS_OF_NODE);
    snprintf(calls, sizeof(calls), "%s, collective calls", took);
    snprintf(works, sizeof(works), "%s, us of a processor per rank", took);
    snprintf(n.root, sizeof(n.root), "%s/nodes", bench->dir);
    if (mkdir(n.root, 0777) != 0)
        bench_die("make '%s': %s", n.root, strerror(errno));
    run_all(&n, nodes, false);
    for (unsigned i = 0; i < bench->runs; i++) {
        run_all(&n, nodes, true);
        bench_add(&time.ours, n.took);
        bench_add(&time.theirs, n.exchange);
        bench_add(&count.ours, n.calls);
        bench_add(&work.ours, (double)n.worked_ns / 1e3 / (nodes * RANKS_OF_NODE));
    }
    bench_report(&time);
    bench_report(&count);
    bench_report(&work);
    bench_remove(n.root);
}

void bench_nodes(const struct bench *bench)
{
    measure(bench, 8);
    measure(bench, 64);
}
