/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lock_file_test.c -- a lock counts only while the name leads to the locked file: another process
 * sweeps between the creation of a file and its lock, or opened the file before.
 */
#include "base/owned.h"
#include "root/lease.h"
#include "commit/commit_marker.h"
#include "commit/lock_file.h"
#include "commit/sweep.h"
#include "support/trap.h"
#include "support/unit.h"

#define PARENT "/p"
#define TARGET "/p/t"
#define ID "ab010000000000000000000000000000"
#define SAVING ".sidestep." ID ".saving"
#define MARKER ".sidestep." ID ".pending"
#define SHARD "__0_0." ID ".distcp"
#define TIMEOUT_MS 1000u

static const uint8_t id[SAVE_ID_BYTES] = {0xab, 1};
static struct sim *sim;
static struct commit saver; /* client 0 */
static struct store_file *held;

/* Time passes only in sleeps; the holder of the lock releases it after some of them. */
static uint64_t now_ms;
static unsigned sleeps_until_release; /* 0: never */

static uint64_t test_now_ns(struct clock *clock)
{
    (void)clock;
    return now_ms * 1000000;
}

static void test_sleep_ms(struct clock *clock, uint64_t ms)
{
    (void)clock;
    now_ms += ms;
    if (sleeps_until_release != 0 && --sleeps_until_release == 0)
        store_file_discard(TAKE(held));
}

static struct clock test_clock = {.now_ns = test_now_ns, .sleep_ms = test_sleep_ms};

static struct store_dir *open_as(int client, const char *path)
{
    struct store_dir *dir = NULL;

    assert_int_equal(store_dir_open(sim_store(sim, client), NULL, path, &dir, NULL), SIDESTEP_OK);
    return dir;
}

static bool exists(const char *path, const char *name)
{
    OWNED_DIR *dir = NULL;
    struct store_stat stat;

    return store_dir_open(sim_store(sim, 3), NULL, path, &dir, NULL) == SIDESTEP_OK &&
           store_stat(dir, name, &stat, NULL) == SIDESTEP_OK;
}

static int setup(void **state)
{
    (void)state;
    sim = sim_new(0);
    if (sim == NULL)
        return -1;
    OWNED_DIR *root = open_as(3, "/");
    assert_int_equal(store_dir_make(root, "p", NULL), SIDESTEP_OK);
    sim_set_hook(sim, trap_before_op, NULL);
    saver = (struct commit){.store = sim_store(sim, 0),
                            .clock = &test_clock,
                            .world_size = 1,
                            .request.timeout_ns = TIMEOUT_MS * UINT64_C(1000000),
                            .request.step = -1};
    sleeps_until_release = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bool sprung = atomic_exchange(&armed, NULL) == NULL;
    store_file_discard(TAKE(held));
    commit_close(&saver);
    sim_free(&sim);
    return sprung ? 0 : -1; /* otherwise nothing was tested */
}

static void make_target(void)
{
    OWNED_DIR *parent = open_as(3, PARENT);

    assert_int_equal(store_dir_make(parent, "t", NULL), SIDESTEP_OK);
}

static enum sidestep_status begin(struct sidestep_error *err)
{
    assert_int_equal(commit_open(&saver, TARGET, NULL), SIDESTEP_OK);
    return commit_begin(&saver, id, err);
}

/* Sweep as gc does. */
static void sweep_all_as(int client)
{
    OWNED_DIR *parent = open_as(client, PARENT);
    struct sweep sweep = {.store = parent->store, .parent = parent, .mode = SWEEP_ALL};

    assert_int_equal(sweep_parent(&sweep, NULL), SIDESTEP_OK);
    assert_int_equal(sweep_child_dirs(&sweep, NULL), SIDESTEP_OK);
}

static void sweep_all(void)
{
    sweep_all_as(1);
}

/* Other processes see ${path} with the pending marker of a living saver. */
static void expect_protected(const char *path)
{
    OWNED_DIR *dir = open_as(2, path);
    OWNED_FILE *marker = NULL;

    assert_int_equal(store_file_open(dir, MARKER, STORE_WRITE, &marker, NULL), SIDESTEP_OK);
    assert_int_equal(store_file_lock(marker, true, NULL), SIDESTEP_ELOCKED);
    sweep_all_as(2);
    assert_true(exists(path, MARKER));
}

/* ---- another process sweeps what a save has just made */

TEST(a_swept_marker_is_made_again)
{
    static const struct trap before_the_lock = {"file_lock", MARKER, sweep_all, NULL, 0};

    make_target();
    atomic_store(&armed, &before_the_lock);
    assert_int_equal(begin(NULL), SIDESTEP_OK);
    expect_protected(TARGET);
}

/* The sweeping process has renamed it, and has not emptied it yet. */
static void move_to_trash(void)
{
    OWNED_DIR *parent = open_as(1, PARENT);

    assert_int_equal(sweep_move_to_trash(parent, SAVING, ID, NULL), SIDESTEP_OK);
}

TEST(a_swept_directory_is_made_again)
{
    static const struct trap traps[] = {
        {"dir_open", SAVING, sweep_all, NULL, 0},
        {"file_create", MARKER, sweep_all, NULL, 0},
        {"file_lock", MARKER, sweep_all, NULL, 0},
        {"file_lock", MARKER, move_to_trash, NULL, 0},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(traps); i++) {
        if (i != 0) {
            assert_int_equal(teardown(fixture), 0);
            assert_int_equal(setup(fixture), 0);
        }
        atomic_store(&armed, &traps[i]);
        assert_int_equal(begin(NULL), SIDESTEP_OK);
        expect_protected(PARENT "/" SAVING);
    }
}

/* ---- another process takes a new directory for an abandoned one */

static void put_marker(void)
{
    saver.dir = open_as(0, PARENT "/" SAVING);
    commit_set_save_id(&saver, id);
    assert_int_equal(commit_marker_create(&saver, NULL), SIDESTEP_OK);
}

TEST(a_directory_that_gets_its_marker_stays)
{
    static const struct trap before_it_goes = {"dir_remove", SAVING, put_marker, NULL, 1};

    OWNED_DIR *parent = open_as(3, PARENT);
    assert_int_equal(store_dir_make(parent, SAVING, NULL), SIDESTEP_OK);
    atomic_store(&armed, &before_it_goes);
    sweep_all();
    expect_protected(PARENT "/" SAVING);
}

/* ---- another process holds the lock */

static void hold_marker(void)
{
    OWNED_DIR *dir = open_as(1, TARGET);

    assert_int_equal(store_file_open(dir, MARKER, STORE_WRITE, &held, NULL), SIDESTEP_OK);
    assert_int_equal(store_file_lock(held, true, NULL), SIDESTEP_OK);
}

static const struct trap holds = {"file_lock", MARKER, hold_marker, NULL, 0};

TEST(a_lock_that_is_held_for_a_moment_is_waited_for)
{
    make_target();
    sleeps_until_release = 3;
    atomic_store(&armed, &holds);
    assert_int_equal(begin(NULL), SIDESTEP_OK);
    assert_int_equal(sleeps_until_release, 0);
    expect_protected(TARGET);
}

TEST(a_lock_that_is_held_for_ever_ends_the_wait)
{
    struct sidestep_error err = {0};
    uint64_t since = now_ms;

    make_target();
    atomic_store(&armed, &holds);
    assert_int_equal(begin(&err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "held by another"));
    assert_true(now_ms - since >= TIMEOUT_MS);
    assert_false(exists(TARGET, MARKER)); /* nothing is left behind */
}

TEST(a_cancelling_program_does_not_wait)
{
    static atomic_bool cancelled = true;

    make_target();
    saver.request.cancelled = &cancelled;
    atomic_store(&armed, &holds);
    assert_int_equal(begin(NULL), SIDESTEP_EABORTED);
    assert_false(exists(TARGET, MARKER));
}

/* ---- another process opened the marker before */

static void begin_with_a_shard(void)
{
    OWNED_FILE *shard = NULL;

    assert_int_equal(begin(NULL), SIDESTEP_OK);
    assert_int_equal(store_file_create(saver.dir, SHARD, 0, &shard, NULL), SIDESTEP_OK);
}

static void replace_marker(void)
{
    OWNED_DIR *dir = open_as(2, TARGET);

    assert_int_equal(store_unlink(dir, MARKER, NULL),
                     SIDESTEP_OK); /* as another process that sweeps does */
    begin_with_a_shard();
}

/* The marker that it has opened is gone, and a live save has one of the same name. */
TEST(a_sweep_checks_the_present_marker)
{
    static const struct trap before_its_lock = {"file_lock", MARKER, replace_marker, NULL, 1};
    OWNED_FILE *of_the_dead = NULL;

    make_target();
    OWNED_DIR *dir = open_as(3, TARGET);
    assert_int_equal(store_file_create(dir, MARKER, 0, &of_the_dead, NULL), SIDESTEP_OK);
    atomic_store(&armed, &before_its_lock);
    sweep_all();
    assert_true(exists(TARGET, SHARD));
    expect_protected(TARGET);
}

/* ---- the lock of a series */

static void remove_lock(void)
{
    OWNED_DIR *dir = open_as(1, PARENT "/.sidestep");

    assert_int_equal(store_unlink(dir, "lock", NULL), SIDESTEP_OK);
}

TEST(a_series_is_locked_under_its_name)
{
    static const struct trap before_the_lock = {"file_lock", "lock", remove_lock, NULL, 0};
    struct lease first = {0}, second = {0};

    atomic_store(&armed, &before_the_lock);
    assert_int_equal(lease_acquire(&first, sim_store(sim, 0), PARENT, NULL, NULL, NULL),
                     SIDESTEP_OK);
    assert_int_equal(lease_acquire_to_delete(&second, sim_store(sim, 2), PARENT, NULL),
                     SIDESTEP_ELOCKED);
    lease_release(&first);
}

EACH_TEST(setup, teardown);
