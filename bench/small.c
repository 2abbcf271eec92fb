/* SPDX-License-Identifier: BSD-3-Clause */
/* small.c -- see bench.h: many small tensors against a few large ones of the same bytes. */
#include "bench.h"

#include <stdio.h>

#define SMALL_COUNT 100000u
#define SMALL_BYTES ((uint64_t)4096)
#define LARGE_COUNT 100u

struct layout {
    struct sidestep_state_dict *dict;
    struct sidestep_engine *engine;
    char checkpoint[4096];
};

/* ${count} tensors of equal size over ${memory}. */
static void make(struct layout *l, const struct bench *bench, unsigned char *memory, unsigned count)
{
    const uint64_t bytes = SMALL_COUNT * SMALL_BYTES / count;
    const int64_t zero = 0, length = (int64_t)(bytes / sizeof(float));
    struct sidestep_error err = {0};
    char name[64];

    bench_check(sidestep_state_dict_new(&l->dict, &err), &err);
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "model.block.%u.weight", i);
        struct sidestep_tensor tensor = {
            .struct_size = sizeof(tensor),
            .name = name,
            .dtype = SIDESTEP_FLOAT32,
            .ndim = 1,
            .shape = &length,
            .offsets = &zero,
            .lengths = &length,
            .data = memory + i * bytes,
        };
        bench_check(sidestep_state_dict_add_tensor(l->dict, &tensor, &err), &err);
    }
    snprintf(l->checkpoint, sizeof(l->checkpoint), "%s/checkpoint-%u", bench->dir, count);
    bench_check(sidestep_engine_open(&l->engine, NULL, &err), &err);
    bench_check(sidestep_engine_prepare(l->engine, l->dict, &err), &err);
}

static void release(struct layout *l)
{
    struct sidestep_error err = {0};

    bench_check(sidestep_engine_close(&l->engine, &err), &err);
    sidestep_state_dict_free(&l->dict);
}

static double save(struct layout *l)
{
    struct sidestep_error err = {0};
    double began = bench_now();

    bench_check(sidestep_save(l->engine, l->checkpoint, l->dict, NULL, NULL, &err), &err);
    return bench_now() - began;
}

static double load(struct layout *l)
{
    struct sidestep_error err = {0};
    double began = bench_now();

    bench_check(sidestep_load(l->engine, l->checkpoint, l->dict, NULL, NULL, &err), &err);
    return bench_now() - began;
}

static void measure(const struct bench *bench, struct layout *small, struct layout *large)
{
    struct bench_row saves = {.what = "save, 100,000 tensors of 4 KiB",
                              .reference = "100 tensors of 4 MB",
                              .kind = BENCH_SPEED,
                              .goal = 0.5,
                              .bytes = SMALL_COUNT * SMALL_BYTES};
    struct bench_row loads = saves;

    loads.what = "load from the page cache, the same";
    for (unsigned i = 0; i <= bench->runs; i++) {
        double ours = save(small), theirs = save(large);
        bench_make_warm(small->checkpoint);
        bench_make_warm(large->checkpoint);
        double our_load = load(small), their_load = load(large);
        bench_remove(small->checkpoint);
        bench_remove(large->checkpoint);
        if (i == 0)
            continue; /* plans */
        bench_add(&saves.ours, ours);
        bench_add(&saves.theirs, theirs);
        bench_add(&loads.ours, our_load);
        bench_add(&loads.theirs, their_load);
    }
    bench_report(&saves);
    bench_report(&loads);
}

void bench_small(const struct bench *bench)
{
    unsigned char *memory = bench_map(SMALL_COUNT * SMALL_BYTES, false);
    struct layout small = {0}, large = {0};

    for (uint64_t i = 0; i < SMALL_COUNT * SMALL_BYTES; i++)
        memory[i] = (unsigned char)(i * 2654435761u >> 24);
    make(&small, bench, memory, SMALL_COUNT);
    make(&large, bench, memory, LARGE_COUNT);
    measure(bench, &small, &large);
    release(&small);
    release(&large);
    bench_unmap(memory, SMALL_COUNT * SMALL_BYTES);
}
