/* SPDX-License-Identifier: BSD-3-Clause */
/* queue_ranks_test.c -- several saves under way at once, of several ranks: all ranks have the same
 * list of them, and get the same answers. */
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/fault.h"
#include "support/comm_threads.h"
#include "support/one_rank.h"
#include "support/unit.h"

#define SCALE 16

static char committed[4096]; /* steps in the order of rank 0's events */

static void on_event(void *context, const char *line)
{
    const char *step = strstr(line, "\"step\"");

    (void)context;
    if (strstr(line, "\"committed\"") == NULL || step == NULL)
        return;
    size_t used = strlen(committed);
    snprintf(committed + used, sizeof(committed) - used, " %d", atoi(strpbrk(step, "0123456789")));
}

static int setup(void **state)
{
    (void)state;
    committed[0] = '\0';
    return one_rank_begin(NULL);
}

static int teardown(void **state)
{
    (void)state;
    fault_arm("", 0, false, 0);
    return one_rank_end();
}

static void expect(uint64_t step)
{
    struct world loaded;

    world_make(&loaded, 0, 1, WORLD_BY_COLUMNS, SCALE, true);
    ASSERT_OK(sidestep_load(engine, step_path(step), loaded.state, NULL, NULL, &err));
    assert_int_equal(world_check(&loaded, step), 0);
    world_free(&loaded);
}

/* Save step ${n}, behind at most two that are under way; on any thread. */
static enum sidestep_status async_save(struct sidestep_engine *own, uint64_t n, struct world *part,
                                       struct sidestep_save **save, struct sidestep_error *why)
{
    struct sidestep_save_options wanted = SIDESTEP_SAVE_OPTIONS_INIT;
    char path[256];

    wanted.queue = 2;
    wanted.has_step = true;
    wanted.step = n;
    snprintf(path, sizeof(path), "%s/step-%llu", scratch.path, (unsigned long long)n);
    return sidestep_save_async(own, path, part->state, &wanted, save, why);
}

struct ranks {
    bool fails; /* rank 2 cannot write its part of the first save */
};

static int run_ranks(struct sidestep_comm *comm, void *context)
{
    const struct ranks *ranks = context;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *own = NULL;
    struct sidestep_save *mine[5] = {NULL};
    struct world part;
    int bad = 0;

    options.comm = comm;
    options.threads = 1;
    options.on_event = comm->rank == 0 ? on_event : NULL;
    bad |= sidestep_engine_open(&own, &options, NULL) != SIDESTEP_OK;
    world_make(&part, comm->rank, comm->size, WORLD_BY_ROWS, SCALE, false);
    for (uint64_t n = 1; bad == 0 && n <= 4; n++) {
        world_fill(&part, n);
        if (n == 1)
            sidestep_engine_pause(own);
        if (n == 3 && ranks->fails && comm->rank == 2)
            fault_arm("posix.fsync", 1, false, EIO); /* on the rank that comes first */
        if (n == 3)
            sidestep_engine_resume(own);
        enum sidestep_status status = async_save(own, n, &part, &mine[n], NULL);
        /* Some rank may know of the failure by now: all get the same answer. */
        bad |= status != SIDESTEP_OK && !ranks->fails;
    }
    int committed_here = 0;
    for (uint64_t n = 4; n >= 1; n--)
        if (mine[n] != NULL)
            committed_here += sidestep_save_finish(&mine[n], NULL, NULL) == SIDESTEP_OK;
    bad |= !ranks->fails && committed_here != 4;
    world_free(&part);
    enum sidestep_status closed = sidestep_engine_close(&own, NULL);
    bad |= !ranks->fails && closed != SIDESTEP_OK;
    return bad;
}

TEST(ranks_queue_together)
{
    struct ranks ranks = {.fails = false};

    assert_int_equal(comm_threads_run(4, run_ranks, &ranks), 0);
    assert_string_equal(committed, " 1 2 3 4");
    for (uint64_t n = 1; n <= 4; n++)
        expect(n);
}

TEST(a_rank_that_fails_fails_one_save)
{
    struct ranks ranks = {.fails = true};
    unsigned there = 0;

    assert_int_equal(comm_threads_run(4, run_ranks, &ranks), 0);
    assert_non_null(fault_fired());
    fault_arm("", 0, false, 0);
    for (uint64_t n = 1; n <= 4; n++)
        if (step_exists(n)) {
            expect(n);
            there++;
        }
    /* The one that failed, and at most one that was refused because of it. */
    assert_true(there >= 2 && there <= 3);
}

/* Poll ${save} until it has ended on this rank: on rank 0, or where it fails. The others learn it
 * when they ask. */
static void await_end(struct sidestep_save *save)
{
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;

    do
        usleep(1000);
    while (sidestep_save_poll(save, &info) == SIDESTEP_OK && info.state < SIDESTEP_SAVE_COMMITTED);
}

static atomic_bool has_failed; /* rank 2 failed in the first save */

/* Only rank 2 knows of the failure of a save when the second is called, and all know it when the
 * third is: it refuses the second, and not also the third. */
static int run_told_once(struct sidestep_comm *comm, void *context)
{
    struct sidestep_engine *own = NULL;
    struct sidestep_save *first = NULL, *second = NULL, *third = NULL;
    struct sidestep_error why = {0};
    struct world part;
    int bad = 0;

    (void)context;
    bad |= comm_threads_open(comm, &own, NULL) != SIDESTEP_OK;
    world_make(&part, comm->rank, comm->size, WORLD_BY_ROWS, SCALE, false);
    world_fill(&part, 3);
    sidestep_engine_pause(own);
    bad |= async_save(own, 1, &part, &first, &why) != SIDESTEP_OK;
    if (comm->rank == 2) {
        fault_arm("posix.fsync", 1, false, EIO);
        sidestep_engine_resume(own);
        await_end(first);
        atomic_store(&has_failed, true);
    }
    while (!atomic_load(&has_failed))
        usleep(1000);
    bad |= async_save(own, 2, &part, &second, &why) == SIDESTEP_OK;
    bad |= strstr(why.message, "the save before this one failed") == NULL;
    if (comm->rank != 2)
        sidestep_engine_resume(own);
    if (comm->rank == 0)
        await_end(first);
    bad |= async_save(own, 3, &part, &third, &why) != SIDESTEP_OK;
    bad |= sidestep_save_finish(&third, NULL, NULL) != SIDESTEP_OK;
    bad |= sidestep_save_finish(&first, NULL, NULL) == SIDESTEP_OK;
    world_free(&part);
    bad |= sidestep_engine_close(&own, NULL) != SIDESTEP_OK;
    return bad;
}

TEST(a_failure_refuses_one_call)
{
    atomic_store(&has_failed, false);
    assert_int_equal(comm_threads_run(4, run_told_once, NULL), 0);
    assert_string_equal(fault_fired(), "posix.fsync");
    fault_arm("", 0, false, 0);
    assert_false(step_exists(1));
    assert_false(step_exists(2));
    expect(3);
}

EACH_TEST(setup, teardown);
