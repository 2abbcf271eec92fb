/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * incremental_life_test.c -- checkpoints that share files, with the rest of a run: going back,
 * deletion, retention, little memory, other tools' files, export.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/owned.h"
#include "support/incremental.h"

#define SMALL_POOL ((uint64_t)16 << 20)
#define COMPLEX 7        /* safetensors lacks it */
#define CAPPED_SCALE 200 /* larger than the smallest pool */

/* Load ${step}; unchanged tensors have the contents of ${frozen}. */
static void go_to(struct sidestep_series *series, uint64_t step, uint64_t frozen)
{
    world_fill(&world, 1);
    ASSERT_OK(sidestep_series_load_step(series, step, world.state, NULL, NULL, &err));
    world.tensors[EMBED].frozen = world.tensors[HEAD].frozen = frozen;
    assert_int_equal(world_check(&world, step), 0);
}

static nlink_t links_of(uint64_t step)
{
    struct stat st;

    assert_true(find_kept(step, &st));
    return st.st_nlink;
}

static bool exists(uint64_t step)
{
    return access(path_of(step, ""), F_OK) == 0;
}

static void prune(struct sidestep_series *series)
{
    struct sidestep_gc_report report;

    ASSERT_OK(sidestep_series_prune(series, &report, &err));
    sidestep_gc_report_release(&report);
}

static void set_frozen(uint64_t frozen)
{
    world.tensors[EMBED].frozen = world.tensors[HEAD].frozen = frozen;
}

/* ---- after going back */

/* Steps 5 and 6 are left behind; the new 5 replaces the old one, whose file it may share. */
TEST(going_back_starts_a_new_line)
{
    struct sidestep_series *series = open_incremental(0);
    uint64_t step = 0;

    save_some(series, 1, 6);
    go_to(series, 4, 1000);
    save_one(series, 5);
    assert_true(info.linked_bytes != 0); /* with the old 6, which is still the last save */
    expect(4);
    expect(5);
    close_series(&series);
    series = open_incremental(0);
    ASSERT_OK(sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err));
    assert_int_equal(step, 5);
    expect(6); /* it can still be loaded by its step */
    close_series(&series);
}

/* What was left behind was trained further, so its file differs from what is saved now. */
TEST(going_back_writes_tensors_that_differ)
{
    struct sidestep_series *series = open_incremental(0);

    save_some(series, 1, 4);
    ino_t before = inode_of(4);
    set_frozen(2000);
    save_some(series, 5, 7);
    go_to(series, 4, 1000);
    save_one(series, 5);
    assert_int_equal(info.linked_bytes, 0);
    expect(5);
    expect(4);
    assert_int_equal(inode_of(4), before);
    save_some(series, 6, 9);
    expect(9);
    close_series(&series);
}

/* The checkpoint that would be linked from is the one that is replaced. */
TEST(saving_the_same_step_again)
{
    struct sidestep_series *series = open_incremental(0);

    save_some(series, 1, 5);
    for (int i = 0; i < 3; i++) {
        go_to(series, 4, 1000);
        save_one(series, 5);
        assert_true(info.linked_bytes != 0);
        assert_int_equal(inode_of(5), inode_of(4));
        expect(5);
    }
    close_series(&series);
}

/* A process that resumes knows no hashes: it links nothing; two saves later it does. */
TEST(a_restart_links_nothing_at_first)
{
    struct sidestep_series *series = open_incremental(0);
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    uint64_t step = 0;

    save_some(series, 1, 5);
    close_series(&series);
    ASSERT_OK(sidestep_engine_close(&engine, &err));
    ASSERT_OK(sidestep_engine_open(&engine, &options, &err));
    series = open_incremental(0);
    ASSERT_OK(sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err));
    assert_int_equal(step, 5);
    save_some(series, 6, 8);
    assert_int_equal(info.linked_bytes, 0);
    assert_true(inode_of(8) != inode_of(5));
    save_one(series, 9);
    assert_int_equal(inode_of(9), inode_of(8));
    expect(9);
    expect(5);
    close_series(&series);
}

/* ---- deletion */

TEST(deleting_a_checkpoint_keeps_shared_files)
{
    struct sidestep_series *series = open_incremental(0);

    save_some(series, 1, 6);
    assert_int_equal(links_of(6), 4);
    for (uint64_t n = 3; n <= 5; n++) { /* 3 has written what all others share */
        ASSERT_OK(sidestep_series_delete(series, n, &err));
        assert_false(exists(n));
        assert_int_equal(links_of(6), 6 - n);
        expect(6);
    }
    save_one(series, 7);
    assert_int_equal(inode_of(7), inode_of(6));
    expect(7);
    close_series(&series);
}

/* A deletion that fails anywhere leaves the checkpoint whole or not there, and never touches the
 * others. */
TEST(a_failed_deletion_leaves_other_checkpoints_whole)
{
    struct sidestep_series *series = open_incremental(0);
    bool fired = true;

    save_some(series, 1, 6);
    for (unsigned long nth = 1; fired && nth < 1000; nth += nth < 24 ? 1 : 1 + nth / 8) {
        if (!exists(5))
            save_one(series, 5);
        fault_arm("posix", nth, false, EIO);
        enum sidestep_status status = sidestep_series_delete(series, 5, &err);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        if (!fired)
            ASSERT_OK(status);
        if (exists(5))
            expect(5);
        expect(6);
    }
    assert_false(fired);
    close_series(&series);
    series = open_incremental(0); /* finishes what was cut short */
    expect(6);
    close_series(&series);
}

TEST(only_the_newest_stays_where_asked)
{
    struct sidestep_series *series = open_incremental(1);

    for (uint64_t n = 1; n <= 8; n++) {
        save_one(series, n);
        prune(series);
        for (uint64_t older = 1; older < n; older++)
            assert_false(exists(older));
        expect(n);
    }
    assert_true(info.linked_bytes != 0);
    assert_int_equal(links_of(8), 1); /* it no longer shares its file */
    close_series(&series);
}

/* With two or more, one bad block never reaches all, also when the file is written anew after some
 * links, and when other tensors are the unchanged ones. */
TEST(a_checkpoint_that_shares_nothing_always_stays)
{
    struct sidestep_series *series = open_incremental(2);
    unsigned apart = 0;

    for (uint64_t n = 1; n <= 24; n++) {
        if (n == 10)
            world.tensors[HEAD].frozen = 1010;
        save_one(series, n);
        prune(series);
        assert_true(n == 1 || exists(n - 1)); /* the two newest */
        bool has_apart = false;
        for (uint64_t older = 1; older < n; older++)
            has_apart |= exists(older) &&
                         (!has_kept(older) || !has_kept(n) || inode_of(older) != inode_of(n));
        assert_true(has_apart || n == 1);
        apart += n > 2 && !exists(n - 2);
    }
    assert_true(apart > 10); /* and retention does delete */
    close_series(&series);
}

/* ---- combinations */

static int setup_capped(void **state)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    (void)state;
    if (begin(CAPPED_SCALE, 2) != 0 || sidestep_engine_close(&engine, NULL) != SIDESTEP_OK)
        return -1;
    options.threads = 2;
    options.pool_bytes = SMALL_POOL;
    return sidestep_engine_open(&engine, &options, NULL) == SIDESTEP_OK ? 0 : -1;
}

TEST_WITH(the_pool_may_be_smaller_than_the_state, setup_capped, teardown)
{
    struct sidestep_series *series = open_incremental(0);

    for (uint64_t n = 1; n <= 6; n++) {
        if (n == 6)
            world.tensors[HEAD].frozen = 6; /* what was released is read back */
        save_one(series, n);
        assert_true(info.bytes_total > SMALL_POOL);
        assert_true((info.linked_bytes != 0) == (n == 4 || n == 5));
        if (n >= 5)
            expect(n);
    }
    close_series(&series);
}

static void write_file(const char *path)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs("another tool's", f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A file of another tool with the name that ours would have: it is not shared, not loaded, and not
 * deleted. */
TEST(files_of_other_tools_stay_theirs)
{
    struct sidestep_series *series = open_incremental(1);

    save_some(series, 1, 2);
    write_file(path_of(2, KEPT));
    ino_t theirs = inode_of(2);
    save_some(series, 3, 4);
    assert_true(info.linked_bytes != 0);
    assert_true(inode_of(4) != theirs);
    write_file(path_of(4, "/config.json"));
    write_file(path_of(4, "/__7_0.distcp"));
    save_one(series, 5);
    assert_int_equal(inode_of(5), inode_of(4));
    assert_int_not_equal(access(path_of(5, "/__7_0.distcp"), F_OK), 0);
    save_one(series, 6);
    prune(series);
    assert_true(exists(4));
    assert_false(exists(3) || exists(5));
    ASSERT_OK(sidestep_load(engine, path_of(4, ""), world.state, NULL, NULL, &err));
    assert_int_equal(world_check(&world, 4), 0);
    expect(6);
    close_series(&series);
}

/* As one file of safetensors, of torch.save(), and as a checkpoint of its own, which shares
 * nothing. */
TEST(it_is_exported_like_any_other)
{
    static const char *const complex = "optim.complex";
    static const struct {
        const char *name;
        enum sidestep_format to;
        bool has_complex, has_objects;
    } ways[] = {{"weights.safetensors", SIDESTEP_FORMAT_SAFETENSORS, false, false},
                {"weights.pt", SIDESTEP_FORMAT_TORCH, true, false},
                {"copy", SIDESTEP_FORMAT_DCP, true, true}};
    struct sidestep_series *series = open_incremental(0);
    struct sidestep_load_options partly = SIDESTEP_LOAD_OPTIONS_INIT;
    char to[128];

    partly.flags = SIDESTEP_LOAD_PARTIAL;
    save_some(series, 1, 5);
    assert_true(info.linked_bytes != 0);
    nlink_t links = links_of(5);
    for (size_t i = 0; i < ARRAY_LENGTH(ways); i++) {
        struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
        struct sidestep_convert_report report;
        struct world loaded;

        options.to = ways[i].to;
        options.objects = ways[i].has_objects ? SIDESTEP_OBJECTS_REFUSE : SIDESTEP_OBJECTS_SKIP;
        options.exclude = &complex;
        options.exclude_count = ways[i].has_complex ? 0 : 1;
        snprintf(to, sizeof(to), "%s/%s", scratch.path, ways[i].name);
        ASSERT_OK(sidestep_convert(path_of(5, ""), to, &options, &report, &err));
        sidestep_convert_report_release(&report);
        world_make(&loaded, 0, 1, WORLD_BY_COLUMNS, scale, true);
        loaded.tensors[EMBED].frozen = loaded.tensors[HEAD].frozen = 1000;
        assert_string_equal(loaded.tensors[COMPLEX].name, complex);
        ASSERT_OK(sidestep_load(engine, to, loaded.state, ways[i].has_objects ? NULL : &partly,
                                NULL, &err));
        int missing = ways[i].has_complex ? 1 + (int)loaded.count : 1 + COMPLEX;
        assert_int_equal(world_check(&loaded, 5), ways[i].has_objects ? 0 : missing);
        world_free(&loaded);
    }
    assert_int_equal(links_of(5), links);
    close_series(&series);
}

/* By the queue's rule, one waits for the other, and what is linked from is committed. */
TEST(an_incremental_save_waits_for_queued_saves)
{
    struct sidestep_series *series = open_incremental(0);
    struct sidestep_save_options queued = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_save *saves[12] = {NULL};
    struct sidestep_save *aside = NULL;
    char path[128];

    queued.queue = SIDESTEP_MAX_QUEUE;
    snprintf(path, sizeof(path), "%s/aside", scratch.path);
    for (uint64_t n = 1; n < ARRAY_LENGTH(saves); n++) {
        struct sidestep_save_info own = SIDESTEP_SAVE_INFO_INIT;
        if (n % 3 == 0) { /* one that is not incremental comes between */
            world_fill(&world, n);
            ASSERT_OK(sidestep_save_async(engine, path, world.state, &queued, &aside, &err));
        }
        world_fill(&world, n);
        ASSERT_OK(sidestep_series_save_async(series, n, world.state, &queued, &saves[n], &err));
        assert_int_equal(sidestep_save_poll(saves[n], &own), SIDESTEP_OK);
        assert_int_equal(own.flags & SIDESTEP_SAVE_QUEUED, 0);
        if (n > 1) {
            assert_int_equal(sidestep_save_poll(saves[n - 1], &own), SIDESTEP_OK);
            assert_int_equal(own.state, SIDESTEP_SAVE_COMMITTED);
        }
        if (aside != NULL)
            ASSERT_OK(sidestep_save_finish(&aside, NULL, &err));
    }
    for (uint64_t n = 1; n < ARRAY_LENGTH(saves); n++) {
        ASSERT_OK(sidestep_save_finish(&saves[n], &info, &err));
        expect(n);
    }
    assert_true(info.linked_bytes != 0);
    close_series(&series);
}

EACH_TEST(setup, teardown);
