/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mirror_test.c -- the mirror of a series: what is sent and in which order, what is never sent, its
 * own retention, and that each copy is whole or not there, wherever the sender is stopped.
 */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "mirror/mirror.h"
#include "support/flip.h"
#include "support/one_rank.h"

static char near[128], far[128];
static struct sidestep_series *series;
static struct sidestep_mirror_report report;
static struct sidestep_mirror_options options;
static struct sidestep_retention keep;

static struct sidestep_series *open_at(const char *root, const struct sidestep_series_options *how)
{
    struct sidestep_series *opened = NULL;

    ASSERT_OK(sidestep_series_open(engine, root, how, &opened, &err));
    return opened;
}

static int set_up(void **test UNUSED)
{
    if (one_rank_begin(NULL) != 0)
        return -1;
    snprintf(near, sizeof(near), "%s", scratch_path(&scratch, "near"));
    snprintf(far, sizeof(far), "%s", scratch_path(&scratch, "far"));
    options = (struct sidestep_mirror_options)SIDESTEP_MIRROR_OPTIONS_INIT;
    keep = (struct sidestep_retention)SIDESTEP_RETENTION_INIT;
    series = open_at(near, NULL);
    return 0;
}

static int tear_down(void **test UNUSED)
{
    sidestep_mirror_report_release(&report);
    return sidestep_series_close(&series, NULL) == SIDESTEP_OK ? one_rank_end() : -1;
}

static enum sidestep_status mirror(void)
{
    sidestep_mirror_report_release(&report);
    return sidestep_mirror(near, far, &options, &report, &err);
}

static const char *path_of(const char *root, uint64_t step, const char *file)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/step-%llu%s", root, (unsigned long long)step, file);
    return path;
}

static bool is_there(uint64_t step)
{
    return access(path_of(far, step, "/.metadata"), F_OK) == 0;
}

static void save_steps(uint64_t first, uint64_t last, uint64_t by)
{
    for (uint64_t step = first; step <= last; step += by)
        save_step(series, step);
}

/* Exactly these steps are at the mirror, each with the bytes of its save. The last one is 0. */
static void expect_there(const uint64_t *steps)
{
    struct sidestep_list list = {0};
    size_t count = 0, wanted = 0;

    ASSERT_OK(sidestep_list_root(far, &list, &err));
    for (size_t i = 0; i < list.count; i++)
        count += sidestep_list_entry(&list, i)->state == SIDESTEP_COMMITTED;
    for (; steps[wanted] != 0; wanted++) {
        struct world loaded;
        if (!is_there(steps[wanted]))
            fail_msg("step %llu is not there", (unsigned long long)steps[wanted]);
        world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
        ASSERT_OK(
            sidestep_load(engine, path_of(far, steps[wanted], ""), loaded.state, NULL, NULL, &err));
        assert_int_equal(world_check(&loaded, steps[wanted]), 0);
        world_free(&loaded);
    }
    assert_int_equal(count, wanted);
    sidestep_list_release(&list);
}
#define EXPECT_THERE(...) expect_there((const uint64_t[]){__VA_ARGS__ __VA_OPT__(, ) 0})

static void expect_equal(const char *a, const char *b)
{
    char command[640];

    snprintf(command, sizeof(command), "diff -r '%s' '%s'", a, b);
    if (system(command) != 0)
        fail_msg("'%s' and '%s' differ", a, b);
}

static bool has_text(const char *const *texts, size_t count, const char *part)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(texts[i], part) != NULL)
            return true;
    return false;
}

/* ---- what is sent */

TEST(the_plan_is_a_function)
{
    static const struct {
        struct mirror_item items[4];
        size_t count;
        int64_t newest_there;
        uint64_t every;
        size_t next;
    } cases[] = {
        {{{0}}, 0, -1, 0, 0},
        {{{.step = 1}, {.step = 2}}, 2, -1, 0, 1},
        {{{.step = 1}, {.step = 2, .is_there = true}}, 2, 2, 0, 2},
        {{{.step = 1, .is_there = true}, {.step = 2}}, 2, 1, 0, 1},
        {{{.step = 1, .is_there = true}, {.step = 2}}, 2, 1, 1, 1},
        {{{.step = 1, .is_there = true}, {.step = 2}}, 2, 1, 2, 2},
        {{{.step = 1}, {.step = 2, .objection = "damaged"}}, 2, -1, 0, 0},
        {{{.step = 1}, {.step = 2, .objection = "damaged"}}, 2, 1, 0, 2},
        {{{.step = 1, .is_asked = true}, {.step = 2}}, 2, 0, 0, 1},
        {{{.step = 1, .is_asked = true}, {.step = 2, .is_there = true}}, 2, 2, 0, 0},
        {{{.step = 1}, {.step = 9, .is_left_behind = true}}, 2, -1, 0, 0},
        {{{.step = 9, .is_left_behind = true, .is_asked = true}}, 1, -1, 0, 0},
        {{{.step = 1}}, 1, 5, 0, 1},
        {{{.step = INT64_MAX}}, 1, 0, INT64_MAX, 0},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        if (mirror_choose(cases[i].items, cases[i].count, cases[i].newest_there, cases[i].every) !=
            cases[i].next)
            fail_msg("case %zu", i);
}

TEST(the_newest_is_sent_once)
{
    ASSERT_OK(mirror());
    assert_int_equal(report.step, -1);
    assert_int_equal(report.mirrored_step, -1);
    save_step(series, 3);
    ASSERT_OK(mirror());
    assert_int_equal(report.step, 3);
    assert_int_equal(report.mirrored_step, 3);
    assert_int_equal(report.sent_count, 1);
    assert_string_equal(report.sent[0], path_of(far, 3, ""));
    assert_int_not_equal(report.bytes, 0);
    expect_equal(path_of(near, 3, ""), path_of(far, 3, ""));
    ASSERT_OK(mirror());
    assert_int_equal(report.sent_count, 0);
    assert_int_equal(report.bytes, 0);
    save_step(series, 4);
    ASSERT_OK(mirror());
    EXPECT_THERE(3, 4);
}

/* Those that nobody asked for are passed over, and named. */
TEST(older_ones_wait_for_nobody)
{
    save_steps(1, 5, 1);
    ASSERT_OK(sidestep_pin(path_of(near, 2, ""), true, &err));
    keep.keep_last = 10;
    keep.keep_every = 3;
    options.retention = &keep;
    ASSERT_OK(mirror());
    EXPECT_THERE(2, 3, 5);
    assert_string_equal(report.sent[0], path_of(far, 5, ""));
    assert_int_equal(report.passed_count, 2);
    assert_string_equal(report.passed[0], scratch_path(&scratch, "near/step-4: step 5 is at the "
                                                                 "mirror, which is newer"));
    assert_int_equal(report.passed_status, SIDESTEP_OK);
}

TEST(steps_may_have_a_distance)
{
    options.every = 10;
    for (uint64_t step = 1; step <= 31; step += 3) {
        save_step(series, step);
        ASSERT_OK(mirror());
    }
    EXPECT_THERE(1, 13, 25);
    assert_true(has_text(report.passed, report.passed_count, "less than 10 steps after step 25"));
}

TEST(pins_tags_and_metrics_follow)
{
    const struct sidestep_metric loss = {.name = "loss", .value = 0.25};
    struct sidestep_list list = {0};

    save_step(series, 1);
    ASSERT_OK(mirror());
    ASSERT_OK(sidestep_pin(path_of(near, 1, ""), true, &err));
    ASSERT_OK(sidestep_tag(path_of(near, 1, ""), "best", true, &err));
    ASSERT_OK(sidestep_series_note(series, 1, &loss, 1, NULL, 0, &err));
    ASSERT_OK(mirror());
    ASSERT_OK(sidestep_list_root(far, &list, &err));
    assert_true(sidestep_list_entry(&list, 0)->is_pinned);
    assert_string_equal(sidestep_list_entry(&list, 0)->tags[0], "best");
    assert_true(sidestep_list_entry(&list, 0)->metrics[0].value == 0.25);
    sidestep_list_release(&list);
    /* A pin at the mirror holds there until it is removed there. */
    ASSERT_OK(sidestep_pin(path_of(near, 1, ""), false, &err));
    save_steps(2, 3, 1);
    keep.keep_last = 1;
    options.retention = &keep;
    ASSERT_OK(mirror());
    EXPECT_THERE(1, 3);
}

/* ---- its own retention */

TEST(each_level_has_its_own_retention)
{
    struct sidestep_retention near_keep = SIDESTEP_RETENTION_INIT;
    struct sidestep_gc_report gc = {0};

    keep.keep_last = 3;
    options.retention = &keep;
    for (uint64_t step = 1; step <= 6; step++) {
        save_step(series, step);
        ASSERT_OK(mirror());
    }
    EXPECT_THERE(4, 5, 6);
    assert_int_equal(report.removed_count, 1);
    assert_string_equal(report.removed[0], path_of(far, 3, ""));
    ASSERT_OK(sidestep_series_close(&series, &err));
    near_keep.keep_last = 1;
    ASSERT_OK(sidestep_prune(near, &near_keep, 0, &gc, &err));
    assert_int_equal(gc.removed_count, 5);
    sidestep_gc_report_release(&gc);
    ASSERT_OK(mirror());
    EXPECT_THERE(4, 5, 6);
}

TEST(what_others_put_there_stays)
{
    char file[256];

    keep.keep_last = 1;
    options.retention = &keep;
    ASSERT_OK(mkdir(far, 0777));
    ASSERT_OK(mkdir(path_of(far, 1, ""), 0777));
    snprintf(file, sizeof(file), "%s", path_of(far, 1, "/notes.txt"));
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fclose(f);
    save_step(series, 1);
    ASSERT_OK(mirror());
    assert_int_equal(report.sent_count, 0);
    assert_true(has_text(report.passed, report.passed_count, "is not empty"));
    save_steps(2, 3, 1);
    ASSERT_OK(mirror());
    EXPECT_THERE(3);
    assert_int_equal(access(file, F_OK), 0);
}

/* A run that saves to the mirror as to its own root deletes there by itself. */
TEST(nothing_is_deleted_where_a_run_saves)
{
    struct sidestep_series *theirs;

    save_step(series, 1);
    ASSERT_OK(mirror());
    theirs = open_at(far, NULL);
    save_step(series, 2);
    assert_int_equal(mirror(), SIDESTEP_EMISMATCH);
    ASSERT_OK(sidestep_series_close(&theirs, &err));
}

/* ---- what is never sent */

TEST(a_damaged_one_is_not_sent)
{
    save_steps(1, 2, 1);
    flip(path_of(near, 2, "/__0_0.distcp"), 5000);
    ASSERT_OK(mirror());
    EXPECT_THERE(1);
    assert_int_equal(report.mirrored_step, 1);
    assert_int_equal(report.passed_status, SIDESTEP_ECORRUPT);
    assert_true(has_text(report.passed, report.passed_count, "__0_0.distcp"));
    save_step(series, 3);
    ASSERT_OK(mirror());
    EXPECT_THERE(1, 3);
    assert_int_equal(report.passed_status, SIDESTEP_OK);
}

/* A copy that lost a file is sent again; one that is only there by name is not taken for one. */
/* The mirror goes away at any moment: that is an error, and no reason to pass over a checkpoint
 * that is whole. */
TEST(a_mirror_that_goes_away_is_no_damage)
{
    char command[160];
    unsigned failed = 0;
    bool fired = true;

    save_steps(1, 1, 1);
    snprintf(command, sizeof(command), "rm -rf '%s'", far);
    for (unsigned long nth = 1; fired; nth++) {
        assert_int_equal(system(command), 0);
        fault_arm("posix.fsync|posix.dir_sync|posix.close", nth, false, ENOENT);
        enum sidestep_status status = mirror();
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_true(status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND);
        assert_int_equal(report.passed_status, SIDESTEP_OK); /* ECORRUPT: it is damaged */
        failed += status != SIDESTEP_OK && strstr(err.message, "send '") != NULL;
    }
    assert_true(failed > 1);
}

TEST(a_damaged_copy_is_sent_again)
{
    save_step(series, 1);
    ASSERT_OK(mirror());
    ASSERT_OK(truncate(path_of(far, 1, "/__0_0.distcp"), 5000));
    ASSERT_OK(mirror());
    assert_int_equal(report.sent_count, 1);
    EXPECT_THERE(1);
}

TEST(a_mirror_has_one_run)
{
    struct sidestep_series *other = open_at(scratch_path(&scratch, "other"), NULL);

    save_step(series, 1);
    ASSERT_OK(mirror());
    save_step(other, 2);
    assert_int_equal(sidestep_mirror(scratch_path(&scratch, "other"), far, NULL, NULL, &err),
                     SIDESTEP_EMISMATCH);
    EXPECT_THERE(1);
    ASSERT_OK(sidestep_series_close(&other, &err));
    assert_int_equal(sidestep_mirror(near, near, NULL, NULL, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_mirror(scratch.path, far, NULL, NULL, &err), SIDESTEP_ENOTFOUND);
}

/* A node comes back late: the run went on elsewhere, and has written to the mirror since. */
TEST(an_outdated_level_sends_nothing)
{
    char command[640];

    save_step(series, 1);
    ASSERT_OK(sidestep_series_close(&series, &err));
    snprintf(command, sizeof(command), "cp -r '%s' '%s.old'", near, near);
    assert_int_equal(system(command), 0);
    series = open_at(near, NULL);
    uint64_t step = 0;
    struct world loaded;
    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load(series, loaded.state, NULL, &step, NULL, NULL, &err));
    world_free(&loaded);
    save_step(series, 2);
    ASSERT_OK(mirror());
    EXPECT_THERE(2);
    assert_int_equal(sidestep_mirror(scratch_path(&scratch, "near.old"), far, NULL, NULL, &err),
                     SIDESTEP_EABORTED);
    EXPECT_THERE(2);
}

/* ---- a run that goes back */

static void go_back_to(uint64_t step)
{
    struct world loaded;

    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load_step(series, step, loaded.state, NULL, NULL, &err));
    assert_int_equal(world_check(&loaded, step), 0);
    world_free(&loaded);
}

static void expect_latest_there(uint64_t step)
{
    char *latest = NULL;

    ASSERT_OK(find_newest(far, SIDESTEP_VERIFY_BEFORE, &latest, &err));
    assert_string_equal(latest, path_of(far, step, ""));
    free(latest);
}

TEST(a_step_back_is_followed)
{
    for (int reopens = 0; reopens < 2; reopens++) {
        uint64_t base = reopens == 0 ? 0 : 100;
        for (uint64_t step = base + 10; step <= base + 40; step += 10) {
            save_step(series, step);
            ASSERT_OK(mirror());
        }
        if (reopens) {
            ASSERT_OK(sidestep_series_close(&series, &err));
            series = open_at(near, NULL);
        }
        go_back_to(base + 20);
        ASSERT_OK(mirror());
        expect_latest_there(base + 20);
        world_fill(&world, base + 30); /* another save of the same step */
        save_step(series, base + 30);
        ASSERT_OK(mirror());
        assert_int_equal(report.mirrored_step, base + 30);
        expect_latest_there(base + 30);
        expect_equal(path_of(near, base + 30, ""), path_of(far, base + 30, ""));
        save_step(series, base + 35);
        ASSERT_OK(mirror());
        expect_latest_there(base + 35);
    }
}

/* ---- wherever it is stopped */

static uint64_t kill_after;

static void kill_self(void *context UNUSED, uint64_t done, uint64_t total UNUSED)
{
    if (done >= kill_after)
        kill(getpid(), SIGKILL);
}

static void mirror_and_die(uint64_t after)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        kill_after = after;
        options.on_progress = kill_self;
        options.threads = 1;
        _exit(sidestep_mirror(near, far, &options, NULL, NULL) == SIDESTEP_OK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static bool has_hidden(const char *root)
{
    char command[256];

    snprintf(command, sizeof(command), "ls -a '%s' | grep -qE '[.](saving|trash)$'", root);
    return system(command) == 0;
}

TEST(a_killed_sender_leaves_nothing_half)
{
    save_step(series, 1);
    ASSERT_OK(mirror());
    const uint64_t bytes = report.bytes;
    for (unsigned part = 0; part <= 8; part++) {
        save_step(series, part + 2);
        mirror_and_die(bytes * part / 8);
        assert_int_not_equal(access(path_of(far, part + 2, ""), F_OK), 0);
        ASSERT_OK(mirror());
        assert_false(has_hidden(far));
    }
    EXPECT_THERE(1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
}

/* A newer one is more urgent than the rest of an older one. */
TEST(an_interrupted_one_is_not_gone_on_with_for_its_own_sake)
{
    save_step(series, 1);
    mirror_and_die(1);
    assert_true(has_hidden(far));
    save_step(series, 2);
    ASSERT_OK(mirror());
    EXPECT_THERE(2);
    assert_false(has_hidden(far));
}

TEST(every_call_may_fail)
{
    unsigned long failures = 0, step = 1;
    bool fired = true;
    uint64_t saved = 1;

    options.threads = 1;
    keep.keep_last = 2;
    options.retention = &keep;
    save_step(series, saved);
    ASSERT_OK(mirror());
    for (unsigned long nth = 1; fired; nth += step) {
        struct sidestep_error why = {0};
        save_step(series, ++saved);
        if (saved % 5 == 0)
            ASSERT_OK(sidestep_tag(path_of(near, saved, ""), "five", true, &err));
        fault_arm("", nth, false, EIO);
        sidestep_mirror_report_release(&report);
        enum sidestep_status status = sidestep_mirror(near, far, &options, &report, &why);
        const char *point = fault_fired();
        fired = point != NULL;
        fault_arm("", 0, false, 0);
        /* A checkpoint that cannot be looked at is passed by, which the report says. */
        if (status == SIDESTEP_OK && !is_there(saved) && report.passed_status == SIDESTEP_OK)
            fail_msg("hit %lu (%s): it says OK, and step %llu is not there", nth, point,
                     (unsigned long long)saved);
        failures += status != SIDESTEP_OK;
        if (mirror() != SIDESTEP_OK)
            fail_msg("after hit %lu (%s): %s", nth, why.message, err.message);
        EXPECT_THERE(saved - 1, saved);
        step = nth < 150 ? 3 : 31;
    }
    assert_true(failures > 30);
}

EACH_TEST(set_up, tear_down);
