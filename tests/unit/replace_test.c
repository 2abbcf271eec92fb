/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replace_test.c -- a save replaces only the checkpoint that was there when it began: another save
 * to the same path commits meanwhile.
 */
#include "base/owned.h"
#include "commit/name_list.h"
#include "commit/sweep.h"
#include "engine/engine.h"
#include "format/file_name.h"
#include "support/one_rank.h"
#include "support/store_sim_disk.h"
#include "support/trap.h"
#include "support/unit.h"

#define PARENT "/p"
#define TARGET "/p/t"
#define FIRST 1u
#define OURS 2u
#define THEIRS 3u
#define LATER 4u

static struct sim *sim;
static struct sidestep_engine *other; /* client 1 */
static struct world other_world;
static struct sidestep_error other_err;
static enum sidestep_status other_status;

static int setup(void **state)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    OWNED_DIR *disk = NULL;

    (void)state;
    options.timeout_ms = 100; /* for a save that waits for its turn in vain */
    sim = sim_new(0);
    world_make(&other_world, 0, 1, WORLD_BY_ROWS, 1, false);
    if (sim == NULL || one_rank_begin(NULL) != 0 ||
        sidestep_engine_open(&other, &options, NULL) != SIDESTEP_OK)
        return -1;
    sim_set_hook(sim, trap_before_op, NULL);
    engine->store = sim_store(sim, 0);
    other->store = sim_store(sim, 1);
    return store_dir_open(sim_store(sim, 2), NULL, "/", &disk, NULL) == SIDESTEP_OK &&
                   store_dir_make(disk, "p", NULL) == SIDESTEP_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    bool sprung = atomic_exchange(&armed, NULL) == NULL;
    int bad = sidestep_engine_close(&other, NULL) != SIDESTEP_OK;

    (void)state;
    bad |= one_rank_end();
    world_free(&other_world);
    sim_free(&sim);
    return bad || !sprung ? -1 : 0;
}

/* Start again, for a test of several parts. */
static void start_again(void **state)
{
    assert_int_equal(teardown(state), 0);
    assert_int_equal(setup(state), 0);
}

static enum sidestep_status try_save(uint64_t seed)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;

    options.has_step = true;
    options.step = 100 + seed;
    world_fill(&world, seed);
    return sidestep_save(engine, TARGET, world.state, &options, NULL, &err);
}

static void other_saves(void)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;

    options.has_step = true;
    options.step = 100 + THEIRS;
    world_fill(&other_world, THEIRS);
    other_status = sidestep_save(other, TARGET, other_world.state, &options, NULL, &other_err);
}

static void expect(uint64_t seed)
{
    world_fill(&world, 999);
    ASSERT_OK(sidestep_load(engine, TARGET, world.state, NULL, NULL, &err));
    assert_int_equal(world_check(&world, seed), 0);
}

static struct store_dir *open_path(const char *path)
{
    struct store_dir *dir = NULL;

    assert_int_equal(store_dir_open(sim_store(sim, 2), NULL, path, &dir, NULL), SIDESTEP_OK);
    return dir;
}

static size_t count_in(const char *path, enum file_name_kind kind, char name[FILE_NAME_BYTES])
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *dir = open_path(path);
    size_t count = 0;

    assert_int_equal(name_list_read(dir, &names, NULL), SIDESTEP_OK);
    for (size_t i = 0; i < names.count; i++) {
        if (file_name_parse(names.names[i]).kind != kind)
            continue;
        snprintf(name, FILE_NAME_BYTES, "%s", names.names[i]);
        count++;
    }
    return count;
}

/* Nothing of a refused save stays, and the lock is gone. */
static void expect_no_leftovers(void)
{
    char name[FILE_NAME_BYTES];

    assert_int_equal(count_in(TARGET, FILE_NAME_SHARD, name), 1);
    assert_int_equal(count_in(TARGET, FILE_NAME_MANIFEST, name), 1);
    assert_int_equal(count_in(TARGET, FILE_NAME_METADATA_TMP, name), 0);
    assert_int_equal(count_in(TARGET, FILE_NAME_PENDING, name), 0);
    assert_int_equal(count_in(TARGET, FILE_NAME_LOCK, name), 0);
    assert_int_equal(count_in(PARENT, FILE_NAME_SAVING, name), 0);
    assert_int_equal(count_in(PARENT, FILE_NAME_TRASH, name), 0);
}

/* ---- another save commits first */

static const struct trap before_the_manifest = {"file_create", ".sidestep.manifest.", other_saves,
                                                NULL, 0};
static const struct trap before_the_rename = {"rename", ".sidestep.", other_saves, NULL, 0};

static void expect_refused(enum sidestep_status status)
{
    char manifest[FILE_NAME_BYTES];

    assert_int_equal(other_status, SIDESTEP_OK);
    assert_int_equal(status, SIDESTEP_EEXISTS);
    assert_int_equal(err.status, SIDESTEP_EEXISTS);
    /* The message names both. */
    assert_non_null(strstr(err.message, "(step 103, saved 20"));
    assert_non_null(strstr(err.message, "(step 102, begun 20"));
    assert_int_equal(count_in(TARGET, FILE_NAME_MANIFEST, manifest), 1);
    assert_non_null(strstr(err.message, manifest + strlen(".sidestep.manifest.")));
    expect(THEIRS);
    expect_no_leftovers();
}

TEST(an_older_save_does_not_replace_a_newer_one)
{
    ASSERT_OK(try_save(FIRST));
    atomic_store(&armed, &before_the_manifest);
    expect_refused(try_save(OURS));
    ASSERT_OK(try_save(LATER)); /* this one knows what it replaces */
    expect(LATER);
}

TEST(an_older_save_does_not_replace_one_that_appeared)
{
    const struct trap *const traps[] = {&before_the_manifest, &before_the_rename};

    for (size_t i = 0; i < ARRAY_LENGTH(traps); i++) {
        if (i != 0)
            start_again(fixture);
        atomic_store(&armed, traps[i]);
        expect_refused(try_save(OURS));
    }
}

/* If a rename cannot exchange, or cannot refuse to replace, the comparison is the same. */
TEST(without_rename_flags_the_comparison_is_the_same)
{
    static const unsigned flags[] = {SIM_NO_EXCHANGE, SIM_NO_NOREPLACE | SIM_NO_EXCHANGE};

    for (size_t i = 0; i < ARRAY_LENGTH(flags); i++) {
        if (i != 0)
            start_again(fixture);
        sim_set_flags(sim, flags[i]);
        ASSERT_OK(try_save(FIRST));
        atomic_store(&armed, &before_the_manifest);
        assert_int_equal(try_save(OURS), SIDESTEP_EEXISTS);
        assert_int_equal(other_status, SIDESTEP_OK);
        expect(THEIRS);
    }
}

/* ---- between the comparison and the rename */

static const struct trap in_turn = {"rename", ".metadata.", other_saves, NULL, 0};

TEST(no_save_comes_between_check_and_rename)
{
    ASSERT_OK(try_save(FIRST));
    atomic_store(&armed, &in_turn);
    ASSERT_OK(try_save(OURS));
    assert_int_equal(other_status, SIDESTEP_ELOCKED);
    assert_non_null(strstr(other_err.message, "has not ended its commit for 0.1 s"));
    expect(OURS);
    expect_no_leftovers();
}

/* Without locks it is replaced, but noticed. */
TEST(a_checkpoint_that_came_between_is_kept)
{
    char tmp[FILE_NAME_BYTES], name[FILE_NAME_BYTES];

    sim_set_flags(sim, SIM_NO_LOCKS);
    ASSERT_OK(try_save(FIRST));
    atomic_store(&armed, &in_turn);
    assert_int_equal(try_save(OURS), SIDESTEP_EUNKNOWN);
    assert_int_equal(other_status, SIDESTEP_OK);
    expect(OURS);
    assert_int_equal(count_in(TARGET, FILE_NAME_METADATA_TMP, tmp), 1);
    assert_non_null(strstr(err.message, tmp));
    assert_non_null(strstr(err.message, "(step 103, saved 20"));
    assert_int_equal(count_in(TARGET, FILE_NAME_SHARD, name), 2);
    /* As the message says. */
    OWNED_DIR *dir = open_path(TARGET);
    assert_int_equal(store_rename(dir, tmp, dir, FILE_NAME_METADATA, STORE_REPLACE, NULL),
                     SIDESTEP_OK);
    expect(THEIRS);
}

/* ---- a lock that another process left behind */

static void leave_lock(void)
{
    OWNED_DIR *dir = open_path(TARGET);
    OWNED_FILE *lock = NULL;

    assert_int_equal(store_file_create(dir, FILE_NAME_COMMIT_LOCK, 0, &lock, NULL), SIDESTEP_OK);
}

TEST(a_lock_of_the_dead_is_taken_over)
{
    ASSERT_OK(try_save(FIRST));
    leave_lock();
    ASSERT_OK(try_save(OURS));
    expect(OURS);
    expect_no_leftovers();
}

static struct store_ops ops_of_a_stranger;

static enum sidestep_status refuse_lock(struct store_dir *at, const char *name, uint32_t flags,
                                        struct store_file **out, struct sidestep_error *reason)
{
    if (strcmp(name, FILE_NAME_COMMIT_LOCK) == 0)
        return FAIL(reason, SIDESTEP_EPERM, "not yours");
    return sim_ops.file_open(at, name, flags, out, reason);
}

/* A process of another user was killed in a directory that both may write to. */
TEST(a_lock_that_may_not_be_opened_stops_nobody)
{
    ops_of_a_stranger = sim_ops;
    ops_of_a_stranger.file_open = refuse_lock;
    engine->store->ops = &ops_of_a_stranger;
    ASSERT_OK(try_save(FIRST));
    leave_lock();
    ASSERT_OK(try_save(OURS));
    expect(OURS);
}

TEST(a_lock_of_the_dead_is_swept)
{
    ASSERT_OK(try_save(FIRST));
    leave_lock();
    OWNED_DIR *parent = open_path(PARENT);
    struct sweep sweep = {.store = parent->store, .parent = parent, .mode = SWEEP_ALL};
    assert_int_equal(sweep_child_dirs(&sweep, NULL), SIDESTEP_OK);
    expect_no_leftovers();
}

EACH_TEST(setup, teardown);
