/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * held.h -- saves tensors whose words contain an epoch, and writes the next epoch when the call
 * returns. For tests of snapshots: one save at a time, on one rank.
 */
#ifndef SUPPORT_HELD_H
#define SUPPORT_HELD_H

#include <dirent.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "sidestep/sidestep.h"
#include "support/scratch.h"
#include "support/unit.h"

#define MIB ((size_t)1 << 20)
#define WORDS(bytes) ((bytes) / sizeof(uint64_t))
#define MAX_TENSORS 4

static struct scratch scratch;
static bool cow_works; /* this machine allows write protection */
/* Options of the engines that begin() opens. */
static uint64_t held_pool_bytes; /* cap; 0: none */
static enum sidestep_io held_io;
static enum sidestep_copy_ahead held_ahead;

static struct job {
    struct sidestep_engine *engine;
    struct sidestep_save *save;
    struct sidestep_save_info info;
    struct sidestep_error err;
    struct {
        uint64_t *words;
        size_t bytes;
        int64_t stride;
        uint32_t flags;
    } tensors[MAX_TENSORS];
    size_t count;
    char path[128];
} job;

static inline void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    return memory;
}

static inline void begin(enum sidestep_snapshot snapshot)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    memset(&job, 0, sizeof(job));
    options.snapshot = snapshot;
    options.pool_bytes = held_pool_bytes;
    options.io = held_io;
    options.copy_ahead = held_ahead;
    snprintf(job.path, sizeof(job.path), "%s/it", scratch.path);
    assert_int_equal(sidestep_engine_open(&job.engine, &options, &job.err), SIDESTEP_OK);
}

static inline void end(void)
{
    assert_int_equal(sidestep_engine_close(&job.engine, NULL), SIDESTEP_OK);
}

static inline void add(void *memory, size_t bytes, int64_t stride, uint32_t flags)
{
    job.tensors[job.count].words = memory;
    job.tensors[job.count].bytes = bytes;
    job.tensors[job.count].stride = stride;
    job.tensors[job.count++].flags = flags;
}

/* ThreadSanitizer records a write before it happens, even if the kernel delays it until the memory
 * is written to the file. So it would report a false race. */
__attribute__((no_sanitize("thread"))) static inline void fill(uint64_t epoch)
{
    for (size_t i = 0; i < job.count; i++)
        for (size_t n = 0; n < WORDS(job.tensors[i].bytes); n++)
            job.tensors[i].words[n * (size_t)job.tensors[i].stride] = n << 24 ^ i << 20 ^ epoch;
}

static inline struct sidestep_state_dict *new_state(uint64_t **targets)
{
    struct sidestep_state_dict *state = NULL;
    struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;

    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    for (size_t i = 0; i < job.count; i++) {
        int64_t shape[] = {(int64_t)WORDS(job.tensors[i].bytes)}, one = 1;
        char name[16];
        snprintf(name, sizeof(name), "t%zu", i);
        tensor.name = name;
        tensor.dtype = SIDESTEP_UINT64;
        tensor.ndim = 1;
        tensor.shape = shape;
        tensor.strides = targets != NULL ? &one : &job.tensors[i].stride;
        tensor.data = targets != NULL ? targets[i] : job.tensors[i].words;
        tensor.flags = targets != NULL ? 0 : job.tensors[i].flags;
        assert_int_equal(sidestep_state_dict_add_tensor(state, &tensor, NULL), SIDESTEP_OK);
    }
    return state;
}

static inline enum sidestep_status start(void)
{
    struct sidestep_state_dict *state = new_state(NULL);

    job.err = (struct sidestep_error){0};
    enum sidestep_status status =
        sidestep_save_async(job.engine, job.path, state, NULL, &job.save, &job.err);
    sidestep_state_dict_free(&state); /* the save does not need it any more */
    return status;
}

static inline enum sidestep_status finish(void)
{
    job.info = (struct sidestep_save_info)SIDESTEP_SAVE_INFO_INIT;
    return sidestep_save_finish(&job.save, &job.info, &job.err);
}

static inline void expect_ok(enum sidestep_status status)
{
    if (status != SIDESTEP_OK)
        print_message("# %s\n", job.err.message);
    assert_int_equal(status, SIDESTEP_OK);
}

static inline void expect_epoch(uint64_t epoch)
{
    uint64_t *targets[MAX_TENSORS];

    for (size_t i = 0; i < job.count; i++) {
        targets[i] = malloc(job.tensors[i].bytes);
        assert_non_null(targets[i]);
    }
    struct sidestep_state_dict *state = new_state(targets);
    expect_ok(sidestep_load(job.engine, job.path, state, NULL, NULL, &job.err));
    for (size_t i = 0; i < job.count; i++) {
        for (size_t n = 0; n < WORDS(job.tensors[i].bytes); n++)
            if (targets[i][n] != (n << 24 ^ i << 20 ^ epoch)) {
                print_message("# word %zu of tensor %zu is %llx\n", n, i,
                              (unsigned long long)targets[i][n]);
                assert_true(false);
            }
        free(targets[i]);
    }
    sidestep_state_dict_free(&state);
}

/* Save epoch 1, overwrite it with epoch 2 at once, and check that the save contains epoch 1. */
static inline void save_and_overwrite(void)
{
    fill(1);
    expect_ok(start());
    fill(2);
    expect_ok(finish());
    expect_epoch(1);
}

static inline void expect_cow(size_t at_least, const char *reason)
{
    if (strstr(job.info.copy_reason, reason) == NULL)
        print_message("# reason: '%s'\n", job.info.copy_reason);
    assert_non_null(strstr(job.info.copy_reason, reason));
    assert_true(strlen(job.info.copy_reason) + 1 < sizeof(job.info.copy_reason)); /* whole */
    assert_int_equal(job.info.snapshot,
                     at_least != 0 ? SIDESTEP_SNAPSHOT_COW : SIDESTEP_SNAPSHOT_COPY);
    assert_true(job.info.cow_bytes >= at_least);
    if (at_least == 0)
        assert_int_equal(job.info.cow_bytes, 0);
}

static inline void need_cow(void)
{
    if (cow_works)
        return;
    print_message("this machine does not allow write protection\n");
    skip();
}

static inline void need_plain_memory(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    print_message("the memory of the sanitizer would be counted\n");
    skip();
#endif
}

/* Count threads named ${name} that are, or are not, in the idle class. */
static inline unsigned count_threads(const char *name, bool idle)
{
    unsigned count = 0;
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");

    assert_non_null(tasks);
    while ((entry = readdir(tasks)) != NULL) {
        char path[300], comm[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        bool is_it =
            fgets(comm, sizeof(comm), file) != NULL && strncmp(comm, name, strlen(name)) == 0;
        fclose(file);
        count += is_it && (sched_getscheduler(atoi(entry->d_name)) == SCHED_IDLE) == idle;
    }
    closedir(tasks);
    return count;
}

static inline void await_threads(const char *name, bool idle, unsigned count)
{
    (void)alarm(60);
    while (count_threads(name, idle) != count)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    (void)alarm(0);
}

/* A field of this process: "VmHWM", "VmRSS", or "VmData", which RLIMIT_DATA limits. */
static inline size_t memory_of(const char *field)
{
    char line[128];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, field, strlen(field)) == 0)
            (void)sscanf(line + strlen(field), ": %lu", &kib);
    fclose(file);
    assert_true(kib != 0);
    return kib << 10;
}

static inline int setup(void **state)
{
    (void)state;
    if (!scratch_make(&scratch, access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : NULL))
        return -1;
    unsigned char *memory = map(4 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 4 * MIB, 1, 0);
    save_and_overwrite();
    cow_works = job.info.snapshot == SIDESTEP_SNAPSHOT_COW;
    if (!cow_works)
        print_message("# %s\n", job.info.copy_reason);
    end();
    munmap(memory, 4 * MIB);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    scratch_remove(&scratch);
    return 0;
}

#endif
