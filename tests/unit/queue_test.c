/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queue_test.c -- several saves under way at once: each has the state of its own call; they commit
 * in the order of the calls; one that fails does not stop those behind it; memory stays below its
 * cap. A pause delays writes, so no test depends on time.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "save/save.h"
#include "sidestep/sidestep_tools.h"
#include "support/one_rank.h"
#include "support/unit.h"

#define SCALE 16
#define LARGE_SCALE 200 /* more than the smallest pool */
#define DEPTH 3u        /* saves at once */

/* Statuses of the calls that start a save. */
static struct {
    const char *point;
    unsigned long nth; /* 0: none */
    bool sticky, fired;
} fault = {.point = ""};

static enum sidestep_snapshot snapshot;
static int64_t scale;
static struct sidestep_save *saves[16];
static char committed[4096]; /* steps in the order of events */
static pthread_mutex_t committed_lock = PTHREAD_MUTEX_INITIALIZER;

static void on_event(void *context, const char *line)
{
    const char *step = strstr(line, "\"step\"");

    (void)context;
    if (strstr(line, "\"committed\"") == NULL || step == NULL)
        return;
    pthread_mutex_lock(&committed_lock);
    size_t used = strlen(committed);
    snprintf(committed + used, sizeof(committed) - used, " %d", atoi(strpbrk(step, "0123456789")));
    pthread_mutex_unlock(&committed_lock);
}

/* The event of a save may come after whoever waits for the save is told. */
static void expect_order(const char *steps)
{
    struct timespec turn = {.tv_nsec = 1000000};
    bool same = false;

    for (int i = 0; i < 10000 && !same; i++) {
        pthread_mutex_lock(&committed_lock);
        same = strcmp(committed, steps) == 0;
        pthread_mutex_unlock(&committed_lock);
        if (!same)
            (void)nanosleep(&turn, NULL);
    }
    assert_true(same);
}

static int begin(uint64_t pool_bytes)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    memset(saves, 0, sizeof(saves));
    memset(&fault, 0, sizeof(fault));
    fault.point = "";
    committed[0] = '\0';
    options.on_event = on_event;
    options.pool_bytes = pool_bytes;
    options.threads = 2;
    options.snapshot = snapshot;
    world_make(&world, 0, 1, WORLD_BY_ROWS, scale, false);
    return scratch_make(&scratch, NULL) && sidestep_engine_open(&engine, &options, NULL) == 0 ? 0
                                                                                              : -1;
}

static int begin_with(enum sidestep_snapshot how, int64_t times)
{
    snapshot = how;
    scale = times;
    return begin(0);
}

/* Protected memory would let a paused save go on when the trainer writes to it. */
static int setup(void **state)
{
    (void)state;
    return begin_with(SIDESTEP_SNAPSHOT_COPY, SCALE);
}

static int setup_large(void **state)
{
    (void)state;
    return begin_with(SIDESTEP_SNAPSHOT_COPY, LARGE_SCALE);
}

static int setup_held(void **state)
{
    (void)state;
    return begin_with(SIDESTEP_SNAPSHOT_AUTO, SCALE);
}

static int teardown(void **state)
{
    (void)state;
    fault_arm("", 0, false, 0);
    return one_rank_end();
}

static enum sidestep_status start_to(const char *path, uint64_t step, uint32_t queue,
                                     uint32_t flags)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;

    options.queue = queue;
    options.flags = flags;
    options.has_step = true;
    options.step = step;
    world_fill(&world, step);
    fault_arm(fault.point, fault.nth, fault.sticky, ENOMEM);
    enum sidestep_status status =
        sidestep_save_async(engine, path, world.state, &options, &saves[step], &err);
    fault.fired = fault_fired() != NULL;
    fault_arm("", 0, false, 0);
    world_fill(&world, 1000 + step);
    return status;
}

static enum sidestep_status start(uint64_t step, uint32_t queue)
{
    return start_to(step_path(step), step, queue, 0);
}

static struct sidestep_save_info poll(uint64_t step)
{
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;

    assert_int_equal(sidestep_save_poll(saves[step], &info), SIDESTEP_OK);
    return info;
}

static bool is_queued(uint64_t step)
{
    return (poll(step).flags & SIDESTEP_SAVE_QUEUED) != 0;
}

static enum sidestep_status finish(uint64_t step)
{
    return sidestep_save_finish(&saves[step], NULL, &err);
}

static void finish_all(uint64_t last)
{
    for (uint64_t n = 1; n <= last; n++)
        ASSERT_OK(finish(n));
}

static void expect_at(const char *path, uint64_t step)
{
    struct world loaded;

    world_make(&loaded, 0, 1, WORLD_BY_COLUMNS, scale, true);
    ASSERT_OK(sidestep_load(engine, path, loaded.state, NULL, NULL, &err));
    assert_int_equal(world_check(&loaded, step), 0);
    world_free(&loaded);
}

static void expect(uint64_t step)
{
    expect_at(step_path(step), step);
}

static void expect_all(uint64_t last)
{
    for (uint64_t n = 1; n <= last; n++)
        expect(n);
}

/* ---- one rank */

TEST(each_queued_save_has_the_state_of_its_call)
{
    sidestep_engine_pause(engine);
    for (uint64_t n = 1; n <= DEPTH; n++)
        ASSERT_OK(start(n, DEPTH - 1));
    assert_true(poll(1).state < SIDESTEP_SAVE_WRITTEN && !is_queued(1));
    for (uint64_t n = 2; n <= DEPTH; n++) {
        assert_int_equal(poll(n).state, SIDESTEP_SAVE_RELEASED);
        assert_true(is_queued(n));
        assert_int_equal(poll(n).snapshot, SIDESTEP_SNAPSHOT_COPY);
        assert_int_equal(poll(n).bytes_written, 0);
        assert_false(step_exists(n));
    }
    assert_int_equal(start_to(step_path(4), 4, DEPTH - 1, SIDESTEP_SAVE_NOWAIT), SIDESTEP_EBUSY);
    assert_non_null(strstr(err.message, "step-1"));
    assert_true(poll(1).state < SIDESTEP_SAVE_WRITTEN);
    ASSERT_OK(start(4, DEPTH - 1)); /* waits for the first */
    assert_int_equal(poll(1).state, SIDESTEP_SAVE_COMMITTED);
    assert_true(poll(4).wait_ns != 0);
    sidestep_engine_resume(engine);
    for (uint64_t n = 4; n >= 1; n--) /* in whatever order they are asked */
        ASSERT_OK(finish(n));
    expect_all(4);
    expect_order(" 1 2 3 4");
}

TEST_WITH(more_saves_than_the_queue_holds, setup_held, teardown)
{
    for (uint64_t n = 1; n <= 6; n++)
        ASSERT_OK(start(n, 3));
    finish_all(6);
    expect_all(6);
    expect_order(" 1 2 3 4 5 6");
}

TEST(without_a_queue_the_call_waits)
{
    sidestep_engine_pause(engine);
    ASSERT_OK(start(1, 0));
    ASSERT_OK(start(2, 0));
    assert_int_equal(poll(1).state, SIDESTEP_SAVE_COMMITTED);
    assert_false(is_queued(2));
    sidestep_engine_resume(engine);
    finish_all(2);
    assert_int_equal(start(3, SIDESTEP_MAX_QUEUE + 1), SIDESTEP_EINVAL);
}

/* Others go on, and the failure is reported once. */
TEST(a_failed_save_does_not_stop_later_ones)
{
    for (int asks = 0; asks < 2; asks++) {
        uint64_t n = asks == 0 ? 1 : 5;
        sidestep_engine_pause(engine);
        ASSERT_OK(start(n, 2));
        ASSERT_OK(start(n + 1, 2));
        assert_true(poll(n).state < SIDESTEP_SAVE_WRITTEN);
        fault_arm("posix.fsync", 1, false, EIO);
        sidestep_engine_resume(engine);
        ASSERT_OK(sidestep_save_wait(saves[n + 1], SIDESTEP_SAVE_COMMITTED, -1, &err));
        fault_arm("", 0, false, 0);
        assert_int_equal(poll(n).state, SIDESTEP_SAVE_ABORTED);
        if (asks == 0) {
            assert_int_equal(start(n + 2, 2), SIDESTEP_EIO); /* it was not reported yet */
            assert_non_null(strstr(err.message, "the save before this one failed"));
        }
        assert_int_equal(finish(n), SIDESTEP_EIO);
        ASSERT_OK(start(n + 3, 2));
        ASSERT_OK(finish(n + 3));
        ASSERT_OK(finish(n + 1));
        assert_false(step_exists(n) || step_exists(n + 2));
        expect(n + 1);
        expect(n + 3);
    }
}

/* A clock that lets save 1 fail while the call for save 2 is under way: after that call has looked
 * at what became of save 1, and before it agrees with the other ranks. */
static bool waits_for_call; /* only the thread that calls uses it */
static pthread_t caller;

static uint64_t failing_now(struct clock *clock)
{
    (void)clock;
    if (pthread_equal(pthread_self(), caller) != 0 && waits_for_call &&
        engine->saver->slots[1].used == engine->saver->save_counter) {
        waits_for_call = false;
        fault_arm("posix.fsync", 1, false, EIO);
        sidestep_engine_resume(engine);
        ASSERT_OK(sidestep_save_watch(saves[1], SIDESTEP_SAVE_ABORTED, -1, &err));
        fault_arm("", 0, false, 0);
    }
    return clock_now(clock_system());
}

TEST(a_failure_during_a_call_is_reported_by_the_next_one)
{
    struct clock clock = {failing_now, clock_system()->sleep_ms};

    caller = pthread_self();
    engine->clock = &clock;
    sidestep_engine_pause(engine);
    ASSERT_OK(start(1, 2));
    waits_for_call = true;
    ASSERT_OK(start(2, 2));
    assert_false(waits_for_call);
    assert_int_equal(poll(1).state, SIDESTEP_SAVE_ABORTED);
    assert_int_equal(start(3, 2), SIDESTEP_EIO);
    assert_non_null(strstr(err.message, "the save before this one failed"));
    assert_int_equal(finish(1), SIDESTEP_EIO);
    ASSERT_OK(finish(2));
    ASSERT_OK(start(4, 2));
    ASSERT_OK(finish(4));
    engine->clock = clock_system();
}

/* It was not reported yet, as if the thread that asks had not run: the next call succeeds
 * nevertheless. */
TEST(a_save_that_is_not_sticky_refuses_nothing)
{
    sidestep_engine_pause(engine);
    ASSERT_OK(start_to(step_path(1), 1, 2, SIDESTEP_SAVE_NOT_STICKY));
    ASSERT_OK(start(2, 2));
    fault_arm("posix.fsync", 1, false, EIO);
    sidestep_engine_resume(engine);
    ASSERT_OK(sidestep_save_wait(saves[2], SIDESTEP_SAVE_COMMITTED, -1, &err));
    fault_arm("", 0, false, 0);
    assert_int_equal(poll(1).state, SIDESTEP_SAVE_ABORTED);
    ASSERT_OK(start(3, 2));
    assert_int_equal(finish(1), SIDESTEP_EIO);
    ASSERT_OK(finish(2));
    ASSERT_OK(finish(3));
    assert_false(step_exists(1));
    expect(2);
    expect(3);
}

TEST_WITH(the_cap_holds_for_all_together, setup_large, teardown)
{
    uint64_t bytes;

    ASSERT_OK(start(1, 0));
    bytes = poll(1).bytes_total;
    ASSERT_OK(finish(1));
    assert_true(bytes > 16 << 20);
    for (uint64_t places = 1; places <= 2; places++) {
        assert_int_equal(one_rank_end(), 0);
        uint64_t cap = places * ((bytes | ((2 << 20) - 1)) + 1);
        assert_int_equal(begin(cap), 0);
        bool fits = places == 2;
        sidestep_engine_pause(engine);
        ASSERT_OK(start(1, 4));
        ASSERT_OK(start(2, 4));
        assert_int_equal(is_queued(2), fits);
        assert_int_equal(poll(1).state == SIDESTEP_SAVE_COMMITTED, !fits);
        assert_int_equal(start_to(step_path(3), 3, 4, SIDESTEP_SAVE_NOWAIT), SIDESTEP_EBUSY);
        ASSERT_OK(start(3, 4));
        assert_int_equal(poll(fits ? 1 : 2).state, SIDESTEP_SAVE_COMMITTED);
        sidestep_engine_resume(engine);
        finish_all(3);
        expect_all(3);
    }
}

static uint64_t pool_bytes(void)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < TURN_MAX_SAVES; i++)
        bytes += engine->saver->slots[i].pool.length;
    return bytes;
}

/* After a slow moment its memory is returned, step by step. */
TEST(memory_of_a_slow_moment_is_returned)
{
    ASSERT_OK(start(1, 4));
    ASSERT_OK(finish(1));
    uint64_t one = pool_bytes();
    sidestep_engine_pause(engine);
    for (uint64_t n = 2; n <= 4; n++)
        ASSERT_OK(start(n, 4));
    sidestep_engine_resume(engine);
    for (uint64_t n = 2; n <= 4; n++)
        ASSERT_OK(finish(n));
    assert_int_equal(pool_bytes(), 3 * one);
    /* A save may begin while the thread of the one before is still ending, and so use another
     * slot. */
    for (unsigned i = 0; i < 500 && pool_bytes() != one; i++) {
        assert_true(pool_bytes() == 3 * one || i + 1 >= SLOT_IDLE_SAVES);
        ASSERT_OK(start(5, 4));
        ASSERT_OK(finish(5));
    }
    assert_int_equal(pool_bytes(), one);
    expect_all(5);
}

/* Then the pool of the first one is used. */
TEST(a_queued_save_waits_for_memory)
{
    ASSERT_OK(start(1, 0));
    sidestep_engine_pause(engine);
    ASSERT_OK(start(2, 0));
    fault.point = "pool.map", fault.nth = 1, fault.sticky = true;
    ASSERT_OK(start(3, 2));
    assert_true(fault.fired);
    fault.nth = 0, fault.sticky = false;
    assert_int_equal(poll(2).state, SIDESTEP_SAVE_COMMITTED);
    sidestep_engine_resume(engine);
    finish_all(3);
    expect(2);
    expect(3);
}

TEST(another_layout_may_follow)
{
    struct world other;

    sidestep_engine_pause(engine);
    ASSERT_OK(start(1, 2));
    world_make(&other, 0, 1, WORLD_BY_ROWS, SCALE / 2, false);
    struct world mine = world;
    world = other;
    ASSERT_OK(start(2, 2));
    other = world;
    world = mine;
    ASSERT_OK(start(3, 2));
    sidestep_engine_resume(engine);
    finish_all(3);
    expect(1);
    expect(3);
    world_free(&other);
    world_make(&other, 0, 1, WORLD_BY_ROWS, SCALE / 2, true);
    ASSERT_OK(sidestep_load(engine, step_path(2), other.state, NULL, NULL, &err));
    assert_int_equal(world_check(&other, 2), 0);
    world_free(&other);
}

TEST(the_same_path_waits)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/one", scratch.path);
    sidestep_engine_pause(engine);
    ASSERT_OK(start_to(path, 1, 2, 0));
    assert_int_equal(start_to(path, 2, 2, SIDESTEP_SAVE_NOWAIT), SIDESTEP_EBUSY);
    ASSERT_OK(start_to(path, 2, 2, 0));
    assert_int_equal(poll(1).state, SIDESTEP_SAVE_COMMITTED);
    sidestep_engine_resume(engine);
    finish_all(2);
    expect_at(path, 2);
}

TEST(any_allocation_may_fail)
{
    unsigned long failed = 0;
    bool fired = true;

    for (unsigned long nth = 1; fired && nth < 400; nth += nth < 40 ? 1 : 7) {
        sidestep_engine_pause(engine);
        ASSERT_OK(start(1, 2));
        fault.point = "memory", fault.nth = nth;
        enum sidestep_status second = start(2, 2);
        fired = fault.fired;
        fault.nth = 0;
        failed += second != SIDESTEP_OK;
        sidestep_engine_resume(engine);
        ASSERT_OK(finish(1));
        expect(1);
        if (second == SIDESTEP_OK) {
            ASSERT_OK(finish(2));
            expect(2);
        }
        ASSERT_OK(start(3, 2)); /* and nothing is left of it */
        ASSERT_OK(finish(3));
    }
    assert_false(fired);
    assert_true(failed > 5);
}

TEST(close_waits_and_returns_the_error)
{
    sidestep_engine_pause(engine);
    for (uint64_t n = 1; n <= 3; n++)
        ASSERT_OK(start(n, 2));
    fault_arm("posix.fsync", 1, false, EIO);
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_EIO);
    fault_arm("", 0, false, 0);
    assert_int_equal(finish(1), SIDESTEP_EIO);
    ASSERT_OK(finish(2));
    ASSERT_OK(finish(3));
    ASSERT_OK(sidestep_engine_open(&engine, NULL, &err));
    assert_false(step_exists(1));
    expect(2);
    expect(3);
}

TEST(a_forked_child_does_not_run_the_engine)
{
    int status;

    sidestep_engine_pause(engine);
    for (uint64_t n = 1; n <= 3; n++)
        ASSERT_OK(start(n, 2));
    pid_t child = fork();
    if (child == 0) {
        bool refused = sidestep_save_finish(&saves[2], NULL, NULL) == SIDESTEP_EFORKED &&
                       sidestep_save_finish(&saves[3], NULL, NULL) == SIDESTEP_EFORKED &&
                       sidestep_engine_close(&engine, NULL) == SIDESTEP_EFORKED;
        _exit(!refused);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sidestep_engine_resume(engine);
    finish_all(3);
    expect_all(3);
}

/* ---- a series */

static struct sidestep_series *open_keeping(uint32_t keep_last, uint32_t flags)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = keep_last};
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    options.flags = flags;
    options.retention = &keep;
    return open_with(&options);
}

static void start_in(struct sidestep_series *series, uint64_t step)
{
    struct sidestep_metric metric = {.name = "loss", .value = (double)step};
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;

    options.queue = SIDESTEP_MAX_QUEUE;
    ASSERT_OK(sidestep_series_note(series, step, &metric, 1, NULL, 0, &err));
    world_fill(&world, step);
    ASSERT_OK(sidestep_series_save_async(series, step, world.state, &options, &saves[step], &err));
}

TEST(a_series_queues_notes_and_prunes)
{
    struct sidestep_series *series = open_keeping(2, 0);
    struct sidestep_series_status status = SIDESTEP_SERIES_STATUS_INIT;
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    for (uint64_t n = 1; n <= 12; n++) {
        if (n % 6 == 1)
            sidestep_engine_pause(engine);
        start_in(series, n);
        if (n % 6 == 0)
            sidestep_engine_resume(engine);
    }
    assert_int_equal(sidestep_series_status(series, &status), SIDESTEP_OK);
    assert_true(status.queued >= 10 && status.skipped == 0);
    ASSERT_OK(sidestep_series_close(&series, &err));
    finish_all(12);
    expect_order(" 1 2 3 4 5 6 7 8 9 10 11 12");
    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    assert_int_equal(list.count, 2);
    for (size_t i = 0; i < list.count; i++) {
        assert_int_equal(sidestep_list_entry(&list, i)->metric_count, 1);
        assert_true(sidestep_list_entry(&list, i)->metrics[0].value ==
                    (double)sidestep_list_entry(&list, i)->step);
        expect((uint64_t)sidestep_list_entry(&list, i)->step);
    }
}

TEST(incremental_saves_are_not_queued)
{
    struct sidestep_series *series = open_keeping(2, SIDESTEP_SERIES_INCREMENTAL);

    for (uint64_t n = 1; n <= 5; n++) {
        sidestep_engine_pause(engine);
        start_in(series, n);
        assert_false(is_queued(n));
        sidestep_engine_resume(engine);
    }
    ASSERT_OK(sidestep_series_close(&series, &err));
    finish_all(5);
    expect(5);
}

EACH_TEST(setup, teardown);
