/* SPDX-License-Identifier: BSD-3-Clause */
/* device_batch_test.c -- many small tensors on a device need few calls of the driver, old or new,
 * and give the right bytes and names whatever the driver refuses. */
#include "support/on_device.h"
#include "support/reader.h"

#define COUNT 1000u
#define MOST_WORDS 3072
#define BATCH 128u /* copies in one call, see DEVICE_MAX_COPIES */
#define OLD 12040  /* a driver without batches */

/* Tensors of ${words[i]} words, at ${addresses[i]}. */
static struct many {
    uint8_t *memory; /* one allocation, or NULL */
    uint64_t *addresses[COUNT];
    int64_t words[COUNT];
} many;

static uint64_t value_of(size_t tensor, size_t word, uint64_t epoch)
{
    return epoch << 48 ^ (uint64_t)tensor << 24 ^ word;
}

static void write_tensor(size_t i, uint64_t epoch)
{
    uint64_t values[MOST_WORDS];

    assert_true(many.words[i] <= MOST_WORDS);
    for (int64_t w = 0; w < many.words[i]; w++)
        values[w] = value_of(i, (size_t)w, epoch);
    cuda->write(many.addresses[i], values, (size_t)many.words[i] * sizeof(uint64_t));
}

/* Allocate all at once, one after the other. */
static void allocate_one(const int64_t words[], size_t kinds)
{
    size_t at = 0;

    many.memory = cuda->allocate(0, COUNT * MOST_WORDS * sizeof(uint64_t));
    for (size_t i = 0; i < COUNT; i++) {
        many.words[i] = words[i % kinds];
        many.addresses[i] = (uint64_t *)(void *)(many.memory + at);
        at += (size_t)many.words[i] * sizeof(uint64_t);
    }
}

static void add_many(struct sidestep_state_dict *state, uint64_t *const addresses[])
{
    for (size_t i = 0; i < COUNT; i++) {
        struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;
        char name[16];
        snprintf(name, sizeof(name), "t%04zu", i);
        tensor.name = name;
        tensor.dtype = SIDESTEP_UINT64;
        tensor.ndim = 1;
        tensor.shape = &many.words[i];
        tensor.data = addresses[i];
        assert_int_equal(sidestep_state_dict_add_tensor(state, &tensor, NULL), SIDESTEP_OK);
    }
}

/* Save once; ${*calls}: how many driver calls copied. */
static enum sidestep_status save_many(uint64_t epoch, unsigned long *calls)
{
    struct sidestep_state_dict *state = NULL;
    unsigned long before = cuda->copy_calls();

    for (size_t i = 0; i < COUNT; i++)
        write_tensor(i, epoch);
    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    add_many(state, many.addresses);
    enum sidestep_status status = start_state(state);
    sidestep_state_dict_free(&state);
    if (status == SIDESTEP_OK)
        status = finish();
    *calls = cuda->copy_calls() - before;
    return status;
}

static void expect_many(uint64_t epoch)
{
    struct sidestep_state_dict *state = NULL;
    uint64_t *loaded[COUNT];
    size_t wrong = 0;

    for (size_t i = 0; i < COUNT; i++) {
        loaded[i] = calloc((size_t)many.words[i], sizeof(uint64_t));
        assert_non_null(loaded[i]);
    }
    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    add_many(state, loaded);
    expect_ok(sidestep_load(job.engine, job.path, state, NULL, NULL, &job.err));
    sidestep_state_dict_free(&state);
    for (size_t i = 0; i < COUNT; i++) {
        for (int64_t w = 0; w < many.words[i]; w++)
            wrong += loaded[i][w] != value_of(i, (size_t)w, epoch);
        free(loaded[i]);
    }
    assert_int_equal(wrong, 0);
}

static void end_many(void)
{
    expect_no_problem();
    cuda->free(many.memory);
    end();
}

static void begin_many(int version, uint64_t pool_bytes, const int64_t words[], size_t kinds)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.pool_bytes = pool_bytes;
    begin_with(&options, 1);
    if (version != 0)
        cuda->describe(version, "Stand-in");
    allocate_one(words, kinds);
}

static const int64_t same[] = {512};              /* 4 KiB */
static const int64_t uneven[] = {512, 514, 7, 1}; /* neighbours differ */

/* At even distances they are rows of one copy, even without batches. */
TEST(tensors_of_one_size_are_copied_as_rows)
{
    for (int version = OLD; version <= 13000; version += 13000 - OLD) {
        unsigned long calls;
        begin_many(version, 0, same, 1);
        for (uint64_t epoch = 1; epoch < 3; epoch++) {
            expect_ok(save_many(epoch, &calls));
            assert_in_range(calls, 1, COUNT / BATCH + 2);
            expect_many(epoch);
        }
        end_many();
    }
}

TEST(tensors_of_all_sizes_are_copied_in_batches)
{
    static const struct {
        int version;
        unsigned long least, most;
    } cases[] = {{13000, 1, COUNT / BATCH + 2}, {12080, 1, COUNT / BATCH + 2}, {OLD, COUNT, COUNT}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned long calls;
        begin_many(cases[i].version, 0, uneven, 4);
        expect_ok(save_many(1, &calls));
        assert_in_range(calls, cases[i].least, cases[i].most);
        expect_many(1);
        end_many();
    }
}

/* 24 MB of them. */
TEST(many_tensors_go_through_a_small_pool)
{
    static const int64_t large[] = {3072, 3072, 3071};
    unsigned long calls;

    begin_many(0, 16 * MIB, large, 3);
    expect_ok(save_many(1, &calls));
    assert_in_range(calls, COUNT / BATCH, COUNT / 2);
    expect_many(1);
    end_many();
}

/* Each is an allocation of its own: no copy crosses from one to the next. */
TEST(allocations_are_not_joined)
{
    unsigned long calls;

    begin_many(OLD, 0, same, 1);
    cuda->free(many.memory);
    for (size_t i = 0; i < COUNT; i++) /* the system allocates addresses downwards */
        many.addresses[COUNT - 1 - i] = cuda->allocate(0, 4096);
    cuda->fail_calls("cuMemcpy2D", 1, 1, true);
    expect_ok(save_many(1, &calls));
    assert_int_equal(cuda->failed_calls(), 0);
    assert_int_equal(calls, COUNT);
    cuda->fail_calls("", 0, 0, false);
    expect_many(1);
    expect_no_problem();
    for (size_t i = 0; i < COUNT; i++)
        cuda->free(many.addresses[i]);
    end();
}

/* The driver is asked about allocations, not about tensors: an answer takes as long as a copy. */
TEST(one_allocation_is_looked_up_once)
{
    static const int64_t large[] = {3072, 3072, 3071};
    unsigned long calls;

    begin_many(0, 0, large, 3); /* of 24 MB, which are remembered in parts of 2 MiB */
    cuda->fail_calls("cuPointerGetAttributes", 64, 1, true);
    expect_ok(save_many(1, &calls));
    assert_int_equal(cuda->failed_calls(), 0);
    cuda->fail_calls("", 0, 0, false);
    expect_many(1);
    end_many();
}

/* What was found in one call is not known in the next. */
TEST(memory_that_was_freed_since_the_last_save_is_noticed)
{
    need_reader();
    unsigned long calls;

    begin_many(0, 0, uneven, 4);
    expect_ok(save_many(1, &calls));
    struct sidestep_state_dict *state = NULL;
    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    add_many(state, many.addresses);
    cuda->free(many.memory);
    assert_int_equal(start_state(state), SIDESTEP_EINVAL);
    sidestep_state_dict_free(&state);
    expect_no_problem();
    end();
}

/* ---- refusals of the driver */

TEST(rows_that_are_refused_are_copied_one_by_one)
{
    unsigned long calls;

    begin_many(OLD, 0, same, 1);
    cuda->fail_calls("cuMemcpy2D", 1, 1, false);
    expect_ok(save_many(1, &calls));
    assert_int_equal(cuda->failed_calls(), 1);
    assert_in_range(calls, BATCH, 2 * BATCH);
    cuda->fail_calls("", 0, 0, false);
    expect_many(1);
    end_many();
}

/* ... and it never tries them again. */
TEST(batches_that_are_refused_are_copied_one_by_one)
{
    unsigned long calls;

    begin_many(0, 0, uneven, 4);
    cuda->fail_calls("cuMemcpyBatch", 1, 801, false); /* CUDA_ERROR_NOT_SUPPORTED */
    for (uint64_t epoch = 1; epoch < 3; epoch++) {
        expect_ok(save_many(epoch, &calls));
        assert_int_equal(calls, COUNT);
        expect_many(epoch);
    }
    assert_int_equal(cuda->failed_calls(), 1);
    cuda->fail_calls("", 0, 0, false);
    end_many();
}

TEST(a_failure_names_its_tensor)
{
    unsigned long calls;

    begin_many(OLD, 0, uneven, 4);
    expect_ok(save_many(1, &calls));
    for (unsigned long nth = 1; nth <= COUNT; nth += 333) {
        char wanted[32];
        snprintf(wanted, sizeof(wanted), "copy tensor 't%04lu'", nth - 1);
        cuda->fail_calls("cuMemcpyDtoH", nth, 719, false);
        expect_status(save_many(2, &calls), SIDESTEP_EDEVICE);
        if (strstr(job.err.message, wanted) == NULL)
            print_message("# %s\n", job.err.message);
        assert_non_null(strstr(job.err.message, wanted));
        fault_arm("device.copy", nth, false, 0);
        cuda->fail_calls("", 0, 0, false);
        expect_status(save_many(2, &calls), SIDESTEP_EDEVICE);
        assert_non_null(strstr(job.err.message, wanted));
        fault_arm("", 0, false, 0);
    }
    expect_many(1);
    end_many();
}

/* After a batch that is refused because of it, the next attempt reports it. */
TEST(a_device_failure_in_a_batch_is_reported)
{
    unsigned long calls;

    begin_many(0, 0, uneven, 4);
    cuda->fail_calls("cuMemcpy", 3, 719, true);
    expect_status(save_many(1, &calls), SIDESTEP_EDEVICE);
    assert_non_null(strstr(job.err.message, "copy tensor 't0256'"));
    assert_non_null(strstr(job.err.message, "cuMemcpyDtoHAsync"));
    cuda->fail_calls("", 0, 0, false);
    end_many();
}

/* Copies to pageable memory are made one by one, because the driver promises nothing for batches of
 * them. */
TEST(pageable_memory_is_not_for_batches)
{
    unsigned long calls;

    begin_many(0, 0, uneven, 4);
    cuda->limit_pinned(4096);
    expect_ok(save_many(1, &calls));
    assert_int_equal(calls, COUNT);
    expect_many(1);
    end_many();
}

ALL_TESTS(setup, teardown);
