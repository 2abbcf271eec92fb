/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_names_test.c -- series with a template for names, beyond the width of its padding; and
 * how readers that do not know the template see them: ls, latest, prune, another run.
 */
#include <unistd.h>

#include "base/owned.h"
#include "sidestep/sidestep_tools.h"
#include "support/flip.h"
#include "support/one_rank.h"
#include "support/unit.h"

#define TEMPLATE "run7-{step:02}.dcp"

static struct sidestep_series *open_named(const char *name, uint32_t keep_last)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = keep_last};

    options.name = name;
    options.retention = keep_last != 0 ? &keep : NULL;
    return open_with(&options);
}

static void close_series(struct sidestep_series **series)
{
    ASSERT_OK(sidestep_series_close(series, &err));
}

static void shell(const char *format) /* with %s for the root */
{
    char command[1024];

    snprintf(command, sizeof(command), format, scratch.path);
    assert_int_equal(system(command), 0);
}

static bool is_there(const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", scratch.path, name);
    return access(path, F_OK) == 0;
}

static void expect_latest(const char *name)
{
    char *latest = NULL, path[512];

    ASSERT_OK(find_newest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, &latest, &err));
    snprintf(path, sizeof(path), "%s/%s", scratch.path, name);
    assert_string_equal(latest, path);
    free(latest);
}

static void expect_resume(struct sidestep_series *series, uint64_t want)
{
    struct world loaded;
    uint64_t step = 0;

    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load(series, loaded.state, NULL, &step, NULL, NULL, &err));
    assert_int_equal(step, want);
    assert_int_equal(world_check(&loaded, want), 0);
    world_free(&loaded);
}

static void go_back(struct sidestep_series *series, uint64_t step)
{
    struct world loaded;

    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load_step(series, step, loaded.state, NULL, NULL, &err));
    world_free(&loaded);
}

/* Check the list of the root: names and steps in order, followed by " left" or " renamed". */
static void expect_list(const char *want)
{
    struct sidestep_list list;
    char text[1024] = "";
    size_t used = 0;

    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        if (entry->state == SIDESTEP_COMMITTED)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s=%lld%s%s;", entry->name,
                                     (long long)entry->step, entry->is_abandoned ? " left" : "",
                                     entry->is_renamed ? " renamed" : "");
    }
    sidestep_list_release(&list);
    assert_string_equal(text, want);
}

static void expect_metric(const char *name, double value)
{
    struct sidestep_list list;
    size_t found = 0;

    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        if (strcmp(entry->name, name) == 0 && entry->metric_count == 1 && entry->tag_count == 1)
            found += entry->metrics[0].value == value && strcmp(entry->tags[0], "best") == 0;
    }
    sidestep_list_release(&list);
    assert_int_equal(found, 1);
}

/* ---- a series ---- */

TEST(a_run_goes_on_beyond_the_padding)
{
    struct sidestep_series *series = open_named(TEMPLATE, 0);
    struct sidestep_metric loss = {"loss", 2};
    static const char *const tags[] = {"best"};

    save_step(series, 9);
    save_step(series, 99);
    ASSERT_OK(sidestep_series_note(series, 100, &loss, 1, tags, 1, &err));
    save_step(series, 100);
    expect_list("run7-09.dcp=9;run7-99.dcp=99;run7-100.dcp=100;");
    assert_int_equal(try_save_step(series, 99), SIDESTEP_EEXISTS);
    assert_non_null(strstr(err.message, "run7-99.dcp"));
    close_series(&series);
    series = open_named(TEMPLATE, 0);
    expect_resume(series, 100); /* and by number, not by letter */
    expect_latest("run7-100.dcp");
    ASSERT_OK(sidestep_series_note(series, 9, &loss, 1, tags, 1, &err));
    expect_metric("run7-09.dcp", 2);
    expect_metric("run7-100.dcp", 2);
    save_step(series, 101);
    ASSERT_OK(sidestep_series_delete(series, 9, &err));
    assert_int_equal(sidestep_series_delete(series, 9, &err), SIDESTEP_ENOTFOUND);
    assert_non_null(strstr(err.message, "run7-09.dcp"));
    assert_false(is_there("run7-09.dcp"));
    close_series(&series);
}

TEST(retention_counts_by_step)
{
    struct sidestep_series *series = open_named(TEMPLATE, 2);

    for (uint64_t n = 98; n <= 101; n++)
        save_step(series, n);
    close_series(&series);
    expect_list("run7-100.dcp=100;run7-101.dcp=101;");
}

TEST(going_back_starts_a_new_line)
{
    struct sidestep_series *series = open_named(TEMPLATE, 0);

    for (uint64_t n = 98; n <= 101; n++)
        save_step(series, n);
    close_series(&series);
    series = open_named(TEMPLATE, 0);
    go_back(series, 99);
    expect_list("run7-98.dcp=98;run7-99.dcp=99;run7-100.dcp=100 left;run7-101.dcp=101 left;");
    expect_latest("run7-99.dcp");
    save_step(series, 100);
    close_series(&series);
    expect_list("run7-98.dcp=98;run7-99.dcp=99;run7-100.dcp=100;run7-101.dcp=101 left;");
    shell("rm %s/.sidestep/abandoned.*"); /* the incarnations show it, too */
    expect_list("run7-98.dcp=98;run7-99.dcp=99;run7-100.dcp=100;run7-101.dcp=101 left;");
    series = open_named(TEMPLATE, 0);
    expect_resume(series, 100);
    close_series(&series);
}

TEST(a_damaged_one_is_set_aside)
{
    struct sidestep_series *series = open_named(TEMPLATE, 0);
    char path[512];

    save_step(series, 99);
    save_step(series, 100);
    snprintf(path, sizeof(path), "%s/run7-100.dcp/.metadata", scratch.path);
    flip(path, 100);
    expect_resume(series, 99);
    assert_false(is_there("run7-100.dcp"));
    close_series(&series);
}

/* ---- readers without the template ---- */

TEST(a_save_under_way_shows_its_step)
{
    struct sidestep_series *series = open_named(TEMPLATE, 0);
    struct sidestep_saving_list list;
    struct sidestep_save *save = NULL;

    sidestep_engine_pause(engine);
    world_fill(&world, 7);
    ASSERT_OK(sidestep_series_save_async(series, 7, world.state, NULL, &save, &err));
    ASSERT_OK(sidestep_list_saving(scratch.path, &list, &err));
    assert_int_equal(list.count, 1);
    assert_string_equal(sidestep_saving_list_entry(&list, 0)->name, "run7-07.dcp");
    assert_int_equal(sidestep_saving_list_entry(&list, 0)->step, 7);
    sidestep_saving_list_release(&list);
    sidestep_engine_resume(engine);
    ASSERT_OK(sidestep_save_finish(&save, NULL, &err));
    close_series(&series);
}

TEST(prune_by_hand_knows_the_steps)
{
    struct sidestep_series *series = open_named(TEMPLATE, 0);
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
    struct sidestep_gc_report report;

    for (uint64_t n = 98; n <= 101; n++)
        save_step(series, n);
    close_series(&series);
    shell("cd %s && cp -a run7-99.dcp run7-99.dcp.keep && cp -a run7-98.dcp run7-098.dcp");
    ASSERT_OK(sidestep_prune(scratch.path, &keep, 0, &report, &err));
    sidestep_gc_report_release(&report);
    expect_list("run7-098.dcp=98 renamed;run7-99.dcp.keep=99 renamed;run7-101.dcp=101;");
}

/* A copy never counts as what its name says, unless it is loaded by that name. */
TEST(a_copy_is_known_by_its_template)
{
    struct sidestep_series *series = open_named(TEMPLATE, 0);

    save_step(series, 7);
    save_step(series, 8);
    close_series(&series);
    shell("cd %s && cp -a run7-07.dcp run7-50.dcp && cp -a run7-07.dcp run7-7.dcp");
    expect_list("run7-07.dcp=7;run7-50.dcp=7 renamed;run7-7.dcp=7 renamed;run7-08.dcp=8;");
    expect_latest("run7-08.dcp");
    series = open_named(TEMPLATE, 0);
    expect_resume(series, 8);
    go_back(series, 50);
    close_series(&series);
    expect_list("run7-07.dcp=7;run7-7.dcp=7 renamed;run7-08.dcp=8;run7-50.dcp=50 renamed;");
    expect_latest("run7-50.dcp");
}

/* A rebuilt manifest has the template, too. */
TEST(a_rebuilt_checkpoint_keeps_its_template)
{
    struct sidestep_series *series = open_named(TEMPLATE, 0);
    char path[512];

    save_step(series, 7);
    close_series(&series);
    snprintf(path, sizeof(path), "%s/run7-07.dcp", scratch.path);
    shell("rm %s/run7-07.dcp/.metadata");
    ASSERT_OK(sidestep_rebuild(path, &err));
    expect_list("run7-07.dcp=7;");
}

/* ---- two templates ---- */

/* They share the lock, and so the incarnations, but neither lineage nor names. */
TEST(two_templates_are_two_lines)
{
    static const char *const pairs[][2] = {
        {"step-{step:03}", "step-{step}"},  {"step-{step}", "step-{step:03}"},
        {"step-{step}.a", "step-{step}.b"}, {"step-{step:03}.a", "step-{step:04}.a"},
        {"step-{step}", "step-{step}.a"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(pairs); i++) {
        struct sidestep_series *series = open_named(pairs[i][0], 0);
        struct sidestep_list list;
        for (uint64_t n = 1; n <= 5; n++)
            save_step(series, n);
        close_series(&series);
        series = open_named(pairs[i][1], 1); /* its retention does not apply to the other's */
        assert_int_equal(sidestep_series_load_step(series, 5, world.state, NULL, NULL, &err),
                         SIDESTEP_ENOTFOUND);
        for (uint64_t n = 2; n <= 3; n++)
            save_step(series, n);
        close_series(&series);
        ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
        assert_int_equal(list.count, 6);
        for (size_t n = 0; n < list.count; n++)
            assert_true(!sidestep_list_entry(&list, n)->is_abandoned &&
                        sidestep_list_entry(&list, n)->reason == NULL);
        sidestep_list_release(&list);
        series = open_named(pairs[i][0], 0);
        expect_resume(series, 5);
        close_series(&series);
        series = open_named(pairs[i][1], 0);
        expect_resume(series, 3);
        close_series(&series);
        shell("cd %s && rm -r step-* .sidestep");
    }
}

TEST(an_invalid_template_is_refused)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_series *series = NULL;

    options.name = "step-{step:8}";
    assert_int_equal(sidestep_series_open(engine, scratch.path, &options, &series, &err),
                     SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "series name 'step-{step:8}'"));
    options.name = "step-{step}";
    options.prefix = "step-";
    assert_int_equal(sidestep_series_open(engine, scratch.path, &options, &series, &err),
                     SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "both given"));
    options.prefix = NULL;
    options.struct_size = offsetof(struct sidestep_series_options, name); /* of an older program */
    options.name = "not looked at";
    ASSERT_OK(sidestep_series_open(engine, scratch.path, &options, &series, &err));
    save_step(series, 3);
    close_series(&series);
    assert_true(step_exists(3));
}

EACH_TEST(one_rank_setup, one_rank_teardown);
