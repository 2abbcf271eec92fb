/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_test.c -- a checkpoint is the same, whether its metadata is the index of chunks or
 * .metadata; a .metadata that no manifest lists is refused. */
#include "base/fault.h"
#include "base/owned.h"
#include "checkpoint/reader.h"
#include "commit/small_file.h"
#include "format/file_name.h"
#include "format/dcp_metadata.h"
#include "support/one_rank.h"
#include "support/same_metadata.h"
#include "support/unit.h"

#define OWNED_READER OWNED_BY(reader_close) struct reader

static char checkpoint[512];

static int setup(void **state)
{
    (void)state;
    if (one_rank_begin(NULL) != 0)
        return -1;
    snprintf(checkpoint, sizeof(checkpoint), "%s/checkpoint", scratch.path);
    world_fill(&world, 1);
    ASSERT_OK(sidestep_save(engine, checkpoint, world.state, NULL, NULL, &err));
    return 0;
}

/* The same, whether the metadata is what was read, or what another rank has read. */
static void expect_same(const struct reader *a, const struct reader *b)
{
    assert_true(a->metadata.count != 0);
    assert_int_equal(a->metadata.count, b->metadata.count);
    assert_string_equal(a->metadata.save_id, b->metadata.save_id);
    assert_memory_equal(a->manifest_sha256, b->manifest_sha256, HASH_SHA256_BYTES);
    assert_true(a->record_bytes == b->record_bytes);
    for (size_t i = 0; i < a->metadata.count; i++) {
        const struct metadata_entry *entry = &a->metadata.entries[i];
        assert_same_entry(entry, &b->metadata.entries[i]);
        assert_ptr_equal(metadata_find(&a->metadata, entry->name), entry);
    }
}

TEST(all_ways_give_the_same_metadata)
{
    OWNED_BY(reader_records_release) struct reader_records records = {0};
    const struct reader_wanted everything = {0};
    OWNED_READER *late = NULL;
    OWNED_READER *all = NULL;
    OWNED_READER *first = NULL;
    OWNED_READER *other = NULL;

    ASSERT_OK(reader_open(store_posix(), checkpoint, 0, &late, &err));
    ASSERT_OK(reader_open(store_posix(), checkpoint, READER_ALL, &all, &err));
    assert_true(late->opens_late && !all->opens_late);
    expect_same(late, all);
    ASSERT_OK(
        reader_open_to_load(store_posix(), checkpoint, 0, &everything, &records, &first, &err));
    assert_true(records.manifest.length != 0 && !records.has_index);
    ASSERT_OK(
        reader_open_to_load(store_posix(), checkpoint, 0, &everything, &records, &other, &err));
    expect_same(first, all);
    expect_same(other, all);
    assert_int_equal(other->open_files, 0);
}

/* With one flipped bit anywhere it is not the listed one: it is parsed, and refused because of its
 * contents, or because it is not listed. */
TEST(any_other_metadata_is_refused)
{
    OWNED_BUFFER bytes = {0};
    OWNED_DIR *dir = NULL;

    ASSERT_OK(store_dir_open(store_posix(), NULL, checkpoint, &dir, &err));
    ASSERT_OK(small_file_read(dir, FILE_NAME_METADATA, 0, DCP_METADATA_MAX_BYTES, &bytes, &err));
    for (size_t step = 0; step < 8; step++) {
        OWNED_READER *reader = NULL;
        size_t at = step * (bytes.length - 1) / 7;
        bytes.bytes[at] ^= 1;
        ASSERT_OK(store_unlink(dir, FILE_NAME_METADATA, &err));
        ASSERT_OK(small_file_write(dir, FILE_NAME_METADATA, bytes.bytes, bytes.length, &err));
        bytes.bytes[at] ^= 1;
        assert_int_not_equal(reader_open(store_posix(), checkpoint, 0, &reader, &err), SIDESTEP_OK);
    }
    ASSERT_OK(store_unlink(dir, FILE_NAME_METADATA, &err));
    ASSERT_OK(small_file_write(dir, FILE_NAME_METADATA, bytes.bytes, bytes.length, &err));
}

/* Whichever allocation fails: it is opened nevertheless, or memory was short. */
TEST(every_failed_allocation_is_survived)
{
    bool failed = true;
    unsigned refused = 0;

    for (unsigned n = 1; failed; n++) {
        OWNED_READER *reader = NULL;
        assert_true(n < 10000);
        fault_arm("memory", n, false, 12);
        enum sidestep_status status = reader_open(store_posix(), checkpoint, 0, &reader, &err);
        failed = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_true(status == SIDESTEP_OK || (failed && status == SIDESTEP_ENOMEM));
        refused += status != SIDESTEP_OK;
    }
    assert_true(refused >= 5);
}

ALL_TESTS(setup, one_rank_teardown);
