/* SPDX-License-Identifier: BSD-3-Clause */
/* device_save_test.c -- saves of tensors on devices: the state of the call is written, and nothing
 * waits without need. */
#include <errno.h>

#include "support/on_device.h"

/* ---- the state of the call */

/* Submit epoch 2 to the program's stream right after the call, or after the fence. */
static void save_and_overwrite(bool fenced)
{
    fill(1);
    expect_ok(start());
    if (fenced)
        for (int i = 0; i < STANDIN_DEVICES; i++)
            if (job.streams[i] != NULL)
                expect_ok(fence(i));
    fill(2);
    expect_ok(finish());
    expect_epoch(1);
}

TEST(later_work_waits_for_the_copy)
{
    for (uint32_t flags = 0; flags <= SIDESTEP_TENSOR_FENCED; flags += SIDESTEP_TENSOR_FENCED) {
        begin();
        add(0, 3 * MIB + 40, flags);
        add(0, 33 * MIB, flags); /* more than one chunk */
        add(0, 8, flags);
        cuda->slow(3000);
        for (int i = 0; i < 2; i++)
            save_and_overwrite(flags != 0);
        assert_int_equal(job.info.device_bytes, 36 * MIB + 48);
        assert_int_equal(job.info.fenced_bytes, flags != 0 ? 36 * MIB + 48 : 0);
        assert_int_equal(job.info.copy_bytes, 0);
        assert_int_equal(job.info.flags & SIDESTEP_SAVE_PAGEABLE, 0);
        assert_true(job.info.device_ns != 0);
        assert_string_equal(job.info.pin_reason, "");
        end();
    }
}

/* Without the fence the test must notice the broken promise: copies stop until what comes after the
 * save has been written. */
TEST(a_missing_fence_is_seen)
{
    begin();
    add(0, MIB, 0);
    add(0, 8 * MIB, SIDESTEP_TENSOR_FENCED);
    void *other = cuda->new_stream(0);
    fill(1);
    cuda->synchronize(0, job.streams[0]);
    cuda->hold_copies(cuda->copied_bytes() + MIB); /* what is not FENCED */
    expect_ok(start());
    fill_one(1, other, 2);
    cuda->synchronize(0, other);
    cuda->hold_copies(0);
    expect_ok(finish());
    assert_true(cuda->problem() != NULL || count_wrong(1) != 0);
    cuda->free_stream(other);
    end_quietly();
}

TEST(forward_and_backward_run_beside_the_copy)
{
    begin();
    add(0, 8 * MIB, SIDESTEP_TENSOR_FENCED);
    add(0, MIB, 0);
    fill(1);
    expect_ok(start());
    fill_one(1, job.streams[0], 7); /* as if it changed in forward: fenced at once */
    expect_ok(fence(0));
    fill(2);
    expect_ok(finish());
    expect_epoch(1);
    assert_int_equal(job.info.fenced_bytes, 8 * MIB);
    assert_int_equal(job.info.device_bytes, 9 * MIB);
    end();
}

TEST(any_stream_may_be_fenced)
{
    begin();
    add(0, 8 * MIB, SIDESTEP_TENSOR_FENCED);
    void *other = cuda->new_stream(0);
    cuda->slow(3000);
    for (int i = 0; i < 3; i++) {
        fill(1);
        expect_ok(start());
        struct sidestep_stream stream = {.stream = other};
        expect_ok(sidestep_fence(job.save, &stream, &job.err));
        fill_one(0, other, 2);
        expect_ok(finish());
        expect_epoch(1);
        cuda->synchronize(0, other);
    }
    cuda->free_stream(other);
    end();
}

TEST(the_default_stream_is_taken_if_none_is_named)
{
    begin();
    cuda->free_stream(job.streams[0]);
    job.streams[0] = NULL; /* the default one; none is in the options */
    add(0, 8 * MIB, 0);
    cuda->slow(3000);
    for (int i = 0; i < 3; i++)
        save_and_overwrite(false);
    cuda->synchronize(0, NULL); /* the last overwriting */
    end();
}

TEST(several_devices_and_the_host_in_one_save)
{
    for (enum sidestep_snapshot how = SIDESTEP_SNAPSHOT_AUTO; how <= SIDESTEP_SNAPSHOT_COW; how++) {
        struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
        options.snapshot = how;
        begin_with(&options, 3);
        add(-1, 5 * MIB, 0);
        add(2, 5 * MIB, SIDESTEP_TENSOR_FENCED);
        add(0, 5 * MIB, 0);
        add(-1, 100, 0);
        add(2, 24, 0);
        add(1, 9 * MIB, SIDESTEP_TENSOR_FENCED);
        cuda->slow(2000);
        for (int i = 0; i < 2; i++)
            save_and_overwrite(true);
        assert_int_equal(job.info.device_bytes, 19 * MIB + 24);
        assert_int_equal(job.info.cow_bytes + job.info.copy_bytes, 5 * MIB + 96);
        if (how == SIDESTEP_SNAPSHOT_COPY)
            assert_int_equal(job.info.cow_bytes, 0);
        end();
    }
}

/* With one thread, only the thread that writes can wait for devices. */
TEST(one_thread_is_enough)
{
    for (uint64_t pool = 0; pool <= 24 * MIB; pool += 24 * MIB) {
        struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
        options.threads = 1;
        options.pool_bytes = pool;
        for (int k = 0; k < 3; k++) {
            options.snapshot = SIDESTEP_SNAPSHOT_COPY + (k != 0);
            begin_with(&options, 1);
            job.compress = k == 2 ? SIDESTEP_COMPRESS_ZSTD : SIDESTEP_COMPRESS_NONE;
            add(0, 30 * MIB, SIDESTEP_TENSOR_FENCED);
            add(0, MIB, 0);
            add(-1, 5 * MIB, 0);
            cuda->slow(1000);
            save_and_overwrite(true);
            end();
        }
    }
}

TEST(strided_tensors_are_saved)
{
    begin();
    add_rows(0, 1000, 300, 311, 0);
    add_rows(0, 5, 300000, 300001, SIDESTEP_TENSOR_FENCED);
    add_rows(0, 3000, 1, 7, 0);
    save_and_overwrite(true);
    end();
}

/* Reversed rows, and an expanded tensor, which no 2-D copy can handle. */
TEST(any_strides_are_saved)
{
    static const int64_t cases[][2] = {{-8, 1}, {0, 1}, {1, 16}, {2, -32}};
    uint64_t memory[512], loaded[32];

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        begin();
        uint64_t *words = cuda->allocate(0, sizeof(memory));
        for (size_t i = 0; i < 512; i++)
            memory[i] = i;
        cuda->write(words, memory, sizeof(memory));
        int64_t shape[] = {4, 8}, own[] = {8, 1};
        struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;
        struct sidestep_state_dict *from = NULL, *to = NULL;
        tensor.name = "odd";
        tensor.dtype = SIDESTEP_UINT64;
        tensor.ndim = 2;
        tensor.shape = shape;
        tensor.strides = cases[k];
        tensor.data = words + 256;
        assert_int_equal(sidestep_state_dict_new(&from, NULL), SIDESTEP_OK);
        assert_int_equal(sidestep_state_dict_add_tensor(from, &tensor, NULL), SIDESTEP_OK);
        expect_ok(sidestep_save(job.engine, job.path, from, NULL, NULL, &job.err));
        tensor.strides = own;
        tensor.data = loaded;
        assert_int_equal(sidestep_state_dict_new(&to, NULL), SIDESTEP_OK);
        assert_int_equal(sidestep_state_dict_add_tensor(to, &tensor, NULL), SIDESTEP_OK);
        expect_ok(sidestep_load(job.engine, job.path, to, NULL, NULL, &job.err));
        for (int64_t i = 0; i < 4; i++)
            for (int64_t j = 0; j < 8; j++)
                assert_int_equal(loaded[i * 8 + j], 256 + i * cases[k][0] + j * cases[k][1]);
        sidestep_state_dict_free(&from);
        sidestep_state_dict_free(&to);
        end_quietly();
    }
}

TEST(blocking_saves_wait_for_the_device)
{
    begin();
    add(0, 9 * MIB, SIDESTEP_TENSOR_FENCED);
    add(-1, MIB, 0);
    fill(1);
    cuda->slow(2000);
    struct sidestep_state_dict *dict = new_state(job.tensors);
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_stream streams[STANDIN_DEVICES];
    options.streams = streams;
    options.stream_count = all_streams(streams);
    job.info = (struct sidestep_save_info)SIDESTEP_SAVE_INFO_INIT;
    expect_ok(sidestep_save(job.engine, job.path, dict, &options, &job.info, &job.err));
    assert_true(job.info.device_ns != 0 && job.info.device_bytes == 9 * MIB);
    sidestep_state_dict_free(&dict);
    expect_epoch(1);
    end();
}

/* ---- compression */

TEST(device_tensors_are_compressed)
{
    for (uint64_t pool = 0; pool <= 24 * MIB; pool += 24 * MIB)
        for (int how = SIDESTEP_COMPRESS_ZSTD; how <= SIDESTEP_COMPRESS_PLANES; how++) {
            struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
            options.pool_bytes = pool;
            begin_with(&options, 2);
            job.compress = (enum sidestep_compress)how;
            add(0, 25 * MIB + 40, SIDESTEP_TENSOR_FENCED);
            add(1, MIB, 0);
            add(-1, 5 * MIB, 0);
            add_rows(0, 1000, 300, 311, 0);
            cuda->slow(1000);
            for (int i = 0; i < 2; i++)
                save_and_overwrite(true);
            assert_true(job.info.raw_bytes > 31 * MIB);
            assert_true(job.info.stored_bytes < job.info.raw_bytes / 2);
            end();
        }
}

/* ---- pools */

static void begin_with_pool(uint64_t bytes)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.pool_bytes = bytes;
    begin_with(&options, 1);
}

TEST(a_large_state_streams_through_a_small_pool)
{
    begin_with_pool(24 * MIB);
    add(0, 50 * MIB, SIDESTEP_TENSOR_FENCED);
    add(0, MIB, 0);
    add(-1, MIB, 0);
    add_rows(0, 5000, 900, 1000, SIDESTEP_TENSOR_FENCED);
    cuda->slow(1000);
    for (int i = 0; i < 3; i++) {
        save_and_overwrite(true);
        assert_int_equal(job.info.flags & SIDESTEP_SAVE_STREAMED, 0); /* not in the call */
        assert_true(job.info.fence_ns != 0);
        assert_string_equal(job.info.copy_reason, "pool_bytes is smaller than the state");
    }
    end();
}

TEST(a_small_pool_waits_for_unfenced_tensors)
{
    begin_with_pool(24 * MIB);
    add(0, 30 * MIB, 0);
    add(0, 30 * MIB, SIDESTEP_TENSOR_FENCED);
    add(-1, 9 * MIB, 0);
    cuda->slow(1000);
    save_and_overwrite(false);
    assert_int_equal(job.info.flags & SIDESTEP_SAVE_STREAMED, SIDESTEP_SAVE_STREAMED);
    assert_int_equal(job.info.device_bytes, 60 * MIB);
    end();
}

TEST(unpinnable_memory_is_copied_slowly)
{
    begin();
    cuda->limit_pinned(MIB);
    add(0, 5 * MIB, 0);
    for (int i = 0; i < 2; i++) {
        save_and_overwrite(false);
        assert_int_equal(job.info.flags & SIDESTEP_SAVE_PAGEABLE, SIDESTEP_SAVE_PAGEABLE);
        assert_non_null(strstr(job.info.pin_reason, "cuMemHostRegister"));
    }
    end();
}

TEST(the_pool_grows_and_is_pinned_again)
{
    begin();
    for (int i = 0; i < 3; i++) {
        add(0, (size_t)(1 + i) * 3 * MIB, SIDESTEP_TENSOR_FENCED);
        save_and_overwrite(true);
        assert_int_equal(cuda->left().pinned, 1);
        assert_int_equal(job.info.flags & SIDESTEP_SAVE_PAGEABLE, 0);
    }
    end();
}

TEST(the_pool_is_pinned_by_prepare)
{
    begin();
    add(0, 9 * MIB, 0);
    add(-1, 9 * MIB, 0);
    struct sidestep_state_dict *dict = new_state(job.tensors);
    expect_ok(sidestep_engine_prepare(job.engine, dict, &job.err));
    sidestep_state_dict_free(&dict);
    assert_int_equal(cuda->left().pinned, 1);
    save_and_overwrite(false);
    end();
}

/* The driver has pinned its pages. So a save of host memory, which needs less, returns none to the
 * system. */
TEST(a_pinned_pool_keeps_its_pages)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.snapshot = SIDESTEP_SNAPSHOT_COW;
    options.copy_ahead = SIDESTEP_COPY_AHEAD_NEVER;
    begin_with(&options, 1);
    add(-1, 8 * MIB, 0);
    add(0, 16 * MIB, 0);
    save_and_overwrite(false);
    job.count = 1;
    save_and_overwrite(false);
    bool trims = job.info.snapshot == SIDESTEP_SNAPSHOT_COW;
    job.count = 2;
    save_and_overwrite(false);
    end();
    if (!trims) {
        print_message("write protection is not to be had\n");
        skip();
    }
}

/* ---- fences */

TEST(a_fence_after_the_copies_does_nothing)
{
    begin();
    add(0, MIB, SIDESTEP_TENSOR_FENCED);
    fill(1);
    expect_ok(start());
    expect_ok(sidestep_save_wait(job.save, SIDESTEP_SAVE_STAGED, -1, &job.err));
    cuda->fail_calls("cu", 1, 719, true);
    expect_ok(fence(0));
    assert_int_equal(cuda->failed_calls(), 0);
    cuda->fail_calls("", 0, 0, false);
    struct sidestep_stream stream = {.reserved = 1};
    assert_int_equal(sidestep_fence(job.save, &stream, NULL), SIDESTEP_EUNSUPPORTED);
    assert_int_equal(sidestep_fence(job.save, NULL, NULL), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_fence(NULL, &stream, NULL), SIDESTEP_EINVAL);
    expect_ok(finish());
    end();
}

/* A fence on a device without tensors of the save: the host waits. */
TEST(a_fence_on_another_device_waits)
{
    begin_with(NULL, 2);
    add(0, 8 * MIB, SIDESTEP_TENSOR_FENCED);
    cuda->slow(3000);
    fill(1);
    expect_ok(start());
    expect_ok(fence(1));
    fill_one(0, job.streams[1], 2);
    expect_ok(finish());
    expect_epoch(1);
    end();
}

TEST(a_fence_of_a_failed_save_comes_back)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.pool_bytes = 24 * MIB;
    options.io = SIDESTEP_IO_THREADS;
    begin_with(&options, 1);
    add(0, 80 * MIB, SIDESTEP_TENSOR_FENCED);
    fill(1);
    fault_arm("posix.pwrite", 3, true, ENOSPC);
    expect_ok(start());
    expect_ok(fence(0));
    fill(2);
    expect_status(finish(), SIDESTEP_ENOSPC);
    fault_arm("", 0, false, 0);
    save_and_overwrite(true);
    end();
}

/* ---- graphs */

TEST(a_save_does_not_disturb_a_capture)
{
    begin();
    void *captured = cuda->new_stream(0);
    add(0, 9 * MIB, SIDESTEP_TENSOR_FENCED);
    cuda->slow(1000);
    for (int i = 0; i < 3; i++) {
        fill(1);
        cuda->capture(0, captured, true); /* during the whole save, by another thread for example */
        expect_ok(start());
        struct sidestep_stream stream = {.stream = captured};
        expect_ok(sidestep_fence(job.save, &stream, &job.err)); /* the host waits instead */
        fill_one(0, captured, 2);
        expect_ok(finish());
        cuda->capture(0, captured, false);
        assert_false(cuda->capture_is_spoiled());
        cuda->synchronize(0, captured);
        expect_epoch(1);
    }
    cuda->free_stream(captured);
    end();
}

TEST(a_save_during_a_capture_is_refused)
{
    begin();
    add(0, MIB, 0);
    fill(1);
    cuda->capture(0, job.streams[0], true);
    expect_status(start(), SIDESTEP_EINVAL);
    assert_non_null(strstr(job.err.message, "captured"));
    assert_false(cuda->capture_is_spoiled());
    cuda->capture(0, job.streams[0], false);
    save_and_overwrite(false);
    end();
}

/* There is one set of streams, so the next save waits, even if it is only of host memory. */
TEST(device_memory_is_not_queued)
{
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    struct sidestep_save *first;

    begin();
    job.queue = 2;
    add(0, 4 * MIB, 0);
    fill(1);
    sidestep_engine_pause(job.engine);
    expect_ok(start());
    first = job.save;
    snprintf(job.path, sizeof(job.path), "%s/other", scratch.path);
    fill(2);
    expect_ok(start());
    assert_int_equal(sidestep_save_poll(first, &info), SIDESTEP_OK);
    assert_int_equal(info.state, SIDESTEP_SAVE_COMMITTED);
    sidestep_engine_resume(job.engine);
    expect_ok(sidestep_save_finish(&first, NULL, &job.err));
    expect_ok(finish());
    assert_int_equal(job.info.flags & SIDESTEP_SAVE_QUEUED, 0);
    expect_epoch(2);
    end();
}

ALL_TESTS(setup, teardown);
