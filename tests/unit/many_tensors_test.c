/* SPDX-License-Identifier: BSD-3-Clause */
/* many_tensors_test.c -- a call asks the system and the other ranks once, however many tensors
 * there are. */
#include <errno.h>

#include "base/fault.h"
#include "support/comm_threads.h"
#include "support/one_rank.h"
#include "support/unit.h"

static void count_looks(void)
{
    fault_arm("cuda.look", 1000000, false, ENOENT);
}

TEST(a_driver_is_looked_for_once_a_call)
{
    char path[256];

    assert_true(world.count > 4);
    snprintf(path, sizeof(path), "%s/it", scratch.path);
    count_looks();
    ASSERT_OK(sidestep_engine_prepare(engine, world.state, &err));
    assert_int_equal(fault_hits(), 1);
    for (int i = 0; i < 2; i++) {
        world_fill(&world, 1);
        count_looks();
        ASSERT_OK(sidestep_save(engine, path, world.state, NULL, NULL, &err));
        assert_int_equal(fault_hits(), 1);
    }
    count_looks();
    ASSERT_OK(sidestep_load(engine, path, world.state, NULL, NULL, &err));
    assert_int_equal(fault_hits(), 1);
    fault_arm("", 0, false, 0);
}

/* Counts the calls of the communicator in each save. */
struct counted {
    unsigned long calls[4];
};

static int count_calls(struct sidestep_comm *comm, void *context)
{
    struct counted *counted = context;
    struct sidestep_engine *own = NULL;
    struct world mine;
    int bad = 0;

    bad |= comm_threads_open(comm, &own, NULL) != SIDESTEP_OK;
    world_make(&mine, comm->rank, comm->size, WORLD_BY_ROWS, 1, false);
    for (unsigned i = 0; i < 4; i++) {
        struct sidestep_save *save = NULL;
        char path[256];
        snprintf(path, sizeof(path), "%s/counted-%u", scratch.path, i);
        world_fill(&mine, i);
        unsigned long before = comm_threads_calls(comm);
        bad |= sidestep_save_async(own, path, mine.state, NULL, &save, NULL) != SIDESTEP_OK;
        bad |= sidestep_save_finish(&save, NULL, NULL) != SIDESTEP_OK;
        if (comm->rank == 1)
            counted->calls[i] = comm_threads_calls(comm) - before;
    }
    world_free(&mine);
    bad |= sidestep_engine_close(&own, NULL) != SIDESTEP_OK;
    return bad;
}

TEST(a_layout_that_stays_takes_one_call)
{
    struct counted counted = {0};

    assert_int_equal(comm_threads_run(3, count_calls, &counted), 0);
    print_message("# %lu %lu %lu %lu\n", counted.calls[0], counted.calls[1], counted.calls[2],
                  counted.calls[3]);
    assert_true(counted.calls[0] > counted.calls[1]);
    for (unsigned i = 1; i < 4; i++)
        assert_int_equal(counted.calls[i], 1); /* and no other, until it is finished */
}

ALL_TESTS(one_rank_setup, one_rank_teardown);
