/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * busy.c -- measures the processor time of an asynchronous save, and the time that it takes from a
 * trainer that keeps every processor busy and does not change its state until it is written.
 *
 * The trainer loses the time of the call, and its share of the processor time that the save takes
 * afterwards. Time that other programs take does not count. Snapshots are by write protection
 * (cow) and by copy.
 */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define MAX_THREADS 64u
#define SECONDS 2 /* a background save ends in this time even if it gets little processor time */

struct busy_bench {
    const struct bench *bench;
    struct bench_state state;
    char checkpoint[4096];
    pthread_t threads[MAX_THREADS];
    unsigned thread_count;
    atomic_bool stop;
    _Atomic uint64_t worked_ns; /* processor time of all threads */
};

static void *work(void *context)
{
    struct busy_bench *b = context;
    struct timespec took;
    volatile double x = 1;

    while (!atomic_load(&b->stop))
        for (int i = 0; i < 20000; i++)
            x = x * 0.999 + 0.001;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &took);
    atomic_fetch_add(&b->worked_ns, (uint64_t)took.tv_sec * 1000000000u + (uint64_t)took.tv_nsec);
    return NULL;
}

static void start_work(struct busy_bench *b)
{
    atomic_store(&b->stop, false);
    atomic_store(&b->worked_ns, 0);
    for (b->thread_count = 0; b->thread_count < b->bench->cpus && b->thread_count < MAX_THREADS;)
        if (pthread_create(&b->threads[b->thread_count++], NULL, work, b) != 0)
            bench_die("cannot start a thread");
}

static void stop_work(struct busy_bench *b)
{
    atomic_store(&b->stop, true);
    while (b->thread_count != 0)
        pthread_join(b->threads[--b->thread_count], NULL);
}

/* Seconds that the trainer loses. Nothing waits for the save, so it gets the processor time that
 * the trainer leaves. */
static double lost_by_save(struct busy_bench *b, struct sidestep_engine *engine)
{
    struct sidestep_error err = {0};
    struct sidestep_save *save = NULL;
    double began = bench_now();

    bench_check(sidestep_save_async(engine, b->checkpoint, b->state.dict, NULL, &save, &err), &err);
    double call = bench_now() - began, before = bench_cpu();
    start_work(b);
    (void)nanosleep(&(struct timespec){.tv_sec = SECONDS}, NULL);
    stop_work(b);
    bench_check(sidestep_save_finish(&save, NULL, &err), &err);
    double taken = bench_cpu() - before - (double)atomic_load(&b->worked_ns) * 1e-9;
    bench_remove(b->checkpoint);
    return call + taken / b->bench->cpus;
}

static double processor_of_save(struct busy_bench *b, struct sidestep_engine *engine)
{
    struct sidestep_error err = {0};
    struct sidestep_save *save = NULL;
    double before = bench_cpu();

    bench_check(sidestep_save_async(engine, b->checkpoint, b->state.dict, NULL, &save, &err), &err);
    bench_check(sidestep_save_finish(&save, NULL, &err), &err);
    double processor = bench_cpu_per_gib(before, b->state.bytes);
    bench_remove(b->checkpoint);
    return processor;
}

static void measure(struct busy_bench *b, enum sidestep_snapshot snapshot, const char *pages)
{
    const char *way = snapshot == SIDESTEP_SNAPSHOT_COW ? "cow" : "copy";
    char lost_name[96], processor_name[96];
    struct bench_row lost = {.what = lost_name, .kind = BENCH_DURATION};
    struct bench_row processor = {.what = processor_name, .kind = BENCH_CPU, .goal = 0.15};
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};

    snprintf(lost_name, sizeof(lost_name), "%s, lost by a trainer on all processors, %s", way,
             pages);
    snprintf(processor_name, sizeof(processor_name), "%s, processor time a GiB, %s", way, pages);
    options.snapshot = snapshot;
    bench_check(sidestep_engine_open(&engine, &options, &err), &err);
    for (unsigned i = 0; i < 2; i++) /* plan, and learn that the trainer writes late */
        (void)processor_of_save(b, engine);
    for (unsigned i = 0; i < b->bench->runs; i++) {
        bench_add(&processor.ours, processor_of_save(b, engine));
        bench_add(&lost.ours, lost_by_save(b, engine));
    }
    bench_report(&processor);
    bench_report(&lost);
    bench_check(sidestep_engine_close(&engine, &err), &err);
}

void bench_busy(const struct bench *bench, uint64_t bytes)
{
    struct busy_bench b = {.bench = bench};
    struct sidestep_error err = {0};
    struct sidestep_huge_pages report = SIDESTEP_HUGE_PAGES_INIT;

    bench_state_make(&b.state, bytes, BENCH_WHOLE, 1, 0);
    bench_state_fill(&b.state, 1);
    snprintf(b.checkpoint, sizeof(b.checkpoint), "%s/checkpoint", bench->dir);
    measure(&b, SIDESTEP_SNAPSHOT_COW, "4 KiB pages");
    measure(&b, SIDESTEP_SNAPSHOT_COPY, "4 KiB pages");
    bench_check(sidestep_state_dict_huge_pages(b.state.dict, &report, &err), &err);
    measure(&b, SIDESTEP_SNAPSHOT_COW, "huge pages");
    measure(&b, SIDESTEP_SNAPSHOT_COPY, "huge pages");
    bench_state_free(&b.state);
}
