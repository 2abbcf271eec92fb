/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * on_device.h -- saves tensors on devices of the stand-in driver (tests/cuda), whose words contain
 * an epoch. Kernels write the epochs, on streams. For tests of device memory: one save at a time,
 * on one rank.
 */
#ifndef SUPPORT_ON_DEVICE_H
#define SUPPORT_ON_DEVICE_H

#include <dlfcn.h>
#include <unistd.h>

#include "base/fault.h"
#include "cuda/standin.h"
#include "sidestep/sidestep.h"
#include "support/scratch.h"
#include "support/unit.h"

#define MIB ((size_t)1 << 20)
#define WORDS(bytes) ((bytes) / sizeof(uint64_t))
#define MAX_TENSORS 16

static const struct standin *cuda;
static struct scratch scratch;

/* A matrix with rows of ${pitch} words in memory, of which ${columns} belong to the tensor. */
struct on_device {
    int device; /* -1: host memory */
    uint64_t *words;
    int64_t rows, columns, pitch;
    uint32_t flags, turn;
    struct kernel_fill {
        const struct on_device *tensor;
        uint64_t tensor_number, epoch;
    } fills[8];
    unsigned fill_count;
};

static struct job {
    struct sidestep_engine *engine;
    struct sidestep_save *save;
    struct sidestep_save_info info;
    struct sidestep_error err;
    struct on_device tensors[MAX_TENSORS];
    size_t count;
    void *streams[STANDIN_DEVICES];
    enum sidestep_compress compress;
    uint32_t queue;
    char path[128];
} job;

static inline uint64_t word_of(uint64_t tensor, uint64_t n, uint64_t epoch)
{
    return n << 24 ^ tensor << 16 ^ epoch;
}

static inline size_t bytes_of(const struct on_device *t)
{
    return (size_t)(t->rows * t->pitch) * sizeof(uint64_t);
}

static inline void begin_with(const struct sidestep_engine_options *options, int devices)
{
    memset(&job, 0, sizeof(job));
    cuda->reset(devices);
    for (int i = 0; i < devices; i++)
        job.streams[i] = cuda->new_stream(i);
    snprintf(job.path, sizeof(job.path), "%s/it", scratch.path);
    assert_int_equal(sidestep_engine_open(&job.engine, options, &job.err), SIDESTEP_OK);
}

static inline void begin(void)
{
    begin_with(NULL, 1);
}

static inline void expect_nothing_left(void)
{
    struct standin_left left = cuda->left(), none = {0};

    if (memcmp(&left, &none, sizeof(none)) != 0)
        print_message("# %d contexts, %d streams, %d events, %d pinned, %d pending\n",
                      left.contexts, left.streams, left.events, left.pinned, left.pending);
    assert_memory_equal(&left, &none, sizeof(none));
}

static inline void expect_no_problem(void)
{
    if (cuda->problem() != NULL)
        print_message("# %s\n", cuda->problem());
    assert_null(cuda->problem());
}

static inline void end_quietly(void)
{
    (void)sidestep_engine_close(&job.engine, NULL);
    for (int i = 0; i < STANDIN_DEVICES; i++)
        if (job.streams[i] != NULL)
            cuda->free_stream(job.streams[i]);
    expect_nothing_left();
    for (size_t i = 0; i < job.count; i++) {
        if (job.tensors[i].device < 0)
            free(job.tensors[i].words);
        else
            cuda->free(job.tensors[i].words);
    }
    cuda->reset(0);
}

static inline void end(void)
{
    expect_no_problem();
    end_quietly();
}

static inline struct on_device *add_rows(int device, int64_t rows, int64_t columns, int64_t pitch,
                                         uint32_t flags)
{
    struct on_device *t = &job.tensors[job.count++];

    *t = (struct on_device){
        .device = device, .rows = rows, .columns = columns, .pitch = pitch, .flags = flags};
    t->words = device < 0 ? malloc(bytes_of(t)) : cuda->allocate(device, bytes_of(t));
    assert_non_null(t->words);
    return t;
}

static inline struct on_device *add(int device, size_t bytes, uint32_t flags)
{
    return add_rows(device, 1, (int64_t)WORDS(bytes), (int64_t)WORDS(bytes), flags);
}

static inline void fill_words(uint64_t *words, const struct on_device *t, uint64_t number,
                              uint64_t epoch)
{
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->columns; c++)
            words[r * t->pitch + c] = word_of(number, (uint64_t)(r * t->columns + c), epoch);
}

static inline void fill_kernel(void *memory, size_t bytes, void *context)
{
    const struct kernel_fill *fill = context;

    (void)bytes;
    if (memory != NULL)
        fill_words(memory, fill->tensor, fill->tensor_number, fill->epoch);
}

/* Write ${epoch} to tensor ${i}: by a kernel on ${stream}, or at once in host memory. */
static inline void fill_one(size_t i, void *stream, uint64_t epoch)
{
    struct on_device *t = &job.tensors[i];

    if (t->device < 0) {
        fill_words(t->words, t, i, epoch);
        return;
    }
    struct kernel_fill *fill = &t->fills[t->fill_count++ % 8];
    *fill = (struct kernel_fill){t, i, epoch};
    cuda->launch(t->device, stream, fill_kernel, t->words, bytes_of(t), fill);
}

static inline void fill(uint64_t epoch)
{
    for (size_t i = 0; i < job.count; i++)
        fill_one(i, job.tensors[i].device < 0 ? NULL : job.streams[job.tensors[i].device], epoch);
}

static inline struct sidestep_state_dict *new_state(struct on_device *tensors)
{
    struct sidestep_state_dict *state = NULL;
    struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;

    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    for (size_t i = 0; i < job.count; i++) {
        const struct on_device *t = &tensors[i];
        int64_t shape[] = {t->rows, t->columns}, strides[] = {t->pitch, 1};
        char name[16];
        snprintf(name, sizeof(name), "t%zu", i);
        tensor.name = name;
        tensor.dtype = SIDESTEP_UINT64;
        tensor.ndim = 2;
        tensor.shape = shape;
        tensor.strides = strides;
        tensor.data = t->words;
        tensor.flags = t->flags;
        tensor.turn = t->turn;
        assert_int_equal(sidestep_state_dict_add_tensor(state, &tensor, NULL), SIDESTEP_OK);
    }
    return state;
}

/* List the streams of all devices. */
static inline uint32_t all_streams(struct sidestep_stream streams[STANDIN_DEVICES])
{
    uint32_t count = 0;

    for (int i = 0; i < STANDIN_DEVICES; i++)
        if (job.streams[i] != NULL)
            streams[count++] = (struct sidestep_stream){.device = i, .stream = job.streams[i]};
    return count;
}

static inline enum sidestep_status start_state(struct sidestep_state_dict *state)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_stream streams[STANDIN_DEVICES];

    options.streams = streams;
    options.stream_count = all_streams(streams);
    options.compress = job.compress;
    options.queue = job.queue;
    job.err = (struct sidestep_error){0};
    return sidestep_save_async(job.engine, job.path, state, &options, &job.save, &job.err);
}

static inline enum sidestep_status start(void)
{
    struct sidestep_state_dict *state = new_state(job.tensors);
    enum sidestep_status status = start_state(state);

    sidestep_state_dict_free(&state); /* the save does not need it any more */
    return status;
}

static inline enum sidestep_status fence(int device)
{
    struct sidestep_stream stream = {.device = device, .stream = job.streams[device]};

    return sidestep_fence(job.save, &stream, &job.err);
}

static inline enum sidestep_status fence_until(int device, void *on, uint32_t turn)
{
    struct sidestep_stream stream = {.device = device, .stream = on};

    return sidestep_fence_until(job.save, &stream, turn, &job.err);
}

static inline enum sidestep_status finish(void)
{
    job.info = (struct sidestep_save_info)SIDESTEP_SAVE_INFO_INIT;
    return sidestep_save_finish(&job.save, &job.info, &job.err);
}

static inline void expect_status(enum sidestep_status status, enum sidestep_status wanted)
{
    if (status != wanted)
        print_message("# %s\n", job.err.message);
    assert_int_equal(status, wanted);
}

static inline void expect_ok(enum sidestep_status status)
{
    expect_status(status, SIDESTEP_OK);
}

/* The number of words of the checkpoint that do not have ${epoch}. */
static inline size_t count_wrong(uint64_t epoch)
{
    struct on_device targets[MAX_TENSORS];
    size_t wrong = 0;

    for (size_t i = 0; i < job.count; i++) {
        targets[i] = job.tensors[i];
        targets[i].flags = 0;
        targets[i].words = malloc(bytes_of(&targets[i]));
        assert_non_null(targets[i].words);
    }
    struct sidestep_state_dict *state = new_state(targets);
    expect_ok(sidestep_load(job.engine, job.path, state, NULL, NULL, &job.err));
    for (size_t i = 0; i < job.count; i++) {
        const struct on_device *t = &targets[i];
        for (int64_t r = 0; r < t->rows; r++)
            for (int64_t c = 0; c < t->columns; c++)
                wrong +=
                    t->words[r * t->pitch + c] != word_of(i, (uint64_t)(r * t->columns + c), epoch);
        free(targets[i].words);
    }
    sidestep_state_dict_free(&state);
    return wrong;
}

static inline void expect_epoch(uint64_t epoch)
{
    assert_int_equal(count_wrong(epoch), 0);
}

static inline int setup(void **state)
{
    char path[256];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
    const struct standin *(*get)(void);

    (void)state;
    if (n <= 0 || !scratch_make(&scratch, access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : NULL))
        return -1;
    path[n] = '\0';
    strcpy(strrchr(path, '/') + 1, "cuda/libcuda.so.1");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, "standin_get") : NULL;
    if (symbol == NULL)
        return -1;
    memcpy(&get, &symbol, sizeof(get));
    cuda = get();
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    cuda->reset(0);
    scratch_remove(&scratch);
    return 0;
}

#endif
