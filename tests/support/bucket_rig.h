/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bucket_rig.h -- for tests: a simulated bucket, and engines over it. One of its requests can meet
 * a fault, and its client can die there. Include it after cmocka.h.
 */
#ifndef SUPPORT_BUCKET_RIG_H
#define SUPPORT_BUCKET_RIG_H

#include <stdatomic.h>

#include "base/base.h"
#include "commit/object_form.h"
#include "engine/engine.h"
#include "sidestep/sidestep.h"
#include "support/object_sim.h"
#include "support/unit.h"
#include "support/world.h"

/* A bucket, and the fault of one of its requests. */
struct rig {
    struct object_bucket *bucket;
    atomic_uint seen; /* requests so far */
    atomic_uint at;   /* number of the request (from 1) that meets ${fate}; 0: none. Set it last. */
    bool dies;        /* its client also dies: it makes no further request */
    enum object_fate fate;
    atomic_bool hit;
    char request[128];
    /* Called once, before client 0 sends ${before} for a key that ends with ${key}. */
    void (*act)(struct rig *rig);
    const char *before, *key;
    int client; /* of save_once() */
};

static inline bool is_moment(const struct rig *rig, int client, const char *request,
                             const char *key)
{
    return rig->act != NULL && client == 0 && strcmp(request, rig->before) == 0 &&
           file_name_has_suffix(key, rig->key);
}

static inline enum object_fate choose_fate(void *context, int client, const char *request,
                                           const char *key)
{
    struct rig *rig = context;

    if (is_moment(rig, client, request, key)) {
        void (*act)(struct rig * rig) = rig->act;
        rig->act = NULL;
        act(rig);
    }
    unsigned number = atomic_fetch_add(&rig->seen, 1) + 1;
    if (number != atomic_load(&rig->at))
        return OBJECT_DONE;
    snprintf(rig->request, sizeof(rig->request), "%s %s", request, key);
    atomic_store(&rig->hit, true);
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

static inline struct sidestep_engine *rig_engine(struct rig *rig, const struct sidestep_comm *comm,
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

#endif
