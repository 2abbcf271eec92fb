/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_rig.h -- for tests: saves to one path in a simulated bucket, and loads of it. Include it
 * after cmocka.h.
 */
#ifndef SUPPORT_OBJECT_RIG_H
#define SUPPORT_OBJECT_RIG_H

#include "support/bucket_rig.h"

#define PATH "s3://runs/job/step-1"
#define PREFIX "job/step-1/"

static inline enum sidestep_status save_once(struct rig *rig, uint64_t seed, bool no_replace,
                                             struct sidestep_error *err)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_engine *engine = rig_engine(rig, NULL, rig->client);
    struct world world;

    if (no_replace)
        options.flags |= SIDESTEP_SAVE_NO_REPLACE;
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    world_fill(&world, seed);
    enum sidestep_status status = sidestep_save(engine, PATH, world.state, &options, NULL, err);
    (void)sidestep_engine_close(&engine, NULL);
    world_free(&world);
    return status;
}

/* Which seed, ${a} or ${b}, has the checkpoint? 0: there is none. Fails if it has another state. */
static inline uint64_t held(struct rig *rig, uint64_t a, uint64_t b)
{
    struct sidestep_engine *engine = rig_engine(rig, NULL, 60);
    struct sidestep_error err = {0};
    struct world world;
    uint64_t seed = 0;

    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, true);
    enum sidestep_status status = sidestep_load(engine, PATH, world.state, NULL, NULL, &err);
    if (status == SIDESTEP_OK && world_check(&world, a) == 0)
        seed = a;
    else if (status == SIDESTEP_OK && world_check(&world, b) == 0)
        seed = b;
    else if (status == SIDESTEP_OK)
        fail_msg("%s", "a mixture was loaded");
    else if (status != SIDESTEP_EUNCOMMITTED && status != SIDESTEP_ENOTFOUND)
        fail_msg("load: %d %s", (int)status, err.message);
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_OK);
    world_free(&world);
    return seed;
}

/* Let late requests arrive, and let an hour pass. The next save must sweep what is left behind, and
 * be complete. */
static inline void settle(struct rig *rig)
{
    struct sidestep_error err;

    while (object_sim_late_count(rig->bucket) != 0)
        object_sim_land(rig->bucket, 0);
    object_sim_advance(rig->bucket, OBJECT_DEAD_SECONDS + 1);
    rig->at = 0;
    rig->client = 61;
    if (save_once(rig, 9, false, &err) != SIDESTEP_OK)
        fail_msg("save after %s: %s", rig->request, err.message);
    assert_int_equal(held(rig, 9, 9), 9);
    if (object_sim_count(rig->bucket) != 3 || object_sim_upload_count(rig->bucket) != 0)
        fail_msg("%s: %zu objects and %zu uploads are left, one of them %s", rig->request,
                 object_sim_count(rig->bucket), object_sim_upload_count(rig->bucket),
                 object_sim_key(rig->bucket, 0));
}

#endif
