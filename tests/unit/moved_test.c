/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * moved_test.c -- directories above the target are renamed, replaced or removed during a save: no
 * rank reports a checkpoint as committed that is not at its path. On real directories.
 */
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/comm_threads.h"
#include "support/one_rank.h"
#include "support/unit.h"

/* SCRATCH/up/parent/t, or through SCRATCH/link, which leads to SCRATCH/up. */
#define PARENT "up/parent"
#define TARGET "up/parent/t"
#define BY_LINK "link/parent/t"

static char top[PATH_MAX]; /* absolute */

static const char *at(const char *name)
{
    static char paths[8][1024];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", top, name);
    return path;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

/* What another process does; runs on the thread of the save. */
static _Atomic(void (*)(void)) move;
static atomic_bool others_have_written;

static void rename_parent(void)
{
    (void)rename(at(PARENT), at("up/moved"));
}

static void rename_target(void)
{
    (void)rename(at(TARGET), at("up/parent/moved"));
}

static void rename_grandparent(void)
{
    (void)rename(at("up"), at("moved"));
}

static void replace_parent(void)
{
    (void)rename(at(PARENT), at("up/moved"));
    (void)mkdir(at(PARENT), 0777);
}

static void switch_link(void)
{
    if (symlink("elsewhere", at("new-link")) == 0)
        (void)rename(at("new-link"), at("link"));
}

static void remove_parent(void)
{
    (void)nftw(at(PARENT), remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* All shards are written; nothing is published yet. */
static void on_event(void *context, const char *line)
{
    bool waits = context != NULL;

    if (strstr(line, "\"written\"") == NULL)
        return;
    while (waits && !atomic_load(&others_have_written))
        sched_yield();
    void (*now)(void) = atomic_exchange(&move, NULL);
    if (now != NULL)
        now();
}

static int setup(void **state)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    (void)state;
    options.on_event = on_event;
    options.timeout_ms =
        5000; /* so that a rank that waits for a missing file fails instead of hanging */
    atomic_store(&others_have_written, false);
    if (one_rank_begin(&options) != 0 || realpath(scratch.path, top) == NULL)
        return -1;
    return mkdir(at("up"), 0777) | mkdir(at(PARENT), 0777) | mkdir(at("elsewhere"), 0777) |
           mkdir(at("elsewhere/parent"), 0777) | symlink("up", at("link"));
}

static int teardown(void **state)
{
    (void)state;
    return atomic_exchange(&move, NULL) != NULL ? -1 : one_rank_end();
}

static enum sidestep_status try_save(const char *name, uint64_t seed)
{
    world_fill(&world, seed);
    return sidestep_save(engine, at(name), world.state, NULL, NULL, &err);
}

static void expect(const char *name, uint64_t seed)
{
    world_fill(&world, 999);
    ASSERT_OK(sidestep_load(engine, at(name), world.state, NULL, NULL, &err));
    assert_int_equal(world_check(&world, seed), 0);
}

static void expect_missing(const char *name)
{
    assert_int_equal(sidestep_load(engine, at(name), world.state, NULL, NULL, NULL),
                     SIDESTEP_ENOTFOUND);
}

/* ---- the checkpoint is somewhere else */

static const struct {
    void (*move)(void);
    const char *path;
    const char *found;
} moves[] = {
    {rename_parent, TARGET, "up/moved/t"},
    {rename_grandparent, TARGET, "moved/parent/t"},
    {replace_parent, TARGET, "up/moved/t"},
    {switch_link, BY_LINK, TARGET},
};

static void move_during_save(void **state, bool in_place)
{
    char found[1024];

    for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
        if (i != 0) {
            assert_int_equal(teardown(state), 0);
            assert_int_equal(setup(state), 0);
        }
        if (in_place)
            ASSERT_OK(try_save(moves[i].path, 1));
        atomic_store(&move, moves[i].move);
        assert_int_equal(try_save(moves[i].path, 2), SIDESTEP_EUNKNOWN);
        snprintf(found, sizeof(found), "all was written and is durable, but in '%s'",
                 at(moves[i].found));
        if (strstr(err.message, found) == NULL)
            fail_msg("move %zu: %s", i, err.message);
        expect(moves[i].found, 2);
        expect_missing(moves[i].path);
    }
}

TEST(a_new_checkpoint_that_is_moved_is_not_committed)
{
    move_during_save(fixture, false);
}

TEST(a_replaced_checkpoint_that_is_moved_is_not_committed)
{
    move_during_save(fixture, true);
}

/* ---- the checkpoint is gone */

TEST(a_parent_that_is_removed_is_named)
{
    for (int in_place = 0; in_place <= 1; in_place++) {
        if (in_place != 0) {
            assert_int_equal(teardown(fixture), 0);
            assert_int_equal(setup(fixture), 0);
            ASSERT_OK(try_save(TARGET, 1));
        }
        atomic_store(&move, remove_parent);
        assert_int_equal(try_save(TARGET, 2), SIDESTEP_EABORTED);
        assert_non_null(strstr(err.message, at(TARGET)));
        assert_non_null(strstr(err.message, "was renamed or removed during the save"));
        expect_missing(TARGET);
        assert_int_equal(mkdir(at(PARENT), 0777), 0);
        ASSERT_OK(try_save(TARGET, 3));
        expect(TARGET, 3);
    }
}

/* ---- the other ranks */

static void on_event_of_rank_1(void *context, const char *line)
{
    (void)context;
    if (strstr(line, "\"written\"") != NULL)
        atomic_store(&others_have_written, true);
}

static enum sidestep_status told[2];
static void (*move_after)(void); /* by rank 0, after the commit; rank 1 asks for the outcome then */
static atomic_bool was_moved;

/* Ends the save on one rank. */
static enum sidestep_status finish(struct sidestep_save **save, int rank)
{
    if (move_after == NULL)
        return sidestep_save_finish(save, NULL, NULL);
    while (rank != 0 && !atomic_load(&was_moved))
        sched_yield();
    enum sidestep_status status = sidestep_save_finish(save, NULL, NULL);
    if (rank == 0) {
        move_after();
        atomic_store(&was_moved, true);
    }
    return status;
}

static int run_rank(struct sidestep_comm *comm, void *context)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *own = NULL;
    struct sidestep_save *save = NULL;
    struct world part;

    (void)context;
    options.comm = comm;
    options.threads = 1;
    options.timeout_ms = 200; /* rank 1 waits twice as long */
    options.on_event = comm->rank == 0 ? on_event : on_event_of_rank_1;
    options.event_context = &options;
    if (sidestep_engine_open(&own, &options, NULL) != SIDESTEP_OK)
        return 1;
    world_make(&part, comm->rank, comm->size, WORLD_BY_ROWS, 1, false);
    world_fill(&part, 2);
    int bad = sidestep_save_async(own, at(TARGET), part.state, NULL, &save, NULL) != SIDESTEP_OK;
    told[comm->rank] = finish(&save, comm->rank);
    world_free(&part);
    (void)sidestep_engine_close(&own, NULL);
    return bad;
}

/* Rank 1 looks for the checkpoint itself: it must not report that there is none. */
TEST(no_rank_reports_a_moved_checkpoint_as_missing)
{
    static const struct {
        bool in_place;
        void (*move)(void);
        const char *found;
    } cases[] = {
        {false, rename_parent, "up/moved/t"},
        {true, rename_parent, "up/moved/t"},
        {true, rename_target, "up/parent/moved"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (i != 0) {
            assert_int_equal(teardown(fixture), 0);
            assert_int_equal(setup(fixture), 0);
        }
        if (cases[i].in_place)
            ASSERT_OK(try_save(TARGET, 1));
        atomic_store(&move, cases[i].move);
        assert_int_equal(comm_threads_run(2, run_rank, NULL), 0);
        assert_int_equal(told[0], SIDESTEP_EUNKNOWN);
        assert_int_equal(told[1], SIDESTEP_EUNKNOWN);
        expect(cases[i].found, 2);
    }
}

static void replace_target(void)
{
    rename_target();
    (void)mkdir(at(TARGET), 0777);
}

/* As programs do that give a committed checkpoint its final name: a rank that asks late must not
 * report that there is none. */
TEST(a_late_rank_learns_of_a_commit_that_was_moved_since)
{
    static void (*const moves_after[])(void) = {rename_target, rename_parent, replace_target};

    for (size_t i = 0; i < sizeof(moves_after) / sizeof(moves_after[0]); i++) {
        if (i != 0) {
            assert_int_equal(teardown(fixture), 0);
            assert_int_equal(setup(fixture), 0);
        }
        move_after = moves_after[i];
        atomic_store(&was_moved, false);
        assert_int_equal(comm_threads_run(2, run_rank, NULL), 0);
        move_after = NULL;
        assert_int_equal(told[0], SIDESTEP_OK);
        assert_int_equal(told[1], SIDESTEP_OK);
    }
}

static void remove_target(void)
{
    (void)nftw(at(TARGET), remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* It was committed, so a rank that asks later must not say that it was given up. */
TEST(a_late_rank_does_not_take_a_deleted_checkpoint_for_given_up)
{
    for (int in_place = 0; in_place <= 1; in_place++) {
        if (in_place != 0)
            ASSERT_OK(try_save(TARGET, 1));
        move_after = remove_target;
        atomic_store(&was_moved, false);
        assert_int_equal(comm_threads_run(2, run_rank, NULL), 0);
        move_after = NULL;
        assert_int_equal(told[0], SIDESTEP_OK);
        assert_int_equal(told[1], SIDESTEP_EUNKNOWN);
    }
}

EACH_TEST(setup, teardown);
