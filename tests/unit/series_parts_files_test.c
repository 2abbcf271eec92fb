/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_parts_files_test.c -- small files where each node has a directory for itself: they are in
 * the parts of those who gave them, are compared before the save begins, and are all there wherever
 * a step is loaded.
 */
#include <errno.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "support/flip.h"
#include "support/node_files.h"

EACH_TEST(make_nodes, tear_down);

TEST(each_part_has_the_files_of_its_ranks)
{
    struct sidestep_verify_report report = {0};
    struct sidestep_error err = {0};

    save_small(4, "abab", false, 1, 1);
    assert_true(has('a', "step-1/own/0") && has('a', "step-1/own/2") && has('b', "step-1/own/3"));
    assert_false(has('a', "step-1/own/1") || has('b', "step-1/own/0"));
    assert_true(has('a', "step-1/vocabulary") && has('b', "step-1/vocabulary"));
    assert_true(has('b', "step-1/sub/empty") && has('a', "step-1/here"));
    assert_string_equal(state_of('b', "step-1", NULL), "part");
    assert_int_equal(sidestep_verify(node_path('b', "step-1"), NULL, &report, &err), SIDESTEP_OK);
    assert_true(report.is_ok);
    sidestep_verify_report_release(&report);
    shell("echo x >> %s%s", node_path('b', "step-1/own/3"), "");
    assert_int_equal(sidestep_verify(node_path('b', "step-1"), NULL, &report, &err), SIDESTEP_OK);
    assert_false(report.is_ok);
    sidestep_verify_report_release(&report);
}

TEST(all_ranks_see_all_files)
{
    save_small(4, "aabb", false, 1, 2);
    expect_small(4, "aabb", 2);
    expect_small(4, "bbaa", 2);
    expect_small(4, "abab", 2);
    expect_small(3, "bca", 2); /* a new node, too */
    expect_small(7, "aaabbbb", 2);
    expect_nothing_left('a');
    expect_nothing_left('b');
    expect_nothing_left('c');
}

/* If all see one directory, nothing differs. */
TEST(one_directory_has_all)
{
    save_small(2, "aa", false, 1, 1);
    assert_true(has('a', "step-1/.metadata") && has('a', "step-1/own/1"));
    expect_small(2, "ab", 1); /* a whole checkpoint counts as a part */
}

/* ---- what is compared */

static const char *given[4]; /* per rank: the contents of "name"; NULL: none */
static uint32_t given_flags;
static const char *given_name = "name";

static int give_given(int rank, uint64_t step UNUSED, struct sidestep_state_dict *state)
{
    struct sidestep_error err = {0};
    const char *name = rank == 3 ? given_name : "name";

    return given[rank] != NULL &&
           sidestep_state_dict_add_file(state, name, given[rank], strlen(given[rank]), given_flags,
                                        &err) != SIDESTEP_OK;
}

static struct job try_given(const char *nodes)
{
    struct job job = {
        .ranks = 4, .nodes = nodes, .give = give_given, .may_fail_save = true, .saves = {1}};

    run(&job);
    return job;
}

static void expect_refused(const char *nodes, enum sidestep_status status, const char *why)
{
    struct job job = try_given(nodes);

    assert_int_equal(job.saved, status);
    if (strstr(job.message, why) == NULL)
        fail_msg("%s", job.message);
    for (const char *node = nodes; *node != '\0'; node++) {
        assert_false(has(*node, "step-1"));
        expect_nothing_left(*node);
    }
}

TEST(ranks_of_two_nodes_may_not_disagree)
{
    given_flags = 0;
    given[0] = "one";
    given[3] = "two";
    expect_refused("aabb", SIDESTEP_EDISAGREE,
                   "ranks 0 and 3 have different files of the name 'name'");
    given_name = "NAME"; /* it cannot be beside the other one on each file system */
    given[3] = "one";
    expect_refused("aabb", SIDESTEP_EINVAL, "a file of rank 0 has the same name");
    given_name = "name";
    assert_int_equal(try_given("aabb").saved, SIDESTEP_OK);
}

/* Nobody reads them before the save begins, so those of two nodes are not compared. */
TEST(files_that_are_taken_must_be_of_one_node)
{
    static char path[4096];

    shell("echo taken > %s%s", node_path('x', ""), "");
    assert_non_null(realpath(node_path('x', ""), path));
    given_flags = SIDESTEP_FILE_TAKE;
    given[0] = given[1] = path;
    given[3] = NULL;
    assert_int_equal(try_given("aabb").saved, SIDESTEP_OK);
    assert_true(has('a', "step-1/name") && !has('b', "step-1/name"));
    shell("rm -r %s %s", node_path('a', ""), node_path('b', ""));
    given[1] = NULL;
    given[3] = path;
    expect_refused("aabb", SIDESTEP_EDISAGREE, "ranks 0 and 3 have different files");
    given_flags |= SIDESTEP_FILE_FIRST_RANK;
    assert_int_equal(try_given("aabb").saved, SIDESTEP_OK);
    given[0] = given[3] = NULL;
}

/* ---- what is lost or damaged */

TEST(a_step_whose_small_file_is_damaged_is_passed_over)
{
    save_small(2, "ab", false, 1, 3);
    shell("rm %s%s", node_path('b', "step-3/own/1"), "");
    expect_small(2, "ab", 2);
    flip(node_path('b', "step-2/own/1"), 1);
    expect_small(2, "ab", 1); /* it was brought with other bytes */
    assert_true(has('b', "step-2/own/1"));
}

TEST(retention_takes_the_small_files_and_nothing_else)
{
    struct job job = {.ranks = 2,
                      .nodes = "ab",
                      .keep_last = 1,
                      .resumes = true,
                      .give = give_small,
                      .saves = {4, 5, 6}};

    save_small(2, "ab", false, 1, 3);
    shell("touch %s%s", node_path('b', "step-2/own/theirs"), "");
    run(&job);
    assert_int_equal(job.saved, SIDESTEP_OK);
    assert_false(has('a', "step-1") || has('b', "step-1") || has('a', "step-2"));
    assert_true(has('b', "step-2/own/theirs") && has('b', "step-2/own/1"));
    expect_small(2, "ab", 6);
}

/* Fail the ${nth} call of storage while a run resumes and saves step 2; ${sticky}: all later ones,
 * too, as if all nodes had died. Then the run goes on, and nothing is left. Returns the point that
 * failed. */
static const char *fail_and_go_on(unsigned long nth, bool sticky)
{
    struct job job = {.ranks = 2,
                      .nodes = "ba",
                      .resumes = true,
                      .may_fail_save = true,
                      .give = give_small,
                      .saves = {2}};

    assert_true(make_nodes(NULL) == 0);
    save_small(2, "ab", false, 1, 1);
    fault_arm("posix.", nth, sticky, EIO);
    run(&job);
    const char *fired = fault_fired();
    fault_arm("", 0, false, 0);
    bool is_told = job.saved == SIDESTEP_OK && job.resumed == SIDESTEP_OK;
    struct job after = {.ranks = 2, .nodes = "ab", .resumes = true, .look = look_at_small};
    run(&after);
    if (after.resumed != SIDESTEP_OK || after.step < (is_told ? 2u : 1u))
        fail_msg("after %s (%lu): %d, step %llu: %s", fired != NULL ? fired : "nothing", nth,
                 (int)after.resumed, (unsigned long long)after.step, after.message);
    expect_nothing_left('a');
    expect_nothing_left('b');
    scratch_remove(&scratch);
    return fired;
}

TEST(whatever_fails_all_files_are_there)
{
    fail_at_each(fail_and_go_on, false, 2);
}

TEST(whenever_all_nodes_die_all_files_are_there)
{
    fail_at_each(fail_and_go_on, true, 5);
}
