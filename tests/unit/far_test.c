/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * far_test.c -- saves of many ranks on storage far away, where some calls are slow and some fail:
 * all ranks report the same outcome, and what they report is true. `bench/run scale` does the same
 * with up to 4,096 ranks, and measures it.
 */
#include <unistd.h>

#include "support/far_ranks.h"
#include "support/one_scratch.h"
#include "support/store_far.h"

#define RANKS 24
#define NEVER 1000000u

static char path[128];

static void save(struct store_far *far, struct far_ranks *ranks)
{
    store_far_init(far);
    ranks->store = &far->store;
    ranks->path = path;
    ranks->size = RANKS;
    ranks->save_id[0]++;
    if (ranks->timeout_ms == 0)
        ranks->timeout_ms = 60000;
    assert_true(far_ranks_save(ranks));
    assert_int_equal(ranks->committed + ranks->aborted + ranks->unknown, RANKS);
}

/* Is there a checkpoint at ${path}? Removes it. */
static bool take_away(void)
{
    char name[160];

    snprintf(name, sizeof(name), "%s/.metadata", path);
    bool is_there = access(name, F_OK) == 0;
    (void)nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return is_there;
}

TEST(slow_calls_delay_a_commit)
{
    struct store_far far = {.call_us = 200, .slow_us = 5000, .slow_of = 37};
    struct far_ranks ranks = {.late = -1};

    save(&far, &ranks);
    assert_int_equal(ranks.committed, RANKS);
    assert_true(take_away());
}

/* Rank 0 asks the less often the longer it waits: 1, 2, 4 ... 50, 50 ms. */
TEST(a_straggler_is_waited_for)
{
    struct store_far far = {0};
    struct far_ranks ranks = {.late = 7, .late_ms = 400};

    save(&far, &ranks);
    assert_int_equal(ranks.committed, RANKS);
    assert_true(atomic_load(&far.lists) < 20 + 25 * (ranks.vote_s + ranks.commit_s));
    assert_true(take_away());
}

TEST(a_silent_rank_is_named)
{
    struct store_far far = {.call_us = 100};
    struct far_ranks ranks = {.late = 7, .late_ms = UINT64_MAX, .timeout_ms = 1500};

    save(&far, &ranks);
    assert_int_equal(ranks.aborted, RANKS);
    assert_int_equal(ranks.why.status, SIDESTEP_ETIMEDOUT);
    assert_non_null(strstr(ranks.why.message, "no word from rank 7 "));
    assert_false(take_away());
}

/* Wherever the burst comes, nobody reports a checkpoint that is not there, and nobody an abort of
 * one that is there. */
TEST(a_burst_of_errors_leaves_one_truth)
{
    static const unsigned bursts[] = {3, 100, 200, 300, 380, 440, 480, NEVER};
    unsigned aborted = 0, committed = 0;

    for (size_t i = 0; i < sizeof(bursts) / sizeof(bursts[0]); i++) {
        struct store_far far = {.call_us = 50, .fails_from = bursts[i], .fails = 5};
        struct far_ranks ranks = {.late = -1, .timeout_ms = bursts[i] == NEVER ? 0 : 1000};
        ranks.save_id[1] = (uint8_t)i;
        save(&far, &ranks);
        bool is_there = take_away();
        print_message("# errors from call %u on: %u committed, %u aborted, %u unknown\n", bursts[i],
                      ranks.committed, ranks.aborted, ranks.unknown);
        if (is_there)
            assert_int_equal(ranks.aborted, 0);
        else
            assert_int_equal(ranks.committed, 0);
        committed += is_there;
        aborted += !is_there;
    }
    assert_true(aborted != 0 && committed != 0); /* both were met */
}

static int setup(void **state)
{
    (void)state;
    if (!scratch_make(&scratch, "/dev/shm"))
        return -1;
    snprintf(path, sizeof(path), "%s/ckpt", scratch.path);
    return 0;
}

ALL_TESTS(setup, scratch_teardown);
