/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_save_test.c -- saves to a simulated bucket and loads from it, while each request meets
 * each fault: refused, done without an answer, done later.
 *
 * Whatever happens, NAME holds the checkpoint before or the new one, whole; a save that says OK is
 * the new one; and after an hour a save has swept everything that was left.
 */
#include "support/comm_threads.h"
#include "support/object_rig.h"
#include "support/unit.h"

#define RANKS 3

TEST(saves_and_loads)
{
    struct sidestep_error err;
    struct rig rig;

    rig_make(&rig, 0);
    assert_int_equal(held(&rig, 1, 2), 0);
    assert_int_equal(save_once(&rig, 1, true, &err), SIDESTEP_OK);
    assert_int_equal(held(&rig, 1, 2), 1);
    /* The shard, the manifest and .metadata, and nothing else. */
    assert_int_equal(object_sim_count(rig.bucket), 3);
    assert_int_equal(save_once(&rig, 2, false, &err), SIDESTEP_OK);
    assert_int_equal(held(&rig, 1, 2), 2);
    assert_int_equal(object_sim_count(rig.bucket), 3);
    assert_int_equal(object_sim_upload_count(rig.bucket), 0);
    object_sim_free(&rig.bucket);
}

/* A request that gets no answer takes until its deadline. A store that does not answer one request
 * of a save is asked nothing more, unless the answer decides how the save ended. */
TEST(a_silent_store_is_waited_for_once)
{
    struct sidestep_error err;
    struct rig rig;

    rig_make(&rig, 0);
    assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
    unsigned requests = rig.seen;
    object_sim_free(&rig.bucket);
    for (unsigned at = 1; at <= requests; at++) {
        rig_make(&rig, 0);
        rig.at = at;
        rig.fate = OBJECT_LATE;
        rig.dies = 1;
        enum sidestep_status status = save_once(&rig, 1, false, &err);
        if (status == SIDESTEP_ETIMEDOUT && rig.seen != at)
            fail_msg("%u requests after request %u, %s", rig.seen - at, at, rig.request);
        object_sim_free(&rig.bucket);
    }
}

TEST(what_must_not_be_replaced_stays)
{
    struct sidestep_error err;
    struct rig rig;

    rig_make(&rig, 0);
    assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
    assert_int_equal(save_once(&rig, 2, true, &err), SIDESTEP_EEXISTS);
    assert_non_null(strstr(err.message, PATH));
    assert_int_equal(held(&rig, 1, 2), 1);
    object_sim_free(&rig.bucket);
}

TEST(a_store_without_conditions_refuses_what_needs_them)
{
    static const unsigned flags[] = {OBJECT_SIM_IGNORES_CONDITIONS, OBJECT_SIM_REFUSES_CONDITIONS};
    struct sidestep_error err;

    for (size_t i = 0; i < ARRAY_LENGTH(flags); i++) {
        struct rig rig;
        rig_make(&rig, flags[i]);
        assert_int_equal(save_once(&rig, 1, true, &err), SIDESTEP_EUNSUPPORTED);
        assert_non_null(strstr(err.message, "conditional"));
        assert_int_equal(object_sim_count(rig.bucket), 0);
        assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
        assert_int_equal(save_once(&rig, 2, false, &err), SIDESTEP_OK);
        assert_int_equal(held(&rig, 1, 2), 2);
        assert_int_equal(object_sim_count(rig.bucket), 3);
        object_sim_free(&rig.bucket);
    }
}

TEST(damage_is_found)
{
    struct sidestep_engine *engine;
    struct sidestep_error err;
    struct world world;
    struct rig rig;
    const char *shard = NULL;

    rig_make(&rig, 0);
    assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
    for (size_t i = 0; i < object_sim_count(rig.bucket); i++)
        if (strstr(object_sim_key(rig.bucket, i), ".distcp") != NULL)
            shard = object_sim_key(rig.bucket, i);
    object_sim_flip(rig.bucket, shard, 70000);
    engine = rig_engine(&rig, NULL, 1);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, true);
    assert_int_equal(sidestep_load(engine, PATH, world.state, NULL, NULL, &err), SIDESTEP_ECORRUPT);
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_OK);
    world_free(&world);
    object_sim_free(&rig.bucket);
}

/* A save that replaces a checkpoint meets ${fate} at request ${at}. False: it has fewer. */
static bool try_fault(unsigned at, enum object_fate fate, bool dies, bool late_first)
{
    struct sidestep_error err;
    struct rig rig;

    rig_make(&rig, 0);
    assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
    atomic_store(&rig.seen, 0);
    rig.fate = fate, rig.dies = dies;
    atomic_store(&rig.at, at);
    enum sidestep_status status = save_once(&rig, 2, false, &err);
    rig.at = 0;
    bool hit = rig.hit;
    if (late_first)
        while (object_sim_late_count(rig.bucket) != 0)
            object_sim_land(rig.bucket, 0);
    uint64_t now = held(&rig, 1, 2);
    if (now == 0 || (status == SIDESTEP_OK && now != 2))
        fail_msg("request %u (%s), fate %d: the save says %d, and step %llu is there", at,
                 rig.request, (int)fate, (int)status, (unsigned long long)now);
    /* Only UNKNOWN may be followed by the new checkpoint. */
    if (status != SIDESTEP_OK && now == 2)
        assert_int_equal(status, SIDESTEP_EUNKNOWN);
    settle(&rig);
    object_sim_free(&rig.bucket);
    return hit;
}

TEST(each_fault_at_each_request)
{
    unsigned tried = 0;

    for (int fate = OBJECT_REFUSED; fate <= OBJECT_LATE; fate++)
        for (int dies = 0; dies <= 1; dies++)
            for (unsigned at = 1; try_fault(at, (enum object_fate)fate, dies, at & 1); at++)
                tried++;
    print_message("# %u faults\n", tried);
    assert_true(tried >= 6 * 12);
}

/* ---- several ranks */

struct together {
    struct rig *rig;
    uint64_t seed;
    enum sidestep_status status[RANKS];
};

static int save_rank(struct sidestep_comm *comm, void *context)
{
    struct together *together = context;
    struct sidestep_engine *engine = rig_engine(together->rig, comm, comm->rank);
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_error err;
    struct world world;

    options.deadline_ms = 1000;
    world_make(&world, comm->rank, RANKS, WORLD_BY_ROWS, 1, false);
    world_fill(&world, together->seed);
    together->status[comm->rank] = sidestep_save(engine, PATH, world.state, &options, NULL, &err);
    (void)sidestep_engine_close(&engine, NULL);
    world_free(&world);
    return 0;
}

TEST(ranks_save_together)
{
    struct rig rig;
    struct together together = {.rig = &rig, .seed = 4};

    rig_make(&rig, 0);
    assert_int_equal(comm_threads_run(RANKS, save_rank, &together), 0);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(together.status[i], SIDESTEP_OK);
    assert_int_equal(held(&rig, 4, 4), 4);
    assert_int_equal(object_sim_count(rig.bucket), RANKS + 2);
    object_sim_free(&rig.bucket);
}

TEST(a_rank_dies_at_each_request)
{
    for (unsigned at = 1;; at++) {
        struct sidestep_error err;
        struct rig rig;
        struct together together = {.rig = &rig, .seed = 2};
        rig_make(&rig, 0);
        assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
        atomic_store(&rig.seen, 0);
        rig.fate = at & 1 ? OBJECT_LOST : OBJECT_REFUSED, rig.dies = true;
        atomic_store(&rig.at, at);
        assert_int_equal(comm_threads_run(RANKS, save_rank, &together), 0);
        rig.at = 0;
        uint64_t now = held(&rig, 1, 2);
        assert_int_not_equal(now, 0);
        for (int i = 0; i < RANKS; i++)
            if (together.status[i] == SIDESTEP_OK)
                assert_int_equal(now, 2);
        settle(&rig);
        bool hit = rig.hit;
        object_sim_free(&rig.bucket);
        if (!hit)
            break;
    }
}
