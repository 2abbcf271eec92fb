/* SPDX-License-Identifier: BSD-3-Clause */
/* series_room_test.c -- a series on a disk that is full: said at once, or made room on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "support/one_rank.h"
#include "support/store_fault.h"

#define PLENTY ((uint64_t)1 << 40)

static struct store *disk;
static struct sidestep_series *series;
static bool deletions_free; /* ... what is then enough */

static void on_event(void *context, const char *line)
{
    (void)context;
    if (strstr(line, "\"deleted\"") != NULL && deletions_free)
        store_fault_say_free(disk, PLENTY);
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
    int status = one_rank_end();
    (void)sidestep_series_close(&series, NULL);
    store_fault_free(&disk);
    return status;
}

static void open_series(uint32_t flags)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    options.flags = flags; /* no retention: nobody looks but for a save */
    series = open_with(&options);
}

/* As after a crash, or the end of a job. */
static void open_again(uint32_t flags)
{
    assert_int_equal(sidestep_series_close(&series, &err), SIDESTEP_OK);
    open_series(flags);
}

static void a_full_disk_is_said_at_once(void **state)
{
    (void)state;
    open_series(SIDESTEP_SERIES_CHECK_SPACE);
    store_fault_say_free(disk, 0);
    assert_int_equal(try_save_step(series, 1),
                     SIDESTEP_OK); /* nothing is known yet of what it takes */
    assert_int_equal(try_save_step(series, 2), SIDESTEP_ENOSPC);
    assert_non_null(strstr(err.message, "the newest checkpoint takes"));
    assert_true(step_exists(1) && !step_exists(2));
    store_fault_say_free(disk, PLENTY);
    assert_int_equal(try_save_step(series, 2), SIDESTEP_OK);
}

static void room_is_made(void **state)
{
    (void)state;
    char pinned[256];

    open_series(SIDESTEP_SERIES_MAKE_ROOM);
    for (uint64_t step = 1; step <= 4; step++)
        assert_int_equal(try_save_step(series, step), SIDESTEP_OK);
    snprintf(pinned, sizeof(pinned), "%s/step-2", scratch.path);
    assert_int_equal(sidestep_pin(pinned, true, &err), SIDESTEP_OK);
    store_fault_say_free(disk, 0);
    deletions_free = true;
    assert_int_equal(try_save_step(series, 5), SIDESTEP_OK);
    assert_true(!step_exists(1) && step_exists(2) && !step_exists(3) && step_exists(4) &&
                step_exists(5));
    /* Where that is not enough, the newest stays all the same. */
    store_fault_say_free(disk, 0);
    deletions_free = false;
    assert_int_equal(try_save_step(series, 6), SIDESTEP_ENOSPC);
    assert_true(step_exists(2) && step_exists(5));
}

/* It has saved nothing yet, and knows all the same what the next one will take. */
static void a_restart_knows_what_the_newest_takes(void **state)
{
    (void)state;
    open_series(SIDESTEP_SERIES_CHECK_SPACE);
    for (uint64_t step = 1; step <= 3; step++)
        assert_int_equal(try_save_step(series, step), SIDESTEP_OK);
    open_again(SIDESTEP_SERIES_CHECK_SPACE);
    store_fault_say_free(disk, 0);
    assert_int_equal(try_save_step(series, 4), SIDESTEP_ENOSPC);
    assert_non_null(strstr(err.message, "the newest checkpoint takes"));
    store_fault_say_free(disk, PLENTY);
    assert_int_equal(try_save_step(series, 4), SIDESTEP_OK);
}

/* It may not delete before it has committed one, and says so; from then on it may. */
static void a_restart_makes_room_once_it_has_committed(void **state)
{
    (void)state;
    open_series(0);
    for (uint64_t step = 1; step <= 3; step++)
        assert_int_equal(try_save_step(series, step), SIDESTEP_OK);
    open_again(SIDESTEP_SERIES_MAKE_ROOM);
    deletions_free = true;
    store_fault_say_free(disk, 0);
    assert_int_equal(try_save_step(series, 4), SIDESTEP_ENOSPC);
    assert_non_null(strstr(err.message, "has committed nothing yet"));
    assert_true(step_exists(1) && step_exists(2) && step_exists(3) && !step_exists(4));
    store_fault_say_free(disk, PLENTY);
    assert_int_equal(try_save_step(series, 4), SIDESTEP_OK);
    store_fault_say_free(disk, 0);
    assert_int_equal(try_save_step(series, 5), SIDESTEP_OK);
    assert_true(!step_exists(1) && !step_exists(3) && step_exists(4) && step_exists(5));
}

/* After going back to a small one, that is the measure, whatever a later one took. */
static void what_was_resumed_is_the_measure(void **state)
{
    struct world large, loaded;
    struct stat st;
    char path[256];

    (void)state;
    world_make(&large, 0, 1, WORLD_BY_ROWS, 8, false);
    world_fill(&large, 2);
    open_series(SIDESTEP_SERIES_CHECK_SPACE);
    assert_int_equal(try_save_step(series, 1), SIDESTEP_OK);
    assert_int_equal(sidestep_series_save(series, 2, large.state, NULL, NULL, &err), SIDESTEP_OK);
    world_free(&large);
    snprintf(path, sizeof(path), "%s/step-2/__0_0.distcp", scratch.path);
    assert_int_equal(stat(path, &st), 0);
    open_again(SIDESTEP_SERIES_CHECK_SPACE);
    store_fault_say_free(disk, (uint64_t)st.st_size - 1);
    assert_int_equal(try_save_step(series, 3), SIDESTEP_ENOSPC);
    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load_step(series, 1, loaded.state, NULL, NULL, &err));
    world_free(&loaded);
    assert_int_equal(try_save_step(series, 3), SIDESTEP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        CASE(a_full_disk_is_said_at_once),
        CASE(room_is_made),
        CASE(a_restart_knows_what_the_newest_takes),
        CASE(a_restart_makes_room_once_it_has_committed),
        CASE(what_was_resumed_is_the_measure),
#undef CASE
    };

    return cmocka_run_group_tests_name("series_room", tests, NULL, NULL);
}
