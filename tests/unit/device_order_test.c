/* SPDX-License-Identifier: BSD-3-Clause */
/* device_order_test.c -- tensors of several turns: which are copied first, and what a fence for
 * some of them waits for. */
#include <stdatomic.h>

#include "support/on_device.h"

#define LARGE (32 * MIB) /* a chunk; after each, the progress of the device is known */

static atomic_uint kernels_done;

static void note_kernel(void *memory, size_t bytes, void *context)
{
    (void)memory;
    (void)bytes;
    (void)context;
    atomic_fetch_add(&kernels_done, 1);
}

/* t0 has the last turn, t1 the second, t2 the first; t3 is not FENCED. */
static void begin_turns(int devices)
{
    begin_with(NULL, devices);
    for (uint32_t turn = 3; turn > 0; turn--) {
        add(0, LARGE, SIDESTEP_TENSOR_FENCED);
        job.tensors[job.count - 1].turn = turn;
    }
    add(0, MIB, 0);
    atomic_store(&kernels_done, 0);
    fill(1);
}

TEST(the_first_turn_is_copied_first)
{
    begin_turns(1);
    void *other = cuda->new_stream(0);
    cuda->hold_copies(MIB + LARGE); /* what is not FENCED, and t2 */
    expect_ok(start());
    expect_ok(fence_until(0, other, 1));
    fill_one(2, other, 2);
    cuda->synchronize(0, other);
    assert_int_equal(cuda->copied_bytes(), MIB + LARGE);
    /* Other turns, and a fence for all, wait for more: they cannot go on, however long it takes. */
    expect_ok(fence_until(0, other, 2));
    cuda->launch(0, other, note_kernel, NULL, 0, NULL);
    expect_ok(fence(0));
    fill(3);
    cuda->launch(0, job.streams[0], note_kernel, NULL, 0, NULL);
    usleep(20000);
    assert_int_equal(atomic_load(&kernels_done), 0);
    cuda->hold_copies(MIB + 2 * LARGE);
    cuda->synchronize(0, other);
    assert_int_equal(atomic_load(&kernels_done), 1);
    cuda->hold_copies(0);
    expect_ok(finish());
    expect_epoch(1);
    cuda->synchronize(0, job.streams[0]);
    assert_int_equal(atomic_load(&kernels_done), 2);
    cuda->free_stream(other);
    end();
}

/* A stream that waits for a turn also waits for what is not FENCED; nothing has turn 0. */
TEST(a_turn_without_tensors_waits_for_unfenced_ones)
{
    begin_turns(1);
    void *other = cuda->new_stream(0);
    cuda->hold_copies(MIB);
    expect_ok(start());
    expect_ok(fence_until(0, other, 0));
    fill_one(3, other, 2);
    cuda->synchronize(0, other);
    assert_int_equal(cuda->copied_bytes(), MIB);
    cuda->hold_copies(0);
    expect_ok(fence_until(0, job.streams[0], UINT32_MAX));
    fill(2);
    expect_ok(finish());
    expect_epoch(1);
    cuda->free_stream(other);
    end();
}

/* The queue of a driver is short, and who submits to a full one waits until something is copied. */
TEST(the_call_does_not_wait_for_a_full_queue)
{
    begin();
    add(0, MIB, 0);
    for (int64_t i = 1; i < MAX_TENSORS; i++)
        add_rows(0, 100, 300, 301 + i, SIDESTEP_TENSOR_FENCED);
    fill(1);
    cuda->hold_copies(MIB); /* what is not FENCED */
    expect_ok(start());
    fill_one(0, job.streams[0], 2);
    cuda->synchronize(0, job.streams[0]);
    assert_int_equal(cuda->copied_bytes(), MIB);
    cuda->hold_copies(0);
    expect_ok(fence(0));
    fill(3);
    expect_ok(finish());
    expect_epoch(1);
    end();
}

/* If a stream cannot wait, the host does. */
TEST(the_host_waits_for_a_turn_too)
{
    begin_turns(2);
    void *captured = cuda->new_stream(0);
    cuda->hold_copies(MIB + LARGE);
    expect_ok(start());
    expect_ok(fence_until(1, job.streams[1], 1)); /* a device without tensors of the save */
    cuda->capture(0, captured, true);
    expect_ok(fence_until(0, captured, 1));
    cuda->capture(0, captured, false);
    assert_false(cuda->capture_is_spoiled());
    fill_one(2, job.streams[1], 2);
    cuda->synchronize(1, job.streams[1]);
    cuda->hold_copies(0);
    expect_ok(finish());
    expect_epoch(1);
    cuda->free_stream(captured);
    end();
}

TEST(turns_on_several_devices)
{
    begin_with(NULL, 3);
    for (uint32_t i = 0; i < 12; i++) {
        add((int)(i % 3), 9 * MIB + 40 * i, i % 4 != 0 ? SIDESTEP_TENSOR_FENCED : 0);
        job.tensors[i].turn = 7 - i / 2; /* t11 first */
    }
    fill(1);
    cuda->slow(2000);
    expect_ok(start());
    for (uint32_t i = 12; i-- > 0;) {
        int device = job.tensors[i].device;
        expect_ok(fence_until(device, job.streams[device], 7 - i / 2));
        fill_one(i, job.streams[device], 2);
    }
    expect_ok(finish());
    expect_epoch(1);
    end();
}

/* With a small pool they are copied in the order of the file, and every fence is for all. */
TEST(a_small_pool_ignores_turns)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.pool_bytes = 24 * MIB;
    begin_with(&options, 1);
    for (uint32_t turn = 2; turn > 0; turn--) {
        add(0, 20 * MIB, SIDESTEP_TENSOR_FENCED);
        job.tensors[job.count - 1].turn = turn;
    }
    fill(1);
    cuda->slow(1000);
    expect_ok(start());
    expect_ok(fence_until(0, job.streams[0], 1));
    fill(2);
    expect_ok(finish());
    expect_epoch(1);
    end();
}

/* A state with other turns has the same layout. */
TEST(turns_may_change_from_save_to_save)
{
    begin_turns(1);
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t k = 0; k < 3; k++)
            job.tensors[k].turn = (k + i) % 3;
        fill(10 + i);
        cuda->hold_copies(cuda->copied_bytes() + MIB + LARGE);
        expect_ok(start());
        expect_ok(fence_until(0, job.streams[0], 0));
        fill_one((3 - i % 3) % 3, job.streams[0], 99);
        cuda->synchronize(0, job.streams[0]);
        cuda->hold_copies(0);
        expect_ok(fence(0));
        expect_ok(finish());
        expect_epoch(10 + i);
    }
    end();
}

ALL_TESTS(setup, teardown);
