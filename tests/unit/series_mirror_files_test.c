/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_mirror_files_test.c -- small files where each node has a directory for itself, and there
 * is a mirror: that has all of them, sent by the nodes that have them, also after a send that was
 * interrupted anywhere.
 */
#include <errno.h>
#include <stdatomic.h>

#include "checkpoint/reader.h"
#include "support/flip.h"
#include "support/node_files.h"
#include "support/node_mirror.h"

static struct job make_small(int ranks, const char *nodes, bool resumes, uint64_t first,
                             uint64_t last)
{
    struct job job = make_job(ranks, nodes, resumes);

    small_ranks = ranks;
    job.give = give_small;
    add_saves(&job, first, last);
    return job;
}

static void run_well(struct job *job)
{
    run(job);
    if (job->resumed != SIDESTEP_OK || job->saved != SIDESTEP_OK || job->closed != SIDESTEP_OK)
        fail_msg("%d %d %d: %s", (int)job->resumed, (int)job->saved, (int)job->closed,
                 job->message);
}

/* The mirror has this step, whole, and nothing else in it. */
static void expect_far(uint64_t step)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/step-%llu", far, (unsigned long long)step);
    expect_verified(step);
    assert_int_equal(look_at_small(0, step, path), 0);
    shell("test -z \"$(find %s -name '__*.file*' -o -name '*.part' -o -name '*.yes')\"%s", path,
          "");
}

TEST(the_mirror_has_all_files)
{
    struct job job = make_small(4, "abab", false, 1, 2);

    job.is_slow = true;
    run_well(&job);
    expect_far(1);
    expect_far(2);
    assert_string_equal(state_of('f', "step-2", NULL), "committed");
    expect_nothing_left('f');
    shell("rm -r %s%s", node_path('b', ""), "");
    job = make_small(3, "acc", true, 3, 3);
    small_ranks = 4;
    job.look = look_at_small; /* where all ranks load from */
    job.give = NULL;
    run_well(&job);
    assert_int_equal(job.step, 2);
    assert_string_equal(job.path, node_path('f', "step-2"));
}

TEST(parts_are_sent_wherever_they_are)
{
    struct job job = make_small(4, "bbaa", true, 1, 0);

    save_small(4, "aabb", false, 1, 1);
    job.give = NULL;
    run_well(&job);
    expect_far(1);
}

TEST(a_damaged_file_is_not_sent)
{
    struct job job = make_small(2, "ab", true, 1, 0);

    save_small(2, "ab", false, 1, 1);
    flip(node_path('b', "step-1/own/1"), 1);
    job.may_fail_save = true;
    run(&job);
    assert_false(has('f', "step-1"));
    if (has('f', ""))
        expect_nothing_left('f');
}

TEST(a_copy_that_lost_a_file_is_sent_again)
{
    struct job job = make_small(2, "ab", false, 1, 1);

    run_well(&job);
    shell("rm %s%s", node_path('f', "step-1/own/1"), "");
    job = make_small(2, "ab", true, 1, 0);
    job.give = NULL;
    run_well(&job);
    expect_far(1);
    expect_nothing_left('f');
}

/* The same of a bucket. */
static void expect_in_bucket(struct object_bucket *bucket, const char *path)
{
    OWNED_BY(reader_close) struct reader *reader = NULL;
    struct store *store = NULL;
    struct sidestep_error err = {0};
    const char *kind;

    assert_int_equal(object_store_new("runs", object_sim_client(bucket, 7), &store, &err),
                     SIDESTEP_OK);
    assert_int_equal(reader_open(store, path, READER_ALL, &reader, &err), SIDESTEP_OK);
    assert_int_equal(reader->manifest.extra_count, 8); /* and not two of one name */
    for (size_t i = 0; i < reader->manifest.extra_count; i++)
        if (reader_check_extra(reader, &reader->manifest.extras[i], true, &kind, &err) !=
            SIDESTEP_OK)
            fail_msg("'%s': %s", reader->manifest.extras[i].name, err.message);
    reader_close(&reader);
    object_store_free(&store);
}

TEST(a_bucket_has_all_files)
{
    struct job job = make_small(4, "aabb", false, 1, 1);

    job.bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
    assert_non_null(job.bucket);
    job.mirror = "s3://runs/far";
    run_well(&job);
    expect_in_bucket(job.bucket, "s3://runs/far/step-1");
    shell("rm -r %s%s", node_path('b', ""), "");
    job.resumes = true;
    job.nodes = "aacc";
    job.saves[0] = 2;
    run_well(&job);
    assert_int_equal(job.step, 1);
    assert_string_equal(job.path, "s3://runs/far/step-1");
    expect_in_bucket(job.bucket, "s3://runs/far/step-2");
    object_sim_free(&job.bucket);
}

/* Fail the ${nth} call of storage while a job sends step 1; ${sticky}: all later ones, too, as if
 * all nodes had died. The next job sends it. Returns the point that failed. */
static const char *fail_and_go_on(unsigned long nth, bool sticky)
{
    struct job job = make_small(2, "ab", true, 1, 0);

    assert_true(set_up(NULL) == 0);
    save_small(2, "ab", false, 1, 1);
    job.give = NULL;
    job.may_fail_save = true;
    fault_arm("posix.", nth, sticky, EIO);
    run(&job);
    const char *fired = fault_fired();
    fault_arm("", 0, false, 0);
    if (has('f', "step-1"))
        expect_far(1);
    job = make_small(2, "ab", true, 1, 0);
    run_well(&job);
    expect_far(1);
    expect_nothing_left('f');
    expect_nothing_left('a');
    expect_nothing_left('b');
    scratch_remove(&scratch);
    return fired;
}

TEST(whatever_fails_all_files_are_sent)
{
    fail_at_each(fail_and_go_on, false, 9);
}

TEST(whenever_all_nodes_die_the_next_job_sends_all_files)
{
    fail_at_each(fail_and_go_on, true, 5);
}
