/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scale_load.c -- counts the file system calls of a rank in a load by thousands of ranks.
 *
 * Four ranks of each load run, one after the other: the first two, one in the middle, and the last.
 * A communicator simulates the others: it records what rank 0 broadcasts, and replays it for the
 * ranks that run later. The checkpoints remain, so that python_scale.py can load them with stock
 * torch.
 */
#include "bench.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"

#define TENSORS 50u
#define MANY_TENSORS 1000u
#define MEMORY_GOAL (64.0 * (1 << 20))
#define COLUMNS 8
#define MAX_ROWS 2
#define LIVE 4u

enum part { OWN_PART, SAME_PART, HALF, ONE_RANK };
static const char *const part_names[] = {"own part", "same part", "resharded to half",
                                         "a part of one shard"};

/* ---- a store that counts calls */

struct calls {
    uint64_t opens, reads, stats, bytes;
};
static struct calls calls; /* of the running rank */
static struct store_ops counting;

static enum sidestep_status count_open(struct store_dir *at, const char *name, uint32_t flags,
                                       struct store_file **out, struct sidestep_error *err)
{
    __atomic_fetch_add(&calls.opens, 1, __ATOMIC_RELAXED);
    return store_posix()->ops->file_open(at, name, flags, out, err);
}

static enum sidestep_status count_read(struct store_file *file, void *to, size_t bytes,
                                       uint64_t offset, struct sidestep_error *err)
{
    __atomic_fetch_add(&calls.reads, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&calls.bytes, bytes, __ATOMIC_RELAXED);
    return store_posix()->ops->file_read_at(file, to, bytes, offset, err);
}

static enum sidestep_status count_stat(struct store_dir *at, const char *name,
                                       struct store_stat *out, struct sidestep_error *err)
{
    __atomic_fetch_add(&calls.stats, 1, __ATOMIC_RELAXED);
    return store_posix()->ops->stat(at, name, out, err);
}

static struct store *counting_store(void)
{
    static struct store store = {.ops = &counting};

    counting = *store_posix()->ops;
    counting.file_open = count_open;
    counting.file_read_at = count_read;
    counting.stat = count_stat;
    counting.file_async_fd = NULL; /* so that every read calls count_read() */
    return &store;
}

/* ---- simulated ranks */

struct simulation {
    char path[4096];
    unsigned savers, loaders, tensors;
    enum part part;
    struct buffer sent; /* what rank 0 broadcast, concatenated */
    size_t taken;       /* bytes of ${sent} that the running rank has received */
    int32_t rank;       /* the running rank */
};

static int all_reduce_max(void *context, uint64_t *values, size_t count)
{
    (void)context, (void)values, (void)count; /* the other ranks' values are equal or 0 */
    return 0;
}

static int broadcast(void *context, void *buffer, size_t bytes, int32_t root)
{
    struct simulation *stage = context;

    if (root != 0)
        return -1;
    if (stage->rank == 0) {
        buffer_put(&stage->sent, buffer, bytes);
        return 0;
    }
    if (bytes > stage->sent.length - stage->taken)
        return -1;
    memcpy(buffer, stage->sent.bytes + stage->taken, bytes);
    stage->taken += bytes;
    return 0;
}

static int gather(void *context, const void *send, size_t bytes, void *recv, const size_t *each)
{
    (void)context, (void)send, (void)bytes, (void)recv, (void)each;
    return -1;
}

static int scatter(void *context, const void *send, const size_t *each, void *recv, size_t bytes)
{
    (void)context, (void)send, (void)each, (void)recv, (void)bytes;
    return -1; /* a load neither gathers nor scatters */
}

/* ---- one rank */

static void fill_state(const struct simulation *stage, struct sidestep_state_dict *state,
                       int64_t rank, float data[MANY_TENSORS][MAX_ROWS][COLUMNS])
{
    int64_t rows = stage->part == HALF ? 2 : 1;
    struct sidestep_error err = {0};

    for (unsigned t = 0; t < stage->tensors; t++) {
        char name[64];
        const struct sidestep_tensor tensor = {
            .struct_size = sizeof(tensor),
            .name = name,
            .dtype = SIDESTEP_FLOAT32,
            .ndim = 2,
            .shape = (int64_t[]){stage->savers, COLUMNS},
            .offsets =
                (int64_t[]){stage->part == SAME_PART || stage->part == ONE_RANK ? 0 : rank * rows,
                            0},
            .lengths = (int64_t[]){rows, COLUMNS},
            .data = data[t]};
        snprintf(name, sizeof(name), "model.layers.%u.mlp.weight.%u", t / 12, t);
        bench_check(sidestep_state_dict_add_tensor(state, &tensor, &err), &err);
    }
}

/* Returns the processor time that the load took, in seconds. */
static double run_rank(struct simulation *stage, int32_t rank)
{
    static float data[MANY_TENSORS][MAX_ROWS][COLUMNS];
    struct sidestep_comm comm = {.struct_size = sizeof(comm),
                                 .context = stage,
                                 .rank = rank,
                                 .size = (int32_t)stage->loaders,
                                 .all_reduce_max = all_reduce_max,
                                 .broadcast = broadcast,
                                 .gather = gather,
                                 .scatter = scatter};
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_state_dict *state = NULL;
    struct sidestep_error err = {0};

    stage->rank = rank;
    options.comm = &comm;
    options.threads = 1;
    bench_check(sidestep_engine_open(&engine, &options, &err), &err);
    engine->store = counting_store();
    if (rank == 0) /* discard what opening the engine broadcast */
        buffer_release(&stage->sent);
    stage->taken = 0;
    calls = (struct calls){0};
    bench_check(sidestep_state_dict_new(&state, &err), &err);
    fill_state(stage, state, rank, data);
    bench_peak_reset();
    double began = bench_cpu();
    bench_check(sidestep_load(engine, stage->path, state, NULL, NULL, &err), &err);
    double seconds = bench_cpu() - began;
    sidestep_state_dict_free(&state);
    bench_check(sidestep_engine_close(&engine, &err), &err);
    return seconds;
}

/* ---- a load */

static void report(const struct simulation *stage, const char *what,
                   const struct bench_samples *samples)
{
    char text[128];
    struct bench_row row = {.what = text, .kind = BENCH_COUNT, .ours = *samples};

    snprintf(text, sizeof(text), "load by %u rank%s, %s: %s", stage->loaders,
             stage->loaders == 1 ? "" : "s", part_names[stage->part], what);
    bench_report(&row);
}

static void measure(struct simulation *stage, enum part part)
{
    struct bench_samples opens = {0}, reads = {0}, stats = {0}, bytes = {0};

    stage->part = part;
    stage->loaders = part == ONE_RANK ? 1 : part == HALF ? stage->savers / 2 : stage->savers;
    const int32_t last = (int32_t)stage->loaders - 1;
    const int32_t ranks[LIVE] = {0, 1, last / 2, last};
    for (unsigned i = 0; i < (part == ONE_RANK ? 1 : LIVE); i++) {
        run_rank(stage, ranks[i]);
        bench_add(&opens, (double)calls.opens);
        bench_add(&reads, (double)calls.reads);
        bench_add(&stats, (double)calls.stats);
        bench_add(&bytes, (double)calls.bytes);
    }
    report(stage, "opens of a rank", &opens);
    report(stage, "reads of a rank", &reads);
    report(stage, "stats of names of a rank", &stats);
    report(stage, "bytes of a rank", &bytes);
    buffer_release(&stage->sent);
}

static void simulation_init(struct simulation *stage, const struct bench *bench, const char *name)
{
    snprintf(stage->path, sizeof(stage->path), "%s/%s", bench->dir, name);
    bench_plan_save(stage->path, stage->savers, stage->tensors);
}

/* As run_rank(). ${extra}: peak of memory that the load took. */
static double run_measured(struct simulation *stage, int32_t rank, uint64_t *extra)
{
    (void)malloc_trim(0); /* memory that malloc() keeps free would hide what the load takes */
    uint64_t before = bench_resident_bytes();
    double seconds = run_rank(stage, rank);
    uint64_t peak = bench_peak_bytes();

    *extra = peak > before ? peak - before : 0;
    return seconds;
}

/* Measure processor time and memory of a rank, without collectives, in a load of the checkpoint
 * with many chunks. */
static void measure_many(const struct bench *bench, struct simulation *stage, unsigned loaders)
{
    char text[128];
    struct bench_row rows[] = {
        {.what = text, .kind = BENCH_DURATION, .goal = 0.3},
        {.what = "... its memory", .kind = BENCH_MEMORY, .goal = MEMORY_GOAL},
        {.what = "... rank 0, processor time", .kind = BENCH_DURATION},
        {.what = "... its memory", .kind = BENCH_MEMORY, .goal = MEMORY_GOAL},
        {.what = "... bytes that each rank receives", .kind = BENCH_MEMORY},
    };

    stage->loaders = loaders;
    snprintf(text, sizeof(text),
             "load by %u rank%s of 1,000 tensors of 1,024: last rank, processor time", loaders,
             loaders == 1 ? "" : "s");
    for (unsigned i = 0; i < bench->runs; i++) {
        uint64_t extra;
        buffer_release(&stage->sent);
        bench_add(&rows[2].ours, run_measured(stage, 0, &extra));
        bench_add(&rows[3].ours, (double)extra - (double)stage->sent.length);
        if (loaders > 1) {
            bench_add(&rows[0].ours, run_measured(stage, (int32_t)loaders - 1, &extra));
            bench_add(&rows[1].ours, (double)extra);
            bench_add(&rows[4].ours, (double)stage->sent.length);
        }
    }
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++)
        if (rows[i].ours.count != 0)
            bench_report(&rows[i]);
}

static void measure_all_many(const struct bench *bench)
{
    struct simulation stage = {.savers = 1024, .tensors = MANY_TENSORS, .part = OWN_PART};

    simulation_init(&stage, bench, "many");
    measure_many(bench, &stage, 1024);
    measure_many(bench, &stage, 4);
    measure_many(bench, &stage, 1);
    bench_remove(stage.path);
    buffer_release(&stage.sent);
}

void bench_scale_load(const struct bench *bench)
{
    static const unsigned sizes[] = {64, 256, 1024, 4096};

    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct simulation stage = {.savers = sizes[i], .tensors = TENSORS};
        char name[32];
        snprintf(name, sizeof(name), "of-%u", sizes[i]);
        simulation_init(&stage, bench, name);
        measure(&stage, OWN_PART);
        measure(&stage, SAME_PART);
        measure(&stage, HALF);
        measure(&stage, ONE_RANK);
    }
    measure_all_many(bench);
}
