/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * incremental_test.c -- saves that share unchanged tensors with the checkpoint before: the file is
 * shared; a load gives what was saved, whatever changes, disappears or fails; checkpoints that
 * share a file do not count as two.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "support/comm_threads.h"
#include "support/incremental.h"
#include "support/unit.h"

/* ---- sharing */

TEST(unchanged_tensors_are_shared)
{
    struct sidestep_series *series = open_incremental(0);

    save_some(series, 1, 2);
    assert_false(has_kept(2)); /* only then it is known that it does not change */
    save_one(series, 3);
    assert_true(has_kept(3));
    assert_int_equal(info.linked_bytes, 0);
    assert_string_equal(info.link_reason, "");
    for (uint64_t n = 4; n <= 6; n++) {
        save_one(series, n);
        assert_true(info.linked_bytes > 2 << 20);
        assert_true(info.bytes_total - info.linked_bytes < info.linked_bytes);
        assert_int_equal(inode_of(n), inode_of(3));
        assert_non_null(strstr(last_event, "\"linked_bytes\":2"));
        expect(n);
    }
    remove_step(3); /* the one that wrote it */
    remove_step(5);
    expect(4);
    expect(6);
    save_one(series, 7);
    assert_true(info.linked_bytes != 0);
    expect(7);
    close_series(&series);
}

TEST(without_the_flag_nothing_is_shared)
{
    struct sidestep_series *series = open_with(NULL);

    save_some(series, 1, 5);
    assert_false(has_kept(5));
    assert_int_equal(info.linked_bytes, 0);
    close_series(&series);
}

TEST_WITH(a_tensor_that_changes_late_is_written, setup_large, teardown)
{
    struct sidestep_series *series = open_incremental(0);
    const size_t which[] = {HEAD, EMBED};

    save_some(series, 1, 4);
    assert_true(info.linked_bytes != 0);
    for (size_t i = 0; i < 2; i++) {
        uint64_t n = 10 * (i + 1);
        world.tensors[which[i]].frozen = 2000 + i;
        ino_t before = inode_of(i == 0 ? 4 : 15);
        save_one(series, n);
        assert_int_equal(info.linked_bytes, 0);
        assert_string_equal(info.link_reason, "");
        assert_true(inode_of(n) != before);
        expect(n);
        save_some(series, n + 1, n + 5);
        assert_true(info.linked_bytes != 0);
        expect(n + 5);
    }
    world.tensors[EMBED].frozen = world.tensors[HEAD].frozen = 1000;
    expect(4);
    close_series(&series);
}

TEST(tensors_that_always_change_are_not_shared)
{
    struct sidestep_series *series = open_incremental(0);

    save_some(series, 1, 4);
    uint64_t both = info.linked_bytes;
    world.tensors[HEAD].frozen = 0;
    save_some(series, 5, 8);
    assert_true(info.linked_bytes != 0 && info.linked_bytes < both);
    expect(8);
    world.tensors[EMBED].frozen = 0;
    save_some(series, 9, 12);
    assert_false(has_kept(12));
    expect(12);
    close_series(&series);
}

TEST(it_is_written_anew_after_some_links)
{
    struct sidestep_series *series = open_incremental(0);

    save_some(series, 1, 3 + 16);
    assert_int_equal(inode_of(19), inode_of(3));
    save_one(series, 20);
    assert_int_equal(info.linked_bytes, 0);
    assert_true(inode_of(20) != inode_of(3));
    save_one(series, 21);
    assert_int_equal(inode_of(21), inode_of(20));
    expect(21);
    close_series(&series);
}

TEST(a_new_layout_begins_anew)
{
    struct sidestep_series *series = open_incremental(0);
    unsigned char more[8] = {0};
    const int64_t shape[] = {8};
    struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;

    save_some(series, 1, 4);
    tensor.name = "more";
    tensor.dtype = SIDESTEP_UINT8;
    tensor.ndim = 1;
    tensor.shape = shape;
    tensor.data = more;
    ASSERT_OK(sidestep_state_dict_add_tensor(world.state, &tensor, &err));
    save_one(series, 5);
    assert_false(has_kept(5));
    expect(5);
    save_some(series, 6, 8);
    assert_true(info.linked_bytes != 0);
    expect(8);
    close_series(&series);
}

TEST(a_save_outside_the_series_is_whole)
{
    struct sidestep_series *series = open_incremental(0);
    char path[256];

    save_some(series, 1, 4);
    snprintf(path, sizeof(path), "%s/aside", scratch.path);
    world_fill(&world, 5);
    ASSERT_OK(sidestep_save(engine, path, world.state, NULL, NULL, &err));
    strcat(path, KEPT);
    assert_int_not_equal(access(path, F_OK), 0);
    save_one(series, 5);
    assert_int_equal(inode_of(5), inode_of(4));
    expect(5);
    close_series(&series);
    series = open_incremental(0); /* of the same engine, which still knows */
    save_one(series, 6);
    expect(6);
    close_series(&series);
}

TEST(compressed_saves_share_files)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_series *series = open_incremental(0);

    options.compress = SIDESTEP_COMPRESS_PLANES;
    for (uint64_t n = 1; n <= 6; n++) {
        if (n == 6)
            world.tensors[EMBED].frozen = 7; /* what was released before it is found to differ */
        ASSERT_OK(try_save(series, n, &options, n % 2 == 0));
        assert_true((info.linked_bytes != 0) == (n == 4 || n == 5));
        expect(n);
    }
    close_series(&series);
}

/* ---- failures */

TEST(without_links_everything_is_written)
{
    static const int refusals[] = {EXDEV, EMLINK, EPERM, EOPNOTSUPP, ENOSPC};
    struct sidestep_series *series = open_incremental(0);

    save_some(series, 1, 3);
    for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
        fault_arm("posix.link", 1, false, refusals[i]);
        save_one(series, 4 + i);
        assert_string_equal(fault_fired(), "posix.link");
        fault_arm("", 0, false, 0);
        assert_int_equal(info.linked_bytes, 0);
        assert_non_null(strstr(info.link_reason, "link '__0_1.distcp'"));
        assert_non_null(strstr(last_event, "link '__0_1.distcp'"));
        expect(4 + i);
    }
    remove_step(8); /* the one that it would be taken from */
    save_one(series, 9);
    assert_non_null(strstr(info.link_reason, "step-8"));
    save_one(series, 10);
    assert_true(info.linked_bytes != 0);
    expect(10);
    close_series(&series);
}

TEST(another_file_with_the_name_is_not_linked)
{
    struct sidestep_series *series = open_incremental(0);
    char command[700];

    save_some(series, 1, 4);
    snprintf(command, sizeof(command), "cd %s && cp %s new && mv new %s", scratch.path,
             "step-4" KEPT, "step-4" KEPT);
    assert_int_equal(system(command), 0);
    save_one(series, 5);
    assert_int_equal(info.linked_bytes, 0);
    assert_non_null(strstr(info.link_reason, "a different file"));
    expect(5);
    close_series(&series);
}

/* Its bytes are not read again, so its times must show that it was written to. */
TEST(a_file_that_was_written_to_is_not_taken)
{
    struct sidestep_series *series = open_incremental(0);

    save_some(series, 1, 4);
    flip(path_of(3, KEPT), 100000);
    save_one(series, 5);
    assert_int_equal(info.linked_bytes, 0);
    assert_non_null(strstr(info.link_reason, "was changed since"));
    expect(5);
    save_one(series, 6);
    assert_true(info.linked_bytes != 0);
    expect(6);
    close_series(&series);
}

/* As a medium decays: the file's times do not change. */
static void decay(const char *path, long offset)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    flip(path, offset);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* One bad block is in all checkpoints that share it, and verify finds it in each. */
static struct sidestep_series *damage_a_shared_file(void)
{
    struct sidestep_series *series = open_incremental(0);
    struct sidestep_verify_report report = {0};

    save_some(series, 1, 5);
    decay(path_of(3, KEPT), 100000);
    for (uint64_t n = 2; n <= 5; n++) {
        ASSERT_OK(sidestep_verify(path_of(n, ""), NULL, &report, &err));
        assert_true(report.is_ok == (n == 2));
        sidestep_verify_report_release(&report);
    }
    return series;
}

/* A save that needs these bytes, because a later window has changed, fails; the next one does not.
 */
TEST_WITH(damage_is_shared_and_found, setup_alone, teardown)
{
    struct sidestep_series *series = damage_a_shared_file();

    world.tensors[HEAD].frozen = 5;
    assert_int_equal(try_save(series, 6, NULL, true), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, path_of(5, KEPT)));
    save_one(series, 7);
    assert_int_equal(info.linked_bytes, 0);
    expect(7);
    close_series(&series);
}

/* With several threads, the change may be found before the damaged window: then nothing is read
 * back. Either way nothing wrong is committed. */
TEST_WITH(damage_is_never_copied, setup_large, teardown)
{
    struct sidestep_series *series = damage_a_shared_file();

    world.tensors[HEAD].frozen = 5;
    enum sidestep_status status = try_save(series, 6, NULL, true);
    assert_true(status == SIDESTEP_OK || status == SIDESTEP_ECORRUPT);
    if (status == SIDESTEP_OK)
        expect(6);
    save_one(series, 7);
    expect(7);
    close_series(&series);
}

/* Whatever fails, what is committed is right, and so is the next save. */
TEST(any_failure_leaves_what_is_right)
{
    static const char *const points[] = {"memory", "posix"};
    struct sidestep_series *series = open_incremental(0);
    unsigned long step = getenv("SIDESTEP_TEST_CUDA") == NULL ? 1 : 7; /* there only some */
    uint64_t n = 1;
    unsigned long failed = 0;

    save_some(series, 1, 4);
    n = 5;
    for (size_t p = 0; p < ARRAY_LENGTH(points); p++) {
        bool fired = true;
        for (unsigned long nth = 1; fired && nth < 300; nth += step, n += 3) {
            if (nth % 3 == 0)
                world.tensors[nth % 2 == 0 ? HEAD : EMBED].frozen = 3000 + n;
            world_fill(&world, n);
            fault_arm(points[p], nth, false, p == 0 ? ENOMEM : EIO);
            enum sidestep_status status = try_save_filled(series, n, NULL, true);
            fired = fault_fired() != NULL;
            fault_arm("", 0, false, 0);
            failed += status != SIDESTEP_OK;
            assert_true(fired || status == SIDESTEP_OK);
            if (status == SIDESTEP_OK)
                expect(n);
            (void)try_save(series, n + 1, NULL,
                           true); /* it may report the error of the one before */
            save_one(series, n + 2);
            expect(n + 2);
        }
        assert_false(fired);
    }
    assert_true(failed > 20 / step);
    close_series(&series);
}

/* ---- retention */

TEST(two_that_share_a_file_do_not_count_as_two)
{
    struct sidestep_series *series = open_incremental(2);
    struct sidestep_list list;
    struct sidestep_gc_report report;

    save_some(series, 1, 8);
    ASSERT_OK(sidestep_series_prune(series, &report, &err));
    sidestep_gc_report_release(&report);
    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    size_t seen = 0;
    const int64_t steps[] = {2, 7, 8};
    for (size_t i = 0; i < list.count; i++) {
        assert_true(seen < ARRAY_LENGTH(steps));
        assert_int_equal(sidestep_list_entry(&list, i)->step, steps[seen++]);
        assert_int_equal(sidestep_list_entry(&list, i)->shared_files,
                         sidestep_list_entry(&list, i)->step == 2 ? 0 : 1);
    }
    assert_int_equal(seen, ARRAY_LENGTH(steps));
    sidestep_list_release(&list);
    expect(2);
    expect(8);
    close_series(&series);
}

TEST(lost_metadata_can_be_rebuilt)
{
    struct sidestep_series *series = open_incremental(0);
    struct sidestep_checkpoint *checkpoint = NULL;
    struct sidestep_checkpoint_info about = SIDESTEP_CHECKPOINT_INFO_INIT;
    char command[512];

    save_some(series, 1, 5);
    for (int with_manifest = 1; with_manifest >= 0; with_manifest--) {
        assert_int_equal(unlink(path_of(5, "/.metadata")), 0);
        snprintf(command, sizeof(command), "rm %s/.sidestep.manifest.*", path_of(5, ""));
        if (!with_manifest)
            assert_int_equal(system(command), 0);
        ASSERT_OK(sidestep_rebuild(path_of(5, ""), &err));
        expect(5);
    }
    ASSERT_OK(sidestep_checkpoint_open(path_of(5, ""), &checkpoint, &err));
    assert_int_equal(sidestep_checkpoint_info(checkpoint, &about), SIDESTEP_OK);
    assert_int_equal(about.shared_bytes, info.linked_bytes);
    sidestep_checkpoint_close(&checkpoint);
    close_series(&series);
}

/* A rebuild that judged by footers alone would accept the shared file of another step. */
TEST(nothing_is_rebuilt_from_two_saves)
{
    struct sidestep_series *series = open_incremental(0);
    char command[1024];

    save_some(series, 1, 5);
    world.tensors[EMBED].frozen = world.tensors[HEAD].frozen = 2000;
    save_one(series, 6);
    assert_true(inode_of(6) != inode_of(5));
    snprintf(command, sizeof(command),
             "cd %s && cp step-5" KEPT " step-6" KEPT " && rm step-6/.metadata", scratch.path);
    assert_int_equal(system(command), 0);
    assert_int_equal(sidestep_rebuild(path_of(6, ""), &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "is not the file that the manifest lists"));
    close_series(&series);
}

/* ---- ranks */

static int run_ranks(struct sidestep_comm *comm, void *context)
{
    struct sidestep_series_options wanted = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_save_info own_info = SIDESTEP_SAVE_INFO_INIT;
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    struct world mine;
    int bad = 0;

    (void)context;
    char aside[256];

    snprintf(aside, sizeof(aside), "%s/aside", scratch.path);
    options.comm = comm;
    options.threads = 1;
    options.replicas = SIDESTEP_REPLICAS_SHARE; /* not with an incremental series */
    wanted.flags = SIDESTEP_SERIES_INCREMENTAL;
    bad |= sidestep_engine_open(&own, &options, NULL) != SIDESTEP_OK;
    bad |= sidestep_series_open(own, scratch.path, &wanted, &series, NULL) != SIDESTEP_OK;
    world_make(&mine, comm->rank, comm->size, WORLD_BY_ROWS, 3 * SCALE, false);
    mine.tensors[EMBED].frozen = 1000;
    for (uint64_t n = 1; bad == 0 && n <= 6; n++) {
        if (n == 6 && comm->rank == 1)
            mine.tensors[EMBED].frozen = 1001; /* this rank writes, others link */
        world_fill(&mine, n);
        bad |= sidestep_series_save(series, n, mine.state, NULL, &own_info, NULL) != SIDESTEP_OK;
        bad |= (own_info.linked_bytes != 0) != (n == 4 || n == 5 || (n == 6 && comm->rank != 1));
        if (n == 4) /* a save of another kind in between changes nothing */
            bad |= sidestep_save(own, aside, mine.state, NULL, NULL, NULL) != SIDESTEP_OK;
    }
    world_free(&mine);
    bad |= sidestep_series_close(&series, NULL) != SIDESTEP_OK;
    bad |= sidestep_engine_close(&own, NULL) != SIDESTEP_OK;
    return bad;
}

TEST(each_rank_shares_by_itself)
{
    struct sidestep_verify_report report = {0};
    struct world loaded;

    assert_int_equal(comm_threads_run(3, run_ranks, NULL), 0);
    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 3 * SCALE, true);
    loaded.tensors[EMBED].frozen = 1000;
    ASSERT_OK(sidestep_load(engine, path_of(5, ""), loaded.state, NULL, NULL, &err));
    assert_int_equal(world_check(&loaded, 5), 0);
    world_free(&loaded);
    ASSERT_OK(sidestep_verify(path_of(6, ""), NULL, &report, &err));
    assert_true(report.is_ok);
    sidestep_verify_report_release(&report);
}

EACH_TEST(setup, teardown);
