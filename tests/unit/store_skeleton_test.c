/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_skeleton_test.c -- an engine on a program's own store. Saves, loads and a series use only
 * that store, and report its failures. store_test.c checks the contract.
 */
#include <unistd.h>

#include "skeletons.h"
#include "support/unit.h"
#include "support/world.h"

static struct store_skeleton *skeleton;
static struct sidestep_store ops;

static int setup(void **state)
{
    (void)state;
    skeleton = store_skeleton_new();
    ops = store_skeleton_ops(skeleton);
    return skeleton != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    store_skeleton_free(&skeleton);
    return 0;
}

static struct sidestep_engine *open_engine(const struct sidestep_store *store)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};

    options.store = store;
    if (sidestep_engine_open(&engine, &options, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
    return engine;
}

static enum sidestep_status save(struct sidestep_engine *engine, const char *path, uint64_t seed,
                                 enum sidestep_compress compress, struct sidestep_error *err)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_save *handle = NULL;
    struct world world;

    options.compress = compress;
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    world_fill(&world, seed);
    enum sidestep_status status =
        sidestep_save_async(engine, path, world.state, &options, &handle, err);
    if (status == SIDESTEP_OK)
        status = sidestep_save_finish(&handle, NULL, err);
    world_free(&world);
    return status;
}

static void assert_loads(struct sidestep_engine *engine, const char *path, uint64_t seed)
{
    struct sidestep_error err = {0};
    struct world world;

    world_make(&world, 0, 1, WORLD_BY_COLUMNS, 1, true);
    if (sidestep_load(engine, path, world.state, NULL, NULL, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(world_check(&world, seed), 0);
    world_free(&world);
}

TEST(saves_and_loads_use_the_store)
{
    struct sidestep_error err = {0};

    for (unsigned compress = 0; compress <= SIDESTEP_COMPRESS_PLANES; compress++) {
        struct sidestep_engine *engine = open_engine(&ops);
        struct sidestep_engine *other = open_engine(&ops);
        if (save(engine, "/one", 7 + compress, (enum sidestep_compress)compress, &err) !=
            SIDESTEP_OK) /* from the second time on, it replaces another one */
            fail_msg("%s", err.message);
        assert_loads(other, "/one", 7 + compress);
        assert_int_equal(access("/one", F_OK), -1);
        assert_int_equal(sidestep_engine_close(&engine, NULL), SIDESTEP_OK);
        assert_int_equal(sidestep_engine_close(&other, NULL), SIDESTEP_OK);
    }
}

/* ---- a store that fails */

static enum sidestep_status full(void *context, void *file, const void *from, size_t bytes,
                                 uint64_t offset, struct sidestep_error *err)
{
    (void)context, (void)file, (void)from, (void)bytes, (void)offset;
    snprintf(err->message, sizeof(err->message), "the bucket is full");
    return SIDESTEP_ENOSPC;
}

static enum sidestep_status no_status(void *context, void *file, struct sidestep_error *err)
{
    (void)context, (void)file, (void)err;
    return (enum sidestep_status) - 7;
}

TEST(failures_of_a_store_are_reported)
{
    struct sidestep_store failing = ops;
    struct sidestep_error err = {0};

    failing.file_write_at = full;
    struct sidestep_engine *engine = open_engine(&failing);
    assert_int_equal(save(engine, "/two", 1, SIDESTEP_COMPRESS_NONE, &err), SIDESTEP_ENOSPC);
    assert_non_null(strstr(err.message, "skeleton"));
    assert_non_null(strstr(err.message, "the bucket is full"));
    assert_int_equal(sidestep_engine_close(&engine, NULL), SIDESTEP_OK);
    failing = ops;
    failing.file_sync = no_status;
    engine = open_engine(&failing);
    assert_int_equal(save(engine, "/two", 1, SIDESTEP_COMPRESS_NONE, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "file_sync"));
    assert_loads(engine, "/one", 7 + SIDESTEP_COMPRESS_PLANES); /* nothing happened to it */
    assert_int_equal(sidestep_engine_close(&engine, NULL), SIDESTEP_OK);
}

TEST(a_store_without_a_function_is_refused)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_store lacking = ops;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};

    lacking.rename = NULL;
    options.store = &lacking;
    assert_int_equal(sidestep_engine_open(&engine, &options, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "skeleton"));
    assert_null(engine);
    lacking = ops;
    lacking.struct_size = 0;
    assert_int_equal(sidestep_engine_open(&engine, &options, &err), SIDESTEP_EINVAL);
}

ALL_TESTS(setup, teardown);
