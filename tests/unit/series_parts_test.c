/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_parts_test.c -- a series whose root is a directory that each node has for itself: parts,
 * which step is whole, and where a run goes on when ranks moved, parts are lost, torn, damaged, or
 * of another save or run. Ranks are threads; each node is a directory.
 */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/fault.h"
#include "sidestep/sidestep_tools.h"
#include "support/comm_threads.h"
#include "support/flip.h"
#include "support/scratch.h"
#include "support/unit.h"
#include "support/world.h"

#define MAX_RANKS 8

static struct scratch scratch;

/* What the ranks of a job do, and what came of it. */
struct job {
    int ranks;
    const char *nodes; /* per rank: the letter of its node, "aabb" */
    uint32_t keep_last;
    bool shared;        /* without SIDESTEP_SERIES_PER_NODE */
    bool background;    /* saves are not waited for */
    bool may_fail_save; /* a save that fails is no failure of the test */
    char tears;         /* on this node, something takes the name of each part meanwhile; 0: none */
    bool resumes;
    int64_t back_to;   /* resume this step; -1: the newest */
    uint64_t saves[8]; /* steps; 0 ends */
    /* Results, of rank 0 */
    enum sidestep_status opened, resumed, saved;
    uint64_t step; /* that was resumed */
    char message[1024], rejected[2048];
};

static const char *node_path(char node, const char *name)
{
    static _Thread_local char paths[4][256];
    static _Thread_local unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%c%s%s", scratch.path, node, name[0] != '\0' ? "/" : "",
             name);
    return path;
}

static enum sidestep_status resume(struct sidestep_series *series, const struct job *job, int rank,
                                   uint64_t *step, char rejected[2048], int *wrong,
                                   struct sidestep_error *err)
{
    struct world loaded;
    enum sidestep_status status;

    world_make(&loaded, rank, job->ranks, WORLD_BY_ROWS, 1, true);
    if (job->back_to >= 0) {
        *step = (uint64_t)job->back_to;
        status = sidestep_series_load_step(series, *step, loaded.state, NULL, NULL, err);
    } else {
        status = sidestep_series_load(series, loaded.state, NULL, step, NULL, rejected, err);
    }
    *wrong = status == SIDESTEP_OK ? world_check(&loaded, *step) : 0;
    world_free(&loaded);
    return status;
}

/* Somebody makes a directory with the name of a step, which has a file. */
static void make_theirs(char node, uint64_t step)
{
    char name[32];

    snprintf(name, sizeof(name), "step-%llu", (unsigned long long)step);
    (void)mkdir(node_path(node, name), 0777);
    snprintf(name, sizeof(name), "step-%llu/theirs", (unsigned long long)step);
    (void)mkdir(node_path(node, name), 0777);
}

static enum sidestep_status save(struct sidestep_engine *engine, struct sidestep_series *series,
                                 const struct job *job, int rank, uint64_t step,
                                 struct sidestep_error *err)
{
    struct sidestep_save *save = NULL;
    struct world world;

    world_make(&world, rank, job->ranks, WORLD_BY_ROWS, 1, false);
    world_fill(&world, step);
    bool tears = job->tears != 0 && job->tears == job->nodes[rank];
    if (tears)
        sidestep_engine_pause(engine);
    enum sidestep_status status =
        job->background ? sidestep_series_save_async(series, step, world.state, NULL, &save, err)
                        : sidestep_series_save(series, step, world.state, NULL, NULL, err);
    if (tears)
        make_theirs(job->tears, step);
    if (tears)
        sidestep_engine_resume(engine);
    if (status == SIDESTEP_OK && job->background)
        status = sidestep_save_finish(&save, NULL, err);
    world_free(&world);
    return status;
}

static int run_rank(struct sidestep_comm *comm, void *context)
{
    struct job *job = context;
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = job->keep_last};
    struct sidestep_series_options options = {.struct_size = sizeof(options),
                                              .flags = job->shared ? 0 : SIDESTEP_SERIES_PER_NODE,
                                              .retention = job->keep_last != 0 ? &keep : NULL};
    struct sidestep_engine *engine = NULL;
    struct sidestep_series *series = NULL;
    struct sidestep_error err = {0};
    struct job mine = *job;
    int bad = 0, wrong = 0;

    EXPECT(comm_threads_open(comm, &engine, &err) == SIDESTEP_OK);
    mine.opened = sidestep_series_open(engine, node_path(job->nodes[comm->rank], ""), &options,
                                       &series, &err);
    mine.resumed = mine.saved = mine.opened;
    if (mine.opened == SIDESTEP_OK && job->resumes) {
        mine.resumed = resume(series, job, comm->rank, &mine.step, mine.rejected, &wrong, &err);
        EXPECT(wrong == 0);
    }
    for (int i = 0; mine.resumed == SIDESTEP_OK && job->saves[i] != 0; i++) {
        enum sidestep_status status = save(engine, series, job, comm->rank, job->saves[i], &err);
        EXPECT(status == SIDESTEP_OK || job->may_fail_save);
        mine.saved = mine.saved == SIDESTEP_OK ? status : mine.saved;
    }
    if (comm->rank == 0) {
        snprintf(mine.message, sizeof(mine.message), "%s", err.message);
        *job = mine;
    }
    EXPECT(sidestep_series_close(&series, &err) == SIDESTEP_OK || job->may_fail_save);
    (void)sidestep_engine_close(&engine, &err);
    return bad;
}

static void run(struct job *job)
{
    if (job->back_to == 0)
        job->back_to = -1;
    assert_int_equal(comm_threads_run(job->ranks, run_rank, job), 0);
}

/* Save these steps, from the beginning or from the newest. */
static void save_steps(int ranks, const char *nodes, bool resumes, uint64_t first, uint64_t last)
{
    struct job job = {.ranks = ranks, .nodes = nodes, .resumes = resumes};

    for (uint64_t step = first; step <= last; step++)
        job.saves[step - first] = step;
    run(&job);
    assert_int_equal(job.saved, SIDESTEP_OK);
}

static struct job try_resume(int ranks, const char *nodes)
{
    struct job job = {.ranks = ranks, .nodes = nodes, .resumes = true};

    run(&job);
    return job;
}

static void expect_resume(int ranks, const char *nodes, uint64_t step)
{
    struct job job = try_resume(ranks, nodes);

    if (job.resumed != SIDESTEP_OK)
        fail_msg("resume: %d %s; %s", (int)job.resumed, job.message, job.rejected);
    assert_int_equal(job.step, step);
}

static void shell(const char *format, const char *a, const char *b)
{
    char command[640];

    snprintf(command, sizeof(command), format, a, b);
    assert_int_equal(system(command), 0);
}

/* The state of an entry of a node; NULL: there is none. Its ranks, too. */
static const char *state_of(char node, const char *name, char ranks[32])
{
    struct sidestep_list list = {0};
    struct sidestep_error err = {0};
    const char *state = NULL;

    if (sidestep_list_root(node_path(node, ""), &list, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        if (strcmp(entry->name, name) != 0)
            continue;
        state = sidestep_presence_name(entry->state);
        if (ranks != NULL)
            snprintf(ranks, 32, "%s of %u", entry->part_ranks != NULL ? entry->part_ranks : "",
                     entry->ranks);
    }
    sidestep_list_release(&list);
    return state;
}

static bool has(char node, const char *name)
{
    return access(node_path(node, name), F_OK) == 0;
}

/* No hidden directory or file of a save or of a view is left. */
static void expect_nothing_left(char node)
{
    DIR *dir = opendir(node_path(node, ""));

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strncmp(entry->d_name, ".sidestep.", 10) == 0)
            fail_msg("'%s' is left on node %c", entry->d_name, node);
    closedir(dir);
}

static int set_up(void **test UNUSED)
{
    return scratch_make(&scratch, NULL) ? 0 : -1;
}

static int tear_down(void **test UNUSED)
{
    fault_arm("", 0, false, 0);
    scratch_remove(&scratch);
    return 0;
}

EACH_TEST(set_up, tear_down);

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

    assert_true(set_up(NULL) == 0);
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
    unsigned long nth = 1;

    scratch_remove(&scratch);
    while (fail_and_go_on(nth, false) != NULL)
        nth++;
    assert_true(nth > 50);
}

TEST(whenever_all_nodes_die_a_step_is_whole_or_not_there)
{
    unsigned long nth = 1;

    scratch_remove(&scratch);
    while (fail_and_go_on(nth, true) != NULL)
        nth += 3; /* to be quick */
    assert_true(nth > 50);
}
