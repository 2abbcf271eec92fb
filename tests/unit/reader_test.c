/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_test.c -- a .metadata that the manifest lists is not parsed, because the footers say the
 * same, entry by entry; any other one is parsed. */
#include "base/fault.h"
#include "base/owned.h"
#include "checkpoint/reader.h"
#include "commit/small_file.h"
#include "format/file_name.h"
#include "format/dcp_metadata.h"
#include "support/one_rank.h"
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

static void expect_same_storage(const struct metadata_storage *a, const struct metadata_storage *b)
{
    assert_string_equal(a->file, b->file);
    assert_true(a->offset == b->offset && a->length == b->length);
    assert_true((a->transform == NULL) == (b->transform == NULL));
    if (a->transform != NULL)
        assert_string_equal(a->transform, b->transform);
}

static void expect_same_path(const struct metadata_entry *a, const struct metadata_entry *b)
{
    assert_int_equal(a->path_length, b->path_length);
    for (uint32_t i = 0; i < a->path_length; i++) {
        assert_true((a->path[i].key == NULL) == (b->path[i].key == NULL));
        if (a->path[i].key != NULL)
            assert_string_equal(a->path[i].key, b->path[i].key);
        else
            assert_true(a->path[i].index == b->path[i].index);
    }
}

static void expect_same_entry(const struct metadata_entry *a, const struct metadata_entry *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->is_object, b->is_object);
    expect_same_path(a, b);
    if (a->is_object) {
        expect_same_storage(&a->storage, &b->storage);
        return;
    }
    assert_int_equal(a->dtype, b->dtype);
    assert_string_equal(a->dtype_name, b->dtype_name);
    assert_int_equal(a->requires_grad, b->requires_grad);
    assert_int_equal(a->ndim, b->ndim);
    assert_memory_equal(a->shape, b->shape, a->ndim * sizeof(*a->shape));
    assert_int_equal(a->chunk_count, b->chunk_count);
    for (size_t c = 0; c < a->chunk_count; c++) {
        assert_true(box_equal(&a->chunks[c].box, &b->chunks[c].box));
        expect_same_storage(&a->chunks[c].storage, &b->chunks[c].storage);
    }
}

TEST(footers_and_metadata_agree)
{
    OWNED_READER *listed = NULL;
    OWNED_READER *parsed = NULL;

    ASSERT_OK(reader_open(store_posix(), checkpoint, 0, &listed, &err));
    ASSERT_OK(reader_open(store_posix(), checkpoint, READER_PARSE_METADATA, &parsed, &err));
    assert_true(listed->is_listed && !parsed->is_listed);
    assert_true(listed->metadata.count != 0);
    assert_int_equal(listed->metadata.count, parsed->metadata.count);
    assert_string_equal(listed->metadata.save_id, parsed->metadata.save_id);
    assert_memory_equal(listed->manifest_sha256, parsed->manifest_sha256, HASH_SHA256_BYTES);
    assert_true(listed->record_bytes == parsed->record_bytes);
    for (size_t i = 0; i < listed->metadata.count; i++) {
        const struct metadata_entry *entry = &listed->metadata.entries[i];
        expect_same_entry(entry, &parsed->metadata.entries[i]);
        assert_ptr_equal(metadata_find(&listed->metadata, entry->name), entry);
    }
}

TEST(unlisted_metadata_is_parsed)
{
    OWNED_READER *tolerant = NULL;

    ASSERT_OK(reader_open(store_posix(), checkpoint, READER_TOLERANT, &tolerant, &err));
    assert_false(tolerant->is_listed);
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
