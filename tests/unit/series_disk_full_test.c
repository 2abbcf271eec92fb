/* SPDX-License-Identifier: BSD-3-Clause */
/* series_disk_full_test.c -- a full disk: the save fails at once, or room is made, and the message
 * says which. */
#include <errno.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "engine/engine.h"
#include "sidestep/sidestep_tools.h"
#include "support/comm_threads.h"
#include "support/one_rank.h"
#include "support/store_fault.h"
#include "support/unit.h"

#define PLENTY ((uint64_t)1 << 40)

static struct store *disk;
static struct sidestep_series *series;
static bool deletions_free; /* ... which is then enough */

static void on_event(void *context, const char *line)
{
    (void)context;
    if (strstr(line, "\"deleted\"") != NULL && deletions_free)
        store_fault_set_free_bytes(disk, PLENTY);
}

static int setup(void **state)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    (void)state;
    options.on_event = on_event;
    deletions_free = false;
    disk = store_fault_new(store_posix());
    if (disk == NULL || one_rank_begin(&options) != 0)
        return -1;
    engine->store = disk;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fault_arm("", 0, false, 0);
    int status = one_rank_end();
    (void)sidestep_series_close(&series, NULL);
    store_fault_free(&disk);
    return status;
}

static void open_series(uint32_t flags)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    options.flags = flags; /* no retention: only saves check the space */
    series = open_with(&options);
}

/* As after a crash, or the end of a job. */
static void open_again(uint32_t flags)
{
    assert_int_equal(sidestep_series_close(&series, &err), SIDESTEP_OK);
    open_series(flags);
}

TEST(a_full_disk_is_reported_at_once)
{
    open_series(SIDESTEP_SERIES_CHECK_SPACE);
    store_fault_set_free_bytes(disk, 0);
    assert_int_equal(try_save_step(series, 1), SIDESTEP_OK); /* its size is not known yet */
    assert_int_equal(try_save_step(series, 2), SIDESTEP_ENOSPC);
    assert_non_null(strstr(err.message, "the newest checkpoint takes"));
    assert_true(step_exists(1) && !step_exists(2));
    store_fault_set_free_bytes(disk, PLENTY);
    assert_int_equal(try_save_step(series, 2), SIDESTEP_OK);
}

TEST(make_room_deletes_first)
{
    char pinned[256];

    open_series(SIDESTEP_SERIES_MAKE_ROOM);
    for (uint64_t step = 1; step <= 4; step++)
        assert_int_equal(try_save_step(series, step), SIDESTEP_OK);
    snprintf(pinned, sizeof(pinned), "%s/step-2", scratch.path);
    assert_int_equal(sidestep_pin(pinned, true, &err), SIDESTEP_OK);
    store_fault_set_free_bytes(disk, 0);
    deletions_free = true;
    assert_int_equal(try_save_step(series, 5), SIDESTEP_OK);
    assert_true(!step_exists(1) && step_exists(2) && !step_exists(3) && step_exists(4) &&
                step_exists(5));
    /* If that is not enough, the newest stays nevertheless. */
    store_fault_set_free_bytes(disk, 0);
    deletions_free = false;
    assert_int_equal(try_save_step(series, 6), SIDESTEP_ENOSPC);
    assert_true(step_exists(2) && step_exists(5));
}

/* It has saved nothing yet, but knows the size of the next one. */
TEST(a_restart_knows_what_the_newest_takes)
{
    open_series(SIDESTEP_SERIES_CHECK_SPACE);
    for (uint64_t step = 1; step <= 3; step++)
        assert_int_equal(try_save_step(series, step), SIDESTEP_OK);
    open_again(SIDESTEP_SERIES_CHECK_SPACE);
    store_fault_set_free_bytes(disk, 0);
    assert_int_equal(try_save_step(series, 4), SIDESTEP_ENOSPC);
    assert_non_null(strstr(err.message, "the newest checkpoint takes"));
    store_fault_set_free_bytes(disk, PLENTY);
    assert_int_equal(try_save_step(series, 4), SIDESTEP_OK);
}

/* It may not delete before it has committed one, and says so; afterwards it may. */
TEST(a_restart_makes_room_once_it_has_committed)
{
    open_series(0);
    for (uint64_t step = 1; step <= 3; step++)
        assert_int_equal(try_save_step(series, step), SIDESTEP_OK);
    open_again(SIDESTEP_SERIES_MAKE_ROOM);
    deletions_free = true;
    store_fault_set_free_bytes(disk, 0);
    assert_int_equal(try_save_step(series, 4), SIDESTEP_ENOSPC);
    assert_non_null(strstr(err.message, "has committed nothing yet"));
    assert_true(step_exists(1) && step_exists(2) && step_exists(3) && !step_exists(4));
    store_fault_set_free_bytes(disk, PLENTY);
    assert_int_equal(try_save_step(series, 4), SIDESTEP_OK);
    store_fault_set_free_bytes(disk, 0);
    assert_int_equal(try_save_step(series, 5), SIDESTEP_OK);
    assert_true(!step_exists(1) && !step_exists(3) && step_exists(4) && step_exists(5));
}

/* After going back to a small one, its size counts, not that of a later one. */
TEST(the_resumed_checkpoint_sets_the_expected_size)
{
    struct world large, loaded;
    struct stat st;
    char path[256];

    world_make(&large, 0, 1, WORLD_BY_ROWS, 8, false);
    world_fill(&large, 2);
    open_series(SIDESTEP_SERIES_CHECK_SPACE);
    assert_int_equal(try_save_step(series, 1), SIDESTEP_OK);
    assert_int_equal(sidestep_series_save(series, 2, large.state, NULL, NULL, &err), SIDESTEP_OK);
    world_free(&large);
    snprintf(path, sizeof(path), "%s/step-2/__0_0.distcp", scratch.path);
    assert_int_equal(stat(path, &st), 0);
    open_again(SIDESTEP_SERIES_CHECK_SPACE);
    store_fault_set_free_bytes(disk, (uint64_t)st.st_size - 1);
    assert_int_equal(try_save_step(series, 3), SIDESTEP_ENOSPC);
    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load_step(series, 1, loaded.state, NULL, NULL, &err));
    world_free(&loaded);
    assert_int_equal(try_save_step(series, 3), SIDESTEP_OK);
}

/* ---- storage that is full during the save */

static void fail_next_reservation(int sys_errno)
{
    store_fault_set_free_bytes(disk, 1000);
    fault_arm("store.file_allocate", 1, false, sys_errno);
}

TEST(a_failed_save_says_what_was_needed)
{
    world_fill(&world, 1);
    fail_next_reservation(ENOSPC);
    assert_int_equal(sidestep_save(engine, step_path(1), world.state, NULL, NULL, &err),
                     SIDESTEP_ENOSPC);
    assert_non_null(strstr(err.message, "the storage is full: the files of rank 0 take "));
    assert_non_null(strstr(err.message, " KiB, and 1000 B were free"));
    assert_null(strstr(err.message, "deleting all checkpoints"));
    fail_next_reservation(EDQUOT);
    assert_int_equal(sidestep_save(engine, step_path(1), world.state, NULL, NULL, &err),
                     SIDESTEP_ENOSPC);
    assert_non_null(strstr(err.message, "more than the quota allows"));
    fail_next_reservation(EFBIG); /* a limit of the process: the storage has space */
    assert_int_equal(sidestep_save(engine, step_path(1), world.state, NULL, NULL, &err),
                     SIDESTEP_ENOSPC);
    assert_null(strstr(err.message, "is full"));
}

/* What `prune --keep-last 1` would free. */
static uint64_t would_free(void)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
    struct sidestep_gc_report report = {0};

    ASSERT_OK(sidestep_prune(scratch.path, &keep, SIDESTEP_GC_DRY_RUN, &report, &err));
    uint64_t bytes = report.bytes;
    sidestep_gc_report_release(&report);
    return bytes;
}

static void expect_advice(bool is_series)
{
    char words[5000];

    snprintf(words, sizeof(words),
             "but the newest would free %s (2 checkpoints): ", display_bytes(would_free()).text);
    assert_non_null(strstr(err.message, words));
    assert_non_null(strstr(err.message, "`sidestep prune --keep-last 1 '"));
    snprintf(words, sizeof(words), "%s'` does that", scratch.path);
    assert_non_null(strstr(err.message, words));
    assert_int_equal(strstr(err.message, "on_full=\"make_room\"") != NULL, is_series);
}

TEST(enospc_says_what_deleting_would_free)
{
    open_series(0);
    for (uint64_t step = 1; step <= 3; step++)
        assert_int_equal(try_save_step(series, step), SIDESTEP_OK);
    fail_next_reservation(ENOSPC);
    assert_int_equal(try_save_step(series, 4), SIDESTEP_ENOSPC);
    expect_advice(true);
    open_again(SIDESTEP_SERIES_CHECK_SPACE);
    store_fault_set_free_bytes(disk, 0);
    assert_int_equal(try_save_step(series, 4), SIDESTEP_ENOSPC);
    assert_non_null(strstr(err.message, "the newest checkpoint takes"));
    expect_advice(true);
    assert_int_equal(sidestep_series_close(&series, &err), SIDESTEP_OK);
    fail_next_reservation(ENOSPC);
    assert_int_equal(sidestep_save(engine, step_path(4), world.state, NULL, NULL, &err),
                     SIDESTEP_ENOSPC);
    expect_advice(false);
}

/* ---- several ranks, one of them without space */

static struct sidestep_error told[2];

static int run_rank(struct sidestep_comm *comm, void *context)
{
    struct sidestep_engine *own = NULL;
    struct sidestep_save *save = NULL;
    struct world part;

    (void)context;
    if (comm_threads_open(comm, &own, NULL) != SIDESTEP_OK)
        return 1;
    own->store = comm->rank == 1 ? disk : store_posix();
    world_make(&part, comm->rank, comm->size, WORLD_BY_ROWS, 1, false);
    world_fill(&part, 4);
    int bad = sidestep_save_async(own, step_path(4), part.state, NULL, &save, NULL) != SIDESTEP_OK;
    bad |= sidestep_save_finish(&save, NULL, &told[comm->rank]) == SIDESTEP_OK;
    world_free(&part);
    (void)sidestep_engine_close(&own, NULL);
    return bad;
}

TEST(every_rank_says_which_one_had_no_space)
{
    fail_next_reservation(ENOSPC);
    assert_int_equal(comm_threads_run(2, run_rank, NULL), 0);
    assert_int_equal(told[1].status, SIDESTEP_ENOSPC);
    assert_int_equal(told[0].status, SIDESTEP_EPEER);
    for (int rank = 0; rank < 2; rank++) {
        assert_non_null(
            strstr(told[rank].message, "the storage is full: the files of rank 1 take"));
        assert_non_null(strstr(told[rank].message, "and 1000 B were free"));
    }
    assert_int_equal(told[0].rank, 1);
}

EACH_TEST(setup, teardown);
