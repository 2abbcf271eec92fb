/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_series_test.c -- a series on a simulated bucket, and who owns it, while each request meets
 * each fault.
 *
 * Whatever happens, a name holds a whole checkpoint or none; the newest committed one stays; a run
 * that was taken over never says that it committed; and after an hour nothing is left over.
 */
#include "support/bucket_series.h"
#include "support/unit.h"

/* ---- a run */

TEST(a_run_saves_resumes_and_keeps)
{
    struct trainer t;
    struct rig rig;

    rig_make(&rig, 0);
    open_trainer(&rig, 0, 2, &t);
    assert_int_equal(resume(&t), 0);
    for (uint64_t step = 1; step <= 5; step++)
        save_ok(&t, step);
    close_trainer(&t);
    assert_int_equal(count_below(&rig, "job/step-"), 2 * PER_CHECKPOINT);
    open_trainer(&rig, 1, 2, &t);
    assert_int_equal(resume(&t), 5);
    assert_int_equal(t.series->incarnation, 2);
    save_ok(&t, 6);
    close_trainer(&t);
    assert_true(object_exists(&rig, "job/step-6/.metadata"));
    assert_false(object_exists(&rig, "job/step-4/.metadata"));
    object_sim_free(&rig.bucket);
}

TEST(a_damaged_checkpoint_is_passed_over_and_stays)
{
    struct trainer t;
    struct rig rig;

    rig_make(&rig, 0);
    open_trainer(&rig, 0, 0, &t);
    save_ok(&t, 1);
    save_ok(&t, 2);
    close_trainer(&t);
    for (size_t i = 0; i < object_sim_count(rig.bucket); i++)
        if (strncmp(object_sim_key(rig.bucket, i), "job/step-2/__0", 14) == 0)
            object_sim_flip(rig.bucket, object_sim_key(rig.bucket, i), 70000);
    open_trainer(&rig, 1, 0, &t);
    assert_int_equal(resume(&t), 1);
    close_trainer(&t);
    assert_int_equal(count_below(&rig, "job/step-2/"), PER_CHECKPOINT);
    object_sim_free(&rig.bucket);
}

/* Objects cannot share bytes. */
TEST(an_incremental_save_writes_all)
{
    struct sidestep_series_options options = {.struct_size = sizeof(options),
                                              .flags = SIDESTEP_SERIES_INCREMENTAL};
    struct sidestep_error err = {0};
    struct trainer t;
    struct rig rig;

    rig_make(&rig, 0);
    open_engine(&rig, 0, &t);
    assert_int_equal(sidestep_series_open(t.engine, ROOT, &options, &t.series, &err), SIDESTEP_OK);
    save_ok(&t, 1);
    for (uint64_t step = 2; step <= 4; step++) { /* nothing has changed */
        enum sidestep_status status =
            sidestep_series_save(t.series, step, t.world.state, NULL, NULL, &err);
        if (status != SIDESTEP_OK)
            fail_msg("save %llu: %s", (unsigned long long)step, err.message);
    }
    world_fill(&t.world, 5);
    save_ok(&t, 5);
    assert_int_equal(resume(&t), 5);
    close_trainer(&t);
    object_sim_free(&rig.bucket);
}

/* ---- who owns it */

static struct trainer beside;

static void open_beside(struct rig *rig)
{
    open_trainer(rig, 7, 0, &beside);
}

/* Another run opens the series while this one opens it. Have they numbers of their own? */
static bool starters_have_numbers_of_their_own(bool is_first)
{
    struct trainer t;
    struct rig rig;

    rig_make(&rig, 0);
    if (!is_first) {
        open_trainer(&rig, 3, 0, &t);
        close_trainer(&t);
    }
    rig.before = "put", rig.key = "/state", rig.act = open_beside;
    open_trainer(&rig, 0, 0, &t);
    bool differ = t.series->incarnation != beside.series->incarnation;
    close_trainer(&t);
    close_trainer(&beside);
    object_sim_free(&rig.bucket);
    return differ;
}

TEST(each_number_has_one_holder)
{
    for (int is_first = 0; is_first <= 1; is_first++) {
        assert_true(starters_have_numbers_of_their_own(is_first));
        fault_arm("lease.condition", 1, true, EIO);
        assert_false(starters_have_numbers_of_their_own(is_first));
        fault_arm("", 0, false, 0);
    }
}

TEST(a_second_trainer_ends_the_first)
{
    static const unsigned flags[] = {0, OBJECT_SIM_IGNORES_CONDITIONS,
                                     OBJECT_SIM_REFUSES_CONDITIONS};

    for (size_t i = 0; i < ARRAY_LENGTH(flags); i++) {
        struct sidestep_error err = {0};
        struct trainer a, b;
        struct rig rig;
        rig_make(&rig, flags[i]);
        open_trainer(&rig, 0, 0, &a);
        save_ok(&a, 1);
        open_trainer(&rig, 1, 0, &b);
        assert_int_equal(save(&a, 2, &err), SIDESTEP_EABORTED);
        assert_non_null(strstr(err.message, "taken over by process"));
        assert_int_equal(resume(&b), 1);
        save_ok(&b, 2);
        close_trainer(&a);
        close_trainer(&b);
        object_sim_free(&rig.bucket);
    }
}

/* The series is taken over after the guard has looked, and before the commit arrives. */
static bool a_late_takeover_is_noticed(void)
{
    struct sidestep_error err = {0};
    struct trainer t;
    struct rig rig;

    rig_make(&rig, 0);
    open_trainer(&rig, 0, 0, &t);
    save_ok(&t, 1);
    rig.before = "put", rig.key = "step-2/.metadata", rig.act = open_beside;
    enum sidestep_status status = save(&t, 2, &err);
    assert_true(object_exists(&rig, "job/step-2/.metadata"));
    assert_int_equal(resume(&beside), 2);
    close_trainer(&t);
    close_trainer(&beside);
    object_sim_free(&rig.bucket);
    return status == SIDESTEP_EUNKNOWN && strstr(err.message, "was committed") != NULL &&
           strstr(err.message, "taken over by process") != NULL;
}

TEST(a_takeover_never_goes_unnoticed)
{
    assert_true(a_late_takeover_is_noticed());
    fault_arm("object.still_held", 1, true, EIO);
    assert_false(a_late_takeover_is_noticed());
    fault_arm("", 0, false, 0);
}

/* Two runs take over from each other, again and again. */
TEST(runs_take_over_from_each_other)
{
    struct trainer t[2];
    struct rig rig;

    rig_make(&rig, 0);
    open_trainer(&rig, 0, 0, &t[0]);
    save_ok(&t[0], 1);
    for (uint64_t step = 2; step <= 6; step++) {
        struct sidestep_error err = {0};
        struct trainer *old = &t[step % 2], *new = &t[(step + 1) % 2];
        open_trainer(&rig, (int)step, 0, new);
        assert_int_equal(new->series->incarnation, step);
        assert_int_equal(resume(new), step - 1);
        assert_int_equal(save(old, step, &err), SIDESTEP_EABORTED);
        save_ok(new, step);
        close_trainer(old);
    }
    close_trainer(&t[1]);
    settle(&rig, 6, 6);
    object_sim_free(&rig.bucket);
}

/* Opening meets ${fate} at request ${at}. False: it has fewer. */
static bool try_open(unsigned at, enum object_fate fate, bool dies)
{
    struct sidestep_error err = {0};
    struct trainer t;
    struct rig rig;

    rig_make(&rig, 0);
    open_trainer(&rig, 1, 0, &t);
    save_ok(&t, 1);
    close_trainer(&t);
    atomic_store(&rig.seen, 0);
    rig.fate = fate, rig.dies = dies;
    atomic_store(&rig.at, at);
    enum sidestep_status status = open_series(&rig, 0, 0, &t, &err);
    bool hit = rig.hit;
    rig.at = 0;
    if (status == SIDESTEP_OK && !rig.dies) {
        assert_int_equal(resume(&t), 1);
        save_ok(&t, 2);
    }
    close_trainer(&t);
    settle(&rig, 1, 2);
    object_sim_free(&rig.bucket);
    return hit;
}

TEST(opening_meets_each_fault_at_each_request)
{
    unsigned tried = 0;

    for (int fate = OBJECT_REFUSED; fate <= OBJECT_LATE; fate++)
        for (int dies = 0; dies <= 1; dies++)
            for (unsigned at = 1; try_open(at, (enum object_fate)fate, dies); at++)
                tried++;
    print_message("# %u faults\n", tried);
    assert_true(tried >= 6 * 3);
}

/* A save and the deletion after it meet ${fate} at request ${at}. False: they have fewer. */
static bool try_save(unsigned at, enum object_fate fate, bool dies)
{
    struct sidestep_error err = {0};
    struct trainer t;
    struct rig rig;

    rig_make(&rig, 0);
    open_trainer(&rig, 0, 1, &t);
    save_ok(&t, 1);
    atomic_store(&rig.seen, 0);
    rig.fate = fate, rig.dies = dies;
    atomic_store(&rig.at, at);
    enum sidestep_status status = save(&t, 2, &err);
    close_trainer(&t); /* the deletion has ended */
    bool hit = rig.hit;
    if (status != SIDESTEP_OK && status != SIDESTEP_EUNKNOWN)
        assert_true(object_exists(&rig, "job/step-1/.metadata"));
    settle(&rig, status == SIDESTEP_OK ? 2 : 1, 2);
    object_sim_free(&rig.bucket);
    return hit;
}

TEST(saving_meets_each_fault_at_each_request)
{
    unsigned tried = 0;

    for (int fate = OBJECT_REFUSED; fate <= OBJECT_LATE; fate++)
        for (int dies = 0; dies <= 1; dies++)
            for (unsigned at = 1; try_save(at, (enum object_fate)fate, dies); at++)
                tried++;
    print_message("# %u faults\n", tried);
    assert_true(tried >= 6 * 20);
}
