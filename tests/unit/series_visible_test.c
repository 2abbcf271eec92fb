/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_visible_test.c -- visible is not durable: between the rename that publishes a checkpoint
 * and the sync that makes it durable, nothing may be deleted because of it.
 */
#include <semaphore.h>

#include "base/owned.h"
#include "catalog/list.h"
#include "selection/prune.h"
#include "support/sim_series.h"
#include "support/unit.h"

static atomic_int armed;    /* 1: at the rename of a save; 2: at the sync after it */
static const char *renamed; /* part of the renamed name */
static sem_t reached, go_on;

/* The save waits before the sync of what it has just renamed. */
static void before_op(void *context, int client, const char *op, const char *name)
{
    int sync = 2, rename = 1;

    (void)context, (void)client;
    if (strcmp(op, "rename") == 0 && strstr(name, renamed) != NULL)
        (void)atomic_compare_exchange_strong(&armed, &rename, 2);
    else if (strcmp(op, "dir_sync") == 0 && atomic_compare_exchange_strong(&armed, &sync, 0)) {
        sem_post(&reached);
        while (sem_wait(&go_on) != 0) {
        }
    }
}

static int setup(void **state)
{
    struct sidestep_series_options keeping = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_retention one = {.struct_size = sizeof(one), .keep_last = 1};

    (void)state;
    keeping.retention = &one;
    sem_init(&reached, 0, 0);
    sem_init(&go_on, 0, 0);
    atomic_store(&armed, 0);
    renamed = ".saving";
    if (sim_series_begin(before_op) != 0)
        return -1;
    return sidestep_series_open(engine, RUN, &keeping, &series, &err) == SIDESTEP_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    sem_post(&go_on); /* in case a test has failed */
    int status = sim_series_end();
    sem_destroy(&reached);
    sem_destroy(&go_on);
    return status;
}

static bool is_there(struct sim *disk, int64_t step)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    ASSERT_OK(list_root(sim_store(disk, 1), RUN, 0, &list, &err));
    for (size_t i = 0; i < list.count; i++)
        if (sidestep_list_entry(&list, i)->state == SIDESTEP_COMMITTED &&
            sidestep_list_entry(&list, i)->step == step)
            return true;
    return false;
}

static struct sidestep_save *begin_and_hold(uint64_t step)
{
    struct sidestep_save *save = NULL;

    atomic_store(&armed, 1);
    ASSERT_OK(sidestep_series_save_async(series, step, world.state, NULL, &save, &err));
    while (sem_wait(&reached) != 0) {
    }
    return save;
}

static void save_first(void)
{
    ASSERT_OK(sidestep_series_save(series, 1, world.state, NULL, NULL, &err));
}

/* Whatever a power loss takes then, one of the two exists. */
TEST(a_checkpoint_not_yet_synced_deletes_no_other)
{
    save_first();
    struct sidestep_save *save = begin_and_hold(2);
    assert_true(is_there(sim, 2));
    assert_int_equal(prune(), 0);
    struct sim *after = sim_crash_bits(sim, 0, 0);
    assert_non_null(after);
    assert_true(is_there(after, 1));
    assert_false(is_there(after, 2));
    sim_free(&after);
    sem_post(&go_on);
    ASSERT_OK(sidestep_save_finish(&save, NULL, &err));
    (void)prune(); /* or the thread of the series has */
    assert_false(is_there(sim, 1));
    assert_true(is_there(sim, 2));
}

/* The sync fails: it may not be durable. */
TEST(an_unsynced_checkpoint_deletes_no_other)
{
    save_first();
    struct sidestep_save *save = begin_and_hold(2);
    sim_fail_sync(sim, 1, true);
    sem_post(&go_on);
    assert_int_equal(sidestep_save_finish(&save, NULL, &err), SIDESTEP_EUNKNOWN);
    assert_int_equal(prune(), 0);
    assert_true(is_there(sim, 1));
    assert_true(is_there(sim, 2));
}

/* A refused save of the same step settles nothing: the other's rename is still not durable. */
TEST(a_refused_save_settles_nothing)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_save *again = NULL;

    options.flags = SIDESTEP_SAVE_NOWAIT;
    save_first();
    struct sidestep_save *save = begin_and_hold(2);
    assert_int_equal(sidestep_series_save_async(series, 2, world.state, &options, &again, &err),
                     SIDESTEP_EBUSY);
    assert_int_equal(prune(), 0);
    assert_true(is_there(sim, 1));
    sem_post(&go_on);
    ASSERT_OK(sidestep_save_finish(&save, NULL, &err));
}

/* Is there a checkpoint to resume from? */
static bool has_any(struct sim *disk)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    ASSERT_OK(list_root(sim_store(disk, 1), RUN, 0, &list, &err));
    for (size_t i = 0; i < list.count; i++)
        if (sidestep_list_entry(&list, i)->state == SIDESTEP_COMMITTED &&
            !sidestep_list_entry(&list, i)->is_abandoned)
            return true;
    return false;
}

static void prune_by_hand(void)
{
    struct retention one = {.wanted = true, .keep_last = 1};
    struct store *store = sim_store(sim, 1);
    OWNED_DIR *root = NULL;
    OWNED_DIR *marks = NULL;

    ASSERT_OK(store_dir_open(store, NULL, RUN, &root, &err));
    ASSERT_OK(store_dir_open(store, root, FILE_NAME_SERIES_DIR, &marks, &err));
    struct prune by_hand = {
        .store = store, .path = RUN, .root = root, .annotations_dir = marks, .retention = &one};
    ASSERT_OK(prune_run(&by_hand, &err));
}

/* A run is killed just after a save that replaces one that was left behind: who deletes then makes
 * the newer one durable first. */
TEST(a_replacement_by_a_killed_save_is_made_durable)
{
    struct world loaded;

    ASSERT_OK(sidestep_series_close(&series, &err));
    ASSERT_OK(sidestep_series_open(engine, RUN, NULL, &series, &err));
    world_fill(&world, 1);
    save_first();
    ASSERT_OK(sidestep_series_save(series, 2, world.state, NULL, NULL, &err));
    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load_step(series, 1, loaded.state, NULL, NULL, &err));
    world_free(&loaded);
    renamed = ".metadata.";
    struct sidestep_save *save = begin_and_hold(2);
    prune_by_hand();
    assert_false(is_there(sim, 1));
    struct sim *after = sim_crash_bits(sim, 0, 0);
    assert_non_null(after);
    assert_true(has_any(after));
    sim_free(&after);
    sem_post(&go_on);
    ASSERT_OK(sidestep_save_finish(&save, NULL, &err));
}

EACH_TEST(setup, teardown);
