/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hold.c -- measures what an asynchronous save costs the trainer, with snapshots by write
 * protection (cow) and by copy.
 *
 * The rows show the time of the call, and the lost time: the call and the next step, which rewrites
 * the whole state, minus the same step without a save. They also show memory and processor time of
 * a save whose trainer waits until everything is written, and the lost time with a small pool.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* When the trainer rewrites its state after the call. */
enum trainer { AT_ONCE, AFTER_200_MS, AFTER_THE_WRITE, TRAINERS };

static const char *const trainer_names[] = {"rewrites at once", "computes 200 ms first",
                                            "computes until it is written"};

struct hold_bench {
    const struct bench *bench;
    struct bench_state state;
    struct sidestep_engine *engines[2]; /* cow, copy */
    uint64_t resident;                  /* bytes, before an engine existed */
    char checkpoint[4096];
};

static void step(struct hold_bench *h)
{
    memset(h->state.memory, (int)bench_now() & 0xff, h->state.bytes);
}

static double timed_step(struct hold_bench *h)
{
    double began = bench_now();

    step(h);
    return bench_now() - began;
}

static void compute(enum trainer trainer, struct sidestep_save *save)
{
    struct sidestep_error err = {0};

    if (trainer == AFTER_200_MS)
        (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    else if (trainer == AFTER_THE_WRITE)
        bench_check(sidestep_save_wait(save, SIDESTEP_SAVE_WRITTEN, -1, &err), &err);
}

#define CAP_BYTES ((uint64_t)256 << 20)

struct cost {
    double call;
    double lost;
    double processor; /* seconds, from the call until the trainer rewrites the state */
    double memory;    /* peak of resident bytes, minus hold_bench.resident */
    double waited;    /* seconds: the longest wait of one write of the trainer */
};

static struct cost save_once(struct hold_bench *h, struct sidestep_engine *engine,
                             enum trainer trainer)
{
    struct sidestep_error err = {0};
    struct sidestep_save *save = NULL;
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;

    bench_warm_free(h->state.bytes / 4);
    step(h);
    double plain = timed_step(h);
    bench_peak_reset();
    double began = bench_now(), processor = bench_cpu();
    bench_check(sidestep_save_async(engine, h->checkpoint, h->state.dict, NULL, &save, &err), &err);
    double call = bench_now() - began;
    compute(trainer, save);
    processor = bench_cpu() - processor;
    double lost = call + timed_step(h) - plain;
    bench_check(sidestep_save_finish(&save, &info, &err), &err);
    bench_remove(h->checkpoint);
    uint64_t peak = bench_peak_bytes();
    return (struct cost){.call = call,
                         .lost = lost,
                         .processor = processor,
                         .memory = peak > h->resident ? (double)(peak - h->resident) : 0,
                         .waited = (double)info.fault_max_ns * 1e-9};
}

static void measure(struct hold_bench *h, enum trainer trainer, const char *pages)
{
    char call_name[96], lost_name[96], processor_name[96], waited_name[96];
    struct bench_row call = {.what = call_name, .reference = "by copy", .kind = BENCH_STALL};
    struct bench_row lost = {.what = lost_name, .reference = "by copy", .kind = BENCH_STALL};
    struct bench_row processor = {
        .what = processor_name, .reference = "by copy", .kind = BENCH_STALL};
    struct bench_row waited = {.what = waited_name, .kind = BENCH_DURATION};

    snprintf(processor_name, sizeof(processor_name), "cow, processor time, %s", pages);
    snprintf(call_name, sizeof(call_name), "cow call, %s", pages);
    snprintf(lost_name, sizeof(lost_name), "cow, time lost, %s, %s", pages, trainer_names[trainer]);
    snprintf(waited_name, sizeof(waited_name), "cow, longest wait, %s, %s", pages,
             trainer_names[trainer]);
    for (unsigned i = 0; i < 2; i++) /* the engine learns how this trainer behaves */
        (void)save_once(h, h->engines[0], trainer);
    for (unsigned i = 0; i < h->bench->runs; i++) {
        struct cost cow = save_once(h, h->engines[0], trainer);
        struct cost copy = save_once(h, h->engines[1], trainer);
        bench_add(&call.ours, cow.call);
        bench_add(&call.theirs, copy.call);
        bench_add(&lost.ours, cow.lost);
        bench_add(&lost.theirs, copy.lost);
        bench_add(&processor.ours, cow.processor);
        bench_add(&processor.theirs, copy.processor);
        bench_add(&waited.ours, cow.waited);
    }
    if (trainer == AFTER_THE_WRITE) {
        bench_report(&call);
        bench_report(&processor);
    } else {
        bench_report(&waited);
    }
    bench_report(&lost);
}

static void open_engine(struct hold_bench *h, unsigned i, enum sidestep_snapshot snapshot,
                        uint64_t pool_bytes)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_error err = {0};

    options.snapshot = snapshot;
    options.pool_bytes = pool_bytes;
    bench_check(sidestep_engine_open(&h->engines[i], &options, &err), &err);
    bench_check(sidestep_engine_prepare(h->engines[i], h->state.dict, &err), &err);
    (void)save_once(h, h->engines[i], AFTER_THE_WRITE); /* the first save plans */
}

/* Measure the memory of one engine, while the process has no other. The first save copies ahead.
 * After several saves that need no copies, the engine returns memory. */
static void measure_memory(struct hold_bench *h, uint64_t pool_bytes)
{
    struct sidestep_error err = {0};
    struct bench_row memory = {.what = pool_bytes == 0 ? "cow, extra memory"
                                                       : "cow, extra memory, pool of 256 MiB",
                               .kind = BENCH_MEMORY,
                               .goal = (double)CAP_BYTES};

    open_engine(h, 0, SIDESTEP_SNAPSHOT_COW, pool_bytes);
    for (unsigned i = 0; i < 4; i++)
        (void)save_once(h, h->engines[0], AFTER_THE_WRITE);
    for (unsigned i = 0; i < h->bench->runs; i++)
        bench_add(&memory.ours, save_once(h, h->engines[0], AFTER_THE_WRITE).memory);
    bench_report(&memory);
    bench_check(sidestep_engine_close(&h->engines[0], &err), &err);
}

void bench_hold(const struct bench *bench, uint64_t bytes)
{
    struct hold_bench h = {.bench = bench};
    struct sidestep_error err = {0};
    struct sidestep_huge_pages report = SIDESTEP_HUGE_PAGES_INIT;
    struct bench_row collapse = {
        .what = "4 KiB pages made huge", .kind = BENCH_DURATION, .bytes = bytes};

    bench_state_make(&h.state, bytes, BENCH_WHOLE, 1, 0);
    bench_state_fill(&h.state, 1);
    snprintf(h.checkpoint, sizeof(h.checkpoint), "%s/checkpoint", bench->dir);
    h.resident = bench_resident_bytes();
    measure_memory(&h, 0);
    open_engine(&h, 0, SIDESTEP_SNAPSHOT_COW, 0);
    open_engine(&h, 1, SIDESTEP_SNAPSHOT_COPY, 0);
    /* Trainers that write late come first: a save learns from those before it. */
    for (unsigned t = TRAINERS; t-- != 0;)
        measure(&h, (enum trainer)t, "4 KiB pages");
    bench_check(sidestep_state_dict_huge_pages(h.state.dict, &report, &err), &err);
    bench_add(&collapse.ours, (double)report.took_ns / 1e9);
    bench_report(&collapse);
    bench_check(sidestep_engine_close(&h.engines[0], &err), &err);
    open_engine(&h, 0, SIDESTEP_SNAPSHOT_COW, 0);
    for (unsigned t = TRAINERS; t-- != 0;)
        measure(&h, (enum trainer)t, "huge pages");
    bench_check(sidestep_engine_close(&h.engines[0], &err), &err);
    h.resident = bench_resident_bytes();
    measure_memory(&h, CAP_BYTES); /* only one engine at a time can protect a state */
    open_engine(&h, 0, SIDESTEP_SNAPSHOT_COW, CAP_BYTES);
    for (unsigned t = TRAINERS; t-- != 0;)
        measure(&h, (enum trainer)t, "huge pages, pool of 256 MiB");
    for (unsigned i = 0; i < 2; i++)
        bench_check(sidestep_engine_close(&h.engines[i], &err), &err);
    bench_state_free(&h.state);
}
