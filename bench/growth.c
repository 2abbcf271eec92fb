/* SPDX-License-Identifier: BSD-3-Clause */
/* growth.c -- measures the same save and load with states of 1, 2, 4 ... GiB, in turns. Only one
 * state is in memory at a time. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

#define SMALLEST_BYTES ((uint64_t)1 << 30)
#define MAX_SIZES 8u

struct growth_size {
    char save_name[64];
    char load_name[64];
    struct bench_row save;
    struct bench_row load;
};

struct growth_bench {
    struct bench_state state;
    struct sidestep_engine *engine;
    char checkpoint[4096];
    char shard[4200];
    char file[4096];
};

static void warm(struct growth_bench *g)
{
    bench_touch(g->state.memory, g->state.bytes);
    bench_warm_free(g->state.bytes / 2);
}

static double save(struct growth_bench *g)
{
    struct sidestep_error err = {0};

    warm(g);
    double began = bench_now();
    bench_check(sidestep_save(g->engine, g->checkpoint, g->state.dict, NULL, NULL, &err), &err);
    return bench_now() - began;
}

static double write_plain_file(struct growth_bench *g)
{
    warm(g);
    double seconds = bench_write_file(g->file, g->state.memory, g->state.bytes, true);
    bench_remove(g->file);
    return seconds;
}

static double load(struct growth_bench *g)
{
    struct sidestep_error err = {0};

    memset(g->state.memory, 0, g->state.bytes);
    bench_make_cold(g->checkpoint);
    double began = bench_now();
    bench_check(sidestep_load(g->engine, g->checkpoint, g->state.dict, NULL, NULL, &err), &err);
    return bench_now() - began;
}

static double read_shard(struct growth_bench *g)
{
    bench_make_cold(g->checkpoint);
    return bench_read_file(g->shard, g->state.memory, true, true);
}

static void measure(struct growth_bench *g, struct growth_size *size, uint64_t bytes, uint64_t seed)
{
    struct sidestep_error err = {0};

    bench_state_make(&g->state, bytes, BENCH_WHOLE, 1, 0);
    bench_state_fill(&g->state, seed);
    bench_check(sidestep_engine_open(&g->engine, NULL, &err), &err);
    bench_add(&size->save.theirs, write_plain_file(g));
    bench_add(&size->save.ours, save(g));
    bench_add(&size->load.ours, load(g));
    bench_add(&size->load.theirs, read_shard(g));
    size->save.bytes = size->load.bytes = g->state.bytes;
    bench_remove(g->checkpoint);
    bench_check(sidestep_engine_close(&g->engine, &err), &err);
    bench_state_free(&g->state);
}

static void size_init(struct growth_size *size, uint64_t bytes)
{
    unsigned long long mib = bytes >> 20;

    snprintf(size->save_name, sizeof(size->save_name), "blocking save of %llu MiB", mib);
    snprintf(size->load_name, sizeof(size->load_name), "load of %llu MiB, verified, cold", mib);
    size->save = (struct bench_row){.what = size->save_name,
                                    .reference = "pwrite O_DIRECT, fsync",
                                    .kind = BENCH_SPEED,
                                    .goal = bytes >> 30 >= 4 ? 0.90 : 0.85};
    size->load = (struct bench_row){.what = size->load_name,
                                    .reference = "read O_DIRECT into the tensors",
                                    .kind = BENCH_SPEED,
                                    .goal = 0.90};
}

void bench_growth(const struct bench *bench, uint64_t bytes)
{
    struct growth_size sizes[MAX_SIZES];
    struct growth_bench g = {0};
    unsigned count = 0;

    snprintf(g.checkpoint, sizeof(g.checkpoint), "%s/checkpoint", bench->dir);
    snprintf(g.shard, sizeof(g.shard), "%s/__0_0.distcp", g.checkpoint);
    snprintf(g.file, sizeof(g.file), "%s/plain", bench->dir);
    for (uint64_t size = SMALLEST_BYTES; size <= bytes && count < MAX_SIZES; size *= 2)
        size_init(&sizes[count++], size);
    for (unsigned run = 0; run < bench->runs; run++)
        for (unsigned i = 0; i < count; i++)
            measure(&g, &sizes[i], SMALLEST_BYTES << i, run + 1);
    for (unsigned i = 0; i < count; i++) {
        bench_report(&sizes[i].save);
        bench_report(&sizes[i].load);
    }
}
