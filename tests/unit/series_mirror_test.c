/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_mirror_test.c -- a series with a mirror: what is sent without being asked for, what waits
 * for it, and where a run goes on after a level was lost, damaged, or left behind.
 */
#include <errno.h>
#include <sys/stat.h>

#include "base/base.h"
#include "support/flip.h"
#include "support/near_far.h"

/* What was being sent when retention looked goes when it is sent. */
TEST(what_was_sent_does_not_stay)
{
    near_keep.keep_last = 1;
    options.retention = &near_keep;
    to_mirror.bytes_per_second = 2 << 20;
    for (uint64_t turn = 0; turn < 5; turn++) {
        ASSERT_OK(try_open(near));
        if (turn != 0)
            expect_resume(4 * turn);
        for (uint64_t step = 4 * turn + 1; step <= 4 * turn + 4; step++)
            save_step(series, step);
        ASSERT_OK(sidestep_series_close(&series, &err));
        struct sidestep_list list = {0};
        ASSERT_OK(sidestep_list_root(near, &list, &err));
        assert_int_equal(list.count, 1);
        sidestep_list_release(&list);
    }
}

TEST(what_is_committed_is_sent)
{
    ASSERT_OK(try_open(near));
    for (uint64_t step = 1; step <= 3; step++) {
        save_step(series, step);
        await(far, step);
    }
    expect_latest(far, 3);
}

/* The newest is sent at the end, whatever the distance. */
TEST(closing_sends_the_newest)
{
    to_mirror.every = 100;
    ASSERT_OK(try_open(near));
    for (uint64_t step = 1; step <= 5; step++)
        save_step(series, step);
    ASSERT_OK(sidestep_series_close(&series, &err));
    assert_true(is_at(far, 5));
    expect_latest(far, 5);
}

/* So does a flush, and the run goes on, also after one that failed. */
TEST(a_flush_sends_the_newest)
{
    static bool volatile now;

    to_mirror.every = 100;
    to_mirror.cancel = &now;
    ASSERT_OK(try_open(near));
    ASSERT_OK(sidestep_series_flush(series, &err)); /* nothing to send */
    for (uint64_t step = 1; step <= 3; step++) {
        save_step(series, step);
        ASSERT_OK(sidestep_series_flush(series, &err));
        assert_true(is_at(far, step));
    }
    save_step(series, 4);
    now = true;
    assert_int_equal(sidestep_series_flush(series, &err), SIDESTEP_ECANCELLED);
    assert_non_null(strstr(err.message, "is safe there"));
    assert_false(is_at(far, 4));
    now = false;
    ASSERT_OK(sidestep_series_flush(series, &err));
    assert_true(is_at(far, 4));
}

/* A new node, with an empty disk. */
TEST(the_run_goes_on_when_the_near_level_is_lost)
{
    struct sidestep_list list = {0};

    ASSERT_OK(try_open(near));
    save_step(series, 1);
    save_step(series, 2);
    reopen(near);
    expect_resume(2);
    save_step(series, 3);
    ASSERT_OK(sidestep_series_close(&series, &err));
    run("rm -r '%s' %s", near, "");
    ASSERT_OK(try_open(near));
    expect_resume(3);
    assert_true(is_at(near, 3));
    save_step(series, 4);
    ASSERT_OK(sidestep_series_close(&series, &err));
    ASSERT_OK(sidestep_list_root(far, &list, &err));
    const struct sidestep_listed *old = NULL, *new = sidestep_list_entry(&list, list.count - 1);
    for (size_t i = 0; i < list.count; i++)
        if (sidestep_list_entry(&list, i)->step == 3)
            old = sidestep_list_entry(&list, i);
    assert_non_null(old);
    assert_int_equal(new->step, 4);
    assert_string_equal(old->run_id, new->run_id);
    assert_int_equal(old->incarnation, 2);
    assert_int_equal(new->incarnation, 3);
    sidestep_list_release(&list);
}

/* No two incarnations have one number, although the second never sent anything. */
TEST(a_lost_incarnation_is_counted)
{
    struct sidestep_list list = {0};

    ASSERT_OK(try_open(near));
    save_step(series, 1);
    for (int i = 0; i < 3; i++)
        reopen(near);
    ASSERT_OK(sidestep_series_close(&series, &err));
    run("rm -r '%s' %s", near, "");
    ASSERT_OK(try_open(near));
    expect_resume(1);
    save_step(series, 2);
    ASSERT_OK(sidestep_list_root(near, &list, &err));
    assert_int_equal(sidestep_list_entry(&list, list.count - 1)->incarnation, 5);
    sidestep_list_release(&list);
}

TEST(a_damaged_near_copy_is_replaced_by_the_mirrors)
{
    ASSERT_OK(try_open(near));
    save_step(series, 1);
    save_step(series, 2);
    reopen(near);
    flip(path_of(near, 2, "/__0_0.distcp"), 5000);
    expect_resume(2);
    assert_true(is_at(near, 2));
    /* Both are damaged: the next older one. */
    reopen(near);
    flip(path_of(near, 2, "/__0_0.distcp"), 5000);
    flip(path_of(far, 2, "/__0_0.distcp"), 5000);
    expect_resume(1);
}

/* It comes back with its old files, and was open elsewhere meanwhile. */
TEST(a_late_node_goes_on_from_the_mirror)
{
    ASSERT_OK(try_open(near));
    save_step(series, 1);
    save_step(series, 2);
    ASSERT_OK(sidestep_series_close(&series, &err));
    run("cp -r '%s' '%s.old'", near, near);
    ASSERT_OK(try_open(near));
    expect_resume(2);
    save_step(series, 3);
    ASSERT_OK(sidestep_series_close(&series, &err));
    ASSERT_OK(try_open(scratch_path(&scratch, "near.old")));
    expect_resume(3);
    save_step(series, 4);
    ASSERT_OK(sidestep_series_close(&series, &err));
    expect_latest(far, 4);
    /* And the other one is the late one now. */
    ASSERT_OK(try_open(near));
    expect_resume(4);
}

/* The node saved up to step 3, of which the mirror has the first. The run went on from there. */
static void leave_node_behind(uint64_t last)
{
    ASSERT_OK(try_open(near));
    save_step(series, 1);
    await(far, 1);
    run("mv '%s' '%s.away'", far, far);
    save_step(series, 2);
    save_step(series, 3);
    assert_int_not_equal(sidestep_series_close(&series, &err), SIDESTEP_OK);
    run("mv '%s.away' '%s'", far, far);
    run("mv '%s' '%s.late'", near, near);
    ASSERT_OK(try_open(near));
    expect_resume(1);
    for (uint64_t step = 2; step <= last; step++)
        save_step(series, step);
    ASSERT_OK(sidestep_series_close(&series, &err));
    ASSERT_OK(try_open(scratch_path(&scratch, "near.late")));
}

static void expect_incarnation(const char *root, uint64_t step, uint64_t incarnation)
{
    struct sidestep_list list = {0};
    bool is_found = false;

    ASSERT_OK(sidestep_list_root(root, &list, &err));
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        is_found |= entry->step == (int64_t)step && entry->incarnation == incarnation;
    }
    sidestep_list_release(&list);
    assert_true(is_found);
}

/* It is at a higher step, and behind nevertheless. */
TEST(a_late_node_is_left_behind_at_a_higher_step)
{
    leave_node_behind(2);
    expect_resume(2);
    expect_incarnation(scratch_path(&scratch, "near.late"), 2, 2);
    save_step(series, 3);
    expect_resume(3);
    expect_incarnation(scratch_path(&scratch, "near.late"), 3, 3);
}

TEST(a_late_node_is_left_behind_at_the_same_step)
{
    leave_node_behind(3);
    expect_resume(3);
    expect_incarnation(scratch_path(&scratch, "near.late"), 3, 2);
}

static enum sidestep_status go_back_to(uint64_t step)
{
    struct world loaded;

    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    enum sidestep_status status =
        sidestep_series_load_step(series, step, loaded.state, NULL, NULL, &err);
    if (status == SIDESTEP_OK)
        assert_int_equal(world_check(&loaded, step), 0);
    world_free(&loaded);
    return status;
}

/* To a step that only the mirror still has. Newer ones there are left behind, too. */
TEST(a_run_goes_back_by_the_mirror)
{
    near_keep.keep_last = 1;
    options.retention = &near_keep;
    ASSERT_OK(try_open(near));
    for (uint64_t step = 1; step <= 5; step++) {
        save_step(series, step);
        await(far, step);
    }
    ASSERT_OK(sidestep_series_close(&series, &err));
    assert_false(is_at(near, 2));
    ASSERT_OK(try_open(near));
    ASSERT_OK(go_back_to(2));
    expect_latest(far, 2);
    save_step(series, 3);
    ASSERT_OK(sidestep_series_close(&series, &err));
    expect_latest(far, 3);
    run("rm -r '%s' %s", near, "");
    ASSERT_OK(try_open(near));
    expect_resume(3);
    assert_int_equal(go_back_to(9), SIDESTEP_ENOTFOUND);
}

/* ---- what is told */

/* Is there a line with both words in the log of the series at ${root}? */
static bool is_told(const char *root, const char *event, const char *word)
{
    char line[4096], path[256];
    bool is_told = false;

    snprintf(path, sizeof(path), "%s/.sidestep/events.rank-0", root);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL)
        is_told |= strstr(line, event) != NULL && strstr(line, word) != NULL;
    fclose(f);
    return is_told;
}

/* Also what the first look does; and nothing of it is in the log of another series. */
TEST(what_the_mirror_gets_is_in_the_log)
{
    struct sidestep_series *other = NULL;
    struct sidestep_series_options alone = SIDESTEP_SERIES_OPTIONS_INIT;

    ASSERT_OK(sidestep_series_open(engine, near, &alone, &series, &err));
    for (uint64_t step = 1; step <= 3; step++)
        save_step(series, step);
    ASSERT_OK(sidestep_series_close(&series, &err));
    ASSERT_OK(sidestep_series_open(engine, scratch_path(&scratch, "other"), &alone, &other, &err));
    far_keep.keep_last = 1;
    to_mirror.retention = &far_keep;
    ASSERT_OK(try_open(near));
    await(far, 3);
    reopen(near);
    save_step(series, 4);
    reopen(near);
    assert_true(is_told(near, "\"mirrored\"", path_of(far, 3, "")));
    assert_true(is_told(near, "\"deleted\"", path_of(far, 3, "")));
    assert_true(is_told(near, "\"not_mirrored\"", path_of(near, 2, "")));
    flip(path_of(near, 4, "/__0_0.distcp"), 5000);
    expect_resume(4);
    assert_true(is_told(near, "\"fetched\"", far));
    take_away();
    save_step(series, 5);
    assert_int_not_equal(sidestep_series_close(&series, &err), SIDESTEP_OK);
    assert_true(is_told(near, "\"mirror_failed\"", far));
    bring_back();
    assert_false(is_told(scratch_path(&scratch, "other"), "mirror", ""));
    assert_false(is_told(scratch_path(&scratch, "other"), "fetched", ""));
    ASSERT_OK(sidestep_series_close(&other, &err));
}

/* ---- refused */

/* While a copy is written, somebody puts another checkpoint at its name. */
static void put_another_there(void *context UNUSED, uint64_t done UNUSED, uint64_t total UNUSED)
{
    char command[480];

    snprintf(command, sizeof(command),
             "test -e '%s/aside' || (mv '%s' '%s/aside' && cp -r '%s' '%s')", scratch.path,
             path_of(far, 1, ""), scratch.path, scratch_path(&scratch, "another"),
             path_of(far, 1, ""));
    assert_int_equal(system(command), 0);
}

TEST(what_comes_meanwhile_is_not_replaced)
{
    struct sidestep_mirror_report report = {0};
    struct world loaded;

    ASSERT_OK(try_open(near));
    save_step(series, 1);
    ASSERT_OK(sidestep_series_close(&series, &err));
    world_fill(&world, 77);
    ASSERT_OK(
        sidestep_save(engine, scratch_path(&scratch, "another"), world.state, NULL, NULL, &err));
    ASSERT_OK(truncate(path_of(far, 1, "/__0_0.distcp"), 5000));
    to_mirror.on_progress = put_another_there;
    ASSERT_OK(sidestep_mirror(near, far, &to_mirror, &report, &err));
    assert_int_equal(report.sent_count, 0);
    assert_int_equal(report.passed_count, 1);
    assert_non_null(strstr(report.passed[0], "holds another checkpoint"));
    sidestep_mirror_report_release(&report);
    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_load(engine, path_of(far, 1, ""), loaded.state, NULL, NULL, &err));
    assert_int_equal(world_check(&loaded, 77), 0);
    world_free(&loaded);
}

TEST(a_mirror_of_another_run_is_refused)
{
    ASSERT_OK(try_open(near));
    save_step(series, 1);
    ASSERT_OK(sidestep_series_close(&series, &err));
    options.mirror = NULL;
    options.mirror_options = NULL;
    ASSERT_OK(try_open(scratch_path(&scratch, "other")));
    ASSERT_OK(sidestep_series_close(&series, &err));
    options.mirror = far;
    assert_int_equal(try_open(scratch_path(&scratch, "other")), SIDESTEP_EMISMATCH);
    options.mirror = near;
    assert_int_equal(try_open(near), SIDESTEP_EINVAL);
    options.mirror = NULL;
    options.mirror_options = &to_mirror;
    assert_int_equal(try_open(near), SIDESTEP_EINVAL);
    options.mirror = far;
    to_mirror.flags = 1;
    assert_int_equal(try_open(near), SIDESTEP_EUNSUPPORTED);
}
