/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_mirror_parts_test.c -- a directory for each node, and a mirror: that the mirror gets whole
 * checkpoints, by the votes of all nodes, and where a run goes on when a node, the mirror, or what
 * they have is lost, damaged, outdated or of another run.
 */
#include <errno.h>
#include <stdatomic.h>

#include "support/flip.h"
#include "support/node_mirror.h"

/* Resume, if asked to, and save these steps, with the mirror. */
static struct job run_steps(int ranks, const char *nodes, bool resumes, uint64_t first,
                            uint64_t last)
{
    struct job job = make_job(ranks, nodes, resumes);

    add_saves(&job, first, last);
    run(&job);
    if (job.saved != SIDESTEP_OK || job.closed != SIDESTEP_OK)
        fail_msg("%d %d: %s", (int)job.saved, (int)job.closed, job.message);
    return job;
}

/* Load a checkpoint of the mirror, as any program does. */
static void expect_whole(uint64_t step)
{
    struct sidestep_verify_report report = {0};
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct world loaded;
    char path[256];

    snprintf(path, sizeof(path), "%s/step-%llu", far, (unsigned long long)step);
    assert_int_equal(sidestep_engine_open(&engine, NULL, &err), SIDESTEP_OK);
    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    if (sidestep_load(engine, path, loaded.state, NULL, NULL, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(world_check(&loaded, step), 0);
    world_free(&loaded);
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_verify(path, NULL, &report, &err), SIDESTEP_OK);
    assert_true(report.is_ok);
    sidestep_verify_report_release(&report);
}

static bool is_far(const char *name)
{
    return has('f', name);
}

TEST(the_mirror_gets_whole_checkpoints)
{
    struct job job = make_job(4, "abab", false);

    job.saves[0] = 1;
    job.saves[1] = 2;
    job.is_slow = true;
    run(&job);
    assert_int_equal(job.closed, SIDESTEP_OK);
    expect_whole(1);
    expect_whole(2);
    assert_string_equal(state_of('f', "step-2", NULL), "committed");
    assert_string_equal(state_of('a', "step-2", NULL), "part");
    expect_nothing_left('f');
    expect_nothing_left('a');
    expect_nothing_left('b');
}

TEST(closing_sends_the_newest)
{
    to_mirror.every = 100;
    run_steps(2, "ab", false, 1, 5);
    expect_whole(5);
}

static bool was_far;

static void look_before_closing(uint64_t step)
{
    was_far = step == 0 && is_far("step-3");
}

/* So does a flush, and the run goes on. If it is given up, all ranks know. */
TEST(a_flush_sends_the_newest)
{
    static const bool gives_up = true;
    struct job job = make_job(4, "aabb", false);

    to_mirror.every = 100;
    add_saves(&job, 1, 3);
    job.flushes = true;
    job.before = look_before_closing;
    run(&job);
    assert_int_equal(job.flushed, SIDESTEP_OK);
    assert_true(was_far && is_far("step-1") && is_far("step-2"));
    expect_whole(3);
    to_mirror.cancel = &gives_up;
    job = make_job(4, "aabb", true);
    job.saves[0] = 4;
    job.flushes = job.may_fail_save = true;
    run(&job);
    assert_int_equal(job.flushed, SIDESTEP_ECANCELLED);
    assert_false(is_far("step-4"));
    expect_resume(4, "aabb", 4);
}

/* What an earlier job did not send. The ranks have changed places since. */
TEST(parts_are_sent_wherever_they_are)
{
    save_steps(4, "aabb", false, 1, 1);
    run_steps(4, "bbaa", true, 1, 0);
    expect_whole(1);
    save_steps(3, "aab", true, 2, 2);
    run_steps(2, "ba", true, 1, 0);
    expect_whole(2);
}

TEST(a_node_is_lost_and_the_run_goes_on)
{
    struct job job;

    run_steps(4, "aabb", false, 1, 2);
    shell("rm -r %s%s", node_path('b', ""), "");
    job = run_steps(4, "aacc", true, 3, 3);
    assert_int_equal(job.step, 2);
    assert_string_equal(job.path, node_path('f', "step-2"));
    assert_non_null(strstr(job.rejected, "ranks 2-3 of the 4"));
    expect_whole(3);
    job = run_steps(3, "aac", true, 1, 0);
    assert_int_equal(job.step, 3);
    assert_string_equal(strrchr(job.path, '/') + 1, strstr(job.path, ".sidestep.")); /* a view */
}

/* Save two steps, which both levels have. */
static void save_at_both(void)
{
    struct job job = make_job(4, "aabb", false);

    job.saves[0] = 1;
    job.saves[1] = 2;
    job.is_slow = true;
    run(&job);
    assert_true(is_far("step-1") && is_far("step-2"));
}

static void lose_b(void)
{
    shell("rm -r %s%s", node_path('b', ""), "");
}

TEST(what_a_node_has_is_not_read_from_the_mirror)
{
    save_at_both();
    lose_b();
    flip(node_path('f', "step-2/__0_0.distcp"), 5000);
    flip(node_path('f', "step-2/__1_0.distcp"), 5000);
    struct job job = run_steps(4, "aacc", true, 1, 0);
    assert_int_equal(job.step, 2);
    assert_string_equal(job.path, node_path('f', "step-2"));
    flip(node_path('f', "step-2/__2_0.distcp"), 5000); /* which no node has */
    job = run_steps(4, "aacc", true, 1, 0);
    assert_int_equal(job.step, 1);
}

TEST(what_a_node_has_is_damaged)
{
    save_at_both();
    lose_b();
    flip(node_path('a', "step-2/__1_0.distcp"), 5000);
    struct job job = run_steps(4, "aacc", true, 1, 0);
    assert_int_equal(job.step, 2);
    assert_non_null(strstr(job.rejected, "so all is read from the mirror"));
    shell("truncate -s 9 %s%s", node_path('a', "step-2/__1_0.distcp"), ""); /* not the file */
    job = run_steps(4, "aacc", true, 1, 0);
    assert_int_equal(job.step, 2);
}

TEST(all_nodes_are_lost)
{
    run_steps(2, "ab", false, 1, 2);
    shell("rm -r %s %s", node_path('a', ""), node_path('b', ""));
    struct job job = run_steps(2, "cd", true, 3, 3);
    assert_int_equal(job.step, 2);
    expect_whole(3);
}

/* The near level has the newer step, but one node has lost its part of it. */
TEST(the_newest_that_is_whole_is_taken)
{
    run_steps(2, "ab", false, 1, 1);
    save_steps(2, "ab", true, 2, 3);
    expect_resume(2, "ab", 3);
    shell("rm -r %s %s", node_path('b', "step-3"), node_path('a', "step-2"));
    struct job job = run_steps(2, "ab", true, 1, 0);
    assert_int_equal(job.step, 1);
    assert_non_null(strstr(job.path, "/.sidestep.")); /* both have it: the near one is taken */
}

/* A damaged part: the copy of the same step; a damaged copy: the step before. */
TEST(what_is_damaged_is_passed_over)
{
    struct job job;

    save_at_both();
    flip(node_path('b', "step-2/__3_0.distcp"), 5000);
    job = run_steps(4, "aabb", true, 1, 0);
    assert_int_equal(job.step, 2);
    assert_string_equal(job.path, node_path('f', "step-2"));
    assert_non_null(strstr(job.rejected, "is damaged"));
    flip(node_path('f', "step-2/__1_0.distcp"), 5000);
    job = run_steps(4, "aabb", true, 1, 0);
    assert_int_equal(job.step, 1);
    assert_non_null(strstr(job.rejected, "step-2"));
}

TEST(going_back_takes_a_step_from_the_mirror)
{
    struct job job = make_job(2, "ab", false);

    for (int i = 0; i < 3; i++)
        job.saves[i] = (uint64_t)i + 1;
    job.is_slow = true;
    run(&job);
    shell("rm -r %s%s", node_path('b', "step-1"), "");
    job = make_job(2, "ab", true);
    job.back_to = 1;
    run(&job);
    assert_int_equal(job.resumed, SIDESTEP_OK);
    assert_string_equal(job.path, node_path('f', "step-1"));
    job = run_steps(2, "ab", true, 2, 2); /* 2 and 3 were left behind, at both */
    assert_int_equal(job.step, 1);
    expect_whole(2);
    assert_int_equal(run_steps(2, "ab", true, 1, 0).step, 2);
}

/* Nodes return with parts of a higher step, which never reached the mirror. */
TEST(old_parts_are_left_behind)
{
    run_steps(2, "ab", false, 1, 1);
    run_steps(2, "ab", true, 9, 9);
    shell("rm -r %s%s", node_path('f', "step-9"), "");
    shell("mv %s %s", node_path('a', ""), node_path('x', ""));
    shell("mv %s %s", node_path('b', ""), node_path('y', ""));
    assert_int_equal(run_steps(2, "cd", true, 2, 2).step, 1);
    assert_int_equal(run_steps(2, "xy", true, 1, 0).step, 2);
}

TEST(another_run_is_refused)
{
    struct job job = make_job(2, "cd", false);

    run_steps(2, "ab", false, 1, 1);
    save_steps(2, "cd", false, 5, 5);
    job.saves[0] = 6;
    run(&job);
    assert_int_equal(job.opened, SIDESTEP_EMISMATCH);
    assert_false(has('c', "step-6"));
    expect_whole(1);
    expect_resume(2, "cd", 5);
}

TEST(the_mirror_must_be_readable)
{
    struct job job = make_job(2, "ab", true);

    run_steps(2, "ab", false, 1, 1);
    shell("mv %s %s", far, node_path('g', ""));
    shell("touch %s%s", far, "");
    run(&job);
    assert_true(job.opened != SIDESTEP_OK && job.opened != SIDESTEP_ENOTFOUND);
    expect_resume(2, "ab", 1);
}

/* Also the disk of rank 0, which has claimed it, is lost. What an unmounted file system leaves is
 * an empty directory, or none. */
TEST(a_mirror_that_any_node_remembers_is_not_made_anew)
{
    struct job job;

    run_steps(2, "ab", false, 1, 1);
    shell("rm -r %s%s", node_path('a', ""), "");
    shell("mv %s %s.away", far, far);
    for (int is_there = 0; is_there < 2; is_there++) {
        job = make_job(2, "ab", true);
        run(&job);
        assert_int_equal(job.opened, SIDESTEP_EIO);
        assert_non_null(strstr(job.message, "is its file system mounted?"));
        assert_int_equal(access(far, F_OK), is_there - 1);
        if (is_there == 0)
            assert_int_equal(mkdir(far, 0777), 0);
    }
}

/* A step that one node gave up is not sent, and closing says so. The one before is there. */
TEST(what_is_torn_is_not_sent)
{
    struct job job = make_job(2, "ab", true);

    run_steps(2, "ab", false, 1, 1);
    job.background = job.may_fail_save = true;
    job.tears = 'b';
    job.saves[0] = 2;
    run(&job);
    assert_int_not_equal(job.closed, SIDESTEP_OK);
    assert_false(is_far("step-2"));
    expect_nothing_left('f');
    expect_whole(1);
    assert_true(has('b', "step-2/theirs"));
}

TEST(what_is_not_ours_stays)
{
    struct job job = make_job(2, "ab", false);

    shell("mkdir -p %s/step-1 && touch %s/step-1/theirs", far, far);
    job.saves[0] = 1;
    job.saves[1] = 2;
    run(&job);
    assert_true(is_far("step-1/theirs"));
    assert_false(is_far("step-1/.metadata"));
    expect_whole(2);
}

TEST(each_level_has_its_own_retention)
{
    struct job job = make_job(2, "ab", false);

    far_keep.keep_last = 2;
    far_keep.keep_every = 2;
    to_mirror.retention = &far_keep;
    job.keep_last = 1;
    job.is_slow = true;
    for (int i = 0; i < 6; i++)
        job.saves[i] = (uint64_t)i + 1;
    run(&job);
    assert_int_equal(job.closed, SIDESTEP_OK);
    for (uint64_t step = 2; step <= 6; step += 2)
        expect_whole(step);
    assert_true(is_far("step-5") && !is_far("step-3") && !is_far("step-1"));
    assert_true(!has('a', "step-2") && !has('b', "step-2") && has('b', "step-6"));
}

static void flip_in_bucket(struct object_bucket *bucket, const char *prefix)
{
    for (size_t i = 0; i < object_sim_count(bucket); i++)
        if (strncmp(object_sim_key(bucket, i), prefix, strlen(prefix)) == 0) {
            object_sim_flip(bucket, object_sim_key(bucket, i), 5000);
            return;
        }
    fail_msg("there is no object '%s*'", prefix);
}

/* Count the reads of shards of step 2: of those that the node of the rank has, too, and of others.
 */
static enum object_fate count_reads(void *context, int client, const char *request, const char *key)
{
    _Atomic unsigned *reads = context;
    unsigned rank;

    if (strcmp(request, "get") == 0 && sscanf(key, "far/step-2/__%u_", &rank) == 1)
        atomic_fetch_add(&reads[client >= 2 || rank >= 2], 1);
    return OBJECT_DONE;
}

TEST(a_bucket_as_mirror)
{
    struct job job = make_job(4, "aabb", false);
    _Atomic unsigned reads[2] = {0};

    job.bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
    assert_non_null(job.bucket);
    job.mirror = "s3://runs/far";
    job.saves[0] = 1;
    job.saves[1] = 2;
    run(&job);
    assert_int_equal(job.closed, SIDESTEP_OK);
    shell("rm -r %s%s", node_path('b', ""), "");
    job.resumes = true;
    job.saves[0] = 3;
    job.saves[1] = 0;
    job.nodes = "aacc";
    flip_in_bucket(job.bucket, "far/step-2/__0_0."); /* node a has it, too */
    object_sim_set_hook(job.bucket, count_reads, reads);
    run(&job);
    object_sim_set_hook(job.bucket, NULL, NULL);
    assert_true(reads[0] == 0 && reads[1] != 0);
    if (job.resumed != SIDESTEP_OK || job.closed != SIDESTEP_OK)
        fail_msg("%s", job.message);
    assert_int_equal(job.step, 2);
    assert_string_equal(job.path, "s3://runs/far/step-2");
    object_sim_free(&job.bucket);
}

/* ---- whatever fails */

/* Every checkpoint of the mirror is whole. */
static void expect_all_whole(void)
{
    struct sidestep_list list = {0};
    struct sidestep_error err = {0};

    if (access(far, F_OK) != 0)
        return;
    assert_int_equal(sidestep_list_root(far, &list, &err), SIDESTEP_OK);
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        if (entry->state == SIDESTEP_COMMITTED)
            expect_whole((uint64_t)entry->step);
        else if (entry->state == SIDESTEP_DAMAGED)
            fail_msg("'%s' is damaged: %s", entry->name, entry->reason);
    }
    sidestep_list_release(&list);
}

/* Fail the ${nth} call of storage while a job saves step 2; ${sticky}: all later ones, too, as if
 * all nodes had died. The mirror then has whole checkpoints, and the next job brings it up to date.
 * Returns the point that failed. */
static const char *fail_and_go_on(unsigned long nth, bool sticky)
{
    struct job job = make_job(2, "ab", true);

    assert_true(set_up(NULL) == 0);
    run_steps(2, "ab", false, 1, 1);
    job.may_fail_save = true;
    job.saves[0] = 2;
    fault_arm("posix.", nth, sticky, EIO);
    run(&job);
    const char *fired = fault_fired();
    fault_arm("", 0, false, 0);
    expect_all_whole();
    bool is_told = job.saved == SIDESTEP_OK && job.resumed == SIDESTEP_OK;
    struct job after = run_steps(2, "ab", true, 1, 0);
    if (after.step < (is_told ? 2u : 1u))
        fail_msg("after %s (%lu): step %llu: %s", fired != NULL ? fired : "nothing", nth,
                 (unsigned long long)after.step, after.message);
    expect_whole(after.step);
    expect_nothing_left('f');
    expect_nothing_left('a');
    expect_nothing_left('b');
    scratch_remove(&scratch);
    return fired;
}

TEST(whatever_fails_a_checkpoint_is_whole_or_not_there)
{
    fail_at_each(fail_and_go_on, false, 11);
}

TEST(whenever_all_nodes_die_the_next_job_goes_on)
{
    fail_at_each(fail_and_go_on, true, 7);
}

/* ---- a bucket */

static struct {
    struct object_bucket *bucket;
    atomic_ulong seen;
    unsigned long at; /* all clients die before this request; 0: none does */
} death;

static enum object_fate die_there(void *context UNUSED, int client UNUSED,
                                  const char *request UNUSED, const char *key UNUSED)
{
    if (atomic_fetch_add(&death.seen, 1) + 1 == death.at)
        for (int i = 0; i < 2; i++)
            object_sim_die(death.bucket, i);
    return OBJECT_DONE;
}

/* All nodes die before the ${nth} request, and the next job goes on. False: there were fewer. */
static bool die_and_go_on(unsigned long nth)
{
    struct job job = make_job(2, "ab", false);

    assert_true(set_up(NULL) == 0);
    death.bucket = job.bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
    death.seen = 0;
    death.at = nth;
    object_sim_set_hook(job.bucket, die_there, NULL);
    job.mirror = "s3://runs/far";
    job.may_fail_save = true;
    job.saves[0] = 1;
    run(&job);
    bool was_reached = death.seen >= nth, is_saved = job.saved == SIDESTEP_OK;
    death.at = 0;
    job.may_fail_save = false;
    job.resumes = true;
    job.saves[0] = 0;
    job.first_client = 2;
    run(&job);
    if (job.opened != SIDESTEP_OK || (is_saved && job.resumed != SIDESTEP_OK) ||
        job.closed != SIDESTEP_OK)
        fail_msg("after request %lu: %s", nth, job.message);
    job.nodes = "cd";
    run(&job);
    if (is_saved && (job.resumed != SIDESTEP_OK || job.step != 1))
        fail_msg("after request %lu: %s", nth, job.message);
    object_sim_free(&job.bucket);
    scratch_remove(&scratch);
    return was_reached;
}

TEST(whenever_all_nodes_die_a_bucket_gets_it_from_the_next_job)
{
    unsigned long nth = 1;

    scratch_remove(&scratch);
    while (die_and_go_on(nth))
        nth += 3;
    assert_true(nth > 20);
}
