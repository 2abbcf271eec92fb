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
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 9};

    options.retention = &keep;
    options.flags = flags;
    series = open_with(&options);
}

/* The thread that prunes has looked: it knows what a checkpoint takes. */
static void settle(void)
{
    struct sidestep_gc_report report;

    assert_int_equal(sidestep_series_prune(series, &report, &err), SIDESTEP_OK);
    sidestep_gc_report_release(&report);
}

static bool is_there(uint64_t step)
{
    char path[256];
    struct stat st;

    snprintf(path, sizeof(path), "%s/step-%llu", scratch.path, (unsigned long long)step);
    return stat(path, &st) == 0;
}

static void a_full_disk_is_said_at_once(void **state)
{
    (void)state;
    open_series(SIDESTEP_SERIES_CHECK_SPACE);
    store_fault_say_free(disk, 0);
    assert_int_equal(try_save_step(series, 1),
                     SIDESTEP_OK); /* nothing is known yet of what it takes */
    settle();
    assert_int_equal(try_save_step(series, 2), SIDESTEP_ENOSPC);
    assert_non_null(strstr(err.message, "the newest checkpoint takes"));
    assert_true(is_there(1) && !is_there(2));
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
    settle();
    snprintf(pinned, sizeof(pinned), "%s/step-2", scratch.path);
    assert_int_equal(sidestep_pin(pinned, true, &err), SIDESTEP_OK);
    store_fault_say_free(disk, 0);
    deletions_free = true;
    assert_int_equal(try_save_step(series, 5), SIDESTEP_OK);
    assert_true(!is_there(1) && is_there(2) && !is_there(3) && is_there(4) && is_there(5));
    /* Where that is not enough, the newest stays all the same. */
    settle();
    store_fault_say_free(disk, 0);
    deletions_free = false;
    assert_int_equal(try_save_step(series, 6), SIDESTEP_ENOSPC);
    assert_true(is_there(2) && is_there(5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        CASE(a_full_disk_is_said_at_once),
        CASE(room_is_made),
#undef CASE
    };

    return cmocka_run_group_tests_name("series_room", tests, NULL, NULL);
}
