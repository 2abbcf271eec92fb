/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_lineage_test.c -- where a run goes on: after it went back, after restarts without
 * progress, beside other runs; and `sidestep latest` agrees.
 */
#include "support/one_series.h"
#include "support/unit.h"

static void shell(const char *format) /* with %s for the root */
{
    char command[1024];

    snprintf(command, sizeof(command), format, scratch.path);
    assert_int_equal(system(command), 0);
}

static struct sidestep_listed listed(struct sidestep_list *list, const char *name)
{
    struct sidestep_listed found = {.name = NULL};

    ASSERT_OK(sidestep_list_root(scratch.path, list, &err));
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(sidestep_list_entry(list, i)->name, name) == 0)
            found = *sidestep_list_entry(list, i);
    assert_non_null(found.name);
    return found;
}

static bool is_left(const char *name)
{
    struct sidestep_list list;
    struct sidestep_listed entry = listed(&list, name);

    assert_true(entry.is_abandoned == (entry.reason != NULL));
    sidestep_list_release(&list);
    return entry.is_abandoned;
}

/* A run that goes back to 2 leaves 3 and 4 behind: no restart chooses them, and their steps are
 * saved again. */
TEST(a_lineage_that_was_left_is_never_chosen)
{
    struct sidestep_series *series = open_with(NULL);
    char rejected[2048];
    uint64_t step;

    for (uint64_t n = 1; n <= 4; n++)
        save_step(series, n);
    close_series(&series);
    series = open_with(NULL);
    go_back(series, 2);
    close_series(&series);
    expect_latest(2);
    series = open_with(NULL); /* a crash right after: nothing was saved yet */
    ASSERT_OK(resume(series, &step, rejected));
    assert_int_equal(step, 2);
    assert_non_null(strstr(rejected, "step-4"));
    world_fill(&world, 33);
    ASSERT_OK(sidestep_series_save(series, 3, world.state, NULL, NULL, &err));
    close_series(&series);
    series = open_with(NULL);
    struct world loaded;
    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load(series, loaded.state, NULL, &step, NULL, NULL, &err));
    assert_int_equal(step, 3);
    assert_int_equal(world_check(&loaded, 33), 0);
    world_free(&loaded);
    go_back(series, 4); /* it can still be loaded by its step */
    close_series(&series);
    series = open_with(NULL);
    expect_resume(series, 4);
    close_series(&series);
}

/* Also if the markers are lost: the incarnations show it. */
TEST(a_lineage_is_known_without_markers)
{
    struct sidestep_series *series = open_with(NULL);

    for (uint64_t n = 1; n <= 7; n++)
        save_step(series, n);
    close_series(&series);
    series = open_with(NULL);
    go_back(series, 2);
    save_step(series, 3);
    close_series(&series);
    shell("rm %s/.sidestep/abandoned.*");
    expect_latest(3);
    assert_true(is_left("step-7") && is_left("step-4"));
    assert_false(is_left("step-3") || is_left("step-2"));
    series = open_with(NULL);
    expect_resume(series, 3);
    close_series(&series);
}

TEST(a_pinned_one_is_not_replaced)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    options.retention = &keep;
    struct sidestep_series *series = open_with(&options);

    for (uint64_t n = 1; n <= 3; n++)
        save_step(series, n);
    close_series(&series);
    ASSERT_OK(sidestep_pin(step_path(3), true, &err));
    series = open_with(NULL);
    save_step(series, 4);
    go_back(series, 3);
    save_step(series, 4); /* left behind: replaced */
    assert_int_equal(sidestep_series_save(series, 3, world.state, NULL, NULL, &err),
                     SIDESTEP_EEXISTS);
    go_back(series, 3);
    ASSERT_OK(sidestep_pin(step_path(4), true, &err));
    assert_int_equal(sidestep_series_save(series, 4, world.state, NULL, NULL, &err),
                     SIDESTEP_EEXISTS);
    ASSERT_OK(sidestep_pin(step_path(4), false, &err));
    save_step(series, 4);
    close_series(&series);
}

/* After three runs without progress it is skipped; a run that saves, or closes the series, does not
 * count. */
TEST(restarts_without_progress_are_counted)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_series *series = open_with(NULL);
    char rejected[2048], command[512];
    uint64_t step;

    options.max_restarts = 3;
    save_step(series, 1);
    save_step(series, 2);
    close_series(&series);
    for (int run = 0; run < 5; run++) {
        series = open_with(&options);
        expect_resume(series, 2); /* five that close the series */
        close_series(&series);
    }
    for (int run = 0; run < 4; run++) {
        series = open_with(&options);
        ASSERT_OK(resume(series, &step, rejected));
        assert_int_equal(step, run < 3 ? 2 : 1);
        if (run == 3)
            assert_non_null(strstr(rejected, "committed nothing"));
        /* As a crash would leave it: the marker stays. */
        snprintf(command, sizeof(command), "cp -r %s/.sidestep %s/kept", scratch.path,
                 scratch.path);
        assert_int_equal(system(command), 0);
        close_series(&series);
        snprintf(command, sizeof(command), "rm -r %s/.sidestep && mv %s/kept %s/.sidestep",
                 scratch.path, scratch.path, scratch.path);
        assert_int_equal(system(command), 0);
    }
    series = open_with(&options);
    expect_resume(series, 1); /* and it stays there */
    save_step(series, 2);     /* the skipped one is replaced */
    close_series(&series);
    series = open_with(&options);
    expect_resume(series, 2);
    close_series(&series);
}

TEST(another_runs_checkpoint_is_passed_over)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_series *series = open_with(NULL);
    char command[512], rejected[2048];
    uint64_t step;

    save_step(series, 7);
    close_series(&series);
    snprintf(command, sizeof(command), "cd %s && mkdir other && mv step-7 .sidestep other/",
             scratch.path);
    assert_int_equal(system(command), 0);
    series = open_with(NULL);
    save_step(series, 1);
    close_series(&series);
    snprintf(command, sizeof(command), "cd %s && mv other/step-7 .", scratch.path);
    assert_int_equal(system(command), 0);
    series = open_with(NULL);
    ASSERT_OK(resume(series, &step, rejected));
    assert_int_equal(step, 1);
    assert_non_null(strstr(rejected, "of another run"));
    close_series(&series);
    snprintf(command, sizeof(command), "rm -r %s/step-1", scratch.path);
    assert_int_equal(system(command), 0);
    series = open_with(NULL);
    assert_int_equal(resume(series, &step, rejected), SIDESTEP_EMISMATCH); /* not "nothing yet" */
    close_series(&series);
    char *latest = NULL;
    assert_int_equal(find_newest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, &latest, &err),
                     SIDESTEP_EMISMATCH);
    assert_non_null(strstr(err.message, "of another run"));
    options.flags = SIDESTEP_SERIES_ANY_RUN;
    series = open_with(&options);
    expect_resume(series, 7);
    close_series(&series);
    series = open_with(NULL); /* from then on it is this run's */
    expect_resume(series, 7);
    close_series(&series);
}

/* Of one step, and of an abandoned one: nobody would resume from a copy. */
TEST(a_copy_is_never_the_newest)
{
    struct sidestep_series *series = open_with(NULL);
    struct sidestep_list list;
    struct world loaded;

    for (uint64_t n = 1; n <= 3; n++)
        save_step(series, n);
    close_series(&series);
    shell("cd %s && cp -a step-3 best && cp -a step-2 step-9");
    expect_latest(3);
    series = open_with(NULL);
    expect_resume(series, 3);
    go_back(series, 1); /* and not to `best`, which has the contents of step 3 */
    struct sidestep_listed best = listed(&list, "best");
    assert_true(best.is_renamed && !best.is_abandoned && best.step == 3);
    assert_non_null(strstr(best.reason, "copied or renamed"));
    sidestep_list_release(&list);
    /* Loaded by its path it is what it is. */
    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load_step(series, 9, loaded.state, NULL, NULL, &err));
    assert_int_equal(world_check(&loaded, 2), 0);
    expect_latest(9);
    world_free(&loaded);
    close_series(&series);
    struct sidestep_listed adopted = listed(&list, "step-9");
    assert_true(adopted.is_renamed && adopted.step == 9 && adopted.reason == NULL);
    sidestep_list_release(&list);
}

/* The annotations of a step that was left behind do not belong to the new one. */
TEST(a_step_that_is_saved_anew_has_its_own_metric)
{
    struct sidestep_series *series = open_with(NULL);
    struct sidestep_metric loss = {"loss", 5};
    struct sidestep_list list;

    save_step(series, 1);
    ASSERT_OK(sidestep_series_note(series, 2, &loss, 1, NULL, 0, &err));
    save_step(series, 2);
    go_back(series, 1);
    loss.value = 3;
    ASSERT_OK(sidestep_series_note(series, 2, &loss, 1, NULL, 0, &err));
    struct sidestep_listed entry = listed(&list, "step-2");
    assert_true(entry.is_abandoned && entry.metric_count == 1 && entry.metrics[0].value == 5);
    sidestep_list_release(&list);
    save_step(series, 2);
    entry = listed(&list, "step-2");
    assert_true(!entry.is_abandoned && entry.metric_count == 1 && entry.metrics[0].value == 3);
    sidestep_list_release(&list);
    close_series(&series);
}

/* They share the lock, and so the incarnations, but not the lineage. */
TEST(two_prefixes_are_two_lines)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 9};
    struct sidestep_gc_report report;
    struct sidestep_series *series = open_with(NULL);

    options.prefix = "epoch-";
    for (uint64_t n = 1; n <= 5; n++)
        save_step(series, n);
    close_series(&series);
    series = open_with(&options);
    save_step(series, 2);
    close_series(&series);
    assert_false(is_left("step-3") || is_left("epoch-2"));
    ASSERT_OK(sidestep_prune(scratch.path, &keep, SIDESTEP_GC_DRY_RUN, &report, &err));
    assert_int_equal(report.removed_count, 0);
    sidestep_gc_report_release(&report);
    series = open_with(NULL);
    expect_resume(series, 5);
    close_series(&series);
}

/* Checkpoints are copied without their .sidestep; then one is pinned there, and some are deleted.
 */
TEST(deleting_starts_no_incarnation)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 2};
    struct sidestep_gc_report report;
    struct sidestep_series *series = open_with(NULL);
    char command[512];

    for (uint64_t n = 1; n <= 3; n++)
        save_step(series, n);
    close_series(&series);
    snprintf(command, sizeof(command), "rm -r '%s/.sidestep'", scratch.path);
    assert_int_equal(system(command), 0);
    ASSERT_OK(sidestep_pin(step_path(3), true, &err));
    for (size_t removed = 1;; removed = 0) {
        ASSERT_OK(sidestep_prune(scratch.path, &keep, 0, &report, &err));
        assert_int_equal(report.removed_count, removed);
        sidestep_gc_report_release(&report);
        if (removed == 0)
            break;
    }
    assert_false(step_exists(1));
    series = open_with(NULL);
    expect_resume(series, 3);
    close_series(&series);
}

EACH_TEST(one_rank_setup, one_rank_teardown);
