/* SPDX-License-Identifier: BSD-3-Clause */
/* queue_depth_test.c -- what saves teach about how many requests a disk needs, and what a save then
 * uses. */
#include "save/queue_depth.h"
#include "store/store_ring.h"
#include "support/one_rank.h"
#include "support/unit.h"
#include "support/ways.h"

#define GIB ((uint64_t)1 << 30)

/* Six saves to a disk that writes ${rates} GiB/s with 4, 8 and 16; the second round is slower by
 * ${noise}. */
static unsigned settle(const double rates[3], double noise)
{
    struct queue_depth depth = {0};

    for (unsigned n = 0; n < 6; n++) {
        unsigned now = queue_depth_choose(&depth);
        double rate = rates[now == 4 ? 0 : now == 8 ? 1 : 2] * (n < 3 ? 1 : noise);
        assert_true(now == 4 || now == 8 || now == 16);
        assert_int_equal(depth.fixed, 0);
        queue_depth_record_save(&depth, GIB, (uint64_t)(1e9 / rate));
    }
    assert_int_equal(queue_depth_choose(&depth), depth.fixed);
    queue_depth_record_save(&depth, GIB, 1); /* once is enough */
    assert_int_equal(queue_depth_choose(&depth), depth.fixed);
    return depth.fixed;
}

TEST(the_smallest_that_is_as_fast_as_any_stays)
{
    assert_int_equal(settle((double[]){1, 2, 3}, 1), 16);
    assert_int_equal(settle((double[]){1, 3, 3.1}, 1), 8);
    assert_int_equal(settle((double[]){2.9, 3, 2}, 1), 4);
    assert_int_equal(settle((double[]){1, 2, 3}, 0.2), 16); /* a busy moment does not matter */
    assert_int_equal(settle((double[]){3, 1, 2}, 0.5), 4);
}

TEST(small_saves_teach_nothing)
{
    struct queue_depth depth = {0};

    for (unsigned n = 0; n < 20; n++)
        queue_depth_record_save(&depth, 1000, 1);
    assert_int_equal(depth.saves, 0);
    assert_int_equal(queue_depth_choose(&depth), 8); /* the default */
}

/* A depth that the user sets is used and reported; so is the default. */
TEST(the_users_depth_is_used)
{
    static const unsigned told[] = {0, 3, 13};

    SKIP_IF_WAYS_ARE_SET();
    for (unsigned i = 0; i < 3; i++) {
        struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
        struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
        char path[512];
        options.io_depth = told[i];
        assert_int_equal(one_rank_begin(&options), 0);
        snprintf(path, sizeof(path), "%s/it", scratch.path);
        world_fill(&world, 1);
        for (unsigned n = 0; n < 2; n++) {
            ASSERT_OK(sidestep_save(engine, path, world.state, NULL, &info, &err));
            assert_int_equal(info.io_depth, told[i] != 0              ? told[i]
                                            : store_ring_probe() == 0 ? 8
                                                                      : 4);
        }
        assert_int_equal(one_rank_end(), 0);
    }
}
