/* SPDX-License-Identifier: BSD-3-Clause */
/* load_index_test.c -- loads of wide checkpoints by few ranks: the index of chunks, and without it.
 */
#include <dirent.h>

#include "checkpoint/checkpoint.h"
#include "commit/commit.h"
#include "inspect/checkpoint_open.h"
#include "support/load_job.h"

/* Ranks that want little of many shards open the records, the index and one shard, and look at the
 * size of each shard once. Rank 0 reads the index for all. */
TEST_WITH(few_ranks_open_one_of_many_shards, scratch_setup, scratch_teardown)
{
    static const int sizes[] = {MANY_SAVERS, 64, 256};
    struct job job;

    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        save(&job, sizes[i]);
        for (int ranks = 1; ranks <= 4; ranks *= 2) {
            unsigned long least = (unsigned long)ranks + 1;
            assert_in_range(count_calls(&job, ranks, SAME_PART, "store.file_open"), least,
                            least + RECORD_OPENS);
            /* A shard: trailer, footer, and its tensors at once. The index: table, and pages twice.
             */
            assert_in_range(count_calls(&job, ranks, SAME_PART, "store.file_read_at"), 1,
                            (unsigned long)ranks * 3 + 3 + RECORD_OPENS);
            assert_in_range(count_calls(&job, ranks, SAME_PART, "store.stat"), job.savers - 1,
                            job.savers + 1);
        }
        store_fault_free(&job.store);
    }
}

static void index_path(const struct job *job, char path[256])
{
    OWNED_BY(reader_close) struct reader *r = NULL;
    char name[FILE_NAME_BYTES];

    assert_int_equal(reader_open(job->store, job->path, 0, &r, NULL), SIDESTEP_OK);
    file_name_format(FILE_NAME_INDEX, r->manifest.save_id, 0, 0, name);
    snprintf(path, 256, "%s/%s", job->path, name);
}

/* A checkpoint without an index, or whose index is damaged: .metadata is parsed, and all is well.
 * The report of a verification says so, and a rebuilt checkpoint has its index again. */
static void expect_to_do_without(struct job *job, const char *said)
{
    struct sidestep_verify_report report;
    struct sidestep_checkpoint *c = NULL;
    struct sidestep_error err = {0};

    for (int ranks = 1; ranks <= 2; ranks++)
        assert_in_range(count_calls(job, ranks, SAME_PART, "store.file_open"), 1,
                        (unsigned)ranks + 2 + RECORD_OPENS);
    assert_int_equal(sidestep_checkpoint_open(job->path, &c, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_checkpoint_count(c), TENSORS + job->savers);
    sidestep_checkpoint_close(&c);
    assert_int_equal(sidestep_verify(job->path, NULL, &report, &err), SIDESTEP_OK);
    assert_int_equal(report.problem_count, 1);
    assert_non_null(strstr(sidestep_verify_report_problem(&report, 0)->file, ".sidestep.index."));
    assert_non_null(strstr(sidestep_verify_report_problem(&report, 0)->message, said));
    sidestep_verify_report_release(&report);
    assert_int_equal(sidestep_rebuild(job->path, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_verify(job->path, NULL, &report, &err), SIDESTEP_OK);
    assert_true(report.is_ok && sidestep_verify_report_problem(&report, 0) == NULL &&
                sidestep_verify_report_unchecked(&report, 0) == NULL);
    sidestep_verify_report_release(&report);
    assert_in_range(count_calls(job, 1, SAME_PART, "store.file_open"), 2, 2 + RECORD_OPENS);
}

TEST_WITH(a_damaged_index_is_reported_and_not_needed, scratch_setup, scratch_teardown)
{
    struct job job, other;
    char path[256], foreign[256];

    save(&other, MANY_SAVERS + 8);
    index_path(&other, foreign);
    save(&job, MANY_SAVERS + 7);
    index_path(&job, path);
    flip_byte(path, 5);
    expect_to_do_without(&job, "page 0");
    flip_byte(path, -5);
    expect_to_do_without(&job, "table");
    assert_int_equal(truncate(path, 100), 0);
    expect_to_do_without(&job, "100 bytes");
    assert_int_equal(unlink(path), 0);
    expect_to_do_without(&job, "missing");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(foreign, path), 0); /* of another save */
    expect_to_do_without(&job, "bytes");
    store_fault_free(&job.store);
    store_fault_free(&other.store);
}

/* Write another index, and a manifest that lists it. */
static void replace_index(const struct job *job, const char *path,
                          void (*change)(struct metadata *metadata))
{
    OWNED_BY(reader_close) struct reader *r = NULL;
    OWNED_BUFFER index = {0}, manifest = {0};
    struct sidestep_error err = {0};
    char name[FILE_NAME_BYTES];

    assert_int_equal(reader_open(job->store, job->path, 0, &r, &err), SIDESTEP_OK);
    change(&r->metadata);
    assert_int_equal(chunk_index_encode(&r->metadata, &r->manifest, &index, &err), SIDESTEP_OK);
    assert_int_equal(manifest_encode(&r->manifest, &manifest, &err), SIDESTEP_OK);
    assert_int_equal(unlink(path), 0);
    const char *base = strrchr(path, '/') + 1;
    assert_int_equal(small_file_write(r->dir, base, index.bytes, index.length, &err), SIDESTEP_OK);
    file_name_format(FILE_NAME_MANIFEST, r->manifest.save_id, 0, 0, name);
    assert_int_equal(store_unlink(r->dir, name, &err), SIDESTEP_OK);
    assert_int_equal(small_file_write(r->dir, name, manifest.bytes, manifest.length, &err),
                     SIDESTEP_OK);
}

static struct metadata_chunk *chunk_of(struct metadata *metadata, size_t i)
{
    return &((struct metadata_entry *)metadata_find(metadata, "layer.1.weight"))->chunks[i];
}

static void move_chunk(struct metadata *metadata)
{
    chunk_of(metadata, 0)->storage.offset += 64;
}

static void name_wrong_shard(struct metadata *metadata)
{
    chunk_of(metadata, 0)->storage.file = chunk_of(metadata, 7)->storage.file;
}

static void swap_chunks(struct metadata *metadata)
{
    struct metadata_storage storage = chunk_of(metadata, 0)->storage;

    chunk_of(metadata, 0)->storage = chunk_of(metadata, 7)->storage;
    chunk_of(metadata, 7)->storage = storage;
}

/* What the index says of a chunk must be in the footer of the shard that it names. */
TEST_WITH(an_index_that_lies_is_refused, scratch_setup, scratch_teardown)
{
    static void (*const changes[])(struct metadata *) = {move_chunk, name_wrong_shard, swap_chunks};
    struct sidestep_verify_report report;
    struct sidestep_error err = {0};
    char path[256];
    struct job job;

    for (size_t i = 0; i < ARRAY_LENGTH(changes); i++) {
        save(&job, (int)(MANY_SAVERS + 7 + i));
        index_path(&job, path);
        replace_index(&job, path, changes[i]);
        job.expected = SIDESTEP_ECORRUPT;
        for (int ranks = 1; ranks <= 2; ranks++) {
            (void)count_calls(&job, ranks, SAME_PART, "store.file_open");
            assert_non_null(strstr(job.said, "layer.1.weight"));
            assert_non_null(strstr(job.said, "the index of chunks"));
        }
        assert_int_equal(sidestep_verify(job.path, NULL, &report, &err), SIDESTEP_OK);
        assert_int_equal(report.problem_count, 1);
        assert_non_null(
            strstr(sidestep_verify_report_problem(&report, 0)->message, "do not agree"));
        sidestep_verify_report_release(&report);
        assert_int_equal(sidestep_rebuild(job.path, &err), SIDESTEP_OK);
        job.expected = SIDESTEP_OK;
        (void)count_calls(&job, 1, SAME_PART, "store.file_open");
        store_fault_free(&job.store);
    }
}

/* Before there was an index, manifests did not list one. */
static void forget_index(const struct job *job)
{
    OWNED_BY(reader_close) struct reader *r = NULL;
    OWNED_BUFFER manifest = {0};
    char name[FILE_NAME_BYTES];

    assert_int_equal(reader_open(job->store, job->path, 0, &r, NULL), SIDESTEP_OK);
    file_name_format(FILE_NAME_INDEX, r->manifest.save_id, 0, 0, name);
    assert_int_equal(store_unlink(r->dir, name, NULL), SIDESTEP_OK);
    r->manifest.index = (struct manifest_index){0};
    assert_int_equal(manifest_encode(&r->manifest, &manifest, NULL), SIDESTEP_OK);
    file_name_format(FILE_NAME_MANIFEST, r->manifest.save_id, 0, 0, name);
    assert_int_equal(store_unlink(r->dir, name, NULL), SIDESTEP_OK);
    assert_int_equal(small_file_write(r->dir, name, manifest.bytes, manifest.length, NULL),
                     SIDESTEP_OK);
}

TEST_WITH(a_checkpoint_from_before_indices_is_whole, scratch_setup, scratch_teardown)
{
    struct sidestep_verify_report report;
    struct job job;

    save(&job, MANY_SAVERS + 7);
    forget_index(&job);
    for (int ranks = 1; ranks <= 2; ranks++)
        assert_in_range(count_calls(&job, ranks, SAME_PART, "store.file_open"), 1,
                        (unsigned)ranks + RECORD_OPENS);
    assert_int_equal(sidestep_verify(job.path, NULL, &report, NULL), SIDESTEP_OK);
    assert_true(report.is_ok);
    sidestep_verify_report_release(&report);
    store_fault_free(&job.store);
}

static unsigned count_indices(const char *path)
{
    DIR *dir = opendir(path);
    unsigned count = 0;

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += file_name_parse(entry->d_name).kind == FILE_NAME_INDEX;
    closedir(dir);
    return count;
}

/* A save in place removes the index of what it replaces, and that of a save that was killed. */
TEST_WITH(the_index_goes_with_its_checkpoint, scratch_setup, scratch_teardown)
{
    struct job job;
    char path[256];

    save(&job, MANY_SAVERS);
    assert_int_equal(count_indices(job.path), 1);
    snprintf(path, sizeof(path), "%s/.sidestep.index.0123456789abcdef0123456789abcdef", job.path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    store_fault_free(&job.store);
    save(&job, MANY_SAVERS);
    assert_int_equal(count_indices(job.path), 1);
    (void)count_calls(&job, 1, SAME_PART, "store.file_open");
    store_fault_free(&job.store);
    /* One that needs none. */
    struct job few;
    save(&few, MANY_SAVERS / 2);
    assert_int_equal(count_indices(few.path), 0);
    store_fault_free(&few.store);
}
