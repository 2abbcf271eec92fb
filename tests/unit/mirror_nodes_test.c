/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mirror_nodes_test.c -- sidestep_mirror() on each node, when a run is over that had a directory
 * for each: together they send what the run did not, whoever begins; one alone changes nothing; and
 * while the run goes on, it is left to it.
 */
#include <pthread.h>

#include "support/flip.h"
#include "support/node_mirror.h"

/* A call on a node. */
struct call {
    char node;
    unsigned delay_ms; /* before it */
    bool volatile cancelled;
    enum sidestep_status status;
    struct sidestep_mirror_report report;
    struct sidestep_error err;
};

static void *call_mirror(void *context)
{
    struct call *call = context;
    struct sidestep_mirror_options options = to_mirror;

    usleep(call->delay_ms * 1000);
    options.cancel = &call->cancelled;
    call->status =
        sidestep_mirror(node_path(call->node, ""), far, &options, &call->report, &call->err);
    return NULL;
}

/* One call on each of two nodes, the second ${delay_ms} later. */
static void call_both(struct call calls[2], const char nodes[2], unsigned delay_ms)
{
    pthread_t threads[2];

    for (size_t i = 0; i < 2; i++) {
        calls[i] = (struct call){.node = nodes[i], .delay_ms = i == 0 ? 0 : delay_ms};
        assert_int_equal(pthread_create(&threads[i], NULL, call_mirror, &calls[i]), 0);
    }
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void release(struct call calls[2])
{
    for (size_t i = 0; i < 2; i++)
        sidestep_mirror_report_release(&calls[i].report);
}

static void expect_sent(const struct call *call, int64_t step)
{
    if (call->status != SIDESTEP_OK)
        fail_msg("node %c: %s", call->node, call->err.message);
    assert_int_equal(call->report.mirrored_step, step);
}

/* Two calls bring this step to the mirror. */
static void expect_both_send(const char nodes[2], unsigned delay_ms, int64_t step)
{
    struct call calls[2];

    call_both(calls, nodes, delay_ms);
    for (size_t i = 0; i < 2; i++)
        expect_sent(&calls[i], step);
    expect_verified((uint64_t)step);
    expect_nothing_left('f');
    release(calls);
}

/* Whoever begins, and also if both did nothing before. */
TEST(all_nodes_together_send_the_newest)
{
    struct call calls[2];

    save_steps(4, "aabb", false, 1, 2);
    call_both(calls, "ab", 300);
    expect_sent(&calls[0], 2);
    expect_sent(&calls[1], 2);
    assert_int_equal(calls[0].report.sent_count, 1);
    assert_int_equal(calls[1].report.sent_count, 1);
    expect_verified(2);
    assert_false(has('f', "step-1"));
    release(calls);
    save_steps(4, "aabb", true, 3, 3);
    expect_both_send("ba", 300, 3);
    call_both(calls, "ab", 0); /* there is nothing to be done any more */
    expect_sent(&calls[0], 3);
    assert_int_equal(calls[0].report.sent_count + calls[1].report.sent_count, 0);
    release(calls);
}

/* The ranks have moved: the node that has the part of rank 0 is another one than was. */
TEST(the_part_of_rank_0_decides_who_sends)
{
    save_steps(2, "ab", false, 1, 1);
    save_steps(2, "ba", true, 2, 2);
    expect_both_send("ab", 0, 2);
}

/* Alone, a node waits for the others, and then says so. */
TEST(one_node_alone_publishes_nothing)
{
    struct call call = {.node = 'b'};

    save_steps(2, "ab", false, 1, 1);
    fault_arm("mirror.silence", 1, true, 0);
    (void)call_mirror(&call);
    assert_int_equal(call.status, SIDESTEP_ETIMEDOUT);
    assert_non_null(strstr(call.err.message, "on all nodes"));
    assert_false(has('f', "step-1"));
    sidestep_mirror_report_release(&call.report);
    call = (struct call){.node = 'a'};
    (void)call_mirror(&call);
    assert_int_not_equal(call.status, SIDESTEP_OK);
    assert_false(has('f', "step-1"));
    sidestep_mirror_report_release(&call.report);
    fault_arm("", 0, false, 0);
    expect_both_send("ab", 0, 1);
}

/* The newest step is not whole, so the one before it is sent, and who sends fails. ${why}: what the
 * other node has found. */
static void expect_older(enum sidestep_status why)
{
    struct call calls[2];

    call_both(calls, "ab", 100);
    assert_int_equal(calls[0].status, SIDESTEP_EPEER);
    assert_int_equal(calls[0].report.mirrored_step, 1);
    assert_int_equal(calls[0].report.passed_count, 1);
    expect_sent(&calls[1], 1);
    assert_int_equal(calls[1].report.passed_status, why);
    expect_verified(1);
    assert_false(has('f', "step-2"));
    release(calls);
}

TEST(a_step_that_a_node_lacks_is_passed_over)
{
    save_steps(2, "ab", false, 1, 2);
    shell("rm -r %s%s", node_path('b', "step-2"), "");
    expect_older(SIDESTEP_OK);
}

TEST(a_damaged_part_is_passed_over)
{
    save_steps(2, "ab", false, 1, 2);
    flip(node_path('b', "step-2/__1_0.distcp"), 100);
    expect_older(SIDESTEP_ECORRUPT);
}

/* Cancelled while it waits, it goes on the next time. */
TEST(it_goes_on_where_it_was_cancelled)
{
    struct call call = {.node = 'a'};
    pthread_t thread;

    save_steps(2, "ab", false, 1, 1);
    assert_int_equal(pthread_create(&thread, NULL, call_mirror, &call), 0);
    for (unsigned i = 0; i < 2000 && !has('f', ".sidestep/sending"); i++)
        usleep(5000);
    call.cancelled = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(call.status, SIDESTEP_ECANCELLED);
    sidestep_mirror_report_release(&call.report);
    expect_both_send("ba", 50, 1);
}

static struct call during[2];

static void call_before_closing(uint64_t step)
{
    if (step == 0)
        call_both(during, "ab", 0);
}

/* While the run goes on, its parts are left to it. */
TEST(a_run_that_goes_on_sends_its_parts_itself)
{
    struct job job = {.ranks = 2, .nodes = "ab", .saves = {1}, .before = call_before_closing};

    run(&job);
    assert_int_equal(job.saved, SIDESTEP_OK);
    for (size_t i = 0; i < 2; i++) {
        if (during[i].status != SIDESTEP_OK)
            fail_msg("%s", during[i].err.message);
        assert_int_equal(during[i].report.sent_count, 0);
        assert_int_equal(during[i].report.passed_count, 1);
        assert_non_null(strstr(during[i].report.passed[0], "the run itself sends"));
        assert_int_equal(during[i].report.passed_status, SIDESTEP_EMISMATCH);
    }
    assert_false(has('f', "step-1"));
    release(during);
}
