/* SPDX-License-Identifier: BSD-3-Clause */
/* series_unknown_test.c -- a save with unknown outcome: nothing is deleted until the end of that
 * incarnation, because what is newer may not survive a power loss. */
#include <errno.h>
#include <unistd.h>

#include "base/fault.h"
#include "engine/engine.h"
#include "series/series.h"
#include "support/one_series.h"
#include "support/store_fault.h"
#include "support/unit.h"

static struct store *disk;

static int setup(void **state)
{
    (void)state;
    disk = store_fault_new(store_posix());
    if (disk == NULL || one_rank_begin(NULL) != 0)
        return -1;
    engine->store = disk;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    int status = one_rank_end();
    store_fault_free(&disk);
    return status;
}

static struct sidestep_series *open_keeping_one(void)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    options.retention = &keep;
    return open_with(&options);
}

/* Fail the syncs of directories, one after the other, until one is that of the root after the
 * rename: the outcome of that step is unknown. Each try is a step of its own. */
static uint64_t save_unknown(struct sidestep_series *series, uint64_t step)
{
    for (unsigned long nth = 1; nth < 50; nth++, step++) {
        fault_arm("store.dir_sync", nth, false, EIO);
        enum sidestep_status status = try_save_step(series, step);
        assert_non_null(fault_fired());
        fault_arm("", 0, false, 0);
        if (status == SIDESTEP_EUNKNOWN)
            return step;
    }
    fail_msg("no failing sync makes an outcome unknown");
    return 0;
}

static void prune_once(struct sidestep_series *series, enum sidestep_status want)
{
    struct sidestep_gc_report report = {0};

    assert_int_equal(sidestep_series_prune(series, &report, &err), want);
    sidestep_gc_report_release(&report);
}

TEST(nothing_is_deleted_after_an_unknown_outcome)
{
    struct sidestep_series *series = open_keeping_one();

    save_step(series, 1);
    save_step(series, 2);
    prune_once(series, SIDESTEP_OK);
    assert_true(!step_exists(1) && step_exists(2));
    uint64_t unknown = save_unknown(series, 3);
    assert_true(step_exists(unknown));
    /* Later commits do not change that: neither the thread deletes, nor a call, nor a save by
     * name. */
    save_step(series, 100);
    save_step(series, 101);
    prune_once(series, SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "the outcome of a save is unknown"));
    assert_int_equal(sidestep_series_delete(series, 2, &err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "the outcome of a save is unknown"));
    close_series(&series);
    assert_true(step_exists(2) && step_exists(unknown) && step_exists(100) && step_exists(101));
    /* The next incarnation has fenced and synced; it deletes from its first commit on. */
    series = open_keeping_one();
    expect_resume(series, 101);
    prune_once(series, SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "has committed nothing yet"));
    assert_true(step_exists(2) && step_exists(100));
    save_step(series, 102);
    prune_once(series, SIDESTEP_OK);
    close_series(&series);
    assert_true(step_exists(102));
    assert_false(step_exists(2) || step_exists(unknown) || step_exists(100) || step_exists(101));
}

static enum sidestep_status start(struct sidestep_series *series, uint64_t step,
                                  struct sidestep_save **save)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;

    options.queue = 2;
    world_fill(&world, step);
    return sidestep_series_save_async(series, step, world.state, &options, save, &err);
}

/* Wait until the thread has looked since prune_once(). */
static void await_pruner(struct sidestep_series *series)
{
    bool has_looked = false;

    while (!has_looked) {
        usleep(1000);
        lock_acquire(&series->prune_lock);
        has_looked = series->prune_report != NULL;
        lock_release(&series->prune_lock);
    }
}

/* Two saves are under way, and nobody asks for the outcome of the first: the thread that prunes
 * sees both, and does not delete after the second. */
TEST(the_prune_thread_learns_an_unknown_outcome)
{
    bool was_unknown = false;

    for (unsigned long nth = 1; nth < 100 && !was_unknown; nth++) {
        struct sidestep_series *series = open_keeping_one();
        struct sidestep_save *first = NULL, *second = NULL;
        uint64_t step = nth * 10;
        save_step(series, step);
        prune_once(series, SIDESTEP_OK);
        fault_arm("store.dir_sync", nth, false, EIO);
        sidestep_engine_pause(engine); /* the first has not ended when the second begins */
        ASSERT_OK(start(series, step + 1, &first));
        enum sidestep_status next = start(series, step + 2, &second);
        sidestep_engine_resume(engine);
        if (next == SIDESTEP_OK)
            next = sidestep_save_finish(&second, NULL, &err);
        fault_arm("", 0, false, 0);
        was_unknown =
            sidestep_save_finish(&first, NULL, &err) == SIDESTEP_EUNKNOWN && next == SIDESTEP_OK;
        if (was_unknown)
            await_pruner(series);
        close_series(&series);
        if (was_unknown)
            assert_true(step_exists(step) && step_exists(step + 1) && step_exists(step + 2));
    }
    assert_true(was_unknown);
}

EACH_TEST(setup, teardown);
