/* SPDX-License-Identifier: BSD-3-Clause */
/* snapshot_policy_test.c -- what the policy learns from saves, and when it copies instead of
 * protecting. */
#include "save/snapshot_policy.h"
#include "support/unit.h"

#define GIB ((uint64_t)1 << 30)
#define MS ((uint64_t)1000000)

/* Times of a GiB on pages of 4 KiB, and on huge pages.  The trainer's share of the processor time
 * is the same on any number of processors. */
static struct sidestep_save_info cow_save(uint64_t stage_ms, uint64_t share_ms, bool busy)
{
    uint64_t cpu_ns = share_ms * MS * thread_cpu_count();

    return (struct sidestep_save_info){.snapshot = SIDESTEP_SNAPSHOT_COW,
                                       .cow_bytes = GIB,
                                       .stage_ns = stage_ms * MS,
                                       .pool_bytes = 16u << 20,
                                       .cpu_ns = cpu_ns,
                                       .cpu_wait_ns = busy ? 10 * cpu_ns : cpu_ns / 10};
}

static struct sidestep_save_info copy_save(void)
{
    struct sidestep_save_info save = cow_save(55, 35, true);

    save.snapshot = SIDESTEP_SNAPSHOT_COPY;
    save.cow_bytes = 0;
    save.copy_bytes = GIB;
    return save;
}

static void learn(struct snapshot_policy *policy, struct sidestep_save_info save)
{
    THREAD_IS(CALLER);
    snapshot_policy_learn(policy, &save, false);
}

TEST(protection_stays_where_a_processor_is_idle)
{
    struct snapshot_policy policy = {.has_cow_save = true};

    learn(&policy, copy_save());
    learn(&policy, cow_save(13, 500, false));
    assert_int_equal(policy.copy_saves_left, 0);
    assert_int_equal(policy.cow_cost_ns, 13 * MS);
}

TEST(a_copy_is_tried_where_all_processors_are_busy)
{
    struct snapshot_policy policy = {.has_cow_save = true};

    learn(&policy, cow_save(13, 500, true)); /* nothing is known of copies yet */
    assert_int_equal(policy.copy_saves_left, 2);
    assert_false(policy.pool_is_warm);
}

TEST(protection_that_was_asked_for_needs_no_pool_for_copies)
{
    struct snapshot_policy policy = {.requested = SIDESTEP_SNAPSHOT_COW, .has_cow_save = true};

    for (int i = 0; i < 4; i++)
        learn(&policy, cow_save(13, 500, true));
    assert_int_equal(policy.copy_saves_left, 0);
    assert_true(snapshot_policy_can_trim_pool(&policy));
}

TEST(protection_stays_where_it_costs_the_same)
{
    struct snapshot_policy policy = {.has_cow_save = true};

    learn(&policy, copy_save());
    learn(&policy, cow_save(1, 90, true)); /* huge pages: 91 beside 90 ms */
    assert_int_equal(policy.copy_saves_left, 0);
    learn(&policy, cow_save(13, 135, true)); /* pages of 4 KiB: 148 beside 90 ms */
    assert_int_equal(policy.copy_saves_left, 2);
}

TEST(writes_that_wait_count_on_idle_processors_too)
{
    struct snapshot_policy policy = {
        .has_cow_save = true, .copied_ahead = true, .pool_is_warm = true};
    struct sidestep_save_info save = cow_save(13, 135, false);

    learn(&policy, copy_save());
    save.fault_ns = 30 * MS; /* they lose about twice as much; a copy loses 55 */
    save.faults = 1000;
    learn(&policy, save);
    assert_int_equal(policy.copy_saves_left, 0);
    save.fault_ns = 40 * MS;
    learn(&policy, save);
    assert_int_equal(policy.copy_saves_left, 2);
}

/* The next save finds the pool touched. */
TEST(writes_that_wait_for_a_cold_pool_say_nothing)
{
    struct snapshot_policy policy = {.has_cow_save = true, .copied_ahead = true};
    struct sidestep_save_info save = cow_save(13, 135, false);

    save.fault_ns = 300 * MS;
    save.faults = 100;
    THREAD_IS(CALLER);
    assert_int_equal(snapshot_policy_choose_touch_threshold(&policy), 4);
    snapshot_policy_learn(&policy, &save, true);
    assert_int_equal(policy.copy_saves_left, 0);
    assert_int_equal(snapshot_policy_choose_touch_threshold(&policy), UINT64_MAX);
    learn(&policy, save); /* the pool is warm, and they wait as long */
    assert_int_equal(policy.copy_saves_left, 2);
}

/* The next save copies ahead. */
TEST(writes_that_wait_for_late_copiers_say_nothing)
{
    struct snapshot_policy policy = {.has_cow_save = true, .pool_is_warm = true};
    struct sidestep_save_info save = cow_save(13, 135, false), busy = cow_save(13, 500, true);

    save.fault_ns = busy.fault_ns = 300 * MS;
    save.faults = busy.faults = 100;
    learn(&policy, save);
    assert_int_equal(policy.copy_saves_left, 0);
    learn(&policy, busy); /* slower than a copy without them, too */
    assert_int_equal(policy.copy_saves_left, 2);
}

/* The second save says the same, and has touched the pool. */
TEST(protection_that_is_slower_twice_is_tried_again_late)
{
    struct snapshot_policy policy = {.has_cow_save = true};
    struct sidestep_save_info save = cow_save(13, 135, true); /* not twice what a copy costs */

    learn(&policy, copy_save());
    learn(&policy, save);
    assert_int_equal(policy.copy_saves_left, 2);
    assert_false(policy.pool_is_warm);
    THREAD_IS(CALLER);
    for (int i = 0; i < 3; i++) { /* where memory is short, the pool is touched again */
        snapshot_policy_learn(&policy, &save, true);
        assert_int_equal(policy.copy_saves_left, 8);
        assert_true(policy.pool_is_warm);
        assert_false(snapshot_policy_can_trim_pool(&policy)); /* the copies need it */
    }
}

/* Saves that needed no copiers came before. */
TEST(a_try_of_protection_keeps_the_pool_for_copies)
{
    struct snapshot_policy policy = {.has_cow_save = true};

    for (int i = 0; i < 4; i++)
        learn(&policy, cow_save(13, 135, false));
    assert_true(snapshot_policy_can_trim_pool(&policy));
    for (int i = 0; i < 2; i++) {
        learn(&policy, cow_save(13, 135, true));
        policy.pool_is_warm = true;
        policy.copy_saves_left = 0; /* as the copies leave it that follow */
        learn(&policy, copy_save());
        assert_false(snapshot_policy_can_trim_pool(&policy));
    }
    learn(&policy, cow_save(1, 1, true)); /* cheaper now, but maybe only this time */
    assert_false(snapshot_policy_can_trim_pool(&policy));
    assert_true(policy.pool_is_warm);
}

/* The cost of protection varies around that of a copy. */
TEST(a_pool_that_was_touched_stays_if_protection_is_cheaper_once)
{
    struct snapshot_policy policy = {.has_cow_save = true};
    struct sidestep_save_info cheap = cow_save(1, 1, true);

    for (int i = 0; i < 20; i++) /* they do not count: the pool was not touched yet */
        learn(&policy, cow_save(13, 135, false));
    learn(&policy, cow_save(13, 135, true));
    THREAD_IS(CALLER);
    snapshot_policy_learn(&policy, &cheap, true);
    for (int i = 0; i < 4; i++)
        learn(&policy, cheap);
    assert_false(snapshot_policy_can_trim_pool(&policy));
    learn(&policy, cow_save(13, 135, true));
    assert_int_equal(policy.copy_saves_left, 2);
    assert_true(policy.pool_is_warm); /* so the next save copies */

    for (int i = 0; i < 16; i++)
        learn(&policy, cheap);
    assert_true(snapshot_policy_can_trim_pool(&policy));
    learn(&policy, cheap);
    assert_false(policy.pool_is_warm || policy.touched_pool);
}

TEST(protection_is_tried_again_rarely_and_comes_back)
{
    struct snapshot_policy policy = {.has_cow_save = true};
    unsigned backoff = 0;

    learn(&policy, copy_save());
    for (int i = 0; i < 10; i++) {
        learn(&policy, cow_save(13, 135, true));
        assert_true(policy.copy_saves_left >= backoff && policy.copy_saves_left <= 64);
        backoff = policy.copy_saves_left;
        policy.copy_saves_left = 0; /* as so many saves by copy leave it */
    }
    assert_int_equal(backoff, 64);
    for (int i = 0; i < 4; i++) {
        assert_false(snapshot_policy_can_trim_pool(&policy)); /* it may be an exception */
        learn(&policy, cow_save(13, 135, false));             /* a processor is idle now */
        assert_int_equal(policy.copy_saves_left, 0);
    }
    assert_true(snapshot_policy_can_trim_pool(&policy)); /* nobody needs the pool any more */
    learn(&policy, cow_save(13, 135, false));
    assert_false(policy.pool_is_warm);
}

TEST(protection_that_is_cheaper_once_is_not_tried_more_often)
{
    struct snapshot_policy policy = {.has_cow_save = true};

    learn(&policy, copy_save());
    for (int i = 0; i < 20; i++) {
        learn(&policy, cow_save(13, 135, true));
        if (i >= 4)
            assert_int_equal(policy.copy_saves_left, 64);
        policy.copy_saves_left = 0; /* as so many saves by copy leave it */
        if (i >= 3)
            learn(&policy, cow_save(1, 90, true));
    }
}

TEST(protection_that_is_slower_is_one_save_in_25)
{
    struct snapshot_policy policy = {.has_cow_save = true};
    unsigned saves = 0, tries = 0;

    learn(&policy, copy_save());
    for (; saves < 100; tries++) {
        learn(&policy, cow_save(13, 135, true));
        saves += 1 + policy.copy_saves_left;
        policy.copy_saves_left = 0;
    }
    assert_true(tries * 25 <= saves);
}

TEST(small_copies_are_not_measured)
{
    struct snapshot_policy policy = {0};
    struct sidestep_save_info save = copy_save();

    save.copy_bytes = 1 << 20;
    learn(&policy, save);
    assert_int_equal(policy.copy_ns_per_gib, 0);
}
