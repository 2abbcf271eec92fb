/* SPDX-License-Identifier: BSD-3-Clause */
/* io_test.c -- saves and loads by each way to storage: chosen by the library, set by an option,
 * refused, and failing in the middle. */
#include <errno.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "engine/engine.h"
#include "sidestep/sidestep.h"
#include "store/store_ring.h"
#include "support/scratch.h"
#include "support/unit.h"
#include "support/ways.h"
#include "support/world.h"

static struct scratch scratch;
static int64_t scale; /* of the state: 1 is about 0.2 MiB */
static char path[256];
static char last_io[32]; /* of the latest "committed" event */

static int setup(void **state)
{
    (void)state;
    if (!scratch_make(&scratch, NULL))
        return -1;
    snprintf(path, sizeof(path), "%s/ckpt", scratch.path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fault_arm("", 0, false, 0);
    scratch_remove(&scratch);
    return 0;
}

static void on_event(void *context, const char *line)
{
    const char *at = strstr(line, "\"io\":\"");

    (void)context;
    if (at != NULL && strstr(line, "\"committed\"") != NULL)
        (void)sscanf(at, "\"io\":\"%31[a-z]", last_io);
}

static struct sidestep_engine *open_engine(struct sidestep_engine_options options)
{
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};

    options.struct_size = sizeof(options);
    options.on_event = on_event;
    if (sidestep_engine_open(&engine, &options, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
    return engine;
}

static void close_engine(struct sidestep_engine **engine)
{
    assert_int_equal(sidestep_engine_close(engine, NULL), SIDESTEP_OK);
}

static enum sidestep_status save(struct sidestep_engine *engine, uint64_t seed,
                                 struct sidestep_save_info *info, struct sidestep_error *err)
{
    struct world world;

    world_make(&world, 0, 1, WORLD_BY_ROWS, scale, false);
    world_fill(&world, seed);
    enum sidestep_status status = sidestep_save(engine, path, world.state, NULL, info, err);
    world_free(&world);
    return status;
}

static enum sidestep_status load(struct sidestep_engine *engine, uint64_t seed,
                                 struct sidestep_error *err)
{
    struct world world;

    world_make(&world, 0, 1, WORLD_BY_ROWS, scale, true);
    enum sidestep_status status = sidestep_load(engine, path, world.state, NULL, NULL, err);
    if (status == SIDESTEP_OK)
        assert_int_equal(world_check(&world, seed), 0);
    world_free(&world);
    return status;
}

static void save_and_load(struct sidestep_engine *engine, uint64_t seed,
                          struct sidestep_save_info *info)
{
    struct sidestep_error err = {0};

    *info = (struct sidestep_save_info)SIDESTEP_SAVE_INFO_INIT;
    if (save(engine, seed, info, &err) != SIDESTEP_OK || load(engine, seed, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
}

/* What a save reports, if this machine allows all of it. */
static const struct {
    enum sidestep_io io;
    uint32_t flags;
    const char *event;
} ways[] = {
    {SIDESTEP_IO_AUTO, SIDESTEP_SAVE_DIRECT_IO | SIDESTEP_SAVE_URING, "uring"},
    {SIDESTEP_IO_URING, SIDESTEP_SAVE_DIRECT_IO | SIDESTEP_SAVE_URING, "uring"},
    {SIDESTEP_IO_THREADS, SIDESTEP_SAVE_DIRECT_IO, "direct"},
    {SIDESTEP_IO_BUFFERED, 0, "buffered"},
};
#define IO_FLAGS (SIDESTEP_SAVE_DIRECT_IO | SIDESTEP_SAVE_URING)

TEST(each_way_saves_and_loads)
{
    static const uint32_t threads[] = {0, 3}, depths[] = {0, 1, 64};
    struct sidestep_save_info info;
    uint64_t seed = 1;

    SKIP_IF_WAYS_ARE_SET();
    scale = 4;
    for (size_t way = 0; way < 4; way++) {
        if (ways[way].io == SIDESTEP_IO_URING && store_ring_probe() != 0)
            continue;
        for (size_t t = 0; t < 2; t++)
            for (size_t d = 0; d < 3; d++) {
                struct sidestep_engine *engine = open_engine((struct sidestep_engine_options){
                    .io = ways[way].io, .threads = threads[t], .io_depth = depths[d]});
                save_and_load(engine, seed++, &info);
                close_engine(&engine);
                bool direct = (info.flags & SIDESTEP_SAVE_DIRECT_IO) != 0;
                if (store_ring_probe() != 0 || (!direct && ways[way].flags != 0))
                    continue; /* this machine or this disk does not allow it */
                assert_int_equal(info.flags & IO_FLAGS, ways[way].flags);
                assert_string_equal(last_io, ways[way].event);
            }
    }
}

/* In a pool of a few windows they share slots, which are free only after the write. */
TEST(small_pools_wait_for_the_ring)
{
    struct sidestep_save_info info;

    scale = 128;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct sidestep_engine *engine = open_engine((struct sidestep_engine_options){
            .pool_bytes = 16u << 20, .threads = seed % 2 != 0 ? 1 : 3, .io_depth = 8});
        save_and_load(engine, seed, &info);
        assert_true((info.flags & SIDESTEP_SAVE_STREAMED) != 0);
        close_engine(&engine);
    }
}

TEST(refused_rings_are_done_without)
{
    struct sidestep_engine *engine = NULL;
    struct sidestep_save_info info;
    struct sidestep_error err = {0};
    struct sidestep_engine_options told = SIDESTEP_ENGINE_OPTIONS_INIT;

    SKIP_IF_WAYS_ARE_SET();
    scale = 1;
    fault_arm("ring.setup", 1, true, EPERM);
    engine = open_engine((struct sidestep_engine_options){0});
    save_and_load(engine, 1, &info);
    assert_int_equal(info.flags & SIDESTEP_SAVE_URING, 0);
    close_engine(&engine);
    told.io = SIDESTEP_IO_URING;
    assert_int_equal(sidestep_engine_open(&engine, &told, &err), SIDESTEP_EUNSUPPORTED);
    assert_int_equal(err.sys_errno, EPERM);
    assert_non_null(strstr(err.message, "io_uring is refused here"));
    /* Allowed at open, refused later: by a limit, for example. */
    fault_arm("ring.setup", 2, true, EMFILE);
    engine = open_engine((struct sidestep_engine_options){0});
    save_and_load(engine, 2, &info);
    assert_int_equal(info.flags & SIDESTEP_SAVE_URING, 0);
    close_engine(&engine);
}

/* A depth that the user sets is used and reported; so is the default. */
TEST(the_users_depth_is_used)
{
    static const unsigned told[] = {0, 3, 13};

    SKIP_IF_WAYS_ARE_SET();
    scale = 1;
    for (unsigned i = 0; i < ARRAY_LENGTH(told); i++) {
        struct sidestep_engine *engine =
            open_engine((struct sidestep_engine_options){.io_depth = told[i]});
        struct sidestep_save_info info;
        unsigned otherwise = store_ring_probe() == 0 ? 8 : 4;
        save_and_load(engine, 1, &info);
        assert_int_equal(info.io_depth, told[i] != 0 ? told[i] : otherwise);
        close_engine(&engine);
    }
}

TEST(options_are_checked)
{
    struct sidestep_engine *engine = NULL;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.io_depth = 65;
    assert_int_equal(sidestep_engine_open(&engine, &options, NULL), SIDESTEP_EINVAL);
    options.io_depth = 0;
    options.io = (enum sidestep_io)4;
    assert_int_equal(sidestep_engine_open(&engine, &options, NULL), SIDESTEP_EUNSUPPORTED);
}

/* Each result is bad once: an error of storage fails the save, and what was there stays; other
 * results are retried. The next save works. */
TEST(failed_results_fail_the_save_or_are_retried)
{
    static const struct {
        const char *point;
        int sys_errno;
        enum sidestep_status status;
    } cases[] = {{"ring.result", EIO, SIDESTEP_EIO},
                 {"ring.result", ENOSPC, SIDESTEP_ENOSPC},
                 {"ring.result", EAGAIN, SIDESTEP_OK},
                 {"ring.short", 0, SIDESTEP_OK},
                 {"ring.start", 0, SIDESTEP_OK}};
    struct sidestep_engine *engine = open_engine((struct sidestep_engine_options){0});
    struct sidestep_save_info info;
    uint64_t there = 1;

    scale = 32;
    save_and_load(engine, there, &info);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
        for (unsigned long nth = 1;; nth += 2) {
            struct sidestep_error err = {0};
            fault_arm(cases[c].point, nth, false, cases[c].sys_errno);
            enum sidestep_status status = save(engine, there + 1, NULL, &err);
            const char *fired = fault_fired();
            fault_arm("", 0, false, 0);
            assert_int_equal(status, fired != NULL ? cases[c].status : SIDESTEP_OK);
            there += status == SIDESTEP_OK;
            assert_int_equal(load(engine, there, &err), SIDESTEP_OK);
            if (fired == NULL) {
                assert_true(nth > 1 || (info.flags & SIDESTEP_SAVE_URING) == 0);
                break;
            }
        }
    close_engine(&engine);
}

/* ---- reading */

/* An engine whose loads read past the page cache. */
static struct sidestep_engine *open_direct(void)
{
    return open_engine((struct sidestep_engine_options){
        .io = store_ring_probe() == 0 ? SIDESTEP_IO_URING : SIDESTEP_IO_THREADS});
}

/* Each read is bad once: an error of storage fails the load; other results are retried. */
TEST(failed_reads_fail_the_load_or_are_retried)
{
    static const struct {
        const char *point;
        int sys_errno;
        enum sidestep_status status;
    } cases[] = {{"ring.result", EIO, SIDESTEP_EIO},
                 {"ring.result", EAGAIN, SIDESTEP_OK},
                 {"ring.short", 0, SIDESTEP_OK},
                 {"ring.start", 0, SIDESTEP_OK},
                 {"ring.setup", EPERM, SIDESTEP_OK}};
    struct sidestep_engine *engine = open_direct();
    struct sidestep_save_info info;

    scale = 32;
    save_and_load(engine, 7, &info);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
        for (unsigned long nth = 1;; nth += 2) {
            struct sidestep_error err = {0};
            fault_arm(cases[c].point, nth, false, cases[c].sys_errno);
            enum sidestep_status status = load(engine, 7, &err);
            const char *fired = fault_fired();
            fault_arm("", 0, false, 0);
            assert_int_equal(status, fired != NULL ? cases[c].status : SIDESTEP_OK);
            if (status != SIDESTEP_OK)
                assert_non_null(strstr(err.message, "__0_0"));
            if (fired != NULL)
                continue;
            /* The control: there was something to fail. */
            assert_true(nth > 1 || (info.flags & SIDESTEP_SAVE_URING) == 0);
            break;
        }
    close_engine(&engine);
}

#define GUARD_BYTES 4096u

/* Page-aligned memory, and a length that is not: all of it is filled, and nothing after it. */
TEST(direct_reads_fill_exactly_the_memory)
{
    static const size_t lengths[] = {1u << 20, (5u << 20) + 4096, (5u << 20) + 4, (9u << 20) - 4};
    struct sidestep_engine *engine = open_direct();
    struct sidestep_error err = {0};

    for (size_t c = 0; c < sizeof(lengths) / sizeof(lengths[0]); c++)
        for (size_t skew = 0; skew <= 64; skew += 64) {
            struct sidestep_state_dict *dict = NULL;
            unsigned char *memory = NULL;
            int64_t shape[] = {(int64_t)(lengths[c] / 4)};
            size_t room = lengths[c] + 2 * GUARD_BYTES;
            assert_int_equal(posix_memalign((void **)&memory, 4096, room), 0);
            memset(memory, 0xee, room);
            for (size_t i = 0; i < lengths[c] / 4; i++)
                ((uint32_t *)(void *)(memory + skew))[i] = (uint32_t)(i * 2654435761u);
            assert_int_equal(sidestep_state_dict_new(&dict, &err), SIDESTEP_OK);
            struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;
            tensor.name = "t";
            tensor.dtype = SIDESTEP_FLOAT32;
            tensor.ndim = 1;
            tensor.shape = shape;
            tensor.data = memory + skew;
            assert_int_equal(sidestep_state_dict_add_tensor(dict, &tensor, &err), SIDESTEP_OK);
            assert_int_equal(sidestep_save(engine, path, dict, NULL, NULL, &err), SIDESTEP_OK);
            memset(memory, 0x77, room);
            assert_int_equal(sidestep_load(engine, path, dict, NULL, NULL, &err), SIDESTEP_OK);
            for (size_t i = 0; i < lengths[c] / 4; i++)
                if (((uint32_t *)(void *)(memory + skew))[i] != (uint32_t)(i * 2654435761u))
                    fail_msg("word %zu of %zu bytes, skew %zu", i, lengths[c], skew);
            for (size_t i = 0; i < room; i++)
                if ((i < skew || i >= skew + lengths[c]) && memory[i] != 0x77)
                    fail_msg("byte %zu outside the tensor was written", i);
            sidestep_state_dict_free(&dict);
            free(memory);
        }
    close_engine(&engine);
}

/* ---- low priority */

static struct sidestep_save *save_async(struct sidestep_engine *engine, struct world *world,
                                        uint64_t seed, uint64_t spread_ms, uint32_t flags)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_save *started = NULL;
    struct sidestep_error err = {0};

    options.spread_ms = spread_ms;
    options.flags = flags;
    world_make(world, 0, 1, WORLD_BY_ROWS, scale, false);
    world_fill(world, seed);
    if (sidestep_save_async(engine, path, world->state, &options, &started, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
    return started;
}

#define STANDS_MS 150 /* long enough for a save that is not paused */

enum pause_end { RESUMED, HURRIED, WAITED_FOR, FINISHED, CLOSED, PAUSE_ENDS };

/* Pause a save for ${ms}, and let it end in the given way. Returns how long it was held back: 0 if
 * it had not come to its first write by then. */
static uint64_t pause_save(enum pause_end way, int ms)
{
    struct sidestep_engine *engine = open_engine((struct sidestep_engine_options){0});
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    struct sidestep_error err = {0};
    struct world world;

    sidestep_engine_pause(engine);
    struct sidestep_save *save = save_async(engine, &world, (uint64_t)way + 1, 0, 0);
    assert_int_equal(sidestep_save_watch(save, SIDESTEP_SAVE_WRITTEN, ms, NULL),
                     SIDESTEP_ETIMEDOUT);
    if (way == RESUMED)
        sidestep_engine_resume(engine);
    if (way == HURRIED) {
        sidestep_save_hurry(save);
        sidestep_save_hurry(save);
    }
    if (way == RESUMED || way == HURRIED)
        assert_int_equal(sidestep_save_watch(save, SIDESTEP_SAVE_COMMITTED, -1, &err), SIDESTEP_OK);
    if (way == WAITED_FOR)
        assert_int_equal(sidestep_save_wait(save, SIDESTEP_SAVE_COMMITTED, -1, &err), SIDESTEP_OK);
    if (way == CLOSED)
        close_engine(&engine);
    assert_int_equal(sidestep_save_finish(&save, &info, &err), SIDESTEP_OK);
    if (way != CLOSED)
        close_engine(&engine);
    world_free(&world);
    engine = open_engine((struct sidestep_engine_options){0});
    assert_int_equal(load(engine, (uint64_t)way + 1, &err), SIDESTEP_OK);
    close_engine(&engine);
    return info.held_ns;
}

TEST(pauses_end)
{
    scale = 24;
    for (int way = 0; way < PAUSE_ENDS; way++) {
        uint64_t held_ns = 0;
        for (int ms = STANDS_MS; held_ns == 0 && ms < 100 * STANDS_MS; ms *= 4)
            held_ns = pause_save((enum pause_end)way, ms);
        assert_true(held_ns != 0);
    }
}

/* If training waits for slots of the pool, a pause would last for ever. */
TEST(streamed_saves_do_not_pause)
{
    struct sidestep_save_info info;
    struct sidestep_engine *engine = open_engine((struct sidestep_engine_options){
        .pool_bytes = 16u << 20, .snapshot = SIDESTEP_SNAPSHOT_COPY});

    scale = 128;
    sidestep_engine_pause(engine);
    save_and_load(engine, 1, &info);
    assert_true((info.flags & SIDESTEP_SAVE_STREAMED) != 0);
    close_engine(&engine);
}

/* With SIDESTEP_SAVE_STILL the state is copied as it is written. */
TEST(still_states_are_not_protected)
{
    const uint64_t most = 48u << 20; /* of the pool, if nothing is on devices */
    const bool behind = !tensor_memory_has_devices();
    struct world world;
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    struct sidestep_error err = {0};
    struct sidestep_engine *engine = open_engine((struct sidestep_engine_options){0});

    scale = 400; /* 70 MB */
    sidestep_engine_pause(engine);
    struct sidestep_save *save = save_async(engine, &world, 1, 0, SIDESTEP_SAVE_STILL);
    if (behind)
        assert_int_equal(sidestep_save_watch(save, SIDESTEP_SAVE_STAGED, STANDS_MS, NULL),
                         SIDESTEP_ETIMEDOUT);
    sidestep_engine_resume(engine);
    assert_int_equal(sidestep_save_wait(save, SIDESTEP_SAVE_STAGED, -1, &err), SIDESTEP_OK);
    world_fill(&world, 2);
    assert_int_equal(sidestep_save_finish(&save, &info, &err), SIDESTEP_OK);
    assert_true(info.bytes_total > most);
    assert_int_equal(info.cow_bytes, 0);
    assert_int_equal(info.flags & SIDESTEP_SAVE_STREAMED, 0); /* memory was sufficient */
    assert_int_equal(info.pool_bytes <= most, behind);
    assert_int_equal(load(engine, 1, &err), SIDESTEP_OK);
    if (behind)
        assert_true(info.stage_ns >= STANDS_MS * 1000000u && info.call_ns >= info.stage_ns);
    save_and_load(engine, 3, &info); /* as in calls that wait themselves */
    assert_int_equal(info.pool_bytes <= most, behind);
    world_free(&world);
    close_engine(&engine);
}

/* Spread or limited writes are held back; if somebody waits, only the limit holds. */
TEST(writes_are_paced)
{
    static const struct {
        uint64_t spread_ms, bytes_per_second;
        bool wait, held;
    } cases[] = {{1000, 0, false, true}, /* 11 MB: much slower than a busy disk */
                 {0, 10u << 20, false, true},
                 {600000, 10u << 20, true, true},
                 {600000, 0, true, false}};
    struct sidestep_error err = {0};

    scale = 64;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct world world;
        struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
        struct sidestep_engine *engine = open_engine(
            (struct sidestep_engine_options){.write_bytes_per_second = cases[c].bytes_per_second,
                                             .flags = c % 2 != 0 ? SIDESTEP_ENGINE_KEEP_PACE : 0,
                                             .background_cpus = c == 1 ? "0-1023" : NULL});
        struct sidestep_save *save = save_async(engine, &world, c + 1, cases[c].spread_ms, 0);
        if (!cases[c].wait)
            assert_int_equal(sidestep_save_watch(save, SIDESTEP_SAVE_COMMITTED, -1, &err),
                             SIDESTEP_OK);
        assert_int_equal(sidestep_save_finish(&save, &info, &err), SIDESTEP_OK);
        if (cases[c].held)
            assert_true(info.held_ns > 0);
        else
            assert_true(info.write_ns < 60000000000u); /* not the ten minutes */
        close_engine(&engine);
        world_free(&world);
    }
}

/* While others read without end, a save ends nevertheless, and reports that it slowed down. It does
 * not slow down if somebody waits, or with SIDESTEP_ENGINE_KEEP_PACE. */
TEST(saves_beside_readers_end)
{
    static const struct {
        enum sidestep_compress compress;
        bool wait, keep, backs_off;
    } cases[] = {{SIDESTEP_COMPRESS_NONE, false, false, true},
                 {SIDESTEP_COMPRESS_ZSTD, false, false, true},
                 {SIDESTEP_COMPRESS_NONE, true, false, false},
                 {SIDESTEP_COMPRESS_NONE, false, true, false}};
    struct sidestep_error err = {0};
    struct stat st;

    scale = 128;
    assert_int_equal(stat(scratch.path, &st), 0);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
        struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
        struct sidestep_save *started = NULL;
        struct world world;
        struct sidestep_engine *engine = open_engine((struct sidestep_engine_options){
            .flags = cases[c].keep ? SIDESTEP_ENGINE_KEEP_PACE : 0});
        struct disk_activity *readers = &engine->throttle.shared.readers;
        readers->device = st.st_dev;
        snprintf(readers->path, sizeof(readers->path), "%s/stat",
                 scratch.path); /* does not exist */
        atomic_store(&readers->until_ns, UINT64_MAX);
        options.compress = cases[c].compress;
        world_make(&world, 0, 1, WORLD_BY_ROWS, scale, false);
        world_fill(&world, c + 1);
        if (cases[c].wait) {
            assert_int_equal(sidestep_save(engine, path, world.state, &options, &info, &err),
                             SIDESTEP_OK);
        } else {
            assert_int_equal(
                sidestep_save_async(engine, path, world.state, &options, &started, &err),
                SIDESTEP_OK);
            assert_int_equal(sidestep_save_watch(started, SIDESTEP_SAVE_COMMITTED, -1, &err),
                             SIDESTEP_OK);
            assert_int_equal(sidestep_save_finish(&started, &info, &err), SIDESTEP_OK);
        }
        assert_int_equal(info.backed_off_ns != 0, cases[c].backs_off);
        assert_int_equal(load(engine, c + 1, &err), SIDESTEP_OK);
        world_free(&world);
        close_engine(&engine);
    }
}

EACH_TEST(setup, teardown);
