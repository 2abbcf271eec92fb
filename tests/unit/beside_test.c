/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * beside_test.c -- other processes change names while a save works with them, or have done so
 * before: they rename the target of a save, leave a directory under two names, copy a checkpoint
 * over another one, make the sync of a commit fail, or open the series. Each test needs one check
 * of the protocol that crash_model cannot show to be needed.
 */
#include "base/owned.h"
#include "copy/export.h"
#include "engine/engine.h"
#include "sidestep/sidestep_tools.h"
#include "support/one_rank.h"
#include "support/store_sim_disk.h"
#include "support/trap.h"
#include "support/unit.h"

#define PARENT "/p"
#define OLD 1u
#define NEW 2u

static struct sim *sim;

/* A disk in memory; the other process is client 1. */
static int setup(void **state)
{
    OWNED_DIR *disk = NULL;

    (void)state;
    sim = sim_new(0);
    if (one_rank_begin(NULL) != 0 || sim == NULL)
        return -1;
    sim_set_hook(sim, trap_before_op, NULL);
    engine->store = sim_store(sim, 0);
    return store_dir_open(sim_store(sim, 1), NULL, "/", &disk, NULL) == SIDESTEP_OK &&
                   store_dir_make(disk, PARENT + 1, NULL) == SIDESTEP_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    atomic_store(&armed, NULL);
    int bad = one_rank_end();
    sim_free(&sim);
    return bad;
}

static enum sidestep_status try_save(const char *path, uint64_t seed)
{
    world_fill(&world, seed);
    return sidestep_save(engine, path, world.state, NULL, NULL, &err);
}

static void expect(const char *path, uint64_t seed)
{
    world_fill(&world, 999);
    ASSERT_OK(sidestep_load(engine, path, world.state, NULL, NULL, &err));
    assert_int_equal(world_check(&world, seed), 0);
}

/* ---- a target that is renamed during its save */

static void rename_target(void)
{
    OWNED_DIR *parent = NULL;

    assert_int_equal(store_dir_open(sim_store(sim, 1), NULL, PARENT, &parent, NULL), SIDESTEP_OK);
    assert_int_equal(store_rename(parent, "t", parent, "mine", STORE_NOREPLACE, NULL), SIDESTEP_OK);
    assert_int_equal(store_dir_make(parent, "t", NULL), SIDESTEP_OK);
}

/* A checkpoint that is not under its name must not be reported as committed. */
TEST(a_target_that_is_renamed_is_not_committed)
{
    static const struct trap before_the_check = {"dir_open", PARENT "/t", rename_target, NULL, 0};
    static const struct trap traps[] = {
        {"rename", ".metadata.", rename_target, NULL, 0},
        {"rename", ".metadata.", NULL, &before_the_check, 0},
    };

    for (size_t i = 0; i < sizeof(traps) / sizeof(traps[0]); i++) {
        if (i != 0) {
            (void)teardown(fixture);
            assert_int_equal(setup(fixture), 0);
        }
        ASSERT_OK(try_save(PARENT "/t", OLD));
        atomic_store(&armed, &traps[i]);
        assert_int_equal(try_save(PARENT "/t", NEW), SIDESTEP_EUNKNOWN);
        assert_null(atomic_load(&armed));
        assert_non_null(strstr(err.message, "was renamed or replaced meanwhile"));
        assert_non_null(strstr(err.message, "but in '" PARENT "/mine'"));
        assert_int_not_equal(sidestep_load(engine, PARENT "/t", world.state, NULL, NULL, &err),
                             SIDESTEP_OK);
        expect(PARENT "/mine", NEW); /* all of it, at its new name */
    }
}

/* ---- files of a conversion, whose parent is renamed */

static void rename_parent(void)
{
    OWNED_DIR *root = NULL;

    assert_int_equal(store_dir_open(sim_store(sim, 1), NULL, "/", &root, NULL), SIDESTEP_OK);
    assert_int_equal(store_rename(root, "p", root, "q", STORE_NOREPLACE, NULL), SIDESTEP_OK);
}

static bool is_known(const char *name)
{
    return strcmp(name, "f") == 0;
}

TEST(moved_files_are_not_reported_as_written)
{
    static const struct trap before_the_rename[] = {
        {"rename", ".sidestep.", rename_parent, NULL, 0},
        {"rename", "f", rename_parent, NULL, 0},
    };

    for (int is_file = 0; is_file <= 1; is_file++) {
        struct export e;
        OWNED_FILE *file = NULL;
        if (is_file != 0) {
            (void)teardown(fixture);
            assert_int_equal(setup(fixture), 0);
        }
        ASSERT_OK(export_begin(&e, sim_store(sim, 0), clock_system(), PARENT "/f", is_file != 0,
                               false, is_known, &err));
        ASSERT_OK(export_create_file(&e, "f", 0, &file, &err));
        atomic_store(&armed, &before_the_rename[is_file]);
        assert_int_equal(export_publish(&e, &err), SIDESTEP_EUNKNOWN);
        assert_null(atomic_load(&armed));
        assert_non_null(strstr(err.message, "but in '/q': '" PARENT "'"));
        export_end(&e);
    }
}

/* ---- a directory under two names */

/*
 * In a file system without a journal, a rename is two changes to a directory, so a power loss can
 * leave both names. ${name} is the second name of the newest checkpoint.
 */
static void resume_where_a_rename_was_torn(enum file_name_kind kind)
{
    static const char id[] = "00112233445566778899aabbccddeeff";
    struct sidestep_series *series = NULL;
    struct sim_entry other = {0};
    uint32_t parent;
    uint64_t step = 0;
    char name[FILE_NAME_BYTES];

    ASSERT_OK(sidestep_series_open(engine, PARENT, NULL, &series, &err));
    save_step(series, OLD);
    save_step(series, NEW);
    ASSERT_OK(sidestep_series_close(&series, &err));
    file_name_format(kind, id, 0, 0, name);
    assert_int_equal(sim_walk(sim, SIM_ROOT, PARENT, true, &parent), 0);
    assert_int_equal(sim_walk(sim, SIM_ROOT, PARENT "/step-2", true, &other.inode), 0);
    other.key = sim_key_of(parent, name, strlen(name));
    assert_true(sim_reserve_entry(&sim->now) && sim_reserve_entry(&sim->durable));
    sim->now.all[sim->now.count++] = other;
    sim->durable.all[sim->durable.count++] = other;
    for (int i = 0; i < 2; i++) { /* twice */
        ASSERT_OK(sidestep_series_open(engine, PARENT, NULL, &series, &err));
        world_fill(&world, 999);
        ASSERT_OK(sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err));
        assert_int_equal(step, NEW);
        assert_int_equal(world_check(&world, NEW), 0);
        ASSERT_OK(sidestep_series_close(&series, &err));
    }
    expect(PARENT "/step-2", NEW);
}

TEST(a_torn_commit_is_not_swept)
{
    resume_where_a_rename_was_torn(FILE_NAME_SAVING);
}

TEST(a_torn_deletion_is_not_finished)
{
    resume_where_a_rename_was_torn(FILE_NAME_TRASH);
}

/* ---- a checkpoint copied over another */

/* The manifest of the older one stays, and lists files whose names now belong to the newer one. */
TEST(files_copied_over_a_checkpoint_stay)
{
    struct sidestep_gc_report report = {0};
    char older[128], newer[128], command[400];

    engine->store = store_posix();
    snprintf(older, sizeof(older), "%s/older", scratch.path);
    snprintf(newer, sizeof(newer), "%s/newer", scratch.path);
    ASSERT_OK(try_save(older, OLD));
    ASSERT_OK(try_save(newer, NEW));
    snprintf(command, sizeof(command), "cp -r %s/. %s/", newer, older);
    assert_int_equal(system(command), 0);
    ASSERT_OK(sidestep_gc(scratch.path, 0, &report, &err));
    assert_int_equal(report.removed_count,
                     1); /* that manifest, and none of the files that it lists */
    sidestep_gc_report_release(&report);
    expect(older, NEW);
    expect(newer, NEW);
}

/* ---- a commit whose sync fails */

static void fail_sync(void)
{
    sim_fail_sync(sim, 1, false);
}

static void expect_frozen(struct sidestep_series *series, const char *words)
{
    struct sidestep_gc_report report = {0};

    assert_int_equal(sidestep_series_delete(series, 1, &err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, words));
    enum sidestep_status status = sidestep_series_prune(series, &report, &err);
    assert_true(status == SIDESTEP_OK || status == SIDESTEP_ELOCKED);
    assert_int_equal(report.removed_count, 0);
    sidestep_gc_report_release(&report);
    expect(PARENT "/step-1", 1);
}

/* The checkpoint that it replaces may be needed: nothing is deleted until a commit, not even after
 * a restart. */
TEST(an_unknown_outcome_stops_deletion)
{
    static const struct trap after_the_rename = {"dir_sync", PARENT, fail_sync, NULL, 0};
    static const struct trap at_the_rename = {"rename", ".sidestep.", NULL, &after_the_rename, 0};
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 2};
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_series *series = NULL;

    options.retention = &keep;
    ASSERT_OK(sidestep_series_open(engine, PARENT, &options, &series, &err));
    save_step(series, 1);
    save_step(series, 2);
    atomic_store(&armed, &at_the_rename);
    assert_int_equal(try_save_step(series, 3), SIDESTEP_EUNKNOWN);
    assert_null(atomic_load(&armed));
    expect_frozen(series, "the outcome of a save is unknown");
    ASSERT_OK(sidestep_series_close(&series, &err));
    ASSERT_OK(sidestep_series_open(engine, PARENT, &options, &series, &err));
    expect_frozen(series, "committed nothing yet");
    save_step(series, 4);
    ASSERT_OK(sidestep_series_close(&series, &err));
    expect(PARENT "/step-4", 4);
    assert_int_not_equal(sidestep_load(engine, PARENT "/step-1", world.state, NULL, NULL, &err),
                         SIDESTEP_OK);
}

/* ---- a series that another process has opened, where storage has no locks */

static void expect_ended(enum sidestep_status status)
{
    assert_int_equal(status, SIDESTEP_EABORTED);
    assert_non_null(strstr(err.message, "it was taken over by "));
}

static void truncate_shard_of(const char *checkpoint)
{
    OWNED_DIR *dir = NULL;
    OWNED_FILE *file = NULL;

    ASSERT_OK(store_dir_open(sim_store(sim, 1), NULL, checkpoint, &dir, &err));
    ASSERT_OK(store_file_open(dir, "__0_0.distcp", STORE_WRITE, &file, &err));
    ASSERT_OK(store_file_truncate(file, 100, &err));
}

/* A stopped process that goes on after its run has gone on without it. */
TEST(an_old_incarnation_changes_nothing)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 2};
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_series *series = NULL, *zombie = NULL;
    struct sidestep_engine *other = NULL;
    uint32_t inode;
    uint64_t step;
    struct sidestep_gc_report report = {0};

    sim_set_flags(sim, SIM_NO_LOCKS);
    options.retention = &keep;
    ASSERT_OK(sidestep_series_open(engine, PARENT, &options, &zombie, &err));
    save_step(zombie, 1);
    save_step(zombie, 2);
    ASSERT_OK(sidestep_engine_open(&other, NULL, &err));
    other->store = sim_store(sim, 1);
    ASSERT_OK(sidestep_series_open(other, PARENT, NULL, &series, &err));
    save_step(series, 3);
    expect_ended(try_save_step(zombie, 4));
    expect_ended(sidestep_series_delete(zombie, 1, &err));
    enum sidestep_status status = sidestep_series_prune(zombie, &report, &err);
    assert_true(status == SIDESTEP_OK || status == SIDESTEP_EABORTED);
    assert_int_equal(report.removed_count, 0);
    sidestep_gc_report_release(&report);
    truncate_shard_of(PARENT "/step-3"); /* only the owner sets aside what does not verify */
    expect_ended(sidestep_series_load(zombie, world.state, NULL, &step, NULL, NULL, &err));
    assert_int_equal(sim_walk(sim, SIM_ROOT, PARENT "/step-3", true, &inode), 0);
    save_step(series, 4);
    expect(PARENT "/step-1", 1);
    expect(PARENT "/step-4", 4);
    (void)sidestep_series_close(&zombie, NULL);
    ASSERT_OK(sidestep_series_close(&series, &err));
    ASSERT_OK(sidestep_engine_close(&other, &err));
}

EACH_TEST(setup, teardown);
