/* SPDX-License-Identifier: BSD-3-Clause */
/* latest_test.c -- the newest valid checkpoint, and the reason why each newer one was passed over.
 */
#include <errno.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "support/flip.h"
#include "support/one_series.h"
#include "support/unit.h"

static const uint32_t found_step = 2, newest_step = 5;

/* Make steps 1 to 5: 5 lacks its .metadata, 4 a shard, and 3 has a flipped bit in its data. */
static void make_root(void)
{
    struct sidestep_series *series = open_with(NULL);
    char path[320];

    for (uint64_t n = 1; n <= newest_step; n++)
        save_step(series, n);
    close_series(&series);
    snprintf(path, sizeof(path), "%s/.metadata", step_path(5));
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/__0_0.distcp", step_path(4));
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/__0_0.distcp", step_path(3));
    flip(path, 30000);
}

static void expect_passed(const struct sidestep_latest_report *report, size_t i, uint64_t step,
                          const char *reason)
{
    assert_true(i < report->passed_count);
    assert_null(sidestep_latest_report_passed(report, report->passed_count));
    assert_int_equal(sidestep_latest_report_passed(report, i)->step, step);
    assert_string_equal(sidestep_latest_report_passed(report, i)->path, step_path(step));
    assert_string_equal(sidestep_latest_report_passed(report, i)->state_name, "damaged");
    if (strstr(sidestep_latest_report_passed(report, i)->reason, reason) == NULL)
        fail_msg("%s", sidestep_latest_report_passed(report, i)->reason);
    assert_null(strstr(sidestep_latest_report_passed(report, i)->reason, scratch.path));
    assert_int_not_equal(sidestep_latest_report_passed(report, i)->status, SIDESTEP_OK);
}

TEST(each_passed_over_checkpoint_is_reported)
{
    OWNED_BY(sidestep_latest_report_release) struct sidestep_latest_report report = {0};

    make_root();
    ASSERT_OK(sidestep_find_latest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, NULL, &report, &err));
    assert_string_equal(report.path, step_path(3)); /* its structure is right */
    assert_int_equal(report.step, 3);
    assert_true(report.saved_at > 1600000000 && report.layout == NULL);
    assert_int_equal(report.passed_count, 2);
    expect_passed(&report, 0, 5, ".metadata is missing");
    expect_passed(&report, 1, 4, "file '__0_0.distcp': it is missing");
    sidestep_latest_report_release(&report);
    assert_null(report.path);
    ASSERT_OK(sidestep_find_latest(scratch.path, SIDESTEP_VERIFY_READ, NULL, &report, &err));
    assert_string_equal(report.path, step_path(found_step));
    assert_int_equal(report.passed_count, 3);
    expect_passed(&report, 2, 3, "__0_0.distcp: ");
}

/* Also if nothing is found: that is not "nothing yet". */
TEST(a_failure_reports_passed_over_checkpoints_too)
{
    OWNED_BY(sidestep_latest_report_release) struct sidestep_latest_report report = {0};

    make_root();
    for (uint64_t n = 1; n <= 2; n++) {
        char path[320];
        snprintf(path, sizeof(path), "%s/.metadata", step_path(n));
        assert_int_equal(truncate(path, 0), 0);
    }
    assert_int_equal(sidestep_find_latest(scratch.path, SIDESTEP_VERIFY_READ, NULL, &report, &err),
                     SIDESTEP_ECORRUPT);
    assert_null(report.path);
    assert_true(report.step == -1 && report.saved_at == -1);
    assert_int_equal(report.passed_count, newest_step);
    expect_passed(&report, 4, 1, ".metadata: ");
}

TEST(wrong_arguments_are_refused)
{
    struct sidestep_verify_options options = SIDESTEP_VERIFY_OPTIONS_INIT;
    struct sidestep_latest_report report;
    char path[320];

    assert_int_equal(sidestep_find_latest(NULL, SIDESTEP_VERIFY_STRUCTURE, NULL, &report, &err),
                     SIDESTEP_EINVAL);
    assert_int_equal(
        sidestep_find_latest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, NULL, NULL, &err),
        SIDESTEP_EINVAL);
    options.flags = 8;
    assert_int_equal(
        sidestep_find_latest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, &options, &report, &err),
        SIDESTEP_EUNSUPPORTED);
    sidestep_latest_report_release(&report);
    snprintf(path, sizeof(path), "%s/nowhere", scratch.path);
    assert_int_equal(sidestep_find_latest(path, SIDESTEP_VERIFY_STRUCTURE, NULL, &report, &err),
                     SIDESTEP_ENOTFOUND);
    assert_true(report.path == NULL && report.passed_count == 0);
    sidestep_latest_report_release(&report);
}

/* It ends the search, and does not make anything damaged. */
TEST(a_cancelled_search_names_nothing)
{
    OWNED_BY(sidestep_latest_report_release) struct sidestep_latest_report report = {0};
    struct sidestep_verify_options options = SIDESTEP_VERIFY_OPTIONS_INIT;
    const bool volatile cancel = true;

    struct sidestep_series *series = open_with(NULL);

    save_step(series, 1);
    ASSERT_OK(sidestep_series_close(&series, &err));
    options.cancel = &cancel;
    assert_int_equal(
        sidestep_find_latest(scratch.path, SIDESTEP_VERIFY_READ, &options, &report, &err),
        SIDESTEP_ECANCELLED);
    assert_true(report.path == NULL && report.passed_count == 0);
}

static void expect_same_text(const char *a, const char *b)
{
    assert_true((a == NULL) == (b == NULL));
    if (a != NULL)
        assert_string_equal(a, b);
}

/* One look gives the list of sidestep_list_root() and the report of sidestep_find_latest(). */
TEST(a_look_lists_too)
{
    OWNED_BY(sidestep_latest_report_release) struct sidestep_latest_report report = {0};
    OWNED_BY(sidestep_list_release) struct sidestep_list listed = {0}, list = {0};

    make_root();
    ASSERT_OK(sidestep_list_root(scratch.path, &listed, &err));
    ASSERT_OK(sidestep_look(scratch.path, SIDESTEP_VERIFY_READ, NULL, &list, &report, &err));
    assert_int_equal(report.step, found_step);
    expect_passed(&report, 0, 5, ".metadata is missing");
    assert_int_equal(list.count, listed.count);
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *a = sidestep_list_entry(&list, i);
        const struct sidestep_listed *b = sidestep_list_entry(&listed, i);
        assert_string_equal(a->path, b->path);
        assert_string_equal(a->state_name, b->state_name);
        assert_int_equal(a->state, b->state);
        expect_same_text(a->reason, b->reason);
        expect_same_text(a->kept, b->kept);
    }
}

/* The right answer, or an error. */
TEST(any_failure_is_survived)
{
    static const char *const points[] = {"memory", "posix"};

    make_root();
    for (size_t p = 0; p < ARRAY_LENGTH(points); p++) {
        bool fired = true;
        for (unsigned long nth = 1; fired; nth++) {
            OWNED_BY(sidestep_latest_report_release) struct sidestep_latest_report report = {0};
            OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
            fault_arm(points[p], nth, false, p == 0 ? ENOMEM : EIO);
            enum sidestep_status status =
                sidestep_look(scratch.path, SIDESTEP_VERIFY_READ, NULL, &list, &report, &err);
            fired = fault_fired() != NULL;
            fault_arm("", 0, false, 0);
            assert_true(fired || status == SIDESTEP_OK);
            assert_true((status == SIDESTEP_OK) == (report.path != NULL));
            if (status == SIDESTEP_OK)
                assert_int_equal(report.step, found_step);
        }
    }
}

EACH_TEST(one_rank_setup, one_rank_teardown);
