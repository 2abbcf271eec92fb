/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_mirror_away_test.c -- a mirror that is away, or of which something cannot be read or is
 * damaged: it is never taken for an empty one.
 */
#include <errno.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/fault.h"
#include "mirror/mirror.h"
#include "support/flip.h"
#include "support/near_far.h"

/* "I cannot look" is not "nothing there". */
TEST(a_mirror_that_cannot_be_read_is_not_empty)
{
    ASSERT_OK(try_open(near));
    save_step(series, 1);
    ASSERT_OK(sidestep_series_close(&series, &err));
    run("rm -r '%s' %s", near, "");
    take_away();
    assert_int_not_equal(try_open(near), SIDESTEP_OK);
    assert_non_null(strstr(err.message, "the mirror must be readable"));
    bring_back();
    ASSERT_OK(try_open(near));
    expect_resume(1);
    take_away(); /* and not later either */
    uint64_t step;
    assert_int_not_equal(resume(&step), SIDESTEP_OK);
    assert_int_not_equal(err.status, SIDESTEP_ENOTFOUND);
    bring_back();
}

/* One checkpoint of the mirror cannot be read, because a link to itself has the place of ${file}.
 */
static void make_unreadable(uint64_t step, const char *file)
{
    const char *path = path_of(far, step, file);

    run("mv '%s' '%s.kept'", path, path);
    assert_int_equal(symlink(strrchr(path, '/') + 1, path), 0);
}

static void make_readable(uint64_t step, const char *file)
{
    const char *path = path_of(far, step, file);

    run("mv '%s.kept' '%s'", path, path);
}

static void expect_unreadable(enum sidestep_status status)
{
    if (status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND || reader_status_is_damage(status))
        fail_msg("status %d, %s", (int)status, err.message);
}

/* Valid until the next call. */
static const char *manifest_at(uint64_t step)
{
    static char name[128];
    struct sidestep_list list = {0};

    ASSERT_OK(sidestep_list_root(far, &list, &err));
    for (size_t i = 0; i < list.count; i++)
        if (sidestep_list_entry(&list, i)->step == (int64_t)step)
            snprintf(name, sizeof(name), "/.sidestep.manifest.%s",
                     sidestep_list_entry(&list, i)->save_id);
    sidestep_list_release(&list);
    return name;
}

/* Nor is it "nothing there", or the step before, if only one checkpoint cannot be read. */
static void expect_not_passed_over(const char *file)
{
    uint64_t step;

    make_unreadable(3, file);
    expect_unreadable(resume(&step));
    run("mv '%s' '%s'", path_of(far, 2, ""), scratch_path(&scratch, "two"));
    expect_unreadable(resume(&step)); /* nor if it is the only one */
    run("mv '%s' '%s'", scratch_path(&scratch, "two"), path_of(far, 2, ""));
    expect_unreadable(sidestep_series_load_step(series, 3, world.state, NULL, NULL, &err));
    make_readable(3, file);
}

TEST(a_checkpoint_of_the_mirror_that_cannot_be_read_is_not_passed_over)
{
    static const char *const files[] = {"/.metadata", "/__0_0.distcp"};

    ASSERT_OK(try_open(near));
    for (uint64_t step = 1; step <= 3; step++) {
        save_step(series, step);
        await(far, step);
    }
    ASSERT_OK(sidestep_series_close(&series, &err));
    run("rm -r '%s' %s", near, "");
    ASSERT_OK(try_open(near));
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++)
        expect_not_passed_over(files[i]);
    expect_not_passed_over(manifest_at(3));
    expect_resume(3);
    make_unreadable(2, "/.metadata"); /* an older one is not needed */
    expect_resume(3);
    make_readable(2, "/.metadata");
}

/* Going back cannot leave it behind, because its save is not known. */
TEST(going_back_needs_to_read_what_is_newer)
{
    ASSERT_OK(try_open(near));
    for (uint64_t step = 1; step <= 3; step++) {
        save_step(series, step);
        await(far, step);
    }
    const char *manifest = manifest_at(3);
    make_unreadable(3, manifest);
    expect_unreadable(sidestep_series_load_step(series, 1, world.state, NULL, NULL, &err));
    make_readable(3, manifest);
    make_unreadable(3, "/__0_0.distcp"); /* its save is known */
    ASSERT_OK(sidestep_series_load_step(series, 1, world.state, NULL, NULL, &err));
    make_readable(3, "/__0_0.distcp");
    run("rm -r '%s/step-2' '%s/step-3'", near, near);
    expect_resume(1);
}

/* If all that is left is damaged, no run begins anew. */
TEST(a_mirror_that_has_damaged_ones_only_is_not_empty)
{
    uint64_t step;

    ASSERT_OK(try_open(near));
    save_step(series, 1);
    ASSERT_OK(sidestep_series_close(&series, &err));
    run("rm -r '%s' %s", near, "");
    flip(path_of(far, 1, "/__0_0.distcp"), 5000);
    ASSERT_OK(try_open(near));
    assert_int_equal(resume(&step), SIDESTEP_ECORRUPT);
    assert_int_equal(sidestep_series_load_step(series, 1, world.state, NULL, NULL, &err),
                     SIDESTEP_ECORRUPT);
    assert_int_equal(unlink(path_of(far, 1, "/__0_0.distcp")), 0); /* as a listing shows, too */
    assert_int_equal(resume(&step), SIDESTEP_ECORRUPT);
    run("rm -r '%s/step-1' %s", far, "");
    assert_int_equal(resume(&step), SIDESTEP_ENOTFOUND);
}

/* A look may read the step, and then it stays until the next time. */
static void prune_until_gone(uint64_t step)
{
    struct sidestep_gc_report report = {0};

    for (int i = 0; i < 1000 && is_at(near, step); i++) {
        ASSERT_OK(sidestep_series_prune(series, &report, &err));
        sidestep_gc_report_release(&report);
        usleep(10000);
    }
    assert_false(is_at(near, step));
}

/* Step 0 is one that the mirror keeps by its number, and no look has succeeded yet. */
TEST(step_0_waits_for_the_mirror)
{
    struct sidestep_series_options alone = SIDESTEP_SERIES_OPTIONS_INIT;
    bool volatile is_cancelled = true;

    ASSERT_OK(sidestep_series_open(engine, near, &alone, &series, &err));
    save_step(series, 0);
    ASSERT_OK(sidestep_series_close(&series, &err));
    near_keep.keep_last = 1;
    options.retention = &near_keep;
    far_keep.keep_every = 100;
    to_mirror.retention = &far_keep;
    to_mirror.cancel = &is_cancelled;
    ASSERT_OK(try_open(near));
    save_step(series, 1);
    save_step(series, 2);
    prune_until_gone(1);
    assert_int_equal(sidestep_series_close(&series, &err), SIDESTEP_ECANCELLED);
    assert_true(is_at(near, 0));
    is_cancelled = false;
    ASSERT_OK(try_open(near));
    expect_resume(2);
    await(far, 0);
}

/* What somebody put at the mirror keeps a step away from it, and so the step stays. */
TEST(what_the_mirror_cannot_take_stays)
{
    near_keep.keep_last = 1;
    options.retention = &near_keep;
    far_keep.keep_every = 5;
    to_mirror.retention = &far_keep;
    ASSERT_OK(try_open(near));
    save_step(series, 1);
    await(far, 1);
    run("mkdir '%s/step-5' && touch '%s/step-5/notes'", far, far);
    for (uint64_t step = 2; step <= 12; step++)
        save_step(series, step);
    ASSERT_OK(sidestep_series_close(&series, &err));
    ASSERT_OK(try_open(near));
    expect_resume(12);
    save_step(series, 13);
    await(far, 13);
    save_step(series, 14);
    ASSERT_OK(sidestep_series_close(&series, &err));
    assert_true(is_at(near, 5) && is_at(far, 10));
    assert_false(is_at(near, 4) || is_at(near, 10));
    run("rm -r '%s/step-5' %s", far, "");
    ASSERT_OK(try_open(near));
    expect_resume(14);
    save_step(series, 15);
    ASSERT_OK(sidestep_series_close(&series, &err));
    run("test -e '%s/step-5/.metadata' %s", far, "");
}

/* What an unmounted file system leaves is an empty directory. */
TEST(an_empty_directory_is_not_the_mirror)
{
    uint64_t step;

    ASSERT_OK(try_open(near));
    save_step(series, 1);
    await(far, 1);
    run("mv '%s' '%s.away'", far, far);
    assert_int_equal(resume(&step), SIDESTEP_EIO);
    assert_int_equal(mkdir(far, 0777), 0);
    assert_int_equal(resume(&step), SIDESTEP_EIO);
    save_step(series, 2);
    assert_int_equal(sidestep_series_close(&series, &err), SIDESTEP_EIO);
    assert_int_equal(try_open(near), SIDESTEP_EIO);
    assert_non_null(strstr(err.message, "mounted"));
    run("rm -r '%s' %s", far, "");
    run("mv '%s.away' '%s'", far, far);
    ASSERT_OK(try_open(near));
    expect_resume(2);
    await(far, 2);
}

static void leave(void *context, const char *path UNUSED, const char *why UNUSED)
{
    unsigned *rejected = context;

    (*rejected)++;
    if (access(far, F_OK) == 0)
        run("mv '%s' '%s.away'", far, far);
}

/* What was listed there and is gone now is not damaged. */
TEST(a_mirror_that_goes_away_while_it_is_read_is_not_empty)
{
    struct mirror_look m = {.near = {.root = near, .store = store_posix()},
                            .far = {.root = far, .store = store_posix()},
                            .is_claimed = true,
                            .clock = clock_system()};
    struct name_template naming;
    unsigned rejected = 0;
    int64_t step;

    ASSERT_OK(try_open(near));
    for (uint64_t i = 1; i <= 2; i++) {
        save_step(series, i);
        await(far, i);
    }
    ASSERT_OK(sidestep_series_close(&series, &err));
    run("rm -r '%s/step-1' '%s/step-2'", near, near);
    flip(path_of(far, 2, "/__0_0.distcp"), 5000);
    ASSERT_OK(name_template_from_prefix("step-", &naming, &err));
    assert_int_not_equal(mirror_fetch(&m, -1, INT64_MAX, &naming, leave, &rejected, &step, &err),
                         SIDESTEP_OK);
    assert_int_equal(rejected, 1);
    assert_int_equal(step, -1);
}

/* Nor is it lost if opening failed at any call. */
TEST(a_first_opening_may_fail_anywhere)
{
    bool fired = true;

    for (unsigned long nth = 1; fired; nth++) {
        run("rm -rf '%s' '%s'", near, far);
        fault_arm("posix.fsync|posix.dir_sync|posix.close|posix.pwrite", nth, false, EIO);
        (void)try_open(near);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        (void)sidestep_series_close(&series, NULL);
        ASSERT_OK(try_open(near));
        ASSERT_OK(sidestep_series_close(&series, &err));
    }
}

TEST(saves_do_not_need_the_mirror)
{
    near_keep.keep_last = 1;
    options.retention = &near_keep;
    far_keep.keep_last = 1;
    far_keep.keep_every = 5;
    to_mirror.retention = &far_keep;
    ASSERT_OK(try_open(near));
    save_step(series, 1);
    await(far, 1);
    take_away();
    for (uint64_t step = 2; step <= 12; step++)
        save_step(series, step);
    /* What the mirror is to keep stays until it is there. */
    assert_true(is_at(near, 5) && is_at(near, 10) && is_at(near, 12));
    assert_int_not_equal(sidestep_series_close(&series, &err), SIDESTEP_OK);
    assert_non_null(strstr(err.message, "does not have the newest"));
    assert_false(is_at(near, 4) || is_at(near, 11));
    bring_back();
    ASSERT_OK(try_open(near));
    expect_resume(12);
    save_step(series, 13);
    ASSERT_OK(sidestep_series_close(&series, &err));
    assert_true(is_at(far, 5) && is_at(far, 10) && is_at(far, 13));
    assert_false(is_at(far, 1));
    ASSERT_OK(try_open(near));
    expect_resume(13);
    save_step(series, 14);
    ASSERT_OK(sidestep_series_close(&series, &err));
    assert_false(is_at(near, 5) || is_at(near, 10));
}
