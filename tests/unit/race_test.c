/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * race_test.c -- processes save to one path again and again, with delays before locks, renames and
 * syncs. Each save either commits or is refused because another one came first. At the end the
 * path has the whole state of one that committed.
 *
 * SIDESTEP_LONG: 50 times as many rounds.
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "sidestep/sidestep_tools.h"
#include "support/one_rank.h"
#include "support/unit.h"

#define SAVERS 4
#define SAVES 8 /* of each process */
#define ROUNDS 8
#define LONGEST_US 4000u

/* Shared by all processes: the outcome of each save. */
static enum sidestep_status (*ends)[SAVES];

static int setup(void **state)
{
    (void)state;
    ends = mmap(NULL, sizeof(*ends) * SAVERS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    return ends != MAP_FAILED && scratch_make(&scratch, NULL) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    scratch_remove(&scratch);
    return munmap(ends, sizeof(*ends) * SAVERS);
}

static unsigned rounds(void)
{
    return getenv("SIDESTEP_LONG") != NULL ? ROUNDS * 50 : ROUNDS;
}

static enum sidestep_status open_engine(bool for_load)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.threads = 1;
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, for_load);
    return sidestep_engine_open(&engine, &options, &err);
}

static enum sidestep_status close_engine(void)
{
    world_free(&world);
    return sidestep_engine_close(&engine, &err);
}

static uint64_t seed_of(unsigned saver, unsigned save)
{
    return (uint64_t)saver * SAVES + save;
}

/* In a child, where cmocka's assertions would go on with the parent's tests. */
static void save_all(const char *path, unsigned saver)
{
    if (open_engine(false) != SIDESTEP_OK)
        _exit(1);
    for (unsigned save = 0; save < SAVES; save++) {
        world_fill(&world, seed_of(saver, save));
        ends[saver][save] = sidestep_save(engine, path, world.state, NULL, NULL, &err);
        if (ends[saver][save] != SIDESTEP_OK && ends[saver][save] != SIDESTEP_EEXISTS)
            fprintf(stderr, "# saver %u: %s\n", saver, err.message);
    }
    _exit(close_engine() != SIDESTEP_OK);
}

/* Half of the rounds delay all calls, the others only locks; each saver has its own delays. */
static pid_t start_saver(const char *path, unsigned saver, unsigned round)
{
    pid_t child = fork();

    assert_int_not_equal(child, -1);
    if (child == 0) {
        fault_delay(round % 2 == 0 ? "posix." : "posix.lock",
                    1 + (LONGEST_US / SAVERS * saver + round * 97) % LONGEST_US);
        save_all(path, saver);
    }
    return child;
}

static bool is_of_a_committed_save(void)
{
    for (unsigned i = 0; i < SAVERS * SAVES; i++)
        if (ends[i / SAVES][i % SAVES] == SIDESTEP_OK &&
            world_check(&world, seed_of(i / SAVES, i % SAVES)) == 0)
            return true;
    return false;
}

static void check_result(const char *path)
{
    struct sidestep_gc_report report = {0};

    for (unsigned i = 0; i < SAVERS * SAVES; i++)
        if (ends[i / SAVES][i % SAVES] != SIDESTEP_OK)
            assert_int_equal(ends[i / SAVES][i % SAVES], SIDESTEP_EEXISTS);
    ASSERT_OK(open_engine(true));
    ASSERT_OK(sidestep_load(engine, path, world.state, NULL, NULL, &err));
    assert_true(is_of_a_committed_save());
    ASSERT_OK(close_engine());
    ASSERT_OK(sidestep_gc(scratch.path, SIDESTEP_GC_DRY_RUN, &report, &err));
    assert_int_equal(report.removed_count, 0);
    sidestep_gc_report_release(&report);
}

static void race_once(const char *path, unsigned round)
{
    pid_t savers[SAVERS];

    for (unsigned saver = 0; saver < SAVERS; saver++)
        savers[saver] = start_saver(path, saver, round);
    for (unsigned saver = 0; saver < SAVERS; saver++) {
        int status = 0;
        assert_int_equal(waitpid(savers[saver], &status, 0), savers[saver]);
        assert_int_equal(status, 0);
    }
    check_result(path);
}

TEST(saves_to_a_new_path)
{
    for (unsigned round = 0; round < rounds(); round++)
        race_once(step_path(round), round);
}

TEST(saves_in_place_of_another)
{
    for (unsigned round = 0; round < rounds(); round++)
        race_once(step_path(0), round);
}

EACH_TEST(setup, teardown);
