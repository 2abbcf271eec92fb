/* SPDX-License-Identifier: BSD-3-Clause */
/* reshard.c -- measures a resharding load: four ranks save rows, and one rank loads columns. */
#include "bench.h"

#include <stdio.h>

#include "support/comm_threads.h"

#define RANKS 4

struct reshard_bench {
    char checkpoint[4096];
    uint64_t bytes;
};

static int save_rows(struct sidestep_comm *comm, void *context)
{
    const struct reshard_bench *r = context;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct bench_state state;

    options.comm = comm;
    options.threads = 1;
    bench_state_make(&state, r->bytes, BENCH_ROWS, RANKS, comm->rank);
    bench_check(sidestep_engine_open(&engine, &options, &err), &err);
    bench_check(sidestep_save(engine, r->checkpoint, state.dict, NULL, NULL, &err), &err);
    bench_check(sidestep_engine_close(&engine, &err), &err);
    bench_state_free(&state);
    return 0;
}

static double read_shards(const struct reshard_bench *r, void *buffer)
{
    char path[4200];
    double seconds = 0;

    for (int rank = 0; rank < RANKS; rank++) {
        snprintf(path, sizeof(path), "%s/__%d_0.distcp", r->checkpoint, rank);
        seconds += bench_read_file(path, buffer, false, false);
    }
    return seconds;
}

void bench_reshard(const struct bench *bench, uint64_t bytes)
{
    struct reshard_bench r = {.bytes = bytes};
    struct bench_row row = {
        .what = "load rows of 4 ranks as columns, cold",
        .reference = "read into one buffer",
        .kind = BENCH_SPEED,
        .bytes = bytes,
    };
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct bench_state target;
    void *buffer = bench_map(BENCH_REQUEST_BYTES, true);

    snprintf(r.checkpoint, sizeof(r.checkpoint), "%s/checkpoint", bench->dir);
    if (comm_threads_run(RANKS, save_rows, &r) != 0)
        bench_die("cannot start the ranks");
    bench_state_make(&target, bytes, BENCH_COLUMNS, RANKS, 0);
    row.bytes = target.bytes;
    bench_check(sidestep_engine_open(&engine, NULL, &err), &err);
    for (unsigned i = 0; i < bench->runs; i++) {
        bench_make_cold(r.checkpoint);
        bench_touch(target.memory, target.bytes);
        bench_warm_free(bytes);
        double began = bench_now();
        bench_check(sidestep_load(engine, r.checkpoint, target.dict, NULL, NULL, &err), &err);
        bench_add(&row.ours, bench_now() - began);
        bench_make_cold(r.checkpoint);
        bench_warm_free(bytes);
        bench_add(&row.theirs, read_shards(&r, buffer));
    }
    bench_report(&row);
    bench_check(sidestep_engine_close(&engine, &err), &err);
    bench_remove(r.checkpoint);
    bench_state_free(&target);
    bench_unmap(buffer, BENCH_REQUEST_BYTES);
}
