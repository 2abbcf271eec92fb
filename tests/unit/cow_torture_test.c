/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cow_torture_test.c -- many threads rewrite a state while it is saved: every word of every
 * checkpoint belongs to the epoch of its save. A word contains its tensor, its index and its
 * epoch, so a word that is late or misplaced is found.
 *
 * The writers start the next epoch when the call returns, each somewhere else; a second wave
 * writes again while granules of the first one are still being copied. Delays at the fault points
 * cause thread orders that are otherwise rare.
 *
 * SIDESTEP_LONG: 1,000 saves and 10^11 words.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fault.h"
#include "sidestep/sidestep.h"
#include "support/scratch.h"
#include "support/unit.h"

#define WRITERS 4
#define MAX_TENSORS 12
#define PAGE 4096u

struct tensor {
    uint64_t *words;
    uint64_t count;
};

static struct torture {
    struct scratch scratch;
    unsigned char *memory;
    size_t memory_bytes;
    struct tensor tensors[MAX_TENSORS];
    size_t count;
    uint64_t word_count;
    uint64_t pool_bytes; /* cap; 0: none */
    enum sidestep_io io;
    enum sidestep_copy_ahead ahead;
    struct sidestep_state_dict *state;
    struct sidestep_state_dict *target;
    uint64_t *loaded[MAX_TENSORS];
    pthread_barrier_t go, done;
    uint64_t epoch;
    bool stop;
    pthread_t writers[WRITERS];
} t;

/* Sizes in bytes, and the gaps after them: neighbours that share a page, some with a page between
 * them, small ones, odd sizes. */
static const struct {
    uint64_t bytes, gap;
} layout[] = {
    {(5u << 20) + 64, 64},
    {(3u << 20) - 8, 16},
    {4096 * 3 + 24, 128},
    {(9u << 20) + 4096, 8192},
    {(1u << 20), 40},
    {(2u << 20) + 72, 64},
    {64, 64},
    {(11u << 20), 4096},
    {(6u << 20) + 8, 1u << 20},
    {(2u << 20) - 16, 64},
    {520, 64},
    {(7u << 20) + 1000, 64},
};

static uint64_t word_of(size_t tensor, uint64_t word, uint64_t epoch)
{
    return (uint64_t)tensor << 58 ^ word << 26 ^ epoch;
}

static void add_tensor(struct sidestep_state_dict *state, size_t i, void *data)
{
    struct sidestep_error err = {0};
    struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;
    int64_t shape[] = {(int64_t)t.tensors[i].count};
    char name[32];

    snprintf(name, sizeof(name), "tensor.%zu", i);
    tensor.name = name;
    tensor.dtype = SIDESTEP_UINT64;
    tensor.ndim = 1;
    tensor.shape = shape;
    tensor.data = data;
    assert_int_equal(sidestep_state_dict_add_tensor(state, &tensor, &err), SIDESTEP_OK);
}

static void make_state(bool huge)
{
    uint64_t at = 64;

    t.memory_bytes = 64u << 20;
    t.memory = mmap(NULL, t.memory_bytes + (2u << 20), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(t.memory != MAP_FAILED);
    assert_int_equal(madvise(t.memory, t.memory_bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE), 0);
    assert_int_equal(sidestep_state_dict_new(&t.state, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_new(&t.target, NULL), SIDESTEP_OK);
    t.count = sizeof(layout) / sizeof(layout[0]);
    t.word_count = 0;
    for (size_t i = 0; i < t.count; i++) {
        t.tensors[i].words = (uint64_t *)(void *)(t.memory + at);
        t.tensors[i].count = layout[i].bytes / 8;
        t.word_count += t.tensors[i].count;
        t.loaded[i] = malloc(layout[i].bytes);
        assert_non_null(t.loaded[i]);
        add_tensor(t.state, i, t.tensors[i].words);
        add_tensor(t.target, i, t.loaded[i]);
        at = (at + layout[i].bytes + layout[i].gap + 7) / 8 * 8;
    }
    assert_true(at <= t.memory_bytes);
}

static void free_state(void)
{
    for (size_t i = 0; i < t.count; i++)
        free(t.loaded[i]);
    sidestep_state_dict_free(&t.state);
    sidestep_state_dict_free(&t.target);
    munmap(t.memory, t.memory_bytes + (2u << 20));
}

/* Write writer ${k}'s part of tensor ${i}, from either end. ThreadSanitizer records a write before
 * it happens, also one that the kernel delays until the memory is written to the file. So it would
 * report a race that is none. */
__attribute__((no_sanitize("thread"))) static void write_part(size_t i, unsigned k, uint64_t epoch,
                                                              bool backwards)
{
    const struct tensor *tensor = &t.tensors[i];
    uint64_t begin = tensor->count * k / WRITERS, end = tensor->count * (k + 1) / WRITERS;

    for (uint64_t n = 0; n < end - begin; n++) {
        uint64_t word = backwards ? end - 1 - n : begin + n;
        tensor->words[word] = word_of(i, word, epoch);
    }
}

static void write_epoch(unsigned k, uint64_t epoch)
{
    for (size_t n = 0; n < t.count; n++) {
        size_t i = (n * 5 + k * 3 + epoch) % t.count;
        write_part(i, k, epoch, (epoch + k) % 3 == 0);
    }
}

static void *writer_main(void *argument)
{
    unsigned k = (unsigned)(uintptr_t)argument;

    for (;;) {
        pthread_barrier_wait(&t.go);
        if (t.stop)
            return NULL;
        write_epoch(k, t.epoch);
        pthread_barrier_wait(&t.done);
    }
}

static void start_writers(void)
{
    t.stop = false;
    pthread_barrier_init(&t.go, NULL, WRITERS + 1);
    pthread_barrier_init(&t.done, NULL, WRITERS + 1);
    for (uintptr_t k = 0; k < WRITERS; k++)
        assert_int_equal(pthread_create(&t.writers[k], NULL, writer_main, (void *)k), 0);
}

static void stop_writers(void)
{
    t.stop = true;
    pthread_barrier_wait(&t.go);
    for (unsigned k = 0; k < WRITERS; k++)
        pthread_join(t.writers[k], NULL);
    pthread_barrier_destroy(&t.go);
    pthread_barrier_destroy(&t.done);
}

static void let_writers(uint64_t epoch)
{
    t.epoch = epoch;
    pthread_barrier_wait(&t.go);
    pthread_barrier_wait(&t.done);
}

/* Words of the checkpoint that are not of ${epoch}. */
static uint64_t count_wrong(struct sidestep_engine *engine, const char *path, uint64_t epoch)
{
    struct sidestep_error err = {0};
    uint64_t wrong = 0;

    enum sidestep_status status = sidestep_load(engine, path, t.target, NULL, NULL, &err);
    if (status == SIDESTEP_ECORRUPT)
        return 1; /* the written bytes are not the hashed ones */
    if (status != SIDESTEP_OK)
        print_message("%s\n", err.message);
    assert_int_equal(status, SIDESTEP_OK);
    for (size_t i = 0; i < t.count; i++)
        for (uint64_t word = 0; word < t.tensors[i].count; word++)
            wrong += t.loaded[i][word] != word_of(i, word, epoch);
    return wrong;
}

struct outcome {
    uint64_t wrong;
    uint64_t faults;
    uint64_t held;
};

/* ${saves} saves, the state rewritten ${waves} times during each. */
static struct outcome torture(bool huge, unsigned saves, unsigned waves)
{
    struct sidestep_engine *engine = NULL;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_error err = {0};
    struct outcome outcome = {0};
    char path[128];

    options.snapshot = SIDESTEP_SNAPSHOT_COW;
    options.pool_bytes = t.pool_bytes;
    options.io = t.io;
    options.copy_ahead = t.ahead;
    make_state(huge);
    start_writers();
    assert_int_equal(sidestep_engine_open(&engine, &options, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_engine_prepare(engine, t.state, &err), SIDESTEP_OK);
    snprintf(path, sizeof(path), "%s/it", t.scratch.path);
    uint64_t epoch = 1;
    let_writers(epoch);
    for (unsigned n = 0; n < saves; n++) {
        struct sidestep_save *save = NULL;
        struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
        enum sidestep_status status = sidestep_save_async(engine, path, t.state, NULL, &save, &err);
        if (status != SIDESTEP_OK)
            print_message("%s\n", err.message);
        assert_int_equal(status, SIDESTEP_OK);
        for (unsigned wave = 1; wave <= waves; wave++)
            let_writers(epoch + wave);
        status = sidestep_save_finish(&save, &info, &err);
        if (status != SIDESTEP_OK)
            print_message("%s\n", err.message);
        assert_int_equal(status, SIDESTEP_OK);
        outcome.wrong += count_wrong(engine, path, epoch);
        outcome.faults += info.faults;
        outcome.held += info.cow_bytes;
        epoch += waves;
    }
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_OK);
    stop_writers();
    free_state();
    return outcome;
}

static bool has_cow(void)
{
    struct sidestep_engine *engine = NULL;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_save *save = NULL;
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    struct sidestep_error err = {0};
    char path[128];

    options.snapshot = SIDESTEP_SNAPSHOT_COW;
    make_state(false);
    snprintf(path, sizeof(path), "%s/probe", t.scratch.path);
    assert_int_equal(sidestep_engine_open(&engine, &options, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_save_async(engine, path, t.state, NULL, &save, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_save_finish(&save, &info, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_OK);
    free_state();
    if (info.snapshot != SIDESTEP_SNAPSHOT_COW)
        print_message("%s\n", info.copy_reason);
    return info.snapshot == SIDESTEP_SNAPSHOT_COW;
}

static void need_cow(void)
{
    if (has_cow())
        return;
    print_message("no write protection here\n");
    skip();
}

static unsigned saves_of(unsigned few)
{
    /* 49 MiB are 6.4 million words, and each is checked once: 10^11 words in 4 tests. */
    return getenv("SIDESTEP_LONG") != NULL ? few * 1000 : few;
}

static void every_word_is_of_its_epoch(bool huge, const char *slow_points, unsigned waves)
{
    need_cow();
    fault_delay(slow_points, slow_points != NULL ? 2000 : 0);
    struct outcome outcome = torture(huge, saves_of(4), waves);
    fault_delay("", 0);
    assert_int_equal(outcome.wrong, 0);
    assert_true(outcome.held != 0);
    assert_true(outcome.faults != 0);
}

TEST(on_small_pages)
{
    every_word_is_of_its_epoch(false, NULL, 2);
}

TEST(on_huge_pages)
{
    every_word_is_of_its_epoch(true, NULL, 2);
}

TEST(with_slow_copiers)
{
    every_word_is_of_its_epoch(true, "cow.stage", 1);
}

TEST(with_slow_handlers)
{
    every_word_is_of_its_epoch(false, "cow.", 1);
}

/* Writers wait for slots that the disk returns, and handlers do not wait for writers. */
TEST(torture_under_a_cap)
{
    static const char *const slow[] = {NULL, "posix.pwrite", "cow."};

    for (unsigned i = 0; i < 6; i++) {
        t.pool_bytes = (i % 2 == 0 ? 16u : 32u) << 20;
        t.io = i % 3 == 1 ? SIDESTEP_IO_THREADS : SIDESTEP_IO_AUTO;
        every_word_is_of_its_epoch(i % 3 == 0, slow[i % 3], 1 + i % 2);
    }
    t.pool_bytes = 0;
    t.io = SIDESTEP_IO_AUTO;
}

/* Writers copy just before they write, by calls and through the ring. */
TEST(without_copiers)
{
    static const struct {
        const char *slow;
        enum sidestep_io io;
        uint64_t pool_bytes;
    } ways[] = {{NULL, SIDESTEP_IO_AUTO, 0},
                {"posix.pwrite", SIDESTEP_IO_BUFFERED, 0},
                {"ring.result", SIDESTEP_IO_AUTO, 16u << 20},
                {"cow.stage", SIDESTEP_IO_BUFFERED, 16u << 20},
                {"cow.copied", SIDESTEP_IO_BUFFERED, 0},
                {"cow.", SIDESTEP_IO_BUFFERED, 24u << 20}};

    t.ahead = SIDESTEP_COPY_AHEAD_NEVER;
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        t.io = ways[i].io;
        t.pool_bytes = ways[i].pool_bytes;
        every_word_is_of_its_epoch(i % 2 == 0, ways[i].slow, 1 + i % 2);
    }
    t.ahead = SIDESTEP_COPY_AHEAD_AUTO;
    t.io = SIDESTEP_IO_AUTO;
    t.pool_bytes = 0;
}

/* A device reads the pool directly, where /dev/shm copies: past the page cache, and through it. */
TEST(torture_on_a_disk)
{
    static const enum sidestep_io ways[] = {SIDESTEP_IO_AUTO, SIDESTEP_IO_THREADS,
                                            SIDESTEP_IO_BUFFERED};
    struct scratch memory = t.scratch;

    need_cow();
    assert_true(scratch_make(&t.scratch, NULL));
    for (unsigned i = 0; i < 3; i++) {
        t.io = ways[i];
        every_word_is_of_its_epoch(i % 2 == 0, NULL, 1 + i % 2);
    }
    scratch_remove(&t.scratch);
    t.scratch = memory;
    t.io = SIDESTEP_IO_AUTO;
}

/* The negative control: memory is unprotected before it is copied. */
TEST(memory_unprotected_early_is_noticed)
{
    need_cow();
    fault_arm("cow.early|trust.", 1, true, 0);
    fault_delay("cow.read", 2000);
    struct outcome outcome = torture(true, 2, 1);
    /* On a busy machine, writers may come too late to be noticed: once is enough. */
    for (unsigned i = 0; i < 20 && outcome.wrong == 0; i++)
        outcome = torture(true, 2, 1);
    fault_arm("", 0, false, 0);
    fault_delay("", 0);
    assert_true(outcome.wrong != 0);
}

/* The negative control: without protection there must be words of a later epoch. */
TEST(the_test_notices_missing_protection)
{
    need_cow();
    fault_arm("uffd.unprotected|trust.", 1, true, 0);
    fault_delay("cow.stage", 2000);
    struct outcome outcome = torture(true, 2, 1);
    fault_arm("", 0, false, 0);
    fault_delay("", 0);
    assert_true(outcome.wrong != 0);
    assert_int_equal(outcome.faults, 0);
}

static int setup(void **state)
{
    (void)state;
    return scratch_make(&t.scratch, access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : NULL) ? 0
                                                                                              : -1;
}

static int teardown(void **state)
{
    (void)state;
    scratch_remove(&t.scratch);
    return 0;
}

ALL_TESTS(setup, teardown);
