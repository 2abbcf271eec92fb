/* SPDX-License-Identifier: BSD-3-Clause */
/* save.c -- measures how fast a blocking save is, and how long an asynchronous one stops the
 * trainer. */
#include "bench.h"

#include <stdio.h>

struct save_bench {
    const struct bench *bench;
    struct bench_state state;
    struct sidestep_engine *engine;
    void *copy;               /* of the state, for the plain copy, on huge pages */
    struct bench_samples cpu; /* seconds per GiB of the blocking saves */
    char checkpoint[4096];
    char file[4096];
};

static void warm(struct save_bench *s)
{
    bench_touch(s->state.memory, s->state.bytes);
    bench_warm_free(s->state.bytes + ((uint64_t)64 << 20));
}

static double save_blocking(struct save_bench *s)
{
    struct sidestep_error err = {0};

    warm(s);
    double cpu = bench_cpu(), began = bench_now();
    bench_check(sidestep_save(s->engine, s->checkpoint, s->state.dict, NULL, NULL, &err), &err);
    double seconds = bench_now() - began;
    bench_add(&s->cpu, bench_cpu_per_gib(cpu, s->state.bytes));
    bench_remove(s->checkpoint);
    return seconds;
}

static double write_plain_file(struct save_bench *s, bool direct)
{
    warm(s);
    double seconds = bench_write_file(s->file, s->state.memory, s->state.bytes, direct);
    bench_remove(s->file);
    return seconds;
}

static double save_async(struct save_bench *s)
{
    struct sidestep_error err = {0};
    struct sidestep_save *save = NULL;

    warm(s);
    double began = bench_now();
    bench_check(sidestep_save_async(s->engine, s->checkpoint, s->state.dict, NULL, &save, &err),
                &err);
    double seconds = bench_now() - began;
    bench_check(sidestep_save_finish(&save, NULL, &err), &err);
    bench_remove(s->checkpoint);
    return seconds;
}

static double copy_state(struct save_bench *s)
{
    warm(s);
    bench_touch(s->copy, s->state.bytes);
    double began = bench_now();
    bench_copy(s->copy, s->state.memory, s->state.bytes, s->bench->cpus);
    return bench_now() - began;
}

static void measure_blocking(struct save_bench *s)
{
    struct bench_row buffered = {
        .what = "blocking save",
        .reference = "pwrite, fsync",
        .kind = BENCH_SPEED,
        .goal = 0.85,
        .bytes = s->state.bytes,
    };
    struct bench_row direct = buffered;
    struct bench_row cpu = {
        .what = "blocking save, processor time a GiB", .kind = BENCH_CPU, .goal = 0.25};

    direct.reference = "pwrite O_DIRECT, fsync";
    direct.goal = 0;
    s->cpu.count = 0;
    for (unsigned i = 0; i < s->bench->runs; i++) {
        bench_add(&buffered.ours, save_blocking(s));
        bench_add(&buffered.theirs, write_plain_file(s, false));
        bench_add(&direct.theirs, write_plain_file(s, true));
    }
    direct.ours = buffered.ours;
    cpu.ours = s->cpu;
    bench_report(&buffered);
    bench_report(&direct);
    bench_report(&cpu);
}

static void measure_async(struct save_bench *s)
{
    struct bench_row row = {
        .what = "async call",
        .reference = "parallel memcpy",
        .kind = BENCH_STALL,
        .goal = 1.15,
        .bytes = s->state.bytes,
    };

    for (unsigned i = 0; i < s->bench->runs; i++) {
        bench_add(&row.ours, save_async(s));
        bench_add(&row.theirs, copy_state(s));
    }
    bench_report(&row);
}

/* Measure the memory of a save besides the pool, which exists already. */
static void measure_memory(struct save_bench *s)
{
    struct sidestep_error err = {0};
    struct bench_row row = {
        .what = "memory of a save beyond the pool", .kind = BENCH_MEMORY, .goal = 64 << 20};
    uint64_t before = bench_resident_bytes();

    bench_peak_reset();
    bench_check(sidestep_save(s->engine, s->checkpoint, s->state.dict, NULL, NULL, &err), &err);
    uint64_t peak = bench_peak_bytes();
    bench_add(&row.ours, (double)(peak > before ? peak - before : 0));
    bench_remove(s->checkpoint);
    bench_report(&row);
}

void bench_save(const struct bench *bench, uint64_t bytes)
{
    struct save_bench s = {.bench = bench};
    struct sidestep_error err = {0};

    bench_state_make(&s.state, bytes, BENCH_WHOLE, 1, 0);
    bench_state_fill(&s.state, 1);
    s.copy = bench_map(s.state.bytes, true);
    snprintf(s.checkpoint, sizeof(s.checkpoint), "%s/checkpoint", bench->dir);
    snprintf(s.file, sizeof(s.file), "%s/plain", bench->dir);
    bench_check(sidestep_engine_open(&s.engine, NULL, &err), &err);
    bench_check(sidestep_engine_prepare(s.engine, s.state.dict, &err), &err);
    (void)save_blocking(&s); /* the first save plans */
    measure_memory(&s);
    measure_blocking(&s);
    measure_async(&s);
    bench_check(sidestep_engine_close(&s.engine, &err), &err);
    bench_unmap(s.copy, s.state.bytes);
    bench_state_free(&s.state);
}
