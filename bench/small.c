/* SPDX-License-Identifier: BSD-3-Clause */
/* small.c -- measures saves and loads of many small tensors against a few large tensors with as
 * many bytes. */
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

/* Make ${count} tensors of equal size in ${memory}. */
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

enum small_row { NEW, OVER, COLD, WARM, ROWS };

static void one_round(struct layout *l, double times[ROWS])
{
    times[NEW] = save(l);
    times[OVER] = save(l);
    bench_make_cold(l->checkpoint);
    times[COLD] = load(l);
    bench_make_warm(l->checkpoint);
    times[WARM] = load(l);
    bench_remove(l->checkpoint);
}

static void measure(const struct bench *bench, struct layout *small, struct layout *large)
{
    static const char *const whats[ROWS] = {"save, 100,000 tensors of 4 KiB",
                                            "... over an older checkpoint", "load, cold, the same",
                                            "load from the page cache, the same"};
    struct bench_row rows[ROWS];
    double ours[ROWS], theirs[ROWS];

    for (unsigned r = 0; r < ROWS; r++)
        rows[r] = (struct bench_row){.what = whats[r],
                                     .reference = "100 tensors of 4 MB",
                                     .kind = BENCH_SPEED,
                                     .goal = 0.5,
                                     .bytes = SMALL_COUNT * SMALL_BYTES};
    for (unsigned i = 0; i <= bench->runs; i++) { /* run 0 plans and is not counted */
        one_round(small, ours);
        one_round(large, theirs);
        for (unsigned r = 0; r < ROWS && i != 0; r++) {
            bench_add(&rows[r].ours, ours[r]);
            bench_add(&rows[r].theirs, theirs[r]);
        }
    }
    for (unsigned r = 0; r < ROWS; r++)
        bench_report(&rows[r]);
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
