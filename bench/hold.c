/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hold.c -- see bench.h: what an asynchronous save costs the trainer, by write protection and by
 * copy: the call alone, and all the time that is lost to it: the call, and the step after it (which
 * rewrites the whole state) against the same step without a save.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* What the trainer does between the call and the step. */
enum trainer { AT_ONCE, AFTER_200_MS, AFTER_THE_WRITE, TRAINERS };

static const char *const trainer_names[] = {"rewrites at once", "computes 200 ms first",
                                            "computes until it is written"};

struct holding {
    const struct bench *bench;
    struct bench_state state;
    struct sidestep_engine *engines[2]; /* cow, copy */
    char checkpoint[4096];
};

static void step(struct holding *h)
{
    memset(h->state.memory, (int)bench_now() & 0xff, h->state.bytes);
}

static double timed_step(struct holding *h)
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

struct cost {
    double call;
    double lost;
};

static struct cost save_once(struct holding *h, struct sidestep_engine *engine,
                             enum trainer trainer)
{
    struct sidestep_error err = {0};
    struct sidestep_save *save = NULL;
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;

    bench_warm_free(h->state.bytes / 4);
    step(h);
    double plain = timed_step(h);
    double began = bench_now();
    bench_check(sidestep_save_async(engine, h->checkpoint, h->state.dict, NULL, &save, &err), &err);
    double call = bench_now() - began;
    compute(trainer, save);
    double lost = call + timed_step(h) - plain;
    bench_check(sidestep_save_finish(&save, &info, &err), &err);
    bench_remove(h->checkpoint);
    return (struct cost){.call = call, .lost = lost};
}

static void measure(struct holding *h, enum trainer trainer, const char *pages)
{
    char call_name[96], lost_name[96];
    struct bench_row call = {.what = call_name, .reference = "by copy", .kind = BENCH_STALL};
    struct bench_row lost = {.what = lost_name, .reference = "by copy", .kind = BENCH_STALL};

    snprintf(call_name, sizeof(call_name), "cow call, %s", pages);
    snprintf(lost_name, sizeof(lost_name), "cow, time lost, %s, %s", pages, trainer_names[trainer]);
    for (unsigned i = 0; i < h->bench->runs; i++) {
        struct cost cow = save_once(h, h->engines[0], trainer);
        struct cost copy = save_once(h, h->engines[1], trainer);
        bench_add(&call.ours, cow.call);
        bench_add(&call.theirs, copy.call);
        bench_add(&lost.ours, cow.lost);
        bench_add(&lost.theirs, copy.lost);
    }
    if (trainer == AFTER_THE_WRITE)
        bench_report(&call);
    bench_report(&lost);
}

static void open_engine(struct holding *h, unsigned i, enum sidestep_snapshot snapshot)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_error err = {0};

    options.snapshot = snapshot;
    bench_check(sidestep_engine_open(&h->engines[i], &options, &err), &err);
    bench_check(sidestep_engine_prepare(h->engines[i], h->state.dict, &err), &err);
    (void)save_once(h, h->engines[i], AFTER_THE_WRITE); /* plans */
}

void bench_hold(const struct bench *bench, uint64_t bytes)
{
    struct holding h = {.bench = bench};
    struct sidestep_error err = {0};
    struct sidestep_huge_pages report = SIDESTEP_HUGE_PAGES_INIT;
    struct bench_row collapse = {
        .what = "4 KiB pages made huge", .kind = BENCH_DURATION, .bytes = bytes};

    bench_state_make(&h.state, bytes, BENCH_WHOLE, 1, 0);
    bench_state_fill(&h.state, 1);
    snprintf(h.checkpoint, sizeof(h.checkpoint), "%s/checkpoint", bench->dir);
    open_engine(&h, 0, SIDESTEP_SNAPSHOT_COW);
    open_engine(&h, 1, SIDESTEP_SNAPSHOT_COPY);
    for (enum trainer t = AT_ONCE; t < TRAINERS; t++)
        measure(&h, t, "4 KiB pages");
    bench_check(sidestep_state_dict_huge_pages(h.state.dict, &report, &err), &err);
    bench_add(&collapse.ours, (double)report.took_ns / 1e9);
    bench_report(&collapse);
    for (enum trainer t = AT_ONCE; t < TRAINERS; t++)
        measure(&h, t, "huge pages");
    for (unsigned i = 0; i < 2; i++)
        bench_check(sidestep_engine_close(&h.engines[i], &err), &err);
    bench_state_free(&h.state);
}
