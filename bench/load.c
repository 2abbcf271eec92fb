/* SPDX-License-Identifier: BSD-3-Clause */
/* load.c -- measures how fast a load and `sidestep verify` read a checkpoint and check its hashes.
 */
#include "bench.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

struct load_bench {
    const struct bench *bench;
    struct bench_state saved;
    struct bench_state target;
    struct sidestep_engine *engine;
    uint64_t file_bytes;
    struct bench_samples cpu; /* seconds per GiB of the loads */
    char checkpoint[4096];
    char shard[4200];
};

static void prepare(struct load_bench *l, bool cold)
{
    if (cold)
        bench_make_cold(l->checkpoint);
    else
        bench_make_warm(l->checkpoint);
    bench_touch(l->target.memory, l->target.bytes);
    if (cold)
        bench_warm_free(l->file_bytes + ((uint64_t)64 << 20));
}

static double load(struct load_bench *l, bool cold)
{
    struct sidestep_error err = {0};

    memset(l->target.memory, 0, l->target.bytes);
    prepare(l, cold);
    double cpu = bench_cpu(), began = bench_now();
    bench_check(sidestep_load(l->engine, l->checkpoint, l->target.dict, NULL, NULL, &err), &err);
    double seconds = bench_now() - began;
    bench_add(&l->cpu, bench_cpu_per_gib(cpu, l->target.bytes));
    if (memcmp(l->target.memory, l->saved.memory, l->saved.bytes) != 0)
        bench_die("the loaded state differs from the saved one");
    return seconds;
}

static double plain(struct load_bench *l, bool cold, bool whole)
{
    prepare(l, cold);
    return bench_read_file(l->shard, l->target.memory, whole, false);
}

static double verify(struct load_bench *l, bool cold)
{
    char *arguments[] = {(char *)(uintptr_t)l->bench->cli, (char *)(uintptr_t) "verify",
                         l->checkpoint, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status;

    prepare(l, cold);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    double began = bench_now();
    if (posix_spawn(&child, l->bench->cli, &actions, NULL, arguments, environ) != 0 ||
        waitpid(child, &status, 0) != child || status != 0)
        bench_die("'%s verify %s' failed", l->bench->cli, l->checkpoint);
    double seconds = bench_now() - began;
    posix_spawn_file_actions_destroy(&actions);
    return seconds;
}

static void measure(struct load_bench *l, bool cold)
{
    struct bench_row loads = {
        .what = cold ? "load, verified, cold" : "load, verified, from the page cache",
        .reference = "read into the tensors",
        .kind = BENCH_SPEED,
        .goal = cold ? 0.85 : 0,
        .bytes = l->saved.bytes,
    };
    struct bench_row verifies = {
        .what = cold ? "verify (the command), cold" : "verify (the command), from the page cache",
        .reference = "read into one buffer",
        .kind = BENCH_SPEED,
        .goal = cold ? 0.85 : 0,
        .bytes = l->file_bytes,
    };
    struct bench_row cpu = {.what = cold ? "load, cold, processor time a GiB"
                                         : "load, page cache, processor time a GiB",
                            .kind = BENCH_CPU,
                            .goal = 0.25};

    l->cpu.count = 0;
    for (unsigned i = 0; i < l->bench->runs; i++) {
        bench_add(&loads.ours, load(l, cold));
        bench_add(&loads.theirs, plain(l, cold, true));
        bench_add(&verifies.ours, verify(l, cold));
        bench_add(&verifies.theirs, plain(l, cold, false));
    }
    cpu.ours = l->cpu;
    bench_report(&loads);
    bench_report(&cpu);
    bench_report(&verifies);
}

void bench_load(const struct bench *bench, uint64_t bytes)
{
    struct load_bench l = {.bench = bench};
    struct sidestep_error err = {0};

    bench_state_make(&l.saved, bytes, BENCH_WHOLE, 1, 0);
    bench_state_fill(&l.saved, 2);
    bench_state_make(&l.target, bytes, BENCH_WHOLE, 1, 0);
    snprintf(l.checkpoint, sizeof(l.checkpoint), "%s/checkpoint", bench->dir);
    snprintf(l.shard, sizeof(l.shard), "%s/__0_0.distcp", l.checkpoint);
    bench_check(sidestep_engine_open(&l.engine, NULL, &err), &err);
    bench_check(sidestep_save(l.engine, l.checkpoint, l.saved.dict, NULL, NULL, &err), &err);
    l.file_bytes = bench_file_bytes(l.shard);
    if (l.file_bytes > l.target.bytes + BENCH_SLACK_BYTES)
        bench_die("the shard file has more than %llu bytes besides its data",
                  (unsigned long long)BENCH_SLACK_BYTES);
    measure(&l, true);
    measure(&l, false);
    bench_check(sidestep_engine_close(&l.engine, &err), &err);
    bench_remove(l.checkpoint);
    bench_state_free(&l.target);
    bench_state_free(&l.saved);
}
