/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_parts_test.c -- a series whose root is a directory that each node has for itself: parts,
 * which step is whole, and where a run goes on when ranks moved, parts are lost, torn, damaged, or
 * of another save or run. Ranks are threads; each node is a directory.
 */
#include <errno.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "support/flip.h"
#include "support/node_jobs.h"

EACH_TEST(make_nodes, tear_down);

TEST(each_node_commits_a_part)
{
    struct sidestep_verify_report report = {0};
    struct sidestep_latest_report latest = {0};
    struct sidestep_error err = {0};
    char ranks[32];

    save_steps(4, "abab", false, 1, 2);
    assert_string_equal(state_of('a', "step-1", ranks), "part");
    assert_string_equal(ranks, "0, 2 of 4");
    assert_string_equal(state_of('b', "step-2", ranks), "part");
    assert_string_equal(ranks, "1, 3 of 4");
    assert_false(has('a', "step-1/.metadata"));
    assert_int_equal(sidestep_verify(node_path('b', "step-2"), NULL, &report, &err), SIDESTEP_OK);
    assert_true(report.is_ok && report.checked_bytes != 0);
    sidestep_verify_report_release(&report);
    assert_int_equal(
        sidestep_find_latest(node_path('a', ""), SIDESTEP_VERIFY_STRUCTURE, NULL, &latest, &err),
        SIDESTEP_EMISMATCH);
    assert_non_null(strstr(err.message, "one of 2 parts"));
    sidestep_latest_report_release(&latest);
    expect_nothing_left('a');
    expect_nothing_left('b');
}

TEST(a_damaged_part_is_found)
{
    struct sidestep_verify_report report = {0};
    struct sidestep_error err = {0};

    save_steps(2, "ab", false, 1, 1);
    flip(node_path('b', "step-1/__1_0.distcp"), 5000);
    assert_int_equal(sidestep_verify(node_path('b', "step-1"), NULL, &report, &err), SIDESTEP_OK);
    assert_false(report.is_ok);
    sidestep_verify_report_release(&report);
}

/* If all see one directory, nothing differs. */
TEST(one_directory_has_checkpoints)
{
    save_steps(2, "aa", false, 1, 1);
    assert_string_equal(state_of('a', "step-1", NULL), "committed");
    assert_true(has('a', "step-1/.metadata"));
    expect_resume(2, "aa", 1);
}

TEST(a_run_goes_on)
{
    save_steps(4, "aabb", false, 1, 2);
    expect_resume(4, "aabb", 2);
    save_steps(4, "aabb", true, 3, 4);
    expect_resume(4, "aabb", 4);
    expect_nothing_left('a');
    expect_nothing_left('b');
}

/* The files that a node lacks are brought. */
TEST(ranks_may_move_and_their_number_may_change)
{
    save_steps(4, "aabb", false, 1, 1);
    expect_resume(4, "bbaa", 1);
    expect_resume(4, "abab", 1);
    expect_resume(2, "ab", 1);
    expect_resume(3, "aab", 1);
    expect_resume(7, "aaabbbb", 1);
    expect_resume(3, "bca", 1); /* a new node, too */
    save_steps(3, "bca", true, 2, 2);
    expect_resume(4, "abca", 2);
}

TEST(a_node_that_is_lost_takes_the_step)
{
    save_steps(4, "aabb", false, 1, 3);
    shell("rm -r %s%s", node_path('b', "step-3"), "");
    struct job job = try_resume(4, "aabb");
    assert_int_equal(job.resumed, SIDESTEP_OK);
    assert_int_equal(job.step, 2);
    assert_non_null(strstr(job.rejected, "ranks 2-3 of the 4"));
    shell("rm -r %s%s", node_path('b', ""), "");
    job = try_resume(4, "aabb");
    assert_int_equal(job.resumed, SIDESTEP_EMISMATCH); /* and not "nothing yet" */
    assert_true(has('a', "step-2"));
}

/* A node that has a part of another save of the step lends nothing to it, and a step of which only
 * such parts are left is not whole. */
TEST(parts_of_two_saves_are_not_whole)
{
    save_steps(2, "ab", false, 1, 2);
    shell("mv %s %s", node_path('b', "step-2"), node_path('b', "kept"));
    save_steps(2, "ab", true, 2, 2);
    expect_resume(3, "abc", 2);
    shell("mv %s %s", node_path('b', "kept"), node_path('c', "step-2"));
    expect_resume(3, "abc", 2);
    shell("rm -r %s%s", node_path('b', "step-2"), "");
    shell("mv %s %s", node_path('c', "step-2"), node_path('b', "step-2"));
    expect_resume(2, "ab", 1);
}

TEST(another_run_in_the_same_place_is_refused)
{
    save_steps(2, "ab", false, 1, 1);
    save_steps(1, "c", false, 1, 1);
    struct job job = {.ranks = 2, .nodes = "ac", .resumes = true};
    run(&job);
    assert_int_equal(job.opened, SIDESTEP_EMISMATCH);
    assert_non_null(strstr(job.message, "belongs to run"));
    expect_resume(2, "ab", 1);
    expect_resume(1, "c", 1);
}

TEST(both_nodes_keep_the_same)
{
    struct job job = {.ranks = 4, .nodes = "aabb", .keep_last = 2, .saves = {1, 2, 3, 4, 5}};

    run(&job);
    for (const char *node = "ab"; *node != '\0'; node++) {
        assert_false(has(*node, "step-2"));
        assert_false(has(*node, "step-3"));
        assert_true(has(*node, "step-4") && has(*node, "step-5"));
    }
    expect_resume(4, "aabb", 5);
}

/* If one node seals nothing more, no node deletes the last step that is whole. */
TEST(what_is_whole_outlives_what_is_torn)
{
    struct job job = {.ranks = 2,
                      .nodes = "ab",
                      .keep_last = 1,
                      .resumes = true,
                      .background = true,
                      .may_fail_save = true,
                      .tears = 'b',
                      .saves = {2, 3, 4, 5}};

    save_steps(2, "ab", false, 1, 1);
    run(&job);
    assert_true(has('a', "step-4")); /* node a has sealed its part, and node b has not */
    assert_true(has('a', "step-1") && has('b', "step-1"));
    assert_true(has('b', "step-2/theirs") && has('b', "step-5/theirs"));
    expect_resume(2, "ab", 1);
}

/* The step of a save that one node gave up can be saved again. */
TEST(what_is_torn_is_replaced)
{
    struct job torn = {.ranks = 2,
                       .nodes = "ab",
                       .background = true,
                       .may_fail_save = true,
                       .tears = 'b',
                       .saves = {1}};
    struct job again = {.ranks = 2, .nodes = "ab", .resumes = true};

    run(&torn);
    assert_string_equal(state_of('a', "step-1", NULL), "part");
    run(&again);
    assert_int_equal(again.resumed, SIDESTEP_ENOTFOUND); /* nothing was lost: a run may begin */
    shell("rm -r %s%s", node_path('b', "step-1"), "");
    save_steps(2, "ab", false, 2, 2);
    expect_resume(2, "ab", 2);
}

/* A sweep takes the marker that a kill left, and leaves the part; a save in place is refused. */
TEST(a_part_is_left_alone)
{
    struct sidestep_gc_report report = {0};
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct world world;

    save_steps(2, "ab", false, 1, 1);
    shell("cd %s && touch $(ls -a | sed -n "
          "'s/.sidestep.manifest.\\(.*\\)/.sidestep.\\1.pending/p')%s",
          node_path('a', "step-1"), "");
    assert_string_equal(state_of('a', "step-1", NULL), "part");
    assert_int_equal(sidestep_gc(node_path('a', ""), 0, &report, &err), SIDESTEP_OK);
    assert_int_equal(report.removed_count, 1);
    sidestep_gc_report_release(&report);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    world_fill(&world, 9);
    assert_int_equal(sidestep_engine_open(&engine, NULL, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_save(engine, node_path('a', "step-1"), world.state, NULL, NULL, &err),
                     SIDESTEP_EEXISTS);
    assert_non_null(strstr(err.message, "is a part of a checkpoint"));
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_OK);
    world_free(&world);
    expect_resume(2, "ab", 1);
}

TEST(going_back_leaves_newer_parts_behind)
{
    struct job job = {.ranks = 2, .nodes = "ab", .resumes = true, .back_to = 1, .saves = {2}};

    save_steps(2, "ab", false, 1, 3);
    run(&job);
    assert_int_equal(job.saved, SIDESTEP_OK);
    assert_int_equal(job.step, 1);
    expect_resume(2, "ab", 2);
}

/* A damaged part is passed over, with its step; the bytes are checked when they are used. */
TEST(a_damaged_step_is_passed_over)
{
    save_steps(4, "aabb", false, 1, 2);
    flip(node_path('b', "step-2/__3_0.distcp"), 5000);
    expect_resume(4, "bbaa", 1);
    expect_resume(4, "aabb", 1);
    assert_true(has('b', "step-2"));
}

/* Without the flag, directories of each node are refused, as ever. */
TEST(it_must_be_allowed)
{
    struct job job = {.ranks = 1, .nodes = "a", .shared = true, .resumes = true};

    save_steps(2, "ab", false, 1, 1);
    run(&job);
    assert_int_equal(job.resumed, SIDESTEP_EMISMATCH);
    assert_non_null(strstr(job.message, "SIDESTEP_SERIES_PER_NODE"));
}

/* Fail the ${nth} call of storage while a run resumes and saves step 2; ${sticky}: all later ones,
 * too, as if all nodes had died. Then the run goes on from that step, if all ranks were told that
 * it is there, or from the one before. Returns the point that failed. */
static const char *fail_and_go_on(unsigned long nth, bool sticky)
{
    struct job job = {
        .ranks = 2, .nodes = "ab", .resumes = true, .may_fail_save = true, .saves = {2}};

    assert_true(make_nodes(NULL) == 0);
    save_steps(2, "ab", false, 1, 1);
    fault_arm("posix.", nth, sticky, EIO);
    run(&job);
    const char *fired = fault_fired();
    fault_arm("", 0, false, 0);
    bool is_told = job.saved == SIDESTEP_OK && job.resumed == SIDESTEP_OK;
    struct job after = try_resume(2, "ab");
    if (after.resumed != SIDESTEP_OK || after.step < (is_told ? 2u : 1u))
        fail_msg("after %s (%lu): %d, step %llu: %s", fired != NULL ? fired : "nothing", nth,
                 (int)after.resumed, (unsigned long long)after.step, after.message);
    expect_nothing_left('a');
    expect_nothing_left('b');
    scratch_remove(&scratch);
    return fired;
}

TEST(whatever_fails_a_step_is_whole_or_not_there)
{
    fail_at_each(fail_and_go_on, false, 1);
}

TEST(whenever_all_nodes_die_a_step_is_whole_or_not_there)
{
    fail_at_each(fail_and_go_on, true, 3);
}

/* A step that was left behind, and is loaded by its number, is not left behind any more. */
TEST(what_is_gone_back_to_is_gone_on_with)
{
    struct job job = {.ranks = 2, .nodes = "ab", .resumes = true, .back_to = 1, .saves = {2}};

    save_steps(2, "ab", false, 1, 3);
    run(&job);
    expect_resume(2, "ab", 2);
    job = (struct job){.ranks = 2, .nodes = "ab", .resumes = true, .back_to = 3};
    run(&job);
    assert_int_equal(job.resumed, SIDESTEP_OK);
    expect_resume(2, "ab", 3);
}

/* And it counts as whole, so it is one of those that stay. */
TEST(what_is_gone_back_to_is_not_deleted)
{
    struct job job = {.ranks = 2, .nodes = "ab", .resumes = true, .back_to = 1, .saves = {2}};

    save_steps(2, "ab", false, 1, 3);
    run(&job);
    job = (struct job){
        .ranks = 2, .nodes = "ab", .resumes = true, .back_to = 3, .saves = {4, 5}, .keep_last = 3};
    run(&job);
    assert_int_equal(job.saved, SIDESTEP_OK);
    assert_true(has('a', "step-3") && has('b', "step-3"));
}
