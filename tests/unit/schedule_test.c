/* SPDX-License-Identifier: BSD-3-Clause */
/* schedule_test.c -- when a save is due: the same on every rank, whatever their clocks say. */
#include <math.h>

#include "base/owned.h"
#include "series/schedule.h"
#include "sidestep/sidestep_series.h"
#include "support/prng.h"
#include "support/unit.h"

#define SECOND 1000000000ull

enum { RANKS = 3 };

/* Ranks that train in step, each with a clock of its own. */
struct job {
    struct schedule dues[RANKS];
    uint64_t skew_ns[RANKS];
    uint64_t now_ns;
    size_t talked;
    bool busy;
};

static void job_make(struct job *job, struct schedule due)
{
    *job = (struct job){.now_ns = 1000 * SECOND};
    for (uint64_t r = 0; r < RANKS; r++) {
        job->dues[r] = due;
        job->skew_ns[r] = r * r * 777 * SECOND;
    }
}

/* Ask on all ranks: all communicate or none, and all get the same answer. */
static uint32_t ask(struct job *job, uint64_t step)
{
    uint64_t words[SCHEDULE_WORDS] = {0}, mine[SCHEDULE_WORDS];
    uint32_t why[RANKS];
    bool talks[RANKS];

    uint64_t quiet = schedule_quiet_until(&job->dues[0], step, false);

    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(schedule_quiet_until(&job->dues[r], step, false), quiet);
        talks[r] = schedule_needs_agreement(&job->dues[r], step, job->now_ns + job->skew_ns[r],
                                            false, &why[r]);
        assert_int_equal(talks[r], talks[0]);
    }
    for (int r = 0; r < RANKS && talks[0]; r++) {
        schedule_fill_words(&job->dues[r], step, job->now_ns + job->skew_ns[r], why[r], r == 0,
                            job->busy, mine);
        for (int w = 0; w < SCHEDULE_WORDS; w++)
            words[w] = mine[w] > words[w] ? mine[w] : words[w];
    }
    for (int r = 0; r < RANKS; r++) {
        if (talks[0])
            why[r] =
                schedule_apply_words(&job->dues[r], step, job->now_ns + job->skew_ns[r], words);
        assert_int_equal(why[r], why[0]);
    }
    assert_true(quiet >= step && (quiet == step || (!talks[0] && why[0] == 0)));
    job->talked += talks[0];
    return why[0];
}

static void save(struct job *job, uint64_t cost_ns)
{
    for (int r = 0; r < RANKS; r++)
        schedule_record_save(&job->dues[r], job->now_ns + job->skew_ns[r], cost_ns, 0);
}

TEST(step_intervals_need_no_communication)
{
    struct job job;
    size_t due = 0;

    job_make(&job, (struct schedule){.interval_steps = 7, .check_ns = 5 * SECOND});
    for (uint64_t step = 0; step <= 100; step++)
        if (ask(&job, step) != 0) {
            assert_int_equal(step % 7, 0);
            due++;
        }
    assert_int_equal(due, 14); /* not at step 0: nothing was trained */
    assert_int_equal(job.talked, 0);
}

/* Steps of 0.1 to 0.3 s, an interval of 60 s: each save is within a step or two of its time, and
 * needs few agreements. */
TEST(by_time_all_ranks_save_together)
{
    struct job job;
    struct prng prng = prng_new(1);
    size_t saves = 0;
    uint64_t last;

    job_make(&job, (struct schedule){.interval_ns = 60 * SECOND, .check_ns = 5 * SECOND});
    last = job.now_ns;
    for (uint64_t step = 1; step <= 10000; step++) {
        if (ask(&job, step) != 0) {
            assert_true(job.now_ns - last >= 60 * SECOND);
            assert_true(job.now_ns - last < 66 * SECOND);
            last = job.now_ns;
            save(&job, SECOND);
            saves++;
        }
        job.now_ns += SECOND / 10 + prng_below(&prng, SECOND / 5);
    }
    assert_true(saves >= 30 && saves <= 34);
    assert_true(job.talked < 20 * saves);
}

TEST(a_request_of_any_rank_reaches_all)
{
    struct job job;
    uint64_t asked_at = 0, saved_after = 0;

    job_make(&job, (struct schedule){.listens = true, .check_ns = 5 * SECOND});
    for (uint64_t step = 1; step <= 3000; step++, job.now_ns += SECOND / 10) {
        if (step == 1000 || step == 2000) {
            atomic_fetch_or(&job.dues[step == 1000 ? 2 : 0].requested,
                            step == 1000 ? SIDESTEP_DUE_SAVE : SIDESTEP_DUE_STOP);
            asked_at = job.now_ns;
        }
        uint32_t why = ask(&job, step);
        if (why == 0)
            continue;
        assert_true(asked_at != 0 && job.now_ns - asked_at < 8 * SECOND);
        if (step < 2000) {
            assert_int_equal(why, SIDESTEP_DUE_SAVE);
            saved_after++;
            continue;
        }
        assert_int_equal(why, SIDESTEP_DUE_STOP);
        assert_int_equal(ask(&job, step + 1), SIDESTEP_DUE_STOP); /* from then on */
        break;
    }
    assert_int_equal(saved_after, 1); /* once for each request */
    assert_true(job.dues[1].stopping);
    assert_true(job.talked < 100);
}

TEST(a_save_due_while_another_is_under_way_is_skipped)
{
    struct job job;

    job_make(&job, (struct schedule){.interval_steps = 5, .skips_busy = true, .check_ns = SECOND});
    assert_int_equal(ask(&job, 4), 0);
    assert_int_equal(ask(&job, 5), SIDESTEP_DUE_INTERVAL);
    job.busy = true;
    assert_int_equal(ask(&job, 10), 0);
    assert_int_equal(job.dues[2].skipped, 1);
    job.busy = false;
    assert_int_equal(ask(&job, 15), SIDESTEP_DUE_INTERVAL);
}

/* A rank that asks only when there may be an answer gets the same ones, at the same steps. */
TEST(quiet_steps_need_not_be_asked)
{
    static const struct schedule kinds[] = {
        {.interval_steps = 7, .check_ns = SECOND},
        {.interval_ns = 9 * SECOND, .check_ns = SECOND},
        {.interval_ns = 9 * SECOND, .interval_steps = 50, .check_ns = SECOND, .listens = true},
        {.listens = true, .check_ns = 3 * SECOND},
        {.mtbf_ns = 100 * SECOND, .interval_ns = 5 * SECOND, .check_ns = SECOND},
        {.interval_steps = 7, .skips_busy = true, .check_ns = SECOND},
    };

    for (uint64_t seed = 0; seed < 200; seed++) {
        struct prng prng = prng_new(seed);
        struct job all, few;
        size_t asked = 0, steps = 1000;
        job_make(&all, kinds[seed % ARRAY_LENGTH(kinds)]);
        job_make(&few, kinds[seed % ARRAY_LENGTH(kinds)]);
        for (uint64_t step = 1; step <= steps; step++) {
            if (prng_below(&prng, 300) == 0) {
                int rank = (int)prng_below(&prng, RANKS);
                atomic_fetch_or(&all.dues[rank].requested, SIDESTEP_DUE_SAVE);
                atomic_fetch_or(&few.dues[rank].requested, SIDESTEP_DUE_SAVE);
            }
            bool is_quiet = schedule_quiet_until(&few.dues[0], step, false) > step;
            asked += !is_quiet;
            uint32_t want = ask(&all, step), got = is_quiet ? 0 : ask(&few, step);
            PRNG_ASSERT(&prng, want == got);
            if (want != 0)
                save(&all, SECOND / 20);
            if (want != 0)
                save(&few, SECOND / 20);
            all.now_ns += SECOND / 20 + prng_below(&prng, SECOND / 10);
            few.now_ns = all.now_ns;
        }
        PRNG_ASSERT(&prng, asked < steps / 2);
    }
    struct schedule alone = {.listens = true};
    assert_int_equal(schedule_quiet_until(&alone, 5, true), 5);
    assert_int_equal(schedule_quiet_until(&(struct schedule){.has_begun = true}, 5, true),
                     UINT64_MAX);
    assert_int_equal(
        schedule_quiet_until(&(struct schedule){.has_begun = true, .interval_steps = 4},
                             UINT64_MAX - 1, true),
        UINT64_MAX);
}

/* A run that goes back counts its steps anew. */
TEST(going_back_starts_over)
{
    struct job job;
    uint64_t step = 1000;

    job_make(&job, (struct schedule){.interval_ns = 10 * SECOND, .check_ns = SECOND});
    for (; step < 1050; step++, job.now_ns += SECOND)
        (void)ask(&job, step);
    size_t due = 0;
    for (step = 500; step < 550; step++, job.now_ns += SECOND)
        if (ask(&job, step) != 0) {
            save(&job, 0);
            due++;
        }
    assert_true(due >= 4 && due <= 5);
}

TEST(the_interval_follows_from_cost_and_failures)
{
    uint64_t hour = 3600 * SECOND, day = 24 * hour;
    uint64_t young = schedule_optimal_interval_ns(10 * SECOND, day, 0);

    assert_true(fabs((double)young / SECOND - sqrt(2.0 * 10 * 86400)) < 1);
    /* The minimum of the loss: the interval is within a tenth of it. */
    double least = schedule_lost_fraction(10 * SECOND, day, young);
    assert_true(schedule_lost_fraction(10 * SECOND, day, young + young / 3) > least);
    assert_true(schedule_lost_fraction(10 * SECOND, day, young - young / 3) > least);
    /* A limit that can be kept: the longest interval that does. */
    uint64_t longest = schedule_optimal_interval_ns(10 * SECOND, day, 0.03);
    assert_true(longest > young);
    assert_true(fabs(schedule_lost_fraction(10 * SECOND, day, longest) - 0.03) < 1e-6);
    /* One that cannot: the best interval. */
    assert_int_equal(schedule_optimal_interval_ns(10 * SECOND, day, least / 2), young);
    assert_int_equal(schedule_optimal_interval_ns(0, day, 0.1), 0);
    assert_int_equal(schedule_optimal_interval_ns(SECOND, 0, 0.1), 0);
    assert_true(schedule_optimal_interval_ns(UINT64_MAX, UINT64_MAX, 0.999) > 0);
}

TEST(the_measured_cost_moves_the_interval)
{
    struct job job;

    job_make(&job, (struct schedule){.interval_ns = 60 * SECOND,
                                     .mtbf_ns = 10000 * SECOND,
                                     .check_ns = 5 * SECOND});
    assert_int_equal(schedule_current_interval_ns(&job.dues[0]),
                     60 * SECOND); /* nothing measured yet */
    save(&job, 2 * SECOND);
    assert_int_equal(schedule_current_interval_ns(&job.dues[0]) / SECOND, 200);
    job.dues[0].busy_ns = 500 * SECOND; /* not more often than a save takes */
    assert_int_equal(schedule_current_interval_ns(&job.dues[0]) / SECOND, 500);
}
