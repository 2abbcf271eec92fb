/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_rig.h -- for tests: a simulated bucket, with saves and loads. One of its requests can meet
 * a fault, and its client can die there. Include it after cmocka.h.
 */
#ifndef SUPPORT_OBJECT_RIG_H
#define SUPPORT_OBJECT_RIG_H

#include <stdatomic.h>

#include "base/base.h"
#include "commit/object_form.h"
#include "engine/engine.h"
#include "sidestep/sidestep.h"
#include "support/object_sim.h"
#include "support/unit.h"
#include "support/world.h"

#define PATH "s3://runs/job/step-1"
#define PREFIX "job/step-1/"

/* A bucket, and the fault of one of its requests. */
struct rig {
    struct object_bucket *bucket;
    atomic_uint seen; /* requests so far */
    unsigned at;      /* number of the request (from 1) that meets ${fate}; 0: none */
    unsigned dies;    /* its client also dies: it makes no further request */
    enum object_fate fate;
    bool hit;
    int client; /* of save_once() */
    /* Called before the first put of .metadata by client 0. */
    void (*before_commit)(struct rig *rig);
    char request[64];
};

static inline enum object_fate choose_fate(void *context, int client, const char *request,
                                           const char *key)
{
    struct rig *rig = context;
    void (*act)(struct rig * rig) = rig->before_commit;

    if (act != NULL && client == 0 && strcmp(request, "put") == 0 &&
        strcmp(key, PREFIX ".metadata") == 0) {
        rig->before_commit = NULL;
        act(rig);
    }
    unsigned number = atomic_fetch_add(&rig->seen, 1) + 1;

    if (number != rig->at)
        return OBJECT_DONE;
    rig->hit = true;
    snprintf(rig->request, sizeof(rig->request), "%s", request);
    if (rig->dies)
        object_sim_die(rig->bucket, client);
    return rig->fate;
}

static inline void rig_make(struct rig *rig, unsigned flags)
{
    *rig = (struct rig){0};
    rig->bucket = object_sim_new(flags, OBJECT_MIN_PART_BYTES);
    assert_non_null(rig->bucket);
    object_sim_set_hook(rig->bucket, choose_fate, rig);
}

static inline struct sidestep_engine *open_engine(struct rig *rig, const struct sidestep_comm *comm,
                                                  int client)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct store *store = NULL;
    struct sidestep_error err;

    options.comm = comm;
    options.timeout_ms = 2000;
    assert_int_equal(sidestep_engine_open(&engine, &options, &err), SIDESTEP_OK);
    assert_int_equal(object_store_new("runs", object_sim_client(rig->bucket, client), &store, &err),
                     SIDESTEP_OK);
    assert_int_equal(buckets_add(&engine->buckets, store, &err), SIDESTEP_OK);
    return engine;
}

static inline enum sidestep_status save_once(struct rig *rig, uint64_t seed, bool no_replace,
                                             struct sidestep_error *err)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_engine *engine = open_engine(rig, NULL, rig->client);
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
    struct sidestep_engine *engine = open_engine(rig, NULL, 60);
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
