/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_limit_test.c -- saves in a process with little memory beside its state (RLIMIT_DATA). */
#include <sys/resource.h>

#include "support/held.h"

#define STATE_BYTES (128 * MIB)
#define CAP_BYTES (32 * MIB)
/* What a save may use beyond its cap, with threads and their stacks. */
#define BESIDE_BYTES (64 * MIB)
/* Under protection, the limit also counts reserved addresses: room for 96 threads. */
#define RESERVED_BYTES (96 * MIB)

static struct rlimit unlimited;
static unsigned char *memory;

static void let_it_have(size_t more)
{
    struct rlimit limit = unlimited;

    limit.rlim_cur = memory_of("VmData") + more;
    assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
}

static void let_it_have_all(void)
{
    assert_int_equal(setrlimit(RLIMIT_DATA, &unlimited), 0);
}

static int setup_state(void **state)
{
    memory = map(STATE_BYTES);
    return getrlimit(RLIMIT_DATA, &unlimited) == 0 ? setup(state) : -1;
}

static int teardown_state(void **state)
{
    munmap(memory, STATE_BYTES);
    return teardown(state);
}

static int lift(void **state)
{
    (void)state;
    held_pool_bytes = 0;
    return setrlimit(RLIMIT_DATA, &unlimited);
}

static void opened(enum sidestep_snapshot snapshot, size_t cap)
{
    held_pool_bytes = cap;
    begin(snapshot);
    add(memory, STATE_BYTES, 1, 0);
    fill(1);
}

/* The state is rewritten when the call returns: the worst case for memory. */
static void a_cap_is_enough(enum sidestep_snapshot snapshot, size_t reserved)
{
    let_it_have(CAP_BYTES + BESIDE_BYTES + reserved);
    opened(snapshot, CAP_BYTES);
    for (int i = 0; i < 3; i++) {
        fill(1);
        expect_ok(start());
        fill(2);
        expect_ok(finish());
        assert_int_equal(job.info.snapshot, snapshot);
        let_it_have_all();
        expect_epoch(1);
        let_it_have(BESIDE_BYTES);
    }
    let_it_have_all();
    end();
}

TEST(a_cap_is_enough_for_copies)
{
    need_plain_memory();
    a_cap_is_enough(SIDESTEP_SNAPSHOT_COPY, 0);
}

TEST(a_cap_is_enough_under_protection)
{
    need_plain_memory();
    need_cow();
    a_cap_is_enough(SIDESTEP_SNAPSHOT_COW, RESERVED_BYTES);
}

/* Also the control: the limit is effective. */
TEST(without_a_cap_it_fails_and_harms_nothing)
{
    need_plain_memory();
    opened(SIDESTEP_SNAPSHOT_COPY, CAP_BYTES);
    expect_ok(start());
    expect_ok(finish());
    end();
    opened(SIDESTEP_SNAPSHOT_COPY, 0);
    let_it_have(BESIDE_BYTES);
    fill(3);
    assert_int_equal(start(), SIDESTEP_ENOMEM);
    assert_non_null(strstr(job.err.message, "memory"));
    let_it_have_all();
    expect_epoch(1);
    expect_ok(start());
    fill(2);
    expect_ok(finish());
    expect_epoch(3);
    end();
}

EACH_TEST(NULL, lift);
ALL_TESTS(setup_state, teardown_state);
