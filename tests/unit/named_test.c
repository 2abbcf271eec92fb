/* SPDX-License-Identifier: BSD-3-Clause */
/* named_test.c -- the files that a .metadata references are found through its manifest, and are the
 * same without it. */
#include "base/fault.h"
#include "base/owned.h"
#include "commit/commit.h"
#include "commit/name_list.h"
#include "commit/referenced_files.h"
#include "commit/small_file.h"
#include "format/dcp_metadata.h"
#include "store/store.h"
#include "support/one_rank.h"
#include "support/unit.h"

static char checkpoint[512];

static int setup(void **state)
{
    (void)state;
    if (one_rank_begin(NULL) != 0)
        return -1;
    snprintf(checkpoint, sizeof(checkpoint), "%s/checkpoint", scratch.path);
    return 0;
}

static struct store_dir *open_dir(void)
{
    struct store_dir *dir = NULL;

    ASSERT_OK(store_dir_open(store_posix(), NULL, checkpoint, &dir, &err));
    return dir;
}

static void save(unsigned epoch)
{
    world_fill(&world, epoch);
    ASSERT_OK(sidestep_save(engine, checkpoint, world.state, NULL, NULL, &err));
}

static size_t count_kind(struct store_dir *dir, enum file_name_kind kind,
                         char name[FILE_NAME_BYTES])
{
    OWNED_NAMES struct name_list names = {0};
    size_t count = 0;

    ASSERT_OK(name_list_read(dir, &names, &err));
    for (size_t i = 0; i < names.count; i++) {
        if (file_name_parse(names.names[i]).kind != kind)
            continue;
        count++;
        snprintf(name, FILE_NAME_BYTES, "%s", names.names[i]);
    }
    return count;
}

static uint64_t identify(struct store_dir *dir)
{
    uint64_t identity = 0;

    ASSERT_OK(commit_read_identity(dir, &identity, &err));
    return identity;
}

static void read_named(struct store_dir *dir, struct referenced_files *named)
{
    assert_int_equal(referenced_files_read(dir, FILE_NAME_METADATA, named), SIDESTEP_OK);
}

static void replace_file(struct store_dir *dir, const char *name, const void *bytes, size_t length)
{
    ASSERT_OK(store_unlink(dir, name, &err));
    ASSERT_OK(small_file_write(dir, name, bytes, length, &err));
}

/* With its manifest, without it, and with a damaged one. */
TEST(the_manifest_says_what_the_metadata_says)
{
    char name[FILE_NAME_BYTES], shard[FILE_NAME_BYTES];

    save(1);
    OWNED_DIR *dir = open_dir();
    OWNED_REFERENCED_FILES listed = {0};
    OWNED_REFERENCED_FILES parsed = {0};
    OWNED_BUFFER manifest = {0};
    assert_int_equal(count_kind(dir, FILE_NAME_MANIFEST, name), 1);
    assert_int_equal(count_kind(dir, FILE_NAME_SHARD, shard), 1);
    uint64_t identity = identify(dir);
    read_named(dir, &listed);
    assert_true(listed.is_listed && listed.metadata.count == 0);
    assert_true(identity == commit_identity(listed.save_id));
    assert_true(hash_table_find(&listed.files, shard) != SIZE_MAX);

    ASSERT_OK(small_file_read(dir, name, 0, MANIFEST_MAX_BYTES, &manifest, &err));
    manifest.bytes[manifest.length / 2] ^= 1;
    replace_file(dir, name, manifest.bytes, manifest.length);
    read_named(dir, &parsed);
    assert_true(!parsed.is_listed && parsed.metadata.count != 0);
    assert_string_equal(parsed.save_id, listed.save_id);
    assert_true(hash_table_find(&parsed.files, shard) != SIZE_MAX);
    assert_true(identify(dir) == identity);
    ASSERT_OK(store_unlink(dir, name, &err));
    assert_true(identify(dir) == identity);
}

/* A manifest counts only for the .metadata whose hash it lists, not for another of that length. */
TEST(a_manifest_of_other_metadata_is_ignored)
{
    OWNED_BUFFER metadata = {0};
    char name[FILE_NAME_BYTES];

    save(2);
    OWNED_DIR *dir = open_dir();
    OWNED_REFERENCED_FILES named = {0};
    uint64_t identity = identify(dir);
    assert_int_equal(count_kind(dir, FILE_NAME_MANIFEST, name), 1);
    ASSERT_OK(small_file_read(dir, FILE_NAME_METADATA, 0, DCP_METADATA_MAX_BYTES, &metadata, &err));
    metadata.bytes[metadata.length - 1] ^= 1; /* the opcode STOP */
    replace_file(dir, FILE_NAME_METADATA, metadata.bytes, metadata.length);
    assert_int_equal(referenced_files_read(dir, FILE_NAME_METADATA, &named), SIDESTEP_ECORRUPT);
    assert_true(identify(dir) != identity);
}

/* In place, again and again: the files of the old checkpoint are deleted, and nothing else. */
TEST(replaced_files_are_deleted)
{
    char name[FILE_NAME_BYTES];

    for (unsigned epoch = 3; epoch < 6; epoch++) {
        save(epoch);
        OWNED_DIR *dir = open_dir();
        assert_int_equal(count_kind(dir, FILE_NAME_MANIFEST, name), 1);
        assert_int_equal(count_kind(dir, FILE_NAME_SHARD, name), 1);
        assert_int_equal(count_kind(dir, FILE_NAME_METADATA_TMP, name), 0);
        assert_int_equal(count_kind(dir, FILE_NAME_PENDING, name), 0);
    }
    ASSERT_OK(sidestep_load(engine, checkpoint, world.state, NULL, NULL, &err));
}

/* Whichever allocation fails: the right answer, or that memory was short. */
TEST(every_failed_allocation_is_survived)
{
    bool failed = true;

    save(6);
    OWNED_DIR *dir = open_dir();
    for (unsigned n = 1; failed; n++) {
        OWNED_REFERENCED_FILES named = {0};
        assert_true(n < 10000);
        fault_arm("memory", n, false, 12);
        enum sidestep_status status = referenced_files_read(dir, FILE_NAME_METADATA, &named);
        failed = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_true(status == SIDESTEP_OK || (failed && status == SIDESTEP_ENOMEM));
        if (status == SIDESTEP_OK)
            assert_true(named.save_id != NULL && named.files.count != 0);
    }
}

EACH_TEST(setup, one_rank_teardown);
