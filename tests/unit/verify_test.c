/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify_test.c -- verifying what torch wrote, or might have: items that many tensors share, that
 * overlap, that are cut off, that are large once they are decoded, and more problems than anybody
 * reads.
 */
#include <unistd.h>
#include <zstd.h>

#include "base/owned.h"
#include "support/unit.h"
#include "verify/verify.h"
#include "format/archive.h"
#include "format/dcp_metadata.h"
#include "format/file_name.h"
#include "support/scratch.h"

#define ENTRIES 1300
#define FILE_NAME "__0_0.distcp"
#define FLOATS ((int64_t)1 << 18) /* a tensor of 1 MiB */

static struct scratch scratch;
static struct workers *workers;

/* A checkpoint that is being made. */
struct made {
    struct metadata metadata;
    struct buffer file;
};

static void made_init(struct made *made)
{
    *made = (struct made){0};
    made->metadata.entries =
        arena_new(&made->metadata.arena, ENTRIES, sizeof(*made->metadata.entries));
    assert_non_null(made->metadata.entries);
}

static void made_free(struct made *made)
{
    metadata_release(&made->metadata);
    buffer_release(&made->file);
    scratch_remove(&scratch);
}

static struct metadata_entry *new_entry(struct made *made, const char *name, size_t number)
{
    struct metadata_entry *entry = &made->metadata.entries[made->metadata.count++];

    assert_true(made->metadata.count <= ENTRIES);
    entry->name = arena_printf(&made->metadata.arena, "%s.%zu", name, number);
    assert_non_null(entry->name);
    return entry;
}

static void point_tensor(struct made *made, size_t number, int64_t floats,
                         struct metadata_storage storage)
{
    static const int64_t zero = 0;
    struct metadata_entry *entry = new_entry(made, "w", number);
    struct arena *arena = &made->metadata.arena;

    entry->dtype = SIDESTEP_FLOAT32;
    entry->dtype_name = sidestep_dtype_name(SIDESTEP_FLOAT32);
    entry->ndim = 1;
    entry->shape = arena_copy(arena, &floats, sizeof(floats));
    entry->chunks = arena_new(arena, 1, sizeof(*entry->chunks));
    entry->chunk_count = 1;
    assert_true(entry->shape != NULL && entry->chunks != NULL);
    entry->chunks[0] = (struct metadata_chunk){{1, &zero, entry->shape}, storage};
}

static void point_object(struct made *made, size_t number, struct metadata_storage storage)
{
    struct metadata_entry *entry = new_entry(made, "o", number);

    entry->is_object = true;
    entry->storage = storage;
}

/* The archive of a tensor of this many floats, to the end of the file. */
static struct metadata_storage put_tensor(struct made *made, int64_t floats)
{
    struct archive_tensor_layout layout;
    uint64_t begin = made->file.length;
    uint8_t first[8] = {0};

    assert_int_equal(
        archive_tensor_write_head(SIDESTEP_FLOAT32, 1, &floats, &made->file, &layout, NULL),
        SIDESTEP_OK);
    uint8_t *data = buffer_extend(&made->file, layout.data_bytes);
    assert_non_null(data);
    for (uint64_t i = 0; i < layout.data_bytes; i++)
        data[i] = (uint8_t)(i * 7 >> 3);
    memcpy(first, data, sizeof(first));
    assert_int_equal(archive_tensor_write_tail(&layout, hash_crc32(0, data, layout.data_bytes),
                                               first, &made->file, NULL),
                     SIDESTEP_OK);
    return (struct metadata_storage){
        .file = FILE_NAME, .offset = begin, .length = made->file.length - begin};
}

/* An object of ${bytes} zeros, compressed. */
static struct metadata_storage put_compressed(struct made *made, size_t bytes)
{
    OWNED_BUFFER archive = {0};
    OWNED char *zeros = calloc(bytes, 1);
    uint64_t begin = made->file.length;

    assert_non_null(zeros);
    struct sidestep_value *value = sidestep_value_bytes(zeros, bytes);
    assert_non_null(value);
    assert_int_equal(archive_object_write(value, &archive, NULL), SIDESTEP_OK);
    sidestep_value_free(&value);
    size_t room = ZSTD_compressBound(archive.length);
    uint8_t *to = buffer_extend(&made->file, room);
    assert_non_null(to);
    size_t length = ZSTD_compress(to, room, archive.bytes, archive.length, 1);
    assert_false(ZSTD_isError(length));
    made->file.length = begin + length;
    return (struct metadata_storage){
        .file = FILE_NAME, .offset = begin, .length = length, .transform = "stream.zstd/1"};
}

static void put_file(const char *name, const void *bytes, size_t length)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", scratch.path, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

/* On disk, with so many bytes of its file. */
static void write_made(struct made *made, size_t length)
{
    OWNED_BUFFER metadata = {0};
    struct sidestep_error err = {0};

    assert_true(scratch_make(&scratch, NULL));
    enum sidestep_status status = dcp_metadata_write(&metadata, &made->metadata, &err);
    if (status != SIDESTEP_OK)
        print_message("# %s\n", err.message);
    assert_int_equal(status, SIDESTEP_OK);
    put_file(FILE_NAME_METADATA, metadata.bytes, metadata.length);
    put_file(FILE_NAME, made->file.bytes, length);
}

static enum sidestep_status verify(const struct verify_options *options,
                                   struct verify_findings *findings)
{
    OWNED_BY(reader_close) struct reader *reader = NULL;
    struct sidestep_error err = {0};

    enum sidestep_status status =
        reader_open(store_posix(), scratch.path, READER_TOLERANT, &reader, &err);
    if (status != SIDESTEP_OK)
        print_message("# %s\n", err.message);
    assert_int_equal(status, SIDESTEP_OK);
    return verify_reader(reader, workers, options, findings, &err);
}

/* ${name} (NULL: none) has a problem of this kind, with these words in its message. */
static bool is_found(const struct verify_findings *findings, const char *name, const char *kind,
                     const char *words)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct sidestep_problem *p = &findings->problems[i];
        if ((name == NULL ? p->name == NULL : p->name != NULL && strcmp(p->name, name) == 0) &&
            strcmp(p->kind, kind) == 0 && strstr(p->message, words) != NULL)
            return true;
    }
    for (size_t i = 0; i < findings->count && i < 10; i++)
        print_message("# found: %s: %s: %s\n", findings->problems[i].name,
                      findings->problems[i].kind, findings->problems[i].message);
    return false;
}

/* ---- one item, many names */

TEST(a_shared_item_is_read_once)
{
    OWNED_BY(verify_findings_release) struct verify_findings findings = {0};
    struct made made;

    made_init(&made);
    struct metadata_storage storage = put_tensor(&made, FLOATS);
    for (size_t i = 0; i < 1000; i++)
        point_tensor(&made, i, FLOATS, storage);
    write_made(&made, made.file.length);
    assert_int_equal(verify(NULL, &findings), SIDESTEP_OK);
    assert_int_equal(findings.count, 0);
    assert_true(findings.checked_bytes >= made.file.length);
    assert_true(findings.checked_bytes < 2 * made.file.length);
    made_free(&made);
}

TEST(damage_of_a_shared_item_affects_all_its_tensors)
{
    OWNED_BY(verify_findings_release) struct verify_findings findings = {0};
    struct made made;

    made_init(&made);
    struct metadata_storage storage = put_tensor(&made, FLOATS);
    point_tensor(&made, 0, FLOATS, storage);
    point_tensor(&made, 1, FLOATS - 1, storage); /* disagrees, besides */
    point_tensor(&made, 2, FLOATS, storage);
    made.file.bytes[made.file.length / 2] ^= 1;
    write_made(&made, made.file.length);
    assert_int_equal(verify(NULL, &findings), SIDESTEP_OK);
    assert_int_equal(findings.count, 3);
    assert_true(is_found(&findings, "w.0", "hash", "CRC"));
    assert_true(is_found(&findings, "w.1", "hash", "another shape"));
    assert_true(is_found(&findings, "w.2", "hash", "CRC"));
    made_free(&made);
}

TEST(overlapping_items_are_damage)
{
    OWNED_BY(verify_findings_release) struct verify_findings findings = {0};
    struct made made;

    made_init(&made);
    struct metadata_storage storage = put_tensor(&made, FLOATS);
    point_tensor(&made, 0, FLOATS, storage);
    storage.offset++;
    storage.length--;
    point_object(&made, 1, storage);
    write_made(&made, made.file.length);
    assert_int_equal(verify(NULL, &findings), SIDESTEP_OK);
    assert_int_equal(findings.count, 1);
    assert_true(is_found(&findings, "o.1", "format", "it overlaps another item"));
    made_free(&made);
}

/* ---- memory */

TEST(decoding_shares_a_budget)
{
    static const uint64_t limits[] = {(uint64_t)64 << 20, 1};
    struct made made;

    made_init(&made);
    for (size_t i = 0; i < 24; i++)
        point_object(&made, i, put_compressed(&made, (size_t)4 << 20));
    write_made(&made, made.file.length);
    for (size_t i = 0; i < ARRAY_LENGTH(limits); i++) {
        OWNED_BY(verify_findings_release) struct verify_findings findings = {0};
        struct budget budget;
        struct verify_options options = {.memory = &budget};

        budget_init(&budget, limits[i]);
        assert_int_equal(verify(&options, &findings), SIDESTEP_OK);
        assert_int_equal(findings.count, 0);
        assert_true(budget.shared.peak >= (uint64_t)4 << 20);
        /* Within the limit, or one alone. */
        assert_true(budget.shared.peak <= (uint64_t)64 << 20);
        budget_destroy(&budget);
    }
    made_free(&made);
}

TEST(an_object_of_holes_is_refused)
{
    OWNED_BY(reader_close) struct reader *reader = NULL;
    struct made made;
    struct reader_item item;
    struct sidestep_error err = {0};
    char path[128];
    void *bytes = NULL;
    size_t length = 0;

    made_init(&made);
    struct metadata_storage storage = put_tensor(&made, FLOATS);
    storage.length = (uint64_t)40 << 30;
    point_object(&made, 0, storage);
    write_made(&made, made.file.length);
    snprintf(path, sizeof(path), "%s/" FILE_NAME, scratch.path);
    if (truncate(path, (off_t)storage.length) != 0) {
        made_free(&made);
        print_message("# no file of 40 GiB here\n");
        skip();
    }
    assert_int_equal(reader_open(store_posix(), scratch.path, 0, &reader, &err), SIDESTEP_OK);
    const struct metadata_entry *entry = &reader->metadata.entries[0];
    assert_int_equal(reader_locate_item(reader, entry, &entry->storage, NULL, NULL, &item, &err),
                     SIDESTEP_OK);
    assert_int_equal(reader_item_read(&item, &bytes, &length, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "nearly all of it is holes"));
    assert_null(bytes);
    made_free(&made);
}

/* ---- what is cut off */

TEST(items_before_a_cut_are_checked)
{
    OWNED_BY(verify_findings_release) struct verify_findings findings = {0};
    struct made made;

    made_init(&made);
    for (size_t i = 0; i < 4; i++)
        point_tensor(&made, i, FLOATS, put_tensor(&made, FLOATS));
    made.file.bytes[made.file.length * 3 / 8] ^= 1; /* in the second */
    write_made(&made, made.file.length * 5 / 8);    /* in the third */
    assert_int_equal(verify(NULL, &findings), SIDESTEP_OK);
    assert_int_equal(findings.count, 4);
    assert_true(is_found(&findings, NULL, "size", "ends at byte"));
    assert_true(is_found(&findings, "w.1", "hash", "CRC"));
    assert_true(is_found(&findings, "w.2", "size", "ends beyond the end of its file"));
    assert_true(is_found(&findings, "w.3", "size", "ends beyond the end of its file"));
    made_free(&made);
}

TEST(unlisted_problems_are_counted)
{
    OWNED_BY(verify_findings_release) struct verify_findings findings = {0};
    struct made made;
    char path[128];

    made_init(&made);
    struct metadata_storage storage = put_tensor(&made, FLOATS);
    for (size_t i = 0; i < 1234; i++)
        point_tensor(&made, i, FLOATS, storage);
    write_made(&made, made.file.length);
    snprintf(path, sizeof(path), "%s/" FILE_NAME, scratch.path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(verify(NULL, &findings), SIDESTEP_OK);
    assert_int_equal(findings.count, VERIFY_MAX_PROBLEMS);
    assert_int_equal(findings.unlisted_count, 1234 + 1 - VERIFY_MAX_PROBLEMS);
    made_free(&made);
}

TEST(an_item_is_skipped_on_request)
{
    OWNED_BY(verify_findings_release) struct verify_findings findings = {0};
    static const bool volatile cancel = true;
    struct verify_options options = {.cancel = &cancel};
    struct made made;

    made_init(&made);
    point_tensor(&made, 0, FLOATS, put_tensor(&made, FLOATS));
    write_made(&made, made.file.length);
    assert_int_equal(verify(&options, &findings), SIDESTEP_ECANCELLED);
    assert_int_equal(findings.count, 0);
    made_free(&made);
}

static int start_workers(void **state UNUSED)
{
    return workers_new(7, "verify-test", &workers, NULL) == SIDESTEP_OK ? 0 : -1;
}

static int stop_workers(void **state UNUSED)
{
    workers_free(&workers);
    return 0;
}

ALL_TESTS(start_workers, stop_workers);
