/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_calm_test.c -- trainers that leave their state alone while it is written: when copies are
 * made, how much memory that takes, and what happens if it fails. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "save/saver.h"
#include "support/held.h"

static void calm_save(void)
{
    fill(1);
    expect_ok(start());
    expect_ok(finish());
}

/* What protected memory is copied to is used again as soon as it is written. */
#define CALM_POOL_BYTES (24 * MIB)

TEST(calm_saves_pass_through_a_small_pool)
{
    need_cow();
    unsigned char *memory = map(64 * MIB);
    held_ahead = SIDESTEP_COPY_AHEAD_NEVER;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 20 * MIB, 1, 0);
    add(memory + 20 * MIB, 10 * MIB + 64, 1, 0);
    add(memory + 31 * MIB, MIB / 2, 1, 0); /* is copied in the call */
    add(memory + 32 * MIB, 32 * MIB, 1, 0);
    for (int i = 0; i < 2; i++) {
        calm_save();
        expect_cow(62 * MIB, "");
        assert_int_equal(job.info.ahead_bytes, 0);
        assert_int_equal(job.info.faults, 0);
        assert_true(job.info.pool_bytes <= CALM_POOL_BYTES);
        assert_true(job.info.release_ns != 0);
        assert_int_equal(job.info.bytes_staged, job.info.bytes_total - job.info.bytes_total % 4096);
        expect_epoch(1);
    }
    save_and_overwrite();
    end();
    munmap(memory, 64 * MIB);
}

TEST(tensors_begin_anywhere_in_a_page)
{
    static const enum sidestep_io ios[] = {SIDESTEP_IO_AUTO, SIDESTEP_IO_THREADS,
                                           SIDESTEP_IO_BUFFERED};
    static const size_t into_page[] = {8, 64, 4088};

    need_cow();
    unsigned char *memory = map(112 * MIB);
    held_ahead = SIDESTEP_COPY_AHEAD_NEVER;
    for (size_t i = 0; i < 3; i++) {
        held_io = ios[i];
        begin(SIDESTEP_SNAPSHOT_COW);
        add(memory + into_page[i], 96 * MIB, 1, 0);
        calm_save();
        bool direct = (job.info.flags & SIDESTEP_SAVE_DIRECT_IO) != 0;
        assert_int_equal(direct && ios[i] == SIDESTEP_IO_BUFFERED, false);
        assert_int_equal(job.info.ahead_bytes, 0);
        assert_true(job.info.pool_bytes <= CALM_POOL_BYTES);
        expect_epoch(1);
        end();
    }
    held_io = SIDESTEP_IO_AUTO;
    munmap(memory, 112 * MIB);
}

/* ---- failures */

TEST(a_failed_write_unprotects_the_state)
{
    static const struct {
        enum sidestep_io io;
        const char *point;
        int sys_errno;
        enum sidestep_status status;
    } failures[] = {{SIDESTEP_IO_BUFFERED, "posix.pwrite", ENOSPC, SIDESTEP_ENOSPC},
                    {SIDESTEP_IO_BUFFERED, "posix.pwrite", EIO, SIDESTEP_EIO},
                    {SIDESTEP_IO_AUTO, "ring.result", EIO, SIDESTEP_EIO},
                    {SIDESTEP_IO_AUTO, "ring.result", ENOSPC, SIDESTEP_ENOSPC},
                    {SIDESTEP_IO_AUTO, "cow.read", EIO, SIDESTEP_EIO},
                    {SIDESTEP_IO_AUTO, "cow.read", EFAULT, SIDESTEP_EINVAL}};

    need_cow();
    unsigned char *memory = map(48 * MIB);
    held_ahead = SIDESTEP_COPY_AHEAD_NEVER;
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++)
        for (unsigned long nth = 1; nth < 8; nth += 3) {
            held_io = failures[i].io;
            begin(SIDESTEP_SNAPSHOT_COW);
            add(memory, 48 * MIB, 1, 0);
            calm_save(); /* plans, and shows whether there is a ring */
            if (strncmp(failures[i].point, "ring", 4) == 0 &&
                (job.info.flags & SIDESTEP_SAVE_URING) == 0) {
                end();
                continue;
            }
            fault_delay("cow.stage", 3000);
            expect_ok(start());
            fault_arm(failures[i].point, nth, true, failures[i].sys_errno);
            fill(2); /* no write hangs */
            assert_int_equal(finish(), failures[i].status);
            assert_non_null(fault_fired());
            fault_arm("", 0, false, 0);
            fault_delay("", 0);
            save_and_overwrite();
            expect_cow(48 * MIB, "");
            end();
        }
    held_io = SIDESTEP_IO_AUTO;
    munmap(memory, 48 * MIB);
}

/* A request writes only a part, or nothing. */
TEST(short_writes_are_finished)
{
    need_cow();
    unsigned char *memory = map(48 * MIB);
    held_ahead = SIDESTEP_COPY_AHEAD_NEVER;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 48 * MIB, 1, 0);
    fault_arm("ring.short", 1, true, 0);
    save_and_overwrite();
    fault_arm("ring.result", 1, true, EAGAIN);
    save_and_overwrite();
    fault_arm("", 0, false, 0);
    end();
    munmap(memory, 48 * MIB);
}

TEST(memory_may_go_when_it_is_written)
{
    need_cow();
    held_ahead = SIDESTEP_COPY_AHEAD_NEVER;
    held_io = SIDESTEP_IO_BUFFERED;
    begin(SIDESTEP_SNAPSHOT_COW);
    for (int i = 0; i < 4; i++) {
        job.count = 0;
        add(map(24 * MIB), 24 * MIB, 1, 0);
        fill(1);
        fault_delay("posix.pwrite", 20000);
        expect_ok(start());
        if (i % 2 == 0) {
            expect_ok(sidestep_save_wait(job.save, SIDESTEP_SAVE_RELEASED, -1, &job.err));
            munmap(job.tensors[0].words, 24 * MIB);
            expect_ok(finish());
            expect_epoch(1);
        } else { /* too early */
            munmap(job.tensors[0].words, 24 * MIB);
            enum sidestep_status status = finish();
            assert_true(status == SIDESTEP_EINVAL || status == SIDESTEP_EIO);
        }
        fault_delay("", 0);
    }
    end();
    held_io = SIDESTEP_IO_AUTO;
}

/* ---- when copies are made, and how much memory they take */

TEST(the_policy_learns_from_trainers)
{
    need_cow();
    unsigned char *memory = map(64 * MIB);
    held_ahead = SIDESTEP_COPY_AHEAD_AUTO;
    held_io = SIDESTEP_IO_BUFFERED;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 64 * MIB, 1, 0);
    calm_save();
    assert_true(job.info.ahead_bytes != 0); /* nothing is known yet */
    for (int i = 0; i < 3; i++) {
        calm_save();
        assert_true(job.info.ahead_bytes == 0);
    }
    fault_delay("posix.pwrite", 100000);
    save_and_overwrite(); /* noticed in the middle of it */
    fault_delay("", 0);
    assert_true(job.info.faults >= 4);
    for (int i = 0; i < 8; i++) {
        calm_save();
        assert_true(job.info.ahead_bytes != 0);
    }
    calm_save(); /* tried again */
    assert_true(job.info.ahead_bytes == 0);
    end();
    held_ahead = SIDESTEP_COPY_AHEAD_ALWAYS;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 64 * MIB, 1, 0);
    for (int i = 0; i < 3; i++) {
        calm_save();
        assert_true(job.info.ahead_bytes != 0);
    }
    end();
    held_io = SIDESTEP_IO_AUTO;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    options.copy_ahead = SIDESTEP_COPY_AHEAD_NEVER + 1;
    assert_int_equal(sidestep_engine_open(&job.engine, &options, &job.err), SIDESTEP_EUNSUPPORTED);
    options.copy_ahead = SIDESTEP_COPY_AHEAD_NEVER;
    options.replicas = SIDESTEP_REPLICAS_SHARE + 1;
    assert_int_equal(sidestep_engine_open(&job.engine, &options, &job.err), SIDESTEP_EUNSUPPORTED);
    munmap(memory, 64 * MIB);
}

/* The next save copies ahead, and the first touch of memory is slow. */
TEST(a_pool_is_touched_after_writes_had_to_wait)
{
    need_cow();
    unsigned char *memory = map(64 * MIB);
    held_ahead = SIDESTEP_COPY_AHEAD_AUTO;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 64 * MIB, 1, 0);
    calm_save();
    const struct snapshot_policy *policy = &job.engine->saver->snapshot_policy;
    for (int writes = 0; writes < 2; writes++) {
        for (int i = 0; i < 4; i++)
            calm_save(); /* its pool is given back */
        expect_ok(start());
        for (size_t at = 0; writes != 0 && at < 64 * MIB; at += 8 * MIB)
            memory[at] = 2;
        expect_ok(finish());
        assert_true((job.info.faults >= 4) == (writes != 0));
        await_threads("sidestep-save", false, 0); /* first, because it becomes idle at the end */
        await_threads("sidestep-save", true, 0);
        calm_save(); /* learns from it */
        THREAD_IS(CALLER);
        assert_true(policy->touched_pool == (writes != 0));
    }
    end();
    munmap(memory, 64 * MIB);
}

static bool reset_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    bool done = fd >= 0 && write(fd, "5", 1) == 1;

    if (fd >= 0)
        close(fd);
    return done;
}

/* The peak memory of a save, without the state. */
static size_t extra_memory(size_t before)
{
    assert_true(reset_peak());
    calm_save();
    size_t peak = memory_of("VmHWM");
    return peak > before ? peak - before : 0;
}

TEST(calm_trainers_need_little_memory)
{
    need_cow();
    need_plain_memory();
    size_t bytes = 192 * MIB;
    unsigned char *memory = map(bytes + MIB);
    for (int misaligned = 0; misaligned < 2; misaligned++) {
        held_ahead = SIDESTEP_COPY_AHEAD_AUTO;
        begin(SIDESTEP_SNAPSHOT_COW); /* AUTO copies if protecting took long: on a busy machine */
        add(memory + 8 * misaligned, bytes, 1, 0);
        fill(1);
        size_t before = memory_of("VmRSS");
        struct sidestep_state_dict *tensors = new_state(NULL);
        expect_ok(sidestep_engine_prepare(job.engine, tensors, &job.err));
        sidestep_state_dict_free(&tensors);
        /* The control: at first it takes as much as the state. */
        assert_true(memory_of("VmRSS") - before >= bytes);
        for (int i = 0; i < 5; i++)
            calm_save();
        assert_true(extra_memory(before) <= CALM_POOL_BYTES + 8 * MIB);
        assert_true(job.info.pool_bytes <= CALM_POOL_BYTES);
        end();
    }
    munmap(memory, bytes + MIB);
}

/* A trainer that rewrites everything at once waits under the cap, and the process does not exceed
 * it. */
TEST(a_cap_is_kept_by_the_process)
{
    const size_t bytes = 160 * MIB, cap = 32 * MIB;

    need_cow();
    need_plain_memory();
    unsigned char *memory = map(bytes);
    held_pool_bytes = cap;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, bytes, 1, 0);
    fill(1);
    size_t before = memory_of("VmRSS");
    for (int i = 0; i < 3; i++) {
        fill(1);
        assert_true(reset_peak());
        expect_ok(start());
        fill(2);
        expect_ok(finish());
        assert_true(job.info.faults != 0 && job.info.pool_bytes <= cap);
        assert_true(memory_of("VmHWM") - before <= cap + 24 * MIB);
        expect_epoch(1);
    }
    end();
    held_pool_bytes = 0;
    munmap(memory, bytes);
}

ALL_TESTS(setup, teardown);
