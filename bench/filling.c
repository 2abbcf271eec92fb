/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * filling.c -- measures a program that reads a file into its state with one pread(2), while a save
 * with a small pool has write-protected the state and the disk writes 24 MB/s.
 *
 * The call waits in the kernel until the pool has room. While a signal is pending, the kernel
 * retries the write instead of waiting. The rows show how many faults the handlers get then, and
 * how much processor time they take.
 */
#include "bench.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define STATE_BYTES ((uint64_t)64 << 20)
#define CAP_BYTES ((uint64_t)16 << 20)
#define HANDLERS "sidestep-fault"
#define DISK_BYTES_PER_SECOND 24000000u

struct filling_bench {
    struct sidestep_state_dict *dict;
    unsigned char *memory;
    struct sidestep_engine *engine;
    char checkpoint[4096];
    int file;
};

static void take_signal(int number)
{
    (void)number; /* interrupts a wait */
}

/* Schedule a signal that arrives while the call waits. It stays pending until the call returns. */
static void send_signal_soon(void)
{
    struct itimerval soon = {.it_value = {.tv_usec = 50000}};
    struct sigaction action = {.sa_handler = take_signal, .sa_flags = SA_RESTART};

    if (sigaction(SIGALRM, &action, NULL) != 0 || setitimer(ITIMER_REAL, &soon, NULL) != 0)
        bench_die("cannot send a signal");
}

/* Processor seconds of this process's threads whose name begins with ${name}. */
static double thread_seconds(const char *name)
{
    double seconds = 0;
    DIR *tasks = opendir("/proc/self/task");

    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        char path[300], comm[32] = "";
        unsigned long long ran_ns = 0;
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "re");
        bool matches = file != NULL && fgets(comm, sizeof(comm), file) != NULL &&
                       strncmp(comm, name, strlen(name)) == 0;
        if (file != NULL)
            (void)fclose(file);
        snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", task->d_name);
        file = matches ? fopen(path, "re") : NULL;
        if (file != NULL && fscanf(file, "%llu", &ran_ns) == 1)
            seconds += (double)ran_ns / 1e9;
        if (file != NULL)
            (void)fclose(file);
    }
    if (tasks != NULL)
        (void)closedir(tasks);
    return seconds;
}

struct cost {
    double processor;
    double faults;
    double seconds;
};

static struct cost fill_once(struct filling_bench *f, bool interrupted)
{
    struct sidestep_error err = {0};
    struct sidestep_save *save = NULL;
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;

    bench_check(sidestep_save_async(f->engine, f->checkpoint, f->dict, NULL, &save, &err), &err);
    double processor = thread_seconds(HANDLERS), began = bench_now();
    if (interrupted)
        send_signal_soon();
    if (pread(f->file, f->memory, STATE_BYTES, 0) != (ssize_t)STATE_BYTES)
        bench_die("cannot read the file");
    struct cost cost = {.processor = thread_seconds(HANDLERS) - processor,
                        .seconds = bench_now() - began};
    bench_check(sidestep_save_finish(&save, &info, &err), &err);
    bench_remove(f->checkpoint);
    cost.faults = (double)info.faults;
    return cost;
}

static void measure(struct filling_bench *f, unsigned runs)
{
    struct bench_row faults = {.what = "read(2) into a held state, interrupted: faults",
                               .reference = "not interrupted",
                               .kind = BENCH_COUNT};
    struct bench_row processor = {.what = "... processor time of fault handlers",
                                  .reference = "not interrupted",
                                  .kind = BENCH_CPU};
    struct bench_row duration = {
        .what = "... until it returns", .reference = "not interrupted", .kind = BENCH_STALL};

    for (unsigned i = 0; i < runs; i++) {
        struct cost ours = fill_once(f, true), theirs = fill_once(f, false);
        bench_add(&faults.ours, ours.faults);
        bench_add(&faults.theirs, theirs.faults);
        bench_add(&processor.ours, ours.processor);
        bench_add(&processor.theirs, theirs.processor);
        bench_add(&duration.ours, ours.seconds);
        bench_add(&duration.theirs, theirs.seconds);
    }
    bench_report(&faults);
    bench_report(&processor);
    bench_report(&duration);
}

static void make_state(struct filling_bench *f)
{
    struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;
    struct sidestep_error err = {0};
    int64_t shape[] = {(int64_t)STATE_BYTES};

    f->memory = bench_map(STATE_BYTES, false);
    tensor.name = "weight";
    tensor.dtype = SIDESTEP_UINT8;
    tensor.ndim = 1;
    tensor.shape = shape;
    tensor.data = f->memory;
    bench_check(sidestep_state_dict_new(&f->dict, &err), &err);
    bench_check(sidestep_state_dict_add_tensor(f->dict, &tensor, &err), &err);
}

static void open_file(struct filling_bench *f, const char *dir)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/input", dir);
    f->file = open(path, O_RDWR | O_CREAT, 0600);
    if (f->file < 0 || pwrite(f->file, f->memory, STATE_BYTES, 0) != (ssize_t)STATE_BYTES)
        bench_die("cannot write %s", path);
    (void)unlink(path);
}

void bench_filling(const struct bench *bench)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_error err = {0};
    struct filling_bench f = {0};

    make_state(&f);
    snprintf(f.checkpoint, sizeof(f.checkpoint), "%s/checkpoint", bench->dir);
    open_file(&f, bench->dir);
    options.snapshot = SIDESTEP_SNAPSHOT_COW;
    options.pool_bytes = CAP_BYTES;
    options.write_bytes_per_second = DISK_BYTES_PER_SECOND;
    bench_check(sidestep_engine_open(&f.engine, &options, &err), &err);
    (void)fill_once(&f, false); /* the first save plans */
    measure(&f, bench->runs);
    bench_check(sidestep_engine_close(&f.engine, &err), &err);
    (void)close(f.file);
    sidestep_state_dict_free(&f.dict);
    bench_unmap(f.memory, STATE_BYTES);
}
