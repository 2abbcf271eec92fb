/* SPDX-License-Identifier: BSD-3-Clause */
/* load_objects_test.c -- a load lets the caller look at the objects before it changes a tensor. */
#include "sidestep/sidestep.h"
#include "support/comm_threads.h"
#include "support/one_scratch.h"
#include "support/world.h"

struct look {
    const struct world *world;
    bool refuses;
    int count;
};

static bool are_tensors_zero(const struct world *world)
{
    for (size_t i = 0; i < world->count; i++)
        for (size_t b = 0; b < world->tensors[i].block_bytes; b++)
            if (world->tensors[i].block[b] != 0)
                return false;
    return true;
}

/* When this is called, the objects are loaded, and no tensor is. */
static enum sidestep_status look_at_objects(void *context, struct sidestep_error *err)
{
    struct look *look = context;
    const struct sidestep_value *config = sidestep_state_dict_value(look->world->state, "config");

    look->count += config != NULL && sidestep_value_get_int(sidestep_value_item(config, 0)) == 5 &&
                   are_tensors_zero(look->world);
    if (!look->refuses)
        return SIDESTEP_OK;
    err->status = SIDESTEP_EUNSUPPORTED;
    snprintf(err->message, sizeof(err->message), "'o' is not data");
    return SIDESTEP_EUNSUPPORTED;
}

static int run_looking(struct sidestep_comm *comm, void *context)
{
    int culprit = *(const int *)context;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_load_options load_options = SIDESTEP_LOAD_OPTIONS_INIT;
    struct sidestep_error err = {0};
    struct sidestep_engine *engine = NULL;
    struct world world;
    struct look look = {.world = &world, .refuses = comm->rank == culprit};
    int bad = 0;

    options.comm = comm, options.threads = 1;
    load_options.check_objects = look_at_objects, load_options.context = &look;
    EXPECT(sidestep_engine_open(&engine, &options, &err) == SIDESTEP_OK);
    world_make(&world, comm->rank, comm->size, WORLD_BY_ROWS, 2, false);
    world_fill(&world, 5);
    EXPECT(sidestep_save(engine, scratch.path, world.state, NULL, NULL, &err) == SIDESTEP_OK);
    world_free(&world);
    world_make(&world, comm->rank, comm->size, WORLD_BY_ROWS, 2, true);
    EXPECT(sidestep_load(engine, scratch.path, world.state, &load_options, NULL, &err) ==
           SIDESTEP_EUNSUPPORTED);
    EXPECT(err.rank == (comm->rank == culprit ? -1 : culprit));
    EXPECT(strstr(err.message, "no tensor was changed: 'o' is not data") != NULL);
    EXPECT(look.count == 1 && are_tensors_zero(&world));
    look.refuses = false;
    EXPECT(sidestep_load(engine, scratch.path, world.state, &load_options, NULL, &err) ==
           SIDESTEP_OK);
    EXPECT(look.count == 2 && world_check(&world, 5) == 0);
    world_free(&world);
    EXPECT(sidestep_engine_close(&engine, &err) == SIDESTEP_OK);
    return bad;
}

TEST(objects_are_looked_at_before_a_tensor_is_changed)
{
    for (int culprit = 0; culprit < 2; culprit++)
        assert_int_equal(comm_threads_run(2, run_looking, &culprit), 0);
}

EACH_TEST(scratch_setup, scratch_teardown);
