/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collect_test.c -- rank 0 reads the shards of many ranks with several threads: what it builds of
 * them, and what it says of a bad one, is the same as with one thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fault.h"
#include "commit/commit.h"
#include "support/scratch.h"
#include "support/unit.h"

#define RANKS 70 /* not a multiple of the ranks that are read together */
#define DIGEST 7
#define DATA_BYTES 8u

static const uint8_t id[SAVE_ID_BYTES] = {0xcd, 1};

/* The shards of one save, as their ranks sealed them. */
struct shards {
    struct scratch scratch;
    struct commit commit; /* of rank 0 */
    int64_t gap;          /* this rank has no row of the tensor; -1: none */
    int64_t stranger;     /* this rank has another layout; -1: none */
};

static void open_rank(const struct shards *s, struct commit *commit, uint32_t rank)
{
    *commit = (struct commit){.store = store_posix(),
                              .clock = clock_system(),
                              .rank = rank,
                              .world_size = RANKS,
                              .request.timeout_ns = UINT64_C(3000000000),
                              .request.step = -1,
                              .layout_digest = DIGEST};
    assert_int_equal(commit_open(commit, scratch_path(&s->scratch, "ckpt"), NULL), SIDESTEP_OK);
}

/* A row of a tensor, and the rank's own object. */
static void write_shard(const struct shards *s, struct commit *commit)
{
    static const uint8_t data[2 * DATA_BYTES] = {1, 2, 3};
    const uint64_t block = hash_block(data, DATA_BYTES);
    char key[32], name[64];
    const struct sidestep_path_item weight[] = {{.key = "model"}, {.key = "weight"}};
    const struct sidestep_path_item own[] = {{.key = "states"}, {.key = key}};
    int64_t shape[] = {RANKS, 2}, offsets[] = {commit->rank, 0}, lengths[] = {1, 2};
    struct footer_item items[2] = {
        {.name = "model.weight",
         .dtype = SIDESTEP_FLOAT32,
         .ndim = 2,
         .shape = shape,
         .box = {2, offsets, lengths},
         .path_length = 2,
         .path = weight},
        {.name = name, .is_object = true, .path_length = 2, .path = own, .offset = DATA_BYTES}};
    struct footer footer = {.rank = commit->rank,
                            .shard_count = 1,
                            .world_size = RANKS,
                            .layout_digest = DIGEST + (s->stranger == commit->rank),
                            .count = 2,
                            .items = items};
    struct store_file *file = NULL;
    OWNED_BUFFER bytes = {0};

    snprintf(key, sizeof(key), "rank%u", commit->rank);
    snprintf(name, sizeof(name), "states.%s", key);
    for (int i = 0; i < 2; i++) {
        items[i].bytes = items[i].data_bytes = items[i].raw_bytes = DATA_BYTES;
        items[i].block_count = 1;
        items[i].blocks = &block;
        items[i].raw_hash = hash_block_list(&block, 1);
    }
    if (s->gap == commit->rank)
        footer.items = &items[1], footer.count = 1;
    memcpy(footer.save_id, commit->save_id_bytes, SAVE_ID_BYTES);
    buffer_put(&bytes, data, sizeof(data));
    assert_int_equal(footer_encode(&footer, sizeof(data), &bytes, NULL), SIDESTEP_OK);
    assert_int_equal(commit_shard_create(commit, 0, 0, &file, NULL), SIDESTEP_OK);
    assert_int_equal(store_file_write_at(file, bytes.bytes, bytes.length, 0, NULL), SIDESTEP_OK);
    assert_int_equal(commit_shard_seal(commit, 0, file, NULL), SIDESTEP_OK);
    assert_int_equal(commit_vote_yes(commit, NULL), SIDESTEP_OK);
}

static void begin(struct shards *s)
{
    assert_true(scratch_make(&s->scratch, "/dev/shm"));
    open_rank(s, &s->commit, 0);
    assert_int_equal(commit_begin(&s->commit, id, NULL), SIDESTEP_OK);
    write_shard(s, &s->commit);
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        struct commit commit;
        open_rank(s, &commit, rank);
        commit_set_save_id(&commit, id);
        assert_int_equal(commit_join(&commit, NULL), SIDESTEP_OK);
        write_shard(s, &commit);
        commit_close(&commit);
    }
}

static void end(struct shards *s)
{
    commit_close(&s->commit);
    scratch_remove(&s->scratch);
}

/* Change the byte of the file that is ${from_end} before its end. */
static void damage(const struct shards *s, uint32_t rank, off_t from_end)
{
    char saving[FILE_NAME_BYTES], name[FILE_NAME_BYTES], path[256];
    uint8_t byte;

    file_name_format(FILE_NAME_SAVING, s->commit.save_id, 0, 0, saving);
    file_name_format(FILE_NAME_SHARD, "", rank, 0, name);
    snprintf(path, sizeof(path), "%s/%s/%s", s->scratch.path, saving, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    off_t at = lseek(fd, 0, SEEK_END) - from_end;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(close(fd), 0);
}

static void expect_contents(const struct commit_contents *contents)
{
    const struct metadata *metadata = &contents->metadata;
    const struct metadata_entry *weight = &metadata->entries[0];

    assert_int_equal(contents->manifest.file_count, RANKS);
    assert_int_equal(metadata->count, 1 + RANKS);
    assert_string_equal(weight->name, "model.weight");
    assert_string_equal(weight->path[1].key, "weight");
    assert_int_equal(weight->shape[0], RANKS);
    assert_int_equal(weight->chunk_count, RANKS);
    for (size_t i = 0; i < RANKS; i++) {
        const struct metadata_chunk *chunk = &weight->chunks[i];
        const struct metadata_entry *own = &metadata->entries[1 + i];
        char name[FILE_NAME_BYTES], key[32];
        file_name_format(FILE_NAME_SHARD, "", (uint32_t)i, 0, name);
        snprintf(key, sizeof(key), "rank%zu", i);
        assert_string_equal(contents->manifest.files[i].name, name);
        assert_string_equal(chunk->storage.file, name);
        assert_int_equal(chunk->storage.offset, 0);
        assert_int_equal(chunk->box.offsets[0], i);
        assert_int_equal(chunk->box.lengths[1], 2);
        assert_string_equal(own->path[1].key, key);
        assert_string_equal(own->storage.file, name);
        assert_int_equal(own->storage.offset, DATA_BYTES);
    }
}

/* Collect, and append the bytes of `.metadata` to ${bytes}. */
static void collect(struct shards *s, struct buffer *bytes)
{
    struct commit_contents contents = {0};

    assert_int_equal(commit_collect_votes(&s->commit, &contents, NULL), SIDESTEP_OK);
    expect_contents(&contents);
    assert_int_equal(dcp_metadata_write(bytes, &contents.metadata, NULL), SIDESTEP_OK);
    commit_contents_release(&contents);
}

TEST(the_order_of_threads_does_not_matter)
{
    struct shards s = {.gap = -1, .stranger = -1};
    struct buffer bytes[3] = {{0}, {0}, {0}};

    begin(&s);
    collect(&s, &bytes[0]);
    collect(&s, &bytes[1]);
    fault_arm("thread.start", 1, true, EAGAIN); /* this thread reads alone */
    collect(&s, &bytes[2]);
    assert_true(fault_hits() > 0);
    fault_arm("", 0, false, 0);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(bytes[i].length, bytes[0].length);
        assert_memory_equal(bytes[i].bytes, bytes[0].bytes, bytes[0].length);
    }
    end(&s);
    for (int i = 0; i < 3; i++)
        buffer_release(&bytes[i]);
}

static void expect_refused(struct shards *s, enum sidestep_status status, const char *words)
{
    struct commit_contents contents = {0};
    struct sidestep_error err = {0};

    assert_int_equal(commit_collect_votes(&s->commit, &contents, &err), status);
    assert_int_equal(err.status, status);
    assert_non_null(strstr(err.message, words));
    commit_contents_release(&contents);
}

/* Of several damaged shards, the one of the lowest rank is reported. */
TEST(a_damaged_shard_is_named)
{
    struct shards s = {.gap = -1, .stranger = -1};

    begin(&s);
    damage(&s, 69, 1);
    expect_refused(&s, SIDESTEP_ECORRUPT, "'__69_0.distcp': trailer");
    damage(&s, 21, 70);
    damage(&s, 22, 70);
    expect_refused(&s, SIDESTEP_ECORRUPT, "'__21_0.distcp': footer");
    end(&s);
}

TEST(a_rank_with_another_layout_is_named)
{
    struct shards s = {.gap = -1, .stranger = 40};

    begin(&s);
    expect_refused(&s, SIDESTEP_EDISAGREE, "rank 40 saved another layout than rank 0");
    end(&s);
}

TEST(a_missing_row_is_a_gap)
{
    struct shards s = {.gap = 33, .stranger = -1};

    begin(&s);
    expect_refused(&s, SIDESTEP_EDISAGREE, "'model.weight': the shards of all ranks do not cover");
    end(&s);
}

/* Whatever call fails, nothing leaks or hangs, and the save is refused or collected. */
TEST(each_failure_is_reported)
{
    struct shards s = {.gap = -1, .stranger = -1};
    bool failed = true;

    begin(&s);
    for (unsigned long nth = 1; failed; nth += 97) {
        struct commit_contents contents = {0};
        struct sidestep_error err = {0};
        fault_arm("memory", nth, false, ENOMEM);
        enum sidestep_status status = commit_collect_votes(&s.commit, &contents, &err);
        failed = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        if (status != SIDESTEP_OK)
            assert_int_equal(err.status, SIDESTEP_ENOMEM);
        else
            expect_contents(&contents);
        commit_contents_release(&contents);
    }
    end(&s);
}
