/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_mirror_nodes_test.c -- a directory for each node, and a mirror of which something is
 * replaced, refused, damaged, pinned, or cannot be read, and a program that cancels: the mirror
 * keeps what it has until the new one is whole, and is never taken for an empty one.
 */
#include <errno.h>
#include <glob.h>
#include <sys/stat.h>

#include "support/flip.h"
#include "support/node_mirror.h"

/* The mirror keeps each second step. */
static void keep_every_second(void)
{
    far_keep.keep_every = 2;
    to_mirror.retention = &far_keep;
}

/* Save steps 1 to ${last}, each of which reaches the mirror. */
static void mirror_steps(int ranks, const char *nodes, uint64_t last)
{
    struct job job = make_job(ranks, nodes, false);

    add_saves(&job, 1, last);
    job.is_slow = true;
    run(&job);
    if (job.saved != SIDESTEP_OK || job.closed != SIDESTEP_OK)
        fail_msg("%d %d: %s", (int)job.saved, (int)job.closed, job.message);
}

static ino_t inode_of(const char *path)
{
    struct stat stat;

    return lstat(path, &stat) == 0 ? stat.st_ino : 0;
}

/* Go back to step 1, and save step 2 again. */
static struct job save_again(void)
{
    struct job job = make_job(2, "ab", true);

    job.back_to = 1;
    job.saves[0] = 2;
    return job;
}

/* ---- what is replaced */

TEST(what_is_replaced_stays_until_all_have_voted)
{
    struct job job;

    mirror_steps(2, "ab", 2);
    ino_t old = inode_of(node_path('f', "step-2"));
    job = save_again();
    job.background = job.may_fail_save = true;
    job.tears = 'b'; /* so it has no part of it */
    run(&job);
    assert_int_not_equal(job.closed, SIDESTEP_OK);
    assert_int_equal(inode_of(node_path('f', "step-2")), old);
    expect_verified(2);
    shell("rm -r %s%s", node_path('b', "step-2"), "");
    job = save_again();
    run(&job);
    if (job.closed != SIDESTEP_OK)
        fail_msg("%s", job.message);
    assert_int_not_equal(inode_of(node_path('f', "step-2")), old);
    expect_verified(2);
    expect_nothing_left('f');
}

/* Whatever fails while step 2 is replaced, the next job brings the mirror up to date. */
static const char *fail_and_go_on(unsigned long nth, bool sticky)
{
    struct job job = save_again();

    fault_arm("posix.", nth, sticky, EIO);
    job.may_fail_save = true;
    run(&job);
    const char *fired = fault_fired();
    fault_arm("", 0, false, 0);
    job = save_again();
    run(&job);
    if (job.resumed != SIDESTEP_OK || job.saved != SIDESTEP_OK || job.closed != SIDESTEP_OK)
        fail_msg("after %s (%lu): %s", fired != NULL ? fired : "nothing", nth, job.message);
    expect_verified(2);
    expect_nothing_left('f');
    return fired;
}

TEST(whatever_fails_while_it_is_replaced_the_next_job_goes_on)
{
    mirror_steps(2, "ab", 2);
    for (unsigned long nth = 1; fail_and_go_on(nth, false) != NULL; nth += 13)
        ;
    for (unsigned long nth = 5; fail_and_go_on(nth, true) != NULL; nth += 17)
        ;
}

static bool is_lost;

/* A look has failed, and the last one has not begun. */
static void look_for_either(uint64_t step)
{
    glob_t found = {0};

    if (step != 0)
        return;
    usleep(700000);
    int hidden = glob(node_path('f', ".sidestep.*.saving/__1_0.distcp"), 0, NULL, &found);
    globfree(&found);
    is_lost = hidden != 0 && !has('f', "step-2/.metadata");
}

/* Once what it replaces is gone, all of the new one stays, whatever fails then. */
TEST(what_replaces_it_is_not_thrown_away)
{
    bool fired = true;

    mirror_steps(2, "ab", 2);
    for (unsigned long nth = 1; fired; nth++) {
        struct job job = save_again();
        job.may_fail_save = true;
        job.before = look_for_either;
        fault_arm("posix.renameat2", nth, false, ENOSPC);
        run(&job);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        if (is_lost)
            fail_msg("after rename %lu: neither the old one nor the new one is there", nth);
    }
}

static bool has_object(struct object_bucket *bucket, const char *key)
{
    size_t length;

    return object_sim_bytes(bucket, key, &length) != NULL;
}

TEST(what_is_replaced_in_a_bucket_stays_until_all_have_voted)
{
    struct object_bucket *bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
    struct job job = make_job(2, "ab", false);

    assert_non_null(bucket);
    job.bucket = bucket;
    job.mirror = "s3://runs/far";
    job.is_slow = true;
    job.saves[0] = 1;
    job.saves[1] = 2;
    run(&job);
    assert_true(has_object(bucket, "far/step-2/.metadata"));
    for (int turn = 0; turn < 2; turn++) {
        job = save_again();
        job.bucket = bucket;
        job.mirror = "s3://runs/far";
        job.may_fail_save = job.background = turn == 0;
        job.tears = turn == 0 ? 'b' : 0;
        run(&job);
        assert_int_equal(job.closed == SIDESTEP_OK, turn == 1);
        assert_true(has_object(bucket, "far/step-2/.metadata"));
        if (turn == 0)
            shell("rm -r %s%s", node_path('b', "step-2"), "");
    }
    object_sim_free(&bucket);
}

/* Before rank 0 reads .metadata of step 2 for the nth time, somebody puts another one. */
struct other_hand {
    struct object_bucket *bucket;
    unsigned left;
    bool has_put;
};

static enum object_fate put_another(void *context, int client, const char *request, const char *key)
{
    struct other_hand *hand = context;
    size_t length;

    if (client != 2 || strcmp(request, "get") != 0 || strcmp(key, "far/step-2/.metadata") != 0 ||
        hand->left == 0 || --hand->left != 0)
        return OBJECT_DONE;
    const uint8_t *bytes = object_sim_bytes(hand->bucket, "far/step-1/.metadata", &length);
    hand->has_put = bytes != NULL && object_sim_put(hand->bucket, key, bytes, length);
    return OBJECT_DONE;
}

TEST(what_somebody_put_into_the_bucket_meanwhile_stays)
{
    struct other_hand hand = {.has_put = true};

    for (unsigned nth = 1; hand.has_put; nth++) {
        struct object_bucket *bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
        struct job job = make_job(2, "ab", false);
        size_t one, two;
        assert_non_null(bucket);
        hand = (struct other_hand){.bucket = bucket, .left = nth};
        for (int turn = 0; turn < 2; turn++) {
            job = turn == 0 ? make_job(2, "ab", false) : save_again();
            job.bucket = bucket;
            job.first_client = 2 * turn;
            job.mirror = "s3://runs/far";
            job.is_slow = turn == 0;
            job.saves[0] = turn == 0 ? 1 : 2;
            job.saves[1] = turn == 0 ? 2 : 0;
            job.may_fail_save = turn == 1;
            if (turn == 1)
                object_sim_set_hook(bucket, put_another, &hand);
            run(&job);
        }
        const uint8_t *theirs = object_sim_bytes(bucket, "far/step-1/.metadata", &one);
        const uint8_t *there = object_sim_bytes(bucket, "far/step-2/.metadata", &two);
        if (hand.has_put && (there == NULL || one != two || memcmp(theirs, there, one) != 0))
            fail_msg("it was replaced, although it was put before read %u", nth);
        object_sim_free(&bucket);
        shell("rm -r %s %s", node_path('a', ""), node_path('b', ""));
    }
    assert_true(hand.left != 0);
}

/* A pin of a damaged copy neither keeps the good one away, nor goes. */
TEST(a_pinned_damaged_copy_is_replaced)
{
    struct sidestep_error err = {0};
    struct job job = make_job(2, "ab", true);
    glob_t found = {0};

    mirror_steps(2, "ab", 1);
    assert_int_equal(sidestep_pin(node_path('f', "step-1"), true, &err), SIDESTEP_OK);
    shell("rm %s%s", node_path('f', "step-1/__1_0.distcp"), "");
    run(&job);
    if (job.closed != SIDESTEP_OK)
        fail_msg("%s", job.message);
    expect_verified(1);
    assert_int_equal(glob(node_path('f', ".sidestep/pin.step-1"), 0, NULL, &found), 0);
    globfree(&found);
}

/* What was loaded from the mirror is not saved again over it. */
TEST(what_was_loaded_from_the_mirror_is_not_saved_again)
{
    struct job job = make_job(2, "cd", true);

    mirror_steps(2, "ab", 1);
    job.saves[0] = 1;
    job.may_fail_save = true;
    run(&job);
    assert_int_equal(job.resumed, SIDESTEP_OK);
    assert_int_equal(job.saved, SIDESTEP_EEXISTS);
    expect_verified(1);
}

/* ---- what cannot be taken */

static void lose_nodes(void)
{
    shell("rm -r %s %s", node_path('a', ""), node_path('b', ""));
}

TEST(a_mirror_that_has_damaged_ones_only_is_not_empty)
{
    mirror_steps(2, "ab", 1);
    lose_nodes();
    flip(node_path('f', "step-1/__1_0.distcp"), 5000);
    struct job job = make_job(2, "cd", true);
    run(&job);
    assert_int_equal(job.resumed, SIDESTEP_ECORRUPT);
    shell("rm %s%s", node_path('f', "step-1/__0_0.distcp"), ""); /* as a listing shows, too */
    job = make_job(2, "cd", true);
    run(&job);
    assert_int_equal(job.resumed, SIDESTEP_ECORRUPT);
    assert_non_null(strstr(job.rejected, "step-1"));
}

/* Replace the file ${name} of the mirror by a link to itself, or undo that. */
static void make_unreadable(const char *name)
{
    const char *path = node_path('f', name);

    shell("mv %s %s.kept", path, path);
    assert_int_equal(symlink(strrchr(path, '/') + 1, path), 0);
}

static void make_readable(const char *name)
{
    shell("mv %s.kept %s", node_path('f', name), node_path('f', name));
}

TEST(a_checkpoint_of_the_mirror_that_cannot_be_read_is_not_passed_over)
{
    char manifest[128];
    const char *const files[] = {manifest, "step-2/__0_0.distcp"};
    struct job job;
    glob_t found = {0};

    mirror_steps(2, "ab", 2);
    assert_int_equal(glob(node_path('f', "step-2/.sidestep.manifest.*"), 0, NULL, &found), 0);
    snprintf(manifest, sizeof(manifest), "%s", strstr(found.gl_pathv[0], "step-2"));
    globfree(&found);
    shell("rm -r %s%s", node_path('b', "step-2"), ""); /* step 1 is whole there */
    for (size_t i = 0; i < 2 * ARRAY_LENGTH(files); i++) {
        make_unreadable(files[i % 2]);
        job = make_job(2, i < 2 ? "ab" : "cd", true);
        job.back_to = i % 2 == 1 && i < 2 ? 2 : -1;
        job.may_fail_save = true;
        run(&job);
        if (job.resumed == SIDESTEP_OK || job.resumed == SIDESTEP_ENOTFOUND ||
            job.resumed == SIDESTEP_ECORRUPT || job.resumed == SIDESTEP_EMISMATCH)
            fail_msg("%d: %s", (int)job.resumed, job.message);
        make_readable(files[i % 2]);
    }
    job = make_job(2, "ab", true);
    run(&job);
    assert_int_equal(job.step, 2);
}

/* A step that was left behind, and is loaded by its number, is not left behind any more. */
TEST(what_is_gone_back_to_is_gone_on_with)
{
    struct job job;

    mirror_steps(2, "ab", 3);
    job = make_job(2, "ab", true);
    job.back_to = 1;
    run(&job);
    assert_int_equal(job.resumed, SIDESTEP_OK);
    lose_nodes();
    job = make_job(2, "cd", true);
    job.back_to = 3;
    run(&job);
    assert_int_equal(job.resumed, SIDESTEP_OK);
    assert_string_equal(job.path, node_path('f', "step-3"));
    job = make_job(2, "cd", true);
    run(&job);
    assert_int_equal(job.resumed, SIDESTEP_OK);
    assert_int_equal(job.step, 3);
}

/* Also at the next look, and although the near level has a part of it, or all of it, which is of an
 * older incarnation than what was saved meanwhile. */
static void go_back_and_on(bool is_torn)
{
    struct job job;

    mirror_steps(2, "ab", 3);
    job = save_again();
    run(&job);
    if (is_torn)
        shell("rm -r %s%s", node_path('b', "step-3"), "");
    job = make_job(2, "ab", true);
    job.back_to = 3;
    run(&job);
    assert_int_equal(job.resumed, SIDESTEP_OK);
    assert_int_equal(strcmp(job.path, node_path('f', "step-3")) == 0, is_torn);
    job = make_job(2, "ab", true);
    run(&job);
    assert_int_equal(job.resumed, SIDESTEP_OK);
    assert_int_equal(job.step, 3);
}

TEST(what_was_gone_back_to_stays_so)
{
    go_back_and_on(true);
}

TEST(what_was_gone_back_to_at_the_nodes_stays_so)
{
    go_back_and_on(false);
}

/* Which steps are whole is known after a resume, also if the one that was asked for is not. */
TEST(after_a_step_of_the_mirror_the_others_are_sent_and_kept)
{
    struct job job;

    keep_every_second();
    mirror_steps(2, "ab", 3);
    shell("rm -r %s %s", node_path('a', "step-3"), node_path('b', "step-3"));
    shell("rm -r %s%s", node_path('f', "step-2"), "");
    job = make_job(2, "ab", true);
    job.back_to = 3;
    job.keep_last = 1;
    job.is_slow = true;
    add_saves(&job, 4, 6);
    run(&job);
    assert_int_equal(job.closed, SIDESTEP_OK);
    expect_verified(2);
}

/* ---- what is refused */

/* While the mirror is away, step 2 is saved, and is damaged on node b. */
static void damage_step_2(uint64_t step)
{
    if (step == 2)
        shell("mv %1$s %2$s.away && touch %1$s", far, far);
    if (step != 3)
        return;
    flip(node_path('b', "step-2/__1_0.distcp"), 5000);
    shell("rm %1$s && mv %1$s.away %2$s", far, far);
}

/* Save steps 1 to ${last}, of which the mirror keeps each second, while ${before} does something to
 * it. */
static struct job save_beside(void (*before)(uint64_t step), uint64_t last)
{
    struct job job = make_job(2, "ab", false);

    keep_every_second();
    job.keep_last = 1;
    job.is_slow = job.may_fail_save = true;
    job.before = before;
    add_saves(&job, 1, last);
    run(&job);
    assert_int_equal(job.saved, SIDESTEP_OK);
    return job;
}

TEST(a_save_that_a_node_refused_is_not_deleted)
{
    far_keep.keep_last = 1;
    (void)save_beside(damage_step_2, 7);
    assert_false(has('f', "step-2"));
    assert_true(has('a', "step-2") && has('b', "step-2"));
    assert_false(has('a', "step-3") || has('b', "step-3"));
    assert_true(has('f', "step-4") && has('f', "step-7"));
}

/* Before step 2 is saved, something at the mirror takes its name. */
static void take_name_of_step_2(uint64_t step)
{
    if (step == 2)
        assert_int_equal(mkdir(node_path('f', "step-2"), 0777), 0);
}

/* That there is something of its name does not mean that a save is at the mirror. */
TEST(a_save_whose_name_is_taken_at_the_mirror_is_not_deleted)
{
    struct job job = save_beside(take_name_of_step_2, 5);

    assert_int_equal(job.closed, SIDESTEP_EEXISTS);
    assert_non_null(strstr(job.message, "step-2"));
    assert_true(has('a', "step-2") && has('b', "step-2"));
    assert_true(has('f', "step-5/.metadata"));
    assert_int_equal(rmdir(node_path('f', "step-2")), 0);
    job = make_job(2, "ab", true);
    run(&job);
    assert_int_equal(job.closed, SIDESTEP_OK);
    expect_verified(2);
}

/* What is not whole is not kept for the mirror, and holds up nothing. */
TEST(a_torn_step_that_the_mirror_would_keep_is_deleted)
{
    struct job job = make_job(2, "ab", false);

    keep_every_second();
    job.keep_last = 1;
    job.background = job.is_slow = job.may_fail_save = true;
    job.tears = 'b';
    job.tears_at = 2;
    add_saves(&job, 1, 7);
    run(&job); /* closing sends the others */
    job = make_job(2, "ab", true);
    job.keep_last = 1;
    job.is_slow = true;
    add_saves(&job, 8, 11);
    run(&job);
    assert_int_equal(job.closed, SIDESTEP_OK);
    assert_false(has('f', "step-2"));
    assert_false(has('a', "step-2"));
    assert_true(has('b', "step-2/theirs"));
    assert_true(has('f', "step-4/.metadata") && has('f', "step-6/.metadata"));
    assert_false(has('a', "step-4") || has('b', "step-4"));
}

/* Rank 0 is on a new node, which has no part of step 2, so nobody sends that. */
TEST(a_step_that_rank_0_has_no_part_of_stays_until_it_is_at_the_mirror)
{
    struct job job = {.ranks = 2, .nodes = "ab", .saves = {1, 2}};

    keep_every_second();
    run(&job);
    job = make_job(3, "cab", true);
    job.keep_last = 1;
    job.is_slow = true;
    add_saves(&job, 3, 7);
    run(&job);
    assert_int_equal(job.closed, SIDESTEP_OK);
    assert_true(has('a', "step-2") && has('b', "step-2"));
    assert_false(has('a', "step-1") || has('a', "step-3") || has('a', "step-4"));
    assert_true(has('f', "step-4/.metadata") && has('f', "step-6/.metadata"));
    job = make_job(2, "ab", false); /* rank 0 has a part of it again */
    job.resumes = true;
    job.back_to = 2;
    run(&job);
    assert_int_equal(job.closed, SIDESTEP_OK);
    expect_verified(2);
}

/* ---- a node that does not answer */

static char manifest_of_b[256];

/* The mirror is away until the end, and then node b cannot read its part. */
static void silence_b(uint64_t step)
{
    glob_t found = {0};

    if (step == 1)
        shell("mv %1$s %2$s.away && touch %1$s", far, far);
    if (step != 0)
        return;
    assert_int_equal(glob(node_path('b', "step-1/.sidestep.manifest.*"), 0, NULL, &found), 0);
    snprintf(manifest_of_b, sizeof(manifest_of_b), "%s", found.gl_pathv[0]);
    globfree(&found);
    shell("mv %s %s.kept", manifest_of_b, manifest_of_b);
    assert_int_equal(symlink(strrchr(manifest_of_b, '/') + 1, manifest_of_b), 0);
    shell("rm %1$s && mv %1$s.away %2$s", far, far);
}

TEST(what_was_sent_is_not_sent_again)
{
    struct job job = make_job(2, "ab", false);
    glob_t found = {0};

    job.may_fail_save = true;
    job.before = silence_b;
    job.saves[0] = 1;
    run(&job);
    assert_int_equal(job.saved, SIDESTEP_OK);
    assert_int_equal(job.closed, SIDESTEP_ETIMEDOUT);
    assert_int_equal(glob(node_path('f', ".sidestep.*.saving/__0_0.distcp"), 0, NULL, &found), 0);
    ino_t sent = inode_of(found.gl_pathv[0]);
    globfree(&found);
    shell("mv %s.kept %s", manifest_of_b, manifest_of_b);
    job = make_job(2, "ab", true);
    run(&job);
    if (job.closed != SIDESTEP_OK)
        fail_msg("%s", job.message);
    assert_int_equal(inode_of(node_path('f', "step-1/__0_0.distcp")), sent);
    expect_verified(1);
    expect_nothing_left('f');
}

/* ---- the program cancels */

static bool volatile is_cancelled;

static void cancel_at_the_end(uint64_t step)
{
    if (step != 0)
        return;
    usleep(500000); /* both have begun */
    is_cancelled = true;
}

TEST(cancelling_ends_the_senders_of_all_nodes)
{
    struct job job = make_job(2, "ab", false);
    uint64_t began_ns = clock_now(clock_system());

    to_mirror.bytes_per_second = 1;
    to_mirror.cancel = &is_cancelled;
    job.saves[0] = 1; /* the first bytes need not wait */
    job.saves[1] = 2;
    job.is_slow = job.may_fail_save = true;
    job.before = cancel_at_the_end;
    run(&job);
    assert_int_equal(job.closed, SIDESTEP_ECANCELLED);
    assert_true(clock_now(clock_system()) - began_ns < UINT64_C(30000000000));
    to_mirror.bytes_per_second = 0;
    is_cancelled = false;
    job = make_job(2, "ab", true);
    run(&job);
    assert_int_equal(job.closed, SIDESTEP_OK);
    expect_verified(2);
}
