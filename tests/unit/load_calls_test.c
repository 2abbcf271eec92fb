/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load_calls_test.c -- what a load asks of storage: each rank opens the shards from which it reads,
 * and what all ranks must know, they read once together.
 */
#include "commit/commit.h"
#include "format/format.h"
#include "inspect/checkpoint_open.h"
#include "load/open_all.h"
#include "support/load_job.h"

TEST_WITH(each_rank_opens_what_it_needs, scratch_setup, scratch_teardown)
{
    struct job job;

    save(&job, 8);
    /* Its own shard. */
    assert_in_range(count_calls(&job, 8, OWN_PART, "store.file_open"), 8, 8 + RECORD_OPENS);
    assert_in_range(count_calls(&job, 8, OWN_PART, "store.stat"), 0, 2);
    /* The one that all need; of the others they look at the sizes. */
    assert_in_range(count_calls(&job, 8, SAME_PART, "store.file_open"), 8, 8 + RECORD_OPENS);
    assert_in_range(count_calls(&job, 8, SAME_PART, "store.stat"), 7, 9);
    store_fault_free(&job.store);
}

/* The negative control: the counter sees the opens of a reader that opens all files. */
TEST_WITH(opening_all_files_is_counted, scratch_setup, scratch_teardown)
{
    struct sidestep_error err = {0};
    struct reader *reader = NULL;
    struct job job;

    save(&job, 8);
    fault_arm("store.file_open", COUNT_ONLY, false, 0);
    assert_int_equal(reader_open(job.store, job.path, READER_ALL, &reader, &err), SIDESTEP_OK);
    assert_in_range(fault_hits(), 8 + 2, 8 + RECORD_OPENS);
    fault_arm("", 0, false, 0);
    reader_close(&reader);
    store_fault_free(&job.store);
}

static void replace_byte(const struct job *job, const char *file, long from_end)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", job->path, file);
    flip_byte(path, -from_end);
}

/* ---- damage of shards */

/* A shard whose footer is not the one that the manifest lists is refused by a rank that reads it. A
 * shard that is gone or short is noticed by all. */
TEST_WITH(damage_is_noticed, scratch_setup, scratch_teardown)
{
    char path[256];
    struct job job;

    save(&job, READER_MAX_FOOTERS + 8);
    job.expected = SIDESTEP_ECORRUPT;
    replace_byte(&job, "__0_0.distcp", 100);
    (void)count_calls(&job, 1, SAME_PART, "store.file_open");
    assert_non_null(strstr(job.said, "__0_0.distcp"));
    (void)count_calls(&job, 2, SAME_PART, "store.file_open");
    assert_non_null(strstr(job.said, "__0_0.distcp"));
    replace_byte(&job, "__0_0.distcp", 100);
    job.expected = SIDESTEP_OK;
    (void)count_calls(&job, 1, SAME_PART, "store.file_open");

    /* One that this rank does not read. */
    snprintf(path, sizeof(path), "%s/__7_0.distcp", job.path);
    assert_int_equal(truncate(path, 100), 0);
    job.expected = SIDESTEP_ECORRUPT;
    (void)count_calls(&job, 1, SAME_PART, "store.file_open");
    assert_non_null(strstr(job.said, "__7_0.distcp"));
    assert_int_equal(unlink(path), 0);
    (void)count_calls(&job, 1, SAME_PART, "store.file_open");
    assert_non_null(strstr(job.said, "missing"));
    store_fault_free(&job.store);
}

/* ---- checkpoints that torch wrote */

/* Make of the checkpoint what torch would have written: no footers, and no manifest. */
static void make_stock(const struct job *job)
{
    OWNED_BY(reader_close) struct reader *r = NULL;
    OWNED_BUFFER bytes = {0};
    struct sidestep_error err = {0};
    char path[256];

    assert_int_equal(reader_open(job->store, job->path, READER_ALL, &r, &err), SIDESTEP_OK);
    for (size_t i = 0; i < r->file_count; i++) {
        snprintf(path, sizeof(path), "%s/%s", job->path, r->files[i].name);
        assert_int_equal(truncate(path, (off_t)r->files[i].footer_offset), 0);
    }
    file_name_format(FILE_NAME_MANIFEST, r->manifest.save_id, 0, 0, path);
    assert_int_equal(store_unlink(r->dir, path, &err), SIDESTEP_OK);
    r->metadata.save_id = NULL;
    assert_int_equal(dcp_metadata_write(&bytes, &r->metadata, &err), SIDESTEP_OK);
    assert_int_equal(store_unlink(r->dir, FILE_NAME_METADATA, &err), SIDESTEP_OK);
    assert_int_equal(small_file_write(r->dir, FILE_NAME_METADATA, bytes.bytes, bytes.length, &err),
                     SIDESTEP_OK);
}

/* Each rank opens what it needs, and its share. */
TEST_WITH(stock_shards_are_opened_by_who_needs_them, scratch_setup, scratch_teardown)
{
    struct job job;

    save(&job, 8);
    make_stock(&job);
    assert_in_range(count_calls(&job, 8, OWN_PART, "store.file_open"), 8, 8 * (1 + STOCK_OPENS));
    store_fault_free(&job.store);

    save(&job, READER_MAX_FOOTERS + 8);
    make_stock(&job);
    assert_in_range(count_calls(&job, 1, SAME_PART, "store.file_open"), 1, 1 + STOCK_OPENS);
    assert_in_range(count_calls(&job, 1, SAME_PART, "store.stat"), job.savers - 1, job.savers + 1);
    store_fault_free(&job.store);
}

/* One that is short or gone is noticed, also where no rank reads it, by many ranks and by one. */
TEST_WITH(stock_shards_that_nobody_reads_are_looked_at, scratch_setup, scratch_teardown)
{
    char path[256];
    struct job job;

    for (int savers = 8; savers <= (int)READER_MAX_FOOTERS + 8; savers += READER_MAX_FOOTERS) {
        save(&job, savers);
        make_stock(&job);
        (void)count_calls(&job, 2, SAME_PART, "store.stat");
        snprintf(path, sizeof(path), "%s/__7_0.distcp", job.path);
        assert_int_equal(truncate(path, 100), 0);
        job.expected = SIDESTEP_ECORRUPT;
        for (int ranks = 1; ranks <= 2; ranks++) {
            (void)count_calls(&job, ranks, SAME_PART, "store.stat");
            assert_non_null(strstr(job.said, "__7_0.distcp"));
            assert_non_null(strstr(job.said, "ends at byte"));
        }
        assert_int_equal(unlink(path), 0);
        (void)count_calls(&job, 2, SAME_PART, "store.stat");
        assert_non_null(strstr(job.said, "missing"));
        store_fault_free(&job.store);
    }
}

/* ---- readers that are no load */

static void read_rows(struct sidestep_checkpoint *c, int saver)
{
    float data[ROWS][COLUMNS];
    struct sidestep_error err = {0};

    assert_int_equal(
        sidestep_checkpoint_read_tensor(c, "layer.1.weight", (int64_t[]){(int64_t)saver * ROWS, 0},
                                        (int64_t[]){ROWS, COLUMNS}, data, sizeof(data), &err),
        SIDESTEP_OK);
    assert_true(data[1][2] == element(1, saver * ROWS + 1, 2));
}

/* What is shown, read or exported of a wide checkpoint opens no other shard: footers of others may
 * be damaged. What is compared by its hashes opens all. */
TEST_WITH(other_readers_open_what_they_need, scratch_setup, scratch_teardown)
{
    struct sidestep_checkpoint_info info = SIDESTEP_CHECKPOINT_INFO_INIT;
    struct sidestep_convert_options convert = SIDESTEP_CONVERT_OPTIONS_INIT;
    struct sidestep_tensor_stats stats = {0};
    struct sidestep_diff_report report;
    struct sidestep_checkpoint *c = NULL;
    struct sidestep_error err = {0};
    char path[200];
    struct job job;

    save(&job, READER_MAX_FOOTERS + 8);
    replace_byte(&job, "__7_0.distcp", 100);
    assert_int_equal(sidestep_checkpoint_open(job.path, &c, &err), SIDESTEP_OK);
    assert_int_equal(c->reader->open_files, 0);
    assert_int_equal(sidestep_checkpoint_count(c), TENSORS + job.savers);
    assert_int_equal(sidestep_checkpoint_info(c, &info), SIDESTEP_OK);
    assert_int_equal(info.damaged_count, 0);
    read_rows(c, 3);
    assert_int_equal(c->reader->open_files, 1);
    stats.name = own_name(3);
    assert_int_equal(sidestep_checkpoint_stats(c, &stats, 1, NULL, &err), SIDESTEP_OK);
    assert_true(stats.max == element(TENSORS, 3, 1));
    assert_int_equal(c->reader->open_files, 1);
    stats.name = own_name(7);
    assert_int_equal(sidestep_checkpoint_stats(c, &stats, 1, NULL, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "__7_0.distcp"));
    sidestep_checkpoint_close(&c);

    snprintf(path, sizeof(path), "%s/export.safetensors", scratch.path);
    convert.include = (const char *const[]){own_name(3)};
    convert.include_count = 1;
    assert_int_equal(sidestep_convert(job.path, path, &convert, NULL, &err), SIDESTEP_OK);
    convert.include = (const char *const[]){own_name(7)};
    convert.flags = SIDESTEP_CONVERT_REPLACE;
    assert_int_equal(sidestep_convert(job.path, path, &convert, NULL, &err), SIDESTEP_ECORRUPT);
    assert_int_equal(sidestep_diff(job.path, job.path, NULL, &report, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "__7_0.distcp"));

    replace_byte(&job, "__7_0.distcp", 100);
    assert_int_equal(sidestep_checkpoint_open(job.path, &c, &err), SIDESTEP_OK);
    uint64_t bytes = info.bytes;
    assert_int_equal(sidestep_checkpoint_info(c, &info), SIDESTEP_OK);
    assert_int_equal(info.bytes, bytes);
    sidestep_checkpoint_close(&c);
    assert_int_equal(sidestep_diff(job.path, job.path, NULL, &report, &err), SIDESTEP_OK);
    assert_int_equal(report.same_by_hash, TENSORS + job.savers);
    sidestep_diff_report_release(&report);
    store_fault_free(&job.store);
}

/* A shard of a wide checkpoint that is short is noticed, and the rest can be read. */
TEST_WITH(other_readers_notice_sizes, scratch_setup, scratch_teardown)
{
    struct sidestep_checkpoint_info info = SIDESTEP_CHECKPOINT_INFO_INIT;
    struct sidestep_checkpoint *c = NULL;
    struct sidestep_error err = {0};
    char path[256];
    struct job job;

    save(&job, READER_MAX_FOOTERS + 8);
    snprintf(path, sizeof(path), "%s/__7_0.distcp", job.path);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(sidestep_checkpoint_open(job.path, &c, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_checkpoint_info(c, &info), SIDESTEP_OK);
    assert_int_equal(info.damaged_count, 1);
    read_rows(c, 3);
    sidestep_checkpoint_close(&c);
    store_fault_free(&job.store);
}

/* Rank 1 sees another checkpoint under the name: all ranks are told, and not that it is damaged. */
TEST_WITH(ranks_that_see_different_checkpoints_are_told, scratch_setup, scratch_teardown)
{
    struct job other, job;

    save(&other, 3);
    save(&job, 2);
    snprintf(job.other_path, sizeof(job.other_path), "%s", other.path);
    job.expected = SIDESTEP_EDISAGREE;
    (void)count_calls(&job, 2, OWN_PART, "store.file_open");
    assert_non_null(strstr(job.said, "shared storage"));
    job.other_path[0] = '\0';
    job.expected = SIDESTEP_OK;
    (void)count_calls(&job, 2, OWN_PART, "store.file_open");
    store_fault_free(&job.store);
    store_fault_free(&other.store);
}
