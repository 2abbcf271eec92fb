/* SPDX-License-Identifier: BSD-3-Clause */
/* device_promise_test.c -- SIDESTEP_FENCE_DEBUG: a program that writes to a FENCED tensor before
 * the fence gets an error; one that keeps its promise does not. */
#include <errno.h>
#include <time.h>

#include "support/on_device.h"

#define LONG_MS "600000" /* until there is a fence */

static void begin_doubting(const char *ms, uint64_t pool_bytes)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.pool_bytes = pool_bytes;
    setenv("SIDESTEP_FENCE_DEBUG", ms, 1);
    begin_with(&options, 2);
    unsetenv("SIDESTEP_FENCE_DEBUG");
    add(0, 5 * MIB, SIDESTEP_TENSOR_FENCED);
    add(1, 70000, SIDESTEP_TENSOR_FENCED);
    add_rows(0, 100, 30, 31, SIDESTEP_TENSOR_FENCED);
    add(0, MIB, 0);
    add(-1, 4096, 0);
    if (pool_bytes != 0)
        add(0, 2 * pool_bytes, SIDESTEP_TENSOR_FENCED);
}

/* Wait until every byte is on storage, which is after the last copy; the save has not ended. */
static void await_written(void)
{
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    struct timespec pause = {.tv_nsec = 1000000};

    do {
        (void)nanosleep(&pause, NULL);
        expect_ok(sidestep_save_poll(job.save, &info));
    } while (info.state < SIDESTEP_SAVE_STAGED &&
             info.bytes_staged < info.bytes_total / 4096 * 4096);
}

static void fence_both(void)
{
    expect_ok(fence(0));
    expect_ok(fence(1));
}

TEST(a_kept_promise_passes)
{
    for (int small = 0; small <= 1; small++) {
        begin_doubting(LONG_MS, small != 0 ? 16 * MIB : 0);
        for (int i = 0; i < 2; i++) {
            fill(1);
            expect_ok(start());
            fill_one(3, job.streams[0], 2); /* not FENCED */
            fence_both();
            fill(2);
            expect_ok(finish());
            expect_epoch(1);
        }
        end();
    }
}

TEST(without_a_fence_it_ends_by_itself)
{
    begin_doubting("20", 0);
    fill(1);
    expect_ok(start());
    expect_ok(sidestep_save_wait(job.save, SIDESTEP_SAVE_STAGED, -1, &job.err));
    fill(2);
    expect_ok(finish());
    expect_epoch(1);
    end();
}

static void break_promise(size_t i, const char *name)
{
    fill(1);
    expect_ok(start());
    await_written(); /* so the checkpoint is right this time */
    fill_one(i, job.streams[job.tensors[i].device], 2);
    fence_both();
    expect_status(finish(), SIDESTEP_EINVAL);
    assert_non_null(strstr(job.err.message, name));
    assert_non_null(strstr(job.err.message, "before a fence"));
}

TEST(a_broken_promise_is_reported)
{
    begin_doubting(LONG_MS, 0);
    break_promise(0, "tensor 't0' of device 0");
    break_promise(1, "tensor 't1' of device 1");
    break_promise(2, "tensor 't2' of device 0");
    fill(3);
    expect_ok(start());
    fence_both();
    expect_ok(finish());
    expect_epoch(3);
    end();
}

/* Without the mode nothing is noticed: that is what it is for. */
TEST(without_the_mode_nothing_is_noticed)
{
    begin_doubting("0", 0);
    fill(1);
    expect_ok(start());
    expect_ok(sidestep_save_wait(job.save, SIDESTEP_SAVE_STAGED, -1, &job.err));
    fill_one(0, job.streams[0], 2);
    fence_both();
    expect_ok(finish());
    expect_epoch(1);
    end();
}

TEST(blocking_saves_need_no_fence)
{
    struct sidestep_state_dict *dict;

    begin_doubting(LONG_MS, 0);
    fill(1);
    cuda->synchronize(0, job.streams[0]);
    cuda->synchronize(1, job.streams[1]);
    dict = new_state(job.tensors);
    expect_ok(sidestep_save(job.engine, job.path, dict, NULL, NULL, &job.err));
    sidestep_state_dict_free(&dict);
    expect_epoch(1);
    end();
}

/* Whatever fails, also during the second reading: the checkpoint is right, or there is none. */
static unsigned long fail_each(bool memory)
{
    unsigned long failures = 0;
    bool fired = true;

    for (unsigned long nth = 1; fired; nth += memory ? 1 : 5) {
        begin_doubting(LONG_MS, 0);
        fill(1);
        struct sidestep_state_dict *dict = new_state(job.tensors);
        if (memory)
            fault_arm("memory", nth, false, ENOMEM);
        else
            cuda->fail_calls("cu", nth, 2, false);
        enum sidestep_status status = start_state(dict);
        if (status == SIDESTEP_OK) {
            (void)fence(0); /* whatever it returns: the second reading may begin */
            status = finish();
        }
        fired = memory ? fault_fired() != NULL : cuda->failed_calls() != 0;
        fault_arm("", 0, false, 0);
        cuda->fail_calls("", 0, 0, false);
        sidestep_state_dict_free(&dict);
        failures += status != SIDESTEP_OK;
        assert_true(status == SIDESTEP_OK || job.err.message[0] != '\0');
        if (status == SIDESTEP_OK)
            expect_epoch(1);
        end();
    }
    return failures;
}

TEST(everything_may_fail)
{
    assert_true(fail_each(true) > 10);
    assert_true(fail_each(false) > 10);
}

ALL_TESTS(setup, teardown);
