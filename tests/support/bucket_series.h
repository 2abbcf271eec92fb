/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bucket_series.h -- for tests of a series on a simulated bucket: trainers that save to it and
 * resume from it.
 */
#ifndef SUPPORT_BUCKET_SERIES_H
#define SUPPORT_BUCKET_SERIES_H

#include "series/series.h"
#include "support/bucket_rig.h"

#define ROOT "s3://runs/job"
#define OTHER "00112233445566778899aabbccddeeff"
#define PER_CHECKPOINT 3u /* a shard, the manifest and .metadata */

/* A trainer: an engine over the bucket, and its series. */
struct trainer {
    struct sidestep_engine *engine;
    struct sidestep_series *series;
    struct world world;
};

static inline void open_engine(struct rig *rig, int client, struct trainer *t)
{
    *t = (struct trainer){.engine = rig_engine(rig, NULL, client)};
    world_make(&t->world, 0, 1, WORLD_BY_ROWS, 1, false);
}

static inline enum sidestep_status open_series(struct rig *rig, int client, uint32_t keep_last,
                                               struct trainer *t, struct sidestep_error *err)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = keep_last};
    struct sidestep_series_options options = {.struct_size = sizeof(options),
                                              .retention = keep_last != 0 ? &keep : NULL};

    open_engine(rig, client, t);
    return sidestep_series_open(t->engine, ROOT "/", &options, &t->series, err);
}

static inline void open_trainer(struct rig *rig, int client, uint32_t keep_last, struct trainer *t)
{
    struct sidestep_error err = {0};

    if (open_series(rig, client, keep_last, t, &err) != SIDESTEP_OK)
        fail_msg("open: %s", err.message);
}

static inline void close_trainer(struct trainer *t)
{
    (void)sidestep_series_close(&t->series, NULL);
    (void)sidestep_engine_close(&t->engine, NULL);
    world_free(&t->world);
}

static inline enum sidestep_status save(struct trainer *t, uint64_t step,
                                        struct sidestep_error *err)
{
    world_fill(&t->world, step);
    return sidestep_series_save(t->series, step, t->world.state, NULL, NULL, err);
}

static inline void save_ok(struct trainer *t, uint64_t step)
{
    struct sidestep_error err = {0};

    if (save(t, step, &err) != SIDESTEP_OK)
        fail_msg("save %llu: %s", (unsigned long long)step, err.message);
}

/* Resume, check every byte, and return the step; 0: there is no checkpoint. */
static inline uint64_t resume(struct trainer *t)
{
    struct sidestep_error err = {0};
    char rejected[2048] = "";
    uint64_t step = 0;

    world_fill(&t->world, 77);
    enum sidestep_status status =
        sidestep_series_load(t->series, t->world.state, NULL, &step, NULL, rejected, &err);
    if (status == SIDESTEP_ENOTFOUND)
        return 0;
    if (status != SIDESTEP_OK)
        fail_msg("resume: %d %s; %s", (int)status, err.message, rejected);
    assert_int_equal(world_check(&t->world, step), 0);
    return step;
}

static inline bool object_exists(struct rig *rig, const char *key)
{
    size_t length;

    return object_sim_bytes(rig->bucket, key, &length) != NULL;
}

static inline size_t count_below(struct rig *rig, const char *prefix)
{
    size_t count = 0;

    for (size_t i = 0; i < object_sim_count(rig->bucket); i++)
        count += strncmp(object_sim_key(rig->bucket, i), prefix, strlen(prefix)) == 0;
    return count;
}

static inline void land_all(struct rig *rig)
{
    while (object_sim_late_count(rig->bucket) != 0)
        object_sim_land(rig->bucket, 0);
}

/* Let late requests arrive and an hour pass. The next run must find only complete checkpoints, and
 * resume from a step between ${low} and ${high}. */
static inline void settle(struct rig *rig, uint64_t low, uint64_t high)
{
    struct trainer t;

    rig->at = 0;
    land_all(rig);
    object_sim_advance(rig->bucket, OBJECT_DEAD_SECONDS + 1);
    open_trainer(rig, 61, 0, &t);
    uint64_t step = resume(&t);
    if (step < low || step > high)
        fail_msg("after %s: step %llu is found", rig->request, (unsigned long long)step);
    for (uint64_t s = 1; s <= 9; s++) {
        char prefix[32], metadata[64];
        snprintf(prefix, sizeof(prefix), "job/step-%llu/", (unsigned long long)s);
        snprintf(metadata, sizeof(metadata), "%s.metadata", prefix);
        size_t count = count_below(rig, prefix);
        if (count != (object_exists(rig, metadata) ? PER_CHECKPOINT : 0))
            fail_msg("after %s: %zu objects below %s", rig->request, count, prefix);
    }
    assert_int_equal(object_sim_upload_count(rig->bucket), 0);
    save_ok(&t, 50);
    close_trainer(&t);
}

#endif
