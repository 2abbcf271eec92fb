/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_life_test.c -- write protection: what programs do to protected memory, and what the policy
 * learns from it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <sys/mman.h>
#include <unistd.h>

#include "save/saver.h"
#include "snapshot/cow_internal.h"
#include "support/held.h"
#include "support/ways.h"

/* ---- what programs do to protected memory */

static void unmap_it(unsigned char *memory)
{
    munmap(memory + 4 * MIB, 2 * MIB);
}

static void replace_it(unsigned char *memory)
{
    assert_true(mmap(memory + 4 * MIB, 2 * MIB, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
}

static void discard_it(unsigned char *memory)
{
    assert_int_equal(madvise(memory + 4 * MIB, 2 * MIB, MADV_DONTNEED), 0);
}

static void move_it(unsigned char *memory)
{
    uint64_t *moved =
        mremap(memory + 4 * MIB, 2 * MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, map(2 * MIB));
    assert_true(moved != MAP_FAILED);
    for (size_t n = 0; n < WORDS(2 * MIB); n += 512)
        moved[n] = 1; /* the protection must not stay on the moved pages */
    munmap(moved, 2 * MIB);
}

static void memory_that_goes_away_fails_the_save_only(void **state)
{
    (void)state;
    static const struct {
        void (*act)(unsigned char *memory);
        const char *said;
        bool hole; /* the address range stays unmapped, and may be mapped by somebody else */
    } acts[] = {{unmap_it, "unmapped", true},
                {replace_it, "unmapped", false},
                {discard_it, "discarded", false},
                {move_it, "moved", true}};

    need_cow();
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        unsigned char *memory = map(8 * MIB);
        begin(SIDESTEP_SNAPSHOT_COW);
        add(memory, 8 * MIB, 1, 0);
        fill(1);
        fault_arm("none", 1, false, 0);
        fault_delay("cow.stage", 900000);
        expect_ok(start());
        acts[i].act(memory);
        fault_delay("", 0);
        enum sidestep_status status = finish();
        assert_int_equal(status, SIDESTEP_EINVAL);
        assert_non_null(strstr(job.err.message, "memory of tensor 't0'"));
        assert_non_null(strstr(job.err.message, "Wait for RELEASED"));
        if (job.err.sys_errno != EFAULT) /* a read may fail before its event arrives */
            assert_non_null(strstr(job.err.message, acts[i].said));
        job.tensors[0].bytes = 4 * MIB; /* the part that still exists */
        save_and_overwrite();
        expect_cow(4 * MIB, "");
        end();
        munmap(memory, 4 * MIB);
        if (!acts[i].hole)
            munmap(memory + 4 * MIB, 2 * MIB);
        munmap(memory + 6 * MIB, 2 * MIB);
    }
}

static void memory_may_go_once_it_is_released(void **state)
{
    (void)state;
    need_cow();
    begin(SIDESTEP_SNAPSHOT_COW);
    for (int i = 0; i < 3; i++) {
        job.count = 0;
        add(map(8 * MIB), 8 * MIB, 1, 0); /* often at the address of the last one */
        fill(1);
        expect_ok(start());
        expect_ok(sidestep_save_wait(job.save, SIDESTEP_SAVE_RELEASED, -1, &job.err));
        munmap(job.tensors[0].words, 8 * MIB);
        expect_ok(finish());
        expect_cow(8 * MIB, "");
        expect_epoch(1);
    }
    end();
}

static void a_fork_during_a_save_changes_nothing(void **state)
{
    (void)state;
    need_cow();
    unsigned char *memory = map(16 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 16 * MIB, 1, 0);
    fill(1);
    fault_delay("cow.stage", 5000);
    expect_ok(start());
    pid_t child = fork();
    if (child == 0) {
        memset(memory, 7, 16 * MIB); /* the child's own copy */
        _exit(memory[8 * MIB] == 7 ? 0 : 1);
    }
    fill(2);
    expect_ok(finish());
    fault_delay("", 0);
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_epoch(1);
    child = fork(); /* it inherits the descriptor, and outlives the engine */
    if (child == 0) {
        pause();
        _exit(0);
    }
    save_and_overwrite();
    end();
    fill(3); /* no write waits for handlers that have ended */
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    munmap(memory, 16 * MIB);
}

static void writes_of_the_kernel_are_held(void **state)
{
    (void)state;
    need_cow();
    unsigned char *memory = map(8 * MIB);
    char path[128];
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 8 * MIB, 1, 0);
    snprintf(path, sizeof(path), "%s/input", scratch.path);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    fill(2);
    assert_true(fd >= 0 && write(fd, memory, 8 * MIB) == (ssize_t)(8 * MIB));
    fill(1);
    fault_delay("cow.stage", 5000);
    expect_ok(start());
    assert_int_equal(pread(fd, memory, 8 * MIB, 0), 8 * MIB);
    expect_ok(finish());
    fault_delay("", 0);
    expect_epoch(1);
    assert_int_equal(job.tensors[0].words[WORDS(8 * MIB) - 1] & 0xfffff, 2);
    close(fd);
    end();
    munmap(memory, 8 * MIB);
}

static void a_failed_write_unprotects_the_state(void **state)
{
    (void)state;
    need_cow();
    unsigned char *memory = map(32 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 32 * MIB, 1, 0);
    fill(1);
    fault_delay("cow.stage", 5000);
    fault_arm("posix.pwrite", 2, true, ENOSPC);
    expect_ok(start());
    fill(2);
    assert_int_equal(finish(), SIDESTEP_ENOSPC);
    fault_arm("", 0, false, 0);
    fault_delay("", 0);
    fill(3);
    save_and_overwrite();
    expect_cow(32 * MIB, "");
    end();
    munmap(memory, 32 * MIB);
}

/* A write fails while the trainer waits for copies of granules that end in a window without a slot.
 * Nobody copies these any more, and the trainer goes on. */
static void a_failed_write_leaves_nobody_waiting(void **state)
{
    (void)state;
    need_cow();
    unsigned char *memory = map(32 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    unsigned failed = 0, rounds = getenv("SIDESTEP_LONG") != NULL
                                      ? 60
                                      : 5; /* 30 rounds usually show the defect */
    add(memory + 64, 30 * MIB, 1, 0);      /* windows end in the middle of granules */
    for (unsigned round = 0; round < rounds; round++) {
        fill(1);
        fault_delay("", 4000); /* no slot is left before the write fails */
        fault_arm("posix.pwrite", 3 + round % 5, true, ENOSPC);
        expect_ok(start());
        fill(2);
        failed += finish() == SIDESTEP_ENOSPC;
        fault_arm("", 0, false, 0);
        fault_delay("", 0);
    }
    assert_true(failed != 0);
    save_and_overwrite();
    expect_cow(26 * MIB, "");
    end();
    munmap(memory, 32 * MIB);
}

static void two_engines_do_not_share_memory(void **state)
{
    (void)state;
    need_cow();
    unsigned char *memory = map(4 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    struct job first = job;
    add(memory, 4 * MIB, 1, 0);
    save_and_overwrite();
    first = job;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 4 * MIB, 1, 0);
    save_and_overwrite();
    expect_cow(0, "another userfaultfd");
    end();
    job = first;
    end();
    munmap(memory, 4 * MIB);
}

static void auto_turns_to_copy_where_cow_gains_nothing(void **state)
{
    (void)state;
    SKIP_IF_WAYS_ARE_SET();
    need_cow();
    unsigned char *memory = map(32 * MIB);
    begin(SIDESTEP_SNAPSHOT_AUTO);
    add(memory, 32 * MIB, 1, 0);
    fault_delay("cow.stage", 300000); /* the trainer is faster than the copier */
    save_and_overwrite();
    expect_cow(32 * MIB, "");
    assert_true(job.info.fault_bytes > 16 * MIB);
    fault_delay("", 0);
    for (int i = 0; i < 1000 && job.info.cow_bytes != 0; i++) {
        (void)usleep(1000); /* if the pool was not touched yet, the end of a save does that first */
        save_and_overwrite();
    }
    expect_cow(0, "by cow the program lost");
    save_and_overwrite();
    expect_cow(0, "by cow the program lost");
    fill(1);
    for (int i = 0; i < 8 && job.info.cow_bytes == 0; i++) { /* 2, or 8 if it was clearly worse */
        expect_ok(start());
        expect_ok(finish());
    }
    expect_cow(32 * MIB, ""); /* nobody writes: protection pays */
    unsigned in_turn = 1;     /* except on a machine so busy that protecting takes long */
    for (int i = 0; i < 100 && in_turn < 2; i++) {
        expect_ok(start());
        expect_ok(finish());
        in_turn = job.info.cow_bytes == 32 * MIB ? in_turn + 1 : 0;
    }
    assert_int_equal(in_turn, 2);
    end();
    munmap(memory, 32 * MIB);
}

static void slow_handlers_are_waited_for(void **state)
{
    (void)state;
    need_cow();
    unsigned char *memory = map(8 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 8 * MIB, 1, 0);
    fault_delay("cow.", 50000);
    save_and_overwrite();
    fault_delay("", 0);
    assert_true(job.info.faults != 0 && job.info.fault_max_ns != 0);
    assert_true(job.info.fault_ns >= job.info.fault_max_ns);
    end();
    munmap(memory, 8 * MIB);
}

/* The kernel may let a thread wait although the protection of its page was lifted just before, if
 * the page is not writable yet: after a fork, for example. Here its page is protected again. */
static void a_writer_that_comes_too_late_to_be_woken_goes_on(void **state)
{
    (void)state;
    need_cow();
    unsigned char *memory = map(16 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 16 * MIB, 1, 0);
    fill(1);
    sidestep_engine_pause(job.engine);
    expect_ok(start());
    THREAD_IS(CALLER);
    const struct uffd *uffd = &job.engine->saver->snapshot_policy.cow->uffd;
    fault_delay("cow.lifted", 300000);
    (void)alarm(60);
    for (size_t at = 0; at < 16 * MIB; at += COW_GRANULE_BYTES) {
        uint64_t next = (uint64_t)(uintptr_t)memory + at + 4096;
        memory[at] = 2; /* a handler has lifted the protection, and is about to note it */
        assert_int_equal(uffd_protect(uffd, next, next + 4096), 0);
        memory[at + 4096] = 2;
    }
    (void)alarm(0);
    fault_delay("", 0);
    sidestep_engine_resume(job.engine);
    expect_ok(finish());
    expect_epoch(1);
    end();
    munmap(memory, 16 * MIB);
}

static void copy_is_copy(void **state)
{
    (void)state;
    unsigned char *memory = map(4 * MIB);
    begin(SIDESTEP_SNAPSHOT_COPY);
    add(memory, 4 * MIB, 1, 0);
    save_and_overwrite();
    expect_cow(0, "copying was asked for (snapshot=copy)");
    assert_int_equal(job.info.copy_bytes, 4 * MIB);
    end();
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    options.snapshot = SIDESTEP_SNAPSHOT_COW + 1;
    assert_int_equal(sidestep_engine_open(&job.engine, &options, &job.err), SIDESTEP_EUNSUPPORTED);
    munmap(memory, 4 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_goes_away_fails_the_save_only),
        cmocka_unit_test(memory_may_go_once_it_is_released),
        cmocka_unit_test(a_fork_during_a_save_changes_nothing),
        cmocka_unit_test(writes_of_the_kernel_are_held),
        cmocka_unit_test(a_failed_write_unprotects_the_state),
        cmocka_unit_test(two_engines_do_not_share_memory),
        cmocka_unit_test(auto_turns_to_copy_where_cow_gains_nothing),
        cmocka_unit_test(slow_handlers_are_waited_for),
        cmocka_unit_test(a_writer_that_comes_too_late_to_be_woken_goes_on),
        cmocka_unit_test(copy_is_copy),
    };
    /* And with windows that wait for slots. */
    const struct CMUnitTest torture_under_a_cap[] = {
        cmocka_unit_test(memory_that_goes_away_fails_the_save_only),
        cmocka_unit_test(memory_may_go_once_it_is_released),
        cmocka_unit_test(a_fork_during_a_save_changes_nothing),
        cmocka_unit_test(writes_of_the_kernel_are_held),
        cmocka_unit_test(a_failed_write_unprotects_the_state),
        cmocka_unit_test(a_failed_write_leaves_nobody_waiting),
        cmocka_unit_test(two_engines_do_not_share_memory),
        cmocka_unit_test(slow_handlers_are_waited_for),
    };

    int failed = cmocka_run_group_tests(tests, setup, teardown);
    held_pool_bytes = 16 * MIB;
    failed += cmocka_run_group_tests_name("under a cap", torture_under_a_cap, setup, teardown);
    held_ahead = SIDESTEP_COPY_AHEAD_NEVER;
    return failed + cmocka_run_group_tests_name("live", torture_under_a_cap, setup, teardown);
}
