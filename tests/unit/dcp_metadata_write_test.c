/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dcp_metadata_write_test.c -- metadata is written and read again, merged from ranks, and written
 * with little memory. tests/interop/test_pickle.py shows that torch loads it.
 */
#include <time.h>

#include "base/fault.h"
#include "base/owned.h"
#include "format/dcp_metadata.h"
#include "format/pickle.h"
#include "support/metadata_show.h"
#include "support/unit.h"

static const char *const golden[] = {
    "tests/golden/torch-2.6.0/nested/.metadata",
    "tests/golden/torch-2.14.1/nested/.metadata",
    "tests/golden/torch-2.14.1/four_ranks/.metadata",
    "tests/golden/torch-2.15.0/nested/.metadata",
};

static void read_file(const char *path, struct metadata *metadata)
{
    OWNED_BUFFER file = metadata_show_file(path);
    struct sidestep_error err = {0};

    assert_int_equal(dcp_metadata_read(file.bytes, file.length, metadata, &err), SIDESTEP_OK);
}

static void assert_same_when_written(const struct metadata *metadata)
{
    OWNED_BUFFER out = {0};
    OWNED_METADATA again = {0};
    struct sidestep_error err = {0};

    buffer_put_text(&out, "before");
    assert_int_equal(dcp_metadata_write(&out, metadata, &err), SIDESTEP_OK);
    assert_memory_equal(out.bytes, "before\x80\x04\x95", 9);
    assert_int_equal(dcp_metadata_read(out.bytes + 6, out.length - 6, &again, &err), SIDESTEP_OK);
    OWNED_BUFFER shown = metadata_show(metadata);
    OWNED_BUFFER shown_again = metadata_show(&again);
    assert_string_equal((char *)shown.bytes, (char *)shown_again.bytes);
}

TEST(golden_files_come_back)
{
    for (size_t i = 0; i < ARRAY_LENGTH(golden); i++) {
        OWNED_METADATA metadata = {0};
        read_file(golden[i], &metadata);
        assert_same_when_written(&metadata);
    }
}

static void *allocate(struct metadata *metadata, size_t count, size_t size)
{
    void *block = arena_new(&metadata->arena, count, size);

    assert_non_null(block);
    return block;
}

/* ${entries} tensors of 8 x ${chunks} columns, in chunks of one column; every tenth an object. */
static void make_large(struct metadata *metadata, size_t entries, size_t chunks)
{
    metadata->entries = allocate(metadata, entries, sizeof(*metadata->entries));
    metadata->count = entries;
    metadata->checkpoint_id = "/checkpoints/step-1000";
    metadata->save_id = "0123456789abcdef";
    for (size_t i = 0; i < entries; i++) {
        struct metadata_entry *e = &metadata->entries[i];
        int64_t *shape = allocate(metadata, 2, sizeof(*shape));
        struct sidestep_path_item *path = allocate(metadata, 4, sizeof(*path));
        e->name = arena_printf(&metadata->arena, "model.layers.%zu.attention.weight", i);
        path[0].key = "model";
        path[1].key = "layers";
        path[2].index = (int64_t)i;
        path[3].key = "attention.weight";
        e->path = path;
        e->path_length = 4;
        e->is_object = i % 10 == 9;
        if (e->is_object) {
            e->storage =
                (struct metadata_storage){.file = "__0_0.distcp", .offset = i, .length = 1};
            continue;
        }
        e->dtype = (enum sidestep_dtype)(1 + i % (SIDESTEP_DTYPE_END - 1));
        e->dtype_name = sidestep_dtype_name(e->dtype);
        e->requires_grad = i % 3 == 0;
        e->ndim = 2;
        shape[0] = 8;
        shape[1] = (int64_t)chunks;
        e->shape = shape;
        e->chunk_count = chunks;
        e->chunks = allocate(metadata, chunks, sizeof(*e->chunks));
        for (size_t c = 0; c < chunks; c++) {
            int64_t *box = allocate(metadata, 4, sizeof(*box));
            box[1] = (int64_t)c;
            box[2] = 8;
            box[3] = 1;
            e->chunks[c].box = (struct box){.ndim = 2, .offsets = box, .lengths = box + 2};
            e->chunks[c].storage = (struct metadata_storage){
                .file = arena_printf(&metadata->arena, "__%zu_0.distcp", c),
                .offset = (uint64_t)i * 40960,
                .length = 1600};
        }
    }
}

TEST(batches)
{
    static const struct {
        size_t entries, chunks;
    } table[] = {{1, 1},    {1, 999},  {1, 1000}, {1, 1001}, {999, 1},
                 {1000, 1}, {1001, 1}, {2000, 1}, {10, 2000}};
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        OWNED_METADATA metadata = {0};
        make_large(&metadata, table[i].entries, table[i].chunks);
        assert_same_when_written(&metadata);
    }
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Prints the speed, but does not check it. */
TEST(sixty_four_thousand_chunks)
{
    OWNED_METADATA metadata = {0};
    OWNED_METADATA again = {0};
    OWNED_BUFFER out = {0};
    struct sidestep_error err = {0};
    double best = 1e9, start;
    make_large(&metadata, 1000, 64);
    for (int i = 0; i < 5; i++) {
        out.length = 0;
        start = seconds();
        assert_int_equal(dcp_metadata_write(&out, &metadata, &err), SIDESTEP_OK);
        best = seconds() - start < best ? seconds() - start : best;
    }
    start = seconds();
    assert_int_equal(dcp_metadata_read(out.bytes, out.length, &again, &err), SIDESTEP_OK);
    print_message("# 57,600 chunks: %zu bytes, written in %.1f ms (%.2f GB/s), read in %.1f ms\n",
                  out.length, best * 1e3, (double)out.length / best * 1e-9,
                  (seconds() - start) * 1e3);
    OWNED_BUFFER shown = metadata_show(&metadata);
    OWNED_BUFFER shown_again = metadata_show(&again);
    assert_string_equal((char *)shown.bytes, (char *)shown_again.bytes);
}

/* Numbers of every width, in shapes, offsets, lengths and paths. */
TEST(numbers)
{
    static const uint64_t table[] = {0,          1,          255,        256,        65535,
                                     65536,      INT32_MAX,  1ull << 31, UINT32_MAX, 1ull << 32,
                                     1ull << 39, 1ull << 55, 1ull << 61, INT64_MAX};
    static const int64_t indices[] = {0, 255, 256, -1, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        OWNED_METADATA metadata = {0};
        struct sidestep_path_item path[ARRAY_LENGTH(indices)] = {{0}};
        make_large(&metadata, 1, 1);
        struct metadata_entry *e = &metadata.entries[0];
        e->chunks[0].storage.offset = table[i];
        e->chunks[0].storage.transform = "stream.zstd/1,x";
        e->dtype = SIDESTEP_INT8;
        e->dtype_name = "int8";
        int64_t size[] = {(int64_t)(table[i] < 1ull << 61 ? table[i] : 1)};
        int64_t zero[] = {0};
        e->ndim = 1;
        e->shape = size;
        e->chunks[0].box = (struct box){.ndim = 1, .offsets = zero, .lengths = size};
        e->chunks[0].storage.length = INT64_MAX - table[i];
        for (size_t k = 0; k < ARRAY_LENGTH(indices); k++)
            path[k].index = indices[k];
        e->path = path;
        e->path_length = ARRAY_LENGTH(indices);
        assert_same_when_written(&metadata);
    }
}

TEST(dimensions_and_texts)
{
    char name[SIDESTEP_MAX_NAME + 1];
    for (uint32_t ndim = 0; ndim <= SIDESTEP_MAX_NDIM; ndim++) {
        OWNED_METADATA metadata = {0};
        int64_t ones[SIDESTEP_MAX_NDIM], zeroes[SIDESTEP_MAX_NDIM] = {0};
        make_large(&metadata, 1, 1);
        for (uint32_t d = 0; d < ndim; d++)
            ones[d] = 1;
        memset(name, 'n', sizeof(name));
        name[ndim * 64] = '\0';
        struct metadata_entry *e = &metadata.entries[0];
        e->name = name;
        e->ndim = ndim;
        e->shape = ones;
        e->chunks[0].box = (struct box){.ndim = ndim, .offsets = zeroes, .lengths = ones};
        e->dtype = SIDESTEP_DTYPE_NONE;
        e->dtype_name = "int1_of_the_future";
        metadata.save_id = ndim % 2 == 0 ? NULL : name;
        metadata.checkpoint_id = ndim % 3 == 0 ? NULL : name;
        assert_same_when_written(&metadata);
    }
}

TEST(the_default_path_is_the_name)
{
    OWNED_METADATA metadata = {0};
    OWNED_METADATA again = {0};
    OWNED_BUFFER out = {0};
    make_large(&metadata, 1, 1);
    metadata.entries[0].path_length = 0;
    assert_int_equal(dcp_metadata_write(&out, &metadata, NULL), SIDESTEP_OK);
    assert_int_equal(dcp_metadata_read(out.bytes, out.length, &again, NULL), SIDESTEP_OK);
    assert_int_equal(again.entries[0].path_length, 1);
    assert_string_equal(again.entries[0].path[0].key, metadata.entries[0].name);
}

static void assert_not_written(const struct metadata *metadata, const char *message)
{
    OWNED_BUFFER out = {0};
    struct sidestep_error err = {0};

    buffer_put_text(&out, "before");
    assert_int_equal(dcp_metadata_write(&out, metadata, &err), SIDESTEP_EINVAL);
    assert_string_equal(err.message, message);
    assert_int_equal(out.length, 6);
}

TEST(metadata_that_cannot_be_written)
{
    OWNED_METADATA metadata = {0};
    make_large(&metadata, 10, 1);
    metadata.entries[9].storage.file = NULL;
    assert_not_written(&metadata, "'model.layers.9.attention.weight' is not stored anywhere");
    metadata.entries[1].chunks[0].storage.file = NULL;
    assert_not_written(&metadata, "'model.layers.1.attention.weight' is not stored anywhere");
    metadata.entries[0].name = "\x80";
    assert_not_written(&metadata, "'\x80' is not UTF-8");
}

/* ---------------------------------------------------------------- merging */

/* A tensor of 4 rows. The rank has ${rows} of them, from ${first} on. */
static void make_rank(struct metadata *metadata, const char *file, int64_t first, int64_t rows)
{
    make_large(metadata, 1, 1);
    struct metadata_entry *e = &metadata->entries[0];
    int64_t *numbers_of_it = allocate(metadata, 3, sizeof(*numbers_of_it));
    static const int64_t shape[] = {4};
    e->name = "w";
    e->path_length = 0;
    e->ndim = 1;
    e->shape = shape;
    numbers_of_it[0] = first;
    numbers_of_it[1] = rows;
    e->chunks[0].box =
        (struct box){.ndim = 1, .offsets = numbers_of_it, .lengths = numbers_of_it + 1};
    e->chunks[0].storage = (struct metadata_storage){.file = file, .length = 9, .transform = "x"};
}

static void merge(struct metadata *into, const struct metadata *more)
{
    struct sidestep_error err = {0};

    assert_int_equal(dcp_metadata_merge(into, more, &err), SIDESTEP_OK);
}

TEST(ranks_are_merged)
{
    OWNED_METADATA all = {0};
    static const struct {
        const char *file;
        int64_t first, rows;
    } ranks[] = {{"r0", 0, 2}, {"r1", 0, 2}, {"r2", 2, 0},
                 {"r3", 2, 2}, {"r4", 2, 0}, {"r5", 4, 0}};
    for (size_t i = 0; i < ARRAY_LENGTH(ranks); i++) {
        OWNED_METADATA rank = {0};
        make_rank(&rank, ranks[i].file, ranks[i].first, ranks[i].rows);
        rank.save_id = i == 0 ? NULL : "id";
        merge(&all, &rank);
    }
    OWNED_BUFFER shown = metadata_show(&all);
    assert_string_equal((char *)shown.bytes,
                        "id=/checkpoints/step-1000 save=id\n"
                        "w () float64 grad [4]: [0:2] r0@0+9,x; [2:4] r3@0+9,x; "
                        "[4:4] r5@0+9,x\n");
    assert_int_equal(metadata_find(&all, "w")->chunk_count, 3);
}

TEST(files_are_merged)
{
    OWNED_METADATA all = {0};
    OWNED_METADATA nested = {0};
    OWNED_METADATA large = {0};
    read_file(golden[0], &nested);
    read_file(golden[0], &all);
    OWNED_BUFFER before = metadata_show(&all);
    merge(&all, &nested);
    OWNED_BUFFER after = metadata_show(&all);
    assert_string_equal((char *)before.bytes, (char *)after.bytes);
    make_large(&large, 2000, 3);
    merge(&all, &large);
    merge(&all, &large);
    assert_int_equal(all.count, nested.count + 2000);
    assert_non_null(metadata_find(&all, "model.layers.1999.attention.weight"));
    assert_same_when_written(&all);
}

/* Metadata without tables. */
TEST(merging_into_metadata_without_tables)
{
    OWNED_METADATA all = {0};
    OWNED_METADATA rank = {0};
    OWNED_METADATA twice = {0};
    struct metadata_chunk chunks[2];
    struct sidestep_error err = {0};
    make_rank(&all, "r0", 0, 2);
    make_rank(&rank, "r1", 2, 2);
    merge(&all, &rank);
    assert_int_equal(metadata_find(&all, "w")->chunk_count, 2);
    make_rank(&twice, "r0", 0, 2);
    chunks[0] = chunks[1] = twice.entries[0].chunks[0];
    twice.entries[0].chunks = chunks;
    twice.entries[0].chunk_count = 2;
    assert_int_equal(dcp_metadata_merge(&twice, &rank, &err), SIDESTEP_ECORRUPT);
    assert_string_equal(err.message, "tensor 'w': chunks 0 and 1 are both at [0]");
}

TEST(ranks_that_differ)
{
    OWNED_METADATA all = {0};
    struct sidestep_error err = {0};
    for (int i = 0; i < 5; i++) {
        OWNED_METADATA rank = {0};
        int64_t other[] = {5};
        make_rank(&rank, "r", 0, i == 0 ? 1 : 2);
        struct metadata_entry *e = &rank.entries[0];
        if (i == 0) {
            merge(&all, &rank);
            continue;
        }
        if (i == 1)
            e->shape = other;
        if (i == 2)
            e->dtype = SIDESTEP_INT8;
        if (i == 3)
            e->is_object = true;
        assert_int_equal(dcp_metadata_merge(&all, &rank, &err), SIDESTEP_ECORRUPT);
        assert_string_equal(err.message, i == 4
                                             ? "tensor 'w': two ranks have different chunks at [0]"
                                             : "'w' has another type or shape on another rank");
    }
}

/* ---------------------------------------------------------------- memory that runs out */

static enum sidestep_status read_merge_write(const struct buffer *file, struct sidestep_error *err)
{
    OWNED_METADATA metadata = {0};
    OWNED_METADATA all = {0};
    OWNED_BUFFER out = {0};

    TRY(dcp_metadata_read(file->bytes, file->length, &metadata, err));
    TRY(dcp_metadata_merge(&all, &metadata, err));
    TRY(dcp_metadata_merge(&all, &metadata, err));
    return dcp_metadata_write(&out, &all, err);
}

TEST(memory_runs_out)
{
    OWNED_METADATA large = {0};
    OWNED_BUFFER file = {0};
    unsigned long nth = 0;
    struct sidestep_error err;
    enum sidestep_status status;
    make_large(&large, 300, 3);
    assert_int_equal(dcp_metadata_write(&file, &large, NULL), SIDESTEP_OK);
    do {
        fault_arm("memory", ++nth, false, ENOMEM);
        status = read_merge_write(&file, &err);
        if (fault_fired() != NULL) {
            assert_int_equal(status, SIDESTEP_ENOMEM);
            assert_non_null(strstr(err.message, "cannot allocate "));
        }
    } while (fault_fired() != NULL);
    fault_arm("", 0, false, 0);
    assert_int_equal(status, SIDESTEP_OK);
    assert_true(nth > 30);
}

/* A limit makes each piece of an arena fail, because an arena makes few allocations. */
TEST(arenas_run_out)
{
    OWNED_BUFFER file = metadata_show_file(golden[1]);
    for (size_t limit = 16;; limit += 16) {
        OWNED_METADATA metadata = {0};
        OWNED_METADATA all = {.arena.limit_bytes = limit};
        struct sidestep_error err = {0};
        assert_int_equal(dcp_metadata_read(file.bytes, file.length, &metadata, &err), SIDESTEP_OK);
        enum sidestep_status status = dcp_metadata_merge(&all, &metadata, &err);
        if (status == SIDESTEP_OK) {
            assert_true(limit > 1000);
            break;
        }
        assert_int_equal(status, SIDESTEP_ENOMEM);
    }
}

TEST(the_end_says_of_which_save_it_is)
{
    OWNED_METADATA metadata = {0};
    OWNED_BUFFER bytes = {0};
    const char *id = "0123456789abcdef";

    make_large(&metadata, 2, 100);
    metadata.entries[0].chunks[99].storage.file = "__0.fedcba9876543210.distcp";
    metadata.checkpoint_id = "/save_id/fedcba9876543210";
    assert_int_equal(dcp_metadata_write(&bytes, &metadata, NULL), SIDESTEP_OK);
    assert_true(bytes.length > DCP_METADATA_END_BYTES);
    const uint8_t *end = bytes.bytes + bytes.length - DCP_METADATA_END_BYTES;
    assert_true(dcp_metadata_end_has_save_id(end, DCP_METADATA_END_BYTES, id));
    assert_false(dcp_metadata_end_has_save_id(end, DCP_METADATA_END_BYTES, "fedcba9876543210"));
    assert_false(dcp_metadata_end_has_save_id(end, DCP_METADATA_END_BYTES, "0123456789abcde"));
    assert_false(dcp_metadata_end_has_save_id(bytes.bytes, DCP_METADATA_END_BYTES, id));
    assert_false(dcp_metadata_end_has_save_id(bytes.bytes + bytes.length - 32, 32, id));
    assert_false(dcp_metadata_end_has_save_id(NULL, 0, id));
}
