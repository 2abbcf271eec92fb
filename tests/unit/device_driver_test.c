/* SPDX-License-Identifier: BSD-3-Clause */
/* device_driver_test.c -- what the driver's manual says of streams, contexts and memory: that the
 * stand-in does it, and that saves and loads are right with it. docs/internals/CUDA.md has a row
 * for each. */
#include <pthread.h>
#include <stdatomic.h>

#include "support/on_device.h"

#define THREAD_STREAM ((void *)2) /* CU_STREAM_PER_THREAD */

/* Save with the streams of the job, or, if none are given, with the default ones. */
static enum sidestep_status start_on(void *stream)
{
    struct sidestep_stream streams[] = {{.device = 0, .stream = stream}};
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_state_dict *state = new_state(job.tensors);

    options.streams = streams;
    options.stream_count = stream != NULL ? 1 : 0;
    options.queue = job.queue;
    enum sidestep_status status =
        sidestep_save_async(job.engine, job.path, state, &options, &job.save, &job.err);
    sidestep_state_dict_free(&state);
    return status;
}

static enum sidestep_status load_on(void *stream)
{
    struct sidestep_stream streams[] = {{.device = 0, .stream = stream}};
    struct sidestep_load_options options = SIDESTEP_LOAD_OPTIONS_INIT;
    struct sidestep_state_dict *state = new_state(job.tensors);

    options.streams = streams;
    options.stream_count = stream != NULL ? 1 : 0;
    job.err = (struct sidestep_error){0};
    enum sidestep_status status =
        sidestep_load(job.engine, job.path, state, &options, NULL, &job.err);
    sidestep_state_dict_free(&state);
    return status;
}

/* Check the device's own bytes, without waiting for any stream. */
static void expect_on_device(uint64_t epoch)
{
    for (size_t i = 0; i < job.count; i++) {
        const struct on_device *t = &job.tensors[i];
        uint64_t *words = malloc(bytes_of(t));
        assert_non_null(words);
        cuda->read(t->words, words, bytes_of(t));
        for (size_t k = 0; k < WORDS(bytes_of(t)); k++)
            assert_int_equal(words[k], word_of(i, k, epoch));
        free(words);
    }
}

/* ---- the default streams */

struct gate {
    atomic_bool open;
    bool was_open;
};

static void open_gate(void *memory, size_t bytes, void *context)
{
    (void)memory;
    (void)bytes;
    atomic_store(&((struct gate *)context)->open, true);
}

static void wait_for_gate(void *memory, size_t bytes, void *context)
{
    struct gate *gate = context;

    (void)memory;
    (void)bytes;
    while (!atomic_load(&gate->open))
        (void)usleep(100);
}

static void look_at_gate(void *memory, size_t bytes, void *context)
{
    struct gate *gate = context;

    (void)memory;
    (void)bytes;
    gate->was_open = atomic_load(&gate->open);
}

static void launch(void *stream, void (*kernel)(void *, size_t, void *), struct gate *gate)
{
    cuda->launch(0, stream, kernel, NULL, 0, gate);
}

/* k1 on a blocking stream, k2 on the default one, k3 on another blocking one: one after the other.
 * Streams that do not block run beside it, or this would not end. */
TEST(the_default_stream_waits_for_blocking_streams)
{
    for (int round = 0; round < 20; round++) {
        struct gate first = {0}, second = {0};
        begin();
        cuda->slow(2000);
        void *a = cuda->new_stream_of(0, STANDIN_BLOCKING);
        void *b = cuda->new_stream_of(0, STANDIN_BLOCKING);
        launch(job.streams[0], wait_for_gate, &first); /* does not block */
        launch(a, open_gate, &second);
        launch(NULL, look_at_gate, &second);
        launch(NULL, open_gate, &first);
        launch(b, look_at_gate, &first);
        cuda->synchronize(0, b);
        assert_true(second.was_open && first.was_open);
        cuda->free_stream(a);
        cuda->free_stream(b);
        end();
    }
}

TEST(a_save_that_names_no_stream_covers_blocking_streams)
{
    begin();
    add(0, 3 * MIB, 0);
    add(0, MIB, SIDESTEP_TENSOR_FENCED);
    cuda->slow(3000);
    void *blocking = cuda->new_stream_of(0, STANDIN_BLOCKING);
    struct sidestep_stream legacy = {0};
    fill_one(0, blocking, 1);
    fill_one(1, blocking, 1);
    expect_ok(start_on(NULL));
    fill_one(0, blocking, 2); /* it waits for the default stream, which waits for the copy */
    expect_ok(sidestep_fence(job.save, &legacy, &job.err));
    fill_one(1, blocking, 2);
    expect_ok(finish());
    expect_epoch(1);
    cuda->free_stream(blocking);
    end();
}

static void *fill_on_own_stream(void *epoch)
{
    fill_one(1, THREAD_STREAM, *(uint64_t *)epoch);
    cuda->synchronize(0, THREAD_STREAM);
    return NULL;
}

/* The handle means another stream in each thread: so our calls for it are made by the thread that
 * saves, or that sets the fence, also if saves are queued. */
TEST(the_default_stream_of_a_thread)
{
    for (uint32_t queue = 0; queue <= 2; queue += 2) {
        begin();
        job.queue = queue;
        add(0, 3 * MIB, SIDESTEP_TENSOR_FENCED);
        add(0, MIB, 0);
        cuda->slow(3000);
        for (uint64_t epoch = 1; epoch < 9; epoch += 2) {
            struct sidestep_stream own = {.stream = THREAD_STREAM};
            fill_one(0, THREAD_STREAM, epoch);
            fill_one(1, THREAD_STREAM, epoch);
            expect_ok(start_on(THREAD_STREAM));
            fill_one(1, THREAD_STREAM, epoch + 1);
            expect_ok(sidestep_fence(job.save, &own, &job.err));
            fill_one(0, THREAD_STREAM, epoch + 1);
            expect_ok(finish());
            expect_epoch(epoch);
        }
        cuda->synchronize(0, THREAD_STREAM); /* the last kernel may still run */
        end();
    }
}

/* The negative control: a write on the stream of the same handle in another thread is not fenced.
 */
TEST(the_default_stream_of_another_thread_is_another_one)
{
    uint64_t epoch = 2;
    pthread_t other;

    begin();
    add(0, MIB, 0);
    add(0, MIB, SIDESTEP_TENSOR_FENCED);
    fill_one(0, THREAD_STREAM, 1);
    fill_one(1, THREAD_STREAM, 1);
    cuda->synchronize(0, THREAD_STREAM);
    cuda->hold_copies(MIB + cuda->copied_bytes()); /* what is not FENCED */
    expect_ok(start_on(THREAD_STREAM));
    struct sidestep_stream own = {.stream = THREAD_STREAM};
    expect_ok(sidestep_fence(job.save, &own, &job.err));
    assert_int_equal(pthread_create(&other, NULL, fill_on_own_stream, &epoch), 0);
    assert_int_equal(pthread_join(other, NULL), 0); /* it did not wait for the copies */
    cuda->hold_copies(0);
    expect_ok(finish());
    assert_true(cuda->problem() != NULL || count_wrong(1) != 0);
    end_quietly();
}

/* ---- captures */

/* What a load needs: a checkpoint of one tensor. */
static void begin_with_saved_tensor(void)
{
    begin();
    add(0, MIB, 0);
    fill(1);
    expect_ok(start());
    expect_ok(finish());
}

/* While a blocking stream captures, the default one cannot be used: any use of it would be a part
 * of the capture, and spoil it. */
TEST(a_capture_that_the_default_stream_takes_part_in)
{
    begin_with_saved_tensor();
    void *blocking = cuda->new_stream_of(0, STANDIN_BLOCKING);
    cuda->capture(0, blocking, true);
    expect_status(start_on(NULL), SIDESTEP_EINVAL);
    assert_non_null(strstr(job.err.message, "captured"));
    expect_status(load_on(NULL), SIDESTEP_EINVAL);
    assert_non_null(strstr(job.err.message, "captured"));
    assert_false(cuda->capture_is_spoiled());
    expect_ok(start_on(job.streams[0])); /* which has no part in it */
    expect_ok(finish());
    assert_false(cuda->capture_is_spoiled());
    cuda->capture(0, blocking, false);
    cuda->free_stream(blocking);
    end();
}

TEST(a_load_during_a_capture_is_refused)
{
    begin_with_saved_tensor();
    cuda->capture(0, job.streams[0], true);
    expect_status(load_on(job.streams[0]), SIDESTEP_EINVAL);
    assert_non_null(strstr(job.err.message, "captured"));
    assert_non_null(strstr(job.err.message, "nothing was loaded"));
    assert_false(cuda->capture_is_spoiled());
    cuda->capture(0, job.streams[0], false);
    expect_ok(load_on(job.streams[0]));
    expect_on_device(1);
    end();
}

/* ---- contexts */

static void save_on_stream_of(enum standin_stream kind)
{
    begin();
    add(0, 3 * MIB, SIDESTEP_TENSOR_FENCED);
    add(0, MIB, 0);
    cuda->slow(3000);
    void *theirs = cuda->new_stream_of(0, kind);
    struct sidestep_stream stream = {.stream = theirs};
    for (uint64_t epoch = 1; epoch < 7; epoch += 2) {
        fill_one(0, theirs, epoch);
        fill_one(1, theirs, epoch);
        expect_ok(start_on(theirs));
        fill_one(1, theirs, epoch + 1);
        expect_ok(sidestep_fence(job.save, &stream, &job.err));
        fill_one(0, theirs, epoch + 1);
        expect_ok(finish());
        expect_epoch(epoch);
        expect_ok(load_on(theirs));
        expect_on_device(epoch);
    }
    cuda->free_stream(theirs);
    end();
}

TEST(streams_of_green_contexts)
{
    save_on_stream_of(STANDIN_GREEN);
}

/* The driver refuses to record our events there: then the caller waits for the stream. */
TEST(streams_of_other_contexts)
{
    save_on_stream_of(STANDIN_FOREIGN);
}

/* The other device works on: the save aborts, and later saves of its tensors alone succeed. */
TEST(one_of_two_devices_is_lost)
{
    unsigned aborted = 0;

    for (unsigned long nth = 1; nth < 16; nth++) {
        begin_with(NULL, 2);
        add(0, MIB, SIDESTEP_TENSOR_FENCED);
        add(1, MIB, SIDESTEP_TENSOR_FENCED);
        cuda->lose(nth);
        fill(1);
        enum sidestep_status status = start();
        for (int i = 0; i < 2 && status == SIDESTEP_OK; i++)
            status = fence(i);
        if (job.save != NULL) {
            enum sidestep_status end_status = finish();
            status = status == SIDESTEP_OK ? end_status : status;
        }
        aborted += status != SIDESTEP_OK;
        if (status == SIDESTEP_OK)
            expect_epoch(1);
        else
            assert_non_null(strstr(job.err.message, "unspecified launch failure"));
        cuda->lose(0); /* what is left would be blamed on the engine */
        expect_no_problem();
        end_quietly();
    }
    assert_true(aborted > 4);
}

/* ---- memory */

/* Memory of a pool is there from an operation on a stream on, and until another one. The save is
 * ordered behind the first by the stream of the call. */
TEST(memory_that_is_allocated_on_a_stream)
{
    begin();
    cuda->slow(3000);
    for (uint64_t epoch = 1; epoch < 5; epoch++) {
        job.count = 0;
        struct on_device *t = add(0, 3 * MIB, epoch % 2 != 0 ? SIDESTEP_TENSOR_FENCED : 0);
        cuda->free(t->words);
        t->words = cuda->allocate_on(0, job.streams[0], 3 * MIB);
        fill(epoch);
        expect_ok(start());
        expect_ok(fence(0));
        fill(9);
        expect_ok(finish());
        expect_epoch(epoch);
        cuda->free_on(0, job.streams[0], t->words);
        cuda->synchronize(0, job.streams[0]);
    }
    job.count = 0;
    end();
}

/* The negative control of the stand-in: memory that goes while it is copied is seen. */
TEST(memory_that_is_freed_too_early_is_seen)
{
    begin();
    struct on_device *t = add(0, MIB, SIDESTEP_TENSOR_FENCED);
    add(0, MIB, 0);
    fill(1);
    cuda->synchronize(0, job.streams[0]);
    cuda->hold_copies(MIB + cuda->copied_bytes()); /* what is not FENCED */
    expect_ok(start());
    cuda->synchronize(0, job.streams[0]); /* it waits for that */
    while (cuda->left().pending == 0)
        usleep(100); /* the other copy is submitted in the background */
    cuda->free_on(0, job.streams[0], t->words);
    cuda->synchronize(0, job.streams[0]);
    cuda->hold_copies(0);
    assert_string_equal(cuda->problem(), "memory was freed while a copy of it was pending");
    (void)finish();
    *t = job.tensors[1];
    job.count = 1;
    end_quietly();
}

/* From pageable memory a copy returns before the device has the bytes; a load still waits. */
TEST(a_load_from_memory_that_cannot_be_pinned)
{
    begin();
    add(0, 9 * MIB, 0);
    add_rows(0, 1, (int64_t)WORDS(65536), (int64_t)WORDS(65536), 0);
    fill(1);
    expect_ok(start());
    expect_ok(finish());
    fill(2);
    cuda->limit_pinned(0);
    cuda->slow(20000);
    for (int i = 0; i < 3; i++) {
        expect_ok(load_on(job.streams[0]));
        expect_on_device(1);
        fill(2);
    }
    end();
}

ALL_TESTS(setup, teardown);
