/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_zip_test.c -- zips whose parts contradict each other, or that hide something, are refused
 * with the right reason.
 */
#include <stdbool.h>

#include "base/fault.h"
#include "base/owned.h"
#include "format/archive.h"
#include "format/archive_zip.h"
#include "support/guard.h"
#include "support/unit.h"
#include "support/zip_build.h"

#define GOLDEN "tests/golden/torch-2.14.1/tensor.pt"

/* Open a copy that ends at a guard page, and check all members. */
static enum sidestep_status check(const uint8_t *bytes, size_t length, struct sidestep_error *err)
{
    uint8_t *copy = guard_copy(bytes, length);
    struct source source = source_from_memory(copy, length);
    enum sidestep_status status = archive_check(&source, 0, length, err);

    guard_free(copy);
    return status;
}

static void refused(const char *what, const uint8_t *bytes, size_t length,
                    enum sidestep_status status, const char *words)
{
    struct sidestep_error err = {0};

    if (check(bytes, length, &err) != status || strstr(err.message, words) == NULL)
        fail_msg("%s: '%s' (%d) is not '%s' (%d)", what, err.message, err.status, words, status);
}

static void accepted(const char *what, const uint8_t *bytes, size_t length)
{
    struct sidestep_error err = {0};

    if (check(bytes, length, &err) != SIDESTEP_OK)
        fail_msg("%s: %s", what, err.message);
}

static uint8_t golden[4096];
static size_t golden_bytes;

static int read_golden(void **unused)
{
    FILE *file = fopen(GOLDEN, "rb");

    (void)unused;
    if (file == NULL)
        return -1;
    golden_bytes = fread(golden, 1, sizeof(golden), file);
    return fclose(file);
}

/* ---------------------------------------------------------------- one field falsified */

#define CORRUPT SIDESTEP_ECORRUPT
#define UNSUPPORTED SIDESTEP_EUNSUPPORTED

/* ${change}: the field's new value, or with ADD a number to add to it. */
static const struct falsified {
    enum zip_place place;
    const char *name;
    unsigned offset;
    unsigned width;
    bool add;
    uint64_t change;
    enum sidestep_status status;
    const char *words;
} falsified[] = {
    {ZIP_END, NULL, 0, 4, true, 1, CORRUPT, "no end record"},
    {ZIP_END, NULL, 4, 2, false, 1, CORRUPT, "several disks"},
    {ZIP_END, NULL, 6, 2, false, 1, CORRUPT, "several disks"},
    {ZIP_END, NULL, 8, 2, true, 1, CORRUPT, "several disks"},
    {ZIP_END, NULL, 10, 2, true, 1, CORRUPT, "several disks"},
    {ZIP_END, NULL, 12, 4, true, 1, CORRUPT, "two end records differ"},
    {ZIP_END, NULL, 16, 4, true, 1, CORRUPT, "two end records differ"},
    {ZIP_END, NULL, 20, 2, false, 1, CORRUPT, "no end record"},
    {ZIP_LOCATOR, NULL, 0, 4, true, 1, CORRUPT, "does not end at the end record"},
    {ZIP_LOCATOR, NULL, 4, 4, false, 1, CORRUPT, "zip64 locator"},
    {ZIP_LOCATOR, NULL, 8, 8, true, 1, CORRUPT, "zip64 locator"},
    {ZIP_LOCATOR, NULL, 8, 8, false, UINT64_MAX, CORRUPT, "zip64 locator"},
    {ZIP_LOCATOR, NULL, 16, 4, false, 2, CORRUPT, "zip64 locator"},
    {ZIP_END64, NULL, 0, 4, true, 1, CORRUPT, "zip64 end record is damaged"},
    {ZIP_END64, NULL, 4, 8, true, 1, CORRUPT, "zip64 end record is damaged"},
    {ZIP_END64, NULL, 16, 4, false, 1, CORRUPT, "zip64 end record is damaged"},
    {ZIP_END64, NULL, 20, 4, false, 1, CORRUPT, "zip64 end record is damaged"},
    {ZIP_END64, NULL, 24, 8, true, 1, CORRUPT, "zip64 end record is damaged"},
    {ZIP_END64, NULL, 32, 8, true, 1, CORRUPT, "zip64 end record is damaged"},
    {ZIP_END64, NULL, 40, 8, true, 1, CORRUPT, "two end records differ"},
    {ZIP_END64, NULL, 48, 8, true, 1, CORRUPT, "two end records differ"},
    {ZIP_CENTRAL, "data/0", 0, 4, true, 1, CORRUPT, "entry 4 of the directory is damaged"},
    {ZIP_CENTRAL, "data/0", 8, 2, false, 0x0809, UNSUPPORTED, "'archive/data/0' is encrypted"},
    {ZIP_CENTRAL, "data/0", 8, 2, false, 0x0848, UNSUPPORTED, "is encrypted"},
    {ZIP_CENTRAL, "data/0", 8, 2, false, 0x2808, UNSUPPORTED, "is encrypted"},
    {ZIP_CENTRAL, "data/0", 8, 2, false, 0x080a, UNSUPPORTED, "unknown flags 0x080a"},
    {ZIP_CENTRAL, "data/0", 8, 2, false, 0x0800, CORRUPT, "local header differs"},
    {ZIP_CENTRAL, "data/0", 8, 2, false, 0x0008, CORRUPT, "local header differs"},
    {ZIP_CENTRAL, "data/0", 10, 2, false, 8, UNSUPPORTED, "compressed (method 8)"},
    {ZIP_CENTRAL, "data/0", 10, 2, false, 99, UNSUPPORTED, "compressed (method 99)"},
    {ZIP_CENTRAL, "data/0", 16, 4, true, 1, CORRUPT, "data descriptor differs"},
    {ZIP_CENTRAL, "data/0", 20, 4, true, 1, CORRUPT, "25 bytes are stored for its 24"},
    {ZIP_CENTRAL, "data/0", 24, 4, true, 1, CORRUPT, "24 bytes are stored for its 25"},
    {ZIP_CENTRAL, "data/0", 24, 4, false, UINT32_MAX, CORRUPT, "zip64 sizes do not fit"},
    {ZIP_CENTRAL, "data/0", 42, 4, false, UINT32_MAX, CORRUPT, "zip64 sizes do not fit"},
    {ZIP_CENTRAL, "data/0", 28, 2, true, -1, CORRUPT, "local header differs"},
    {ZIP_CENTRAL, "data/0", 28, 2, false, UINT16_MAX, CORRUPT, "directory is damaged"},
    {ZIP_CENTRAL, "data/0", 30, 2, false, 4, CORRUPT, "directory"},
    {ZIP_CENTRAL, "data/0", 30, 2, false, UINT16_MAX, CORRUPT, "directory is damaged"},
    {ZIP_CENTRAL, "data/0", 32, 2, false, 1, CORRUPT, "directory is damaged"},
    {ZIP_CENTRAL, "data/0", 34, 2, false, 1, CORRUPT, "directory is damaged"},
    {ZIP_CENTRAL, "data/0", 42, 4, true, 1, CORRUPT, "starts at 599, but the member before"},
    {ZIP_CENTRAL, "data/0", 42, 4, false, 0, CORRUPT, "starts at 0, but the member before"},
    {ZIP_CENTRAL, "data.pkl", 42, 4, false, 1, CORRUPT, "starts at 1, but the member before"},
    {ZIP_CENTRAL_NAME, "data/0", 0, 1, false, 'A', CORRUPT, "the folder of the other members"},
    {ZIP_CENTRAL_NAME, "data/0", 8, 1, false, 'D', CORRUPT, "another name in its local header"},
    {ZIP_CENTRAL_NAME, "data/0", 9, 1, false, 0, CORRUPT, "member 4 has the control byte 0x00"},
    {ZIP_CENTRAL_NAME, "data/0", 9, 1, false, 0x1b, CORRUPT, "has the control byte 0x1b"},
    {ZIP_CENTRAL_NAME, "data/0", 9, 1, false, 0x7f, CORRUPT, "has the control byte 0x7f"},
    {ZIP_LOCAL, "data/0", 0, 4, true, 1, CORRUPT, "local header differs"},
    {ZIP_LOCAL, "data/0", 6, 2, false, 0x0800, CORRUPT, "local header differs"},
    {ZIP_LOCAL, "data/0", 8, 2, false, 8, CORRUPT, "local header differs"},
    {ZIP_LOCAL, "data/0", 14, 4, false, 1, CORRUPT, "local header differs"},
    {ZIP_LOCAL, "data/0", 18, 4, false, 23, CORRUPT, "sizes in its local header differ"},
    {ZIP_LOCAL, "data/0", 18, 4, false, UINT32_MAX, CORRUPT, "sizes in its local header differ"},
    {ZIP_LOCAL, "data/0", 22, 4, false, 25, CORRUPT, "sizes in its local header differ"},
    {ZIP_LOCAL, "data/0", 22, 4, false, UINT32_MAX, CORRUPT, "sizes in its local header differ"},
    {ZIP_LOCAL, "data/0", 26, 2, true, 1, CORRUPT, "local header differs"},
    {ZIP_LOCAL, "data/0", 28, 2, true, 1, CORRUPT, "damaged extra field in its local header"},
    {ZIP_LOCAL, "data/0", 28, 2, false, 0, CORRUPT, "data descriptor differs"},
    {ZIP_LOCAL, "data/0", 28, 2, false, UINT16_MAX, CORRUPT, "lie outside"},
    {ZIP_LOCAL_NAME, "data/0", 13, 1, false, '1', CORRUPT, "another name in its local header"},
    {ZIP_LOCAL_EXTRA, "data/0", 0, 2, false, 1, CORRUPT, "sizes in its local header differ"},
    {ZIP_LOCAL_EXTRA, "data/0", 2, 2, true, 1, CORRUPT, "damaged extra field"},
    {ZIP_LOCAL_EXTRA, "data/0", 2, 2, true, -1, CORRUPT, "damaged extra field"},
    {ZIP_DESCRIPTOR, "data/0", 0, 4, true, 1, CORRUPT, "data descriptor differs"},
    {ZIP_DESCRIPTOR, "data/0", 4, 4, true, 1, CORRUPT, "data descriptor differs"},
    {ZIP_DESCRIPTOR, "data/0", 8, 4, true, 1, CORRUPT, "data descriptor differs"},
    {ZIP_DESCRIPTOR, "data/0", 12, 4, true, 1, CORRUPT, "data descriptor differs"},
    {ZIP_DATA, "data/0", 5, 1, true, 1, CORRUPT, "'data/0' has CRC"},
    {ZIP_DATA, "data.pkl", 100, 1, true, 1, CORRUPT, "'data.pkl' has CRC"},
    {ZIP_DATA, ".data/serialization_id", 3, 1, true, 1, CORRUPT, "serialization_id' has CRC"},
    {ZIP_DATA, "version", 0, 1, true, 1, CORRUPT, "'version' has CRC"},
};

TEST(test_falsified_fields)
{
    accepted("golden", golden, golden_bytes);
    for (size_t i = 0; i < ARRAY_LENGTH(falsified); i++) {
        const struct falsified *row = &falsified[i];
        uint8_t zip[sizeof(golden)];
        char what[64];

        memcpy(zip, golden, golden_bytes);
        uint8_t *at = zip + zip_find(zip, golden_bytes, row->place, row->name) + row->offset;
        uint64_t value = row->add ? zip_get(at, row->width) + row->change : row->change;
        zip_set(at, row->width, value);
        snprintf(what, sizeof(what), "row %zu", i);
        refused(what, zip, golden_bytes, row->status, row->words);
    }
}

/* Fields that say "see the zip64 record" agree with every value. */
TEST(test_saturated_end_record)
{
    uint8_t zip[sizeof(golden)];

    memcpy(zip, golden, golden_bytes);
    uint8_t *end = zip + golden_bytes - 22;
    zip_set(end + 8, 4, UINT32_MAX);
    zip_set(end + 12, 8, UINT64_MAX);
    accepted("saturated", zip, golden_bytes);
    /* ... but there must be one. */
    zip_set(end - 20, 4, 0);
    refused("saturated", zip, golden_bytes, CORRUPT, "zip64 end record is missing");
}

TEST(test_crc_left_out)
{
    uint8_t zip[sizeof(golden)];

    memcpy(zip, golden, golden_bytes);
    zip_set(zip + zip_find(zip, golden_bytes, ZIP_CENTRAL, "data/0") + 16, 4, 0);
    zip_set(zip + zip_find(zip, golden_bytes, ZIP_DESCRIPTOR, "data/0") + 4, 4, 0);
    zip[zip_find(zip, golden_bytes, ZIP_DATA, "data/0")] ^= 1;
    accepted("no CRC", zip, golden_bytes);
}

/* ---------------------------------------------------------------- bytes that belong to nothing */

TEST(test_truncated)
{
    for (size_t length = 0; length < golden_bytes; length++)
        refused("truncated", golden, length, CORRUPT, "zip: ");
    for (size_t cut = 1; cut < golden_bytes; cut++)
        refused("without its start", golden + cut, golden_bytes - cut, CORRUPT, "zip: ");
}

TEST(test_prefix_and_suffix)
{
    uint8_t zip[2 * sizeof(golden)] = {0};

    memcpy(zip + 8, golden, golden_bytes);
    refused("prefix", zip, golden_bytes + 8, CORRUPT, "zip64 locator points at");
    memcpy(zip, golden, golden_bytes);
    refused("suffix", zip, golden_bytes + 1, CORRUPT, "or something follows");
    memcpy(zip + golden_bytes, golden, golden_bytes);
    refused("two", zip, 2 * golden_bytes, CORRUPT, "zip64 locator points at");
    /* A comment that is an end record, too. */
    memcpy(zip + golden_bytes, golden + golden_bytes - 22, 22);
    zip_set(zip + golden_bytes - 2, 2, 22);
    refused("comment", zip, golden_bytes + 22, CORRUPT, "does not end at the end record");
}

static void put_sound(struct zip_build *zip)
{
    zip_build_text(zip, "a/data.pkl", "\x80\x02N.");
    zip_build_text(zip, "a/version", "3\n");
}

TEST(test_ordinary)
{
    OWNED_ZIP_BUILD zip = {0};

    put_sound(&zip);
    zip_build_text(&zip, "a/empty", "");
    zip_build_text(&zip, "a/folder/file", "x");
    zip_build_end(&zip);
    accepted("ordinary", zip.bytes.bytes, zip.bytes.length);

    /* Without a descriptor, the local header must have the sizes. */
    uint8_t *bytes = zip.bytes.bytes;
    size_t local = zip_find(bytes, zip.bytes.length, ZIP_LOCAL, "version");
    for (unsigned offset = 14; offset < 26; offset += 4) {
        uint32_t value = (uint32_t)zip_get(bytes + local + offset, 4);
        zip_set(bytes + local + offset, 4, 0);
        refused("sizes", bytes, zip.bytes.length, CORRUPT, "local header");
        zip_set(bytes + local + offset, 4, value);
    }
    accepted("ordinary", bytes, zip.bytes.length);
}

/* Extra fields of the last entry of the directory. */
TEST(test_directory_extra)
{
    static const struct {
        const char *extra;
        uint16_t length;
        const char *words; /* NULL: accepted */
    } rows[] = {
        {"", 0, NULL},
        {"UT\5\0\3time", 9, NULL},
        {"UT\0\0ux\1\0x", 9, NULL},
        {"UT\5", 3, "damaged extra field in the directory"},
        {"UT\6\0\3time", 9, "damaged extra field in the directory"},
        {"\1\0\10\0sevenor8", 12, "zip64 sizes do not fit"},
        {"\1\0\0\0\1\0\0\0", 8, "damaged extra field in the directory"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        OWNED_ZIP_BUILD zip = {0};

        put_sound(&zip);
        zip_build_end(&zip);
        size_t entry = zip_find(zip.bytes.bytes, zip.bytes.length, ZIP_CENTRAL, "version");
        size_t end = zip.bytes.length - 22;
        buffer_put(&zip.bytes, rows[i].extra, rows[i].length); /* makes room */
        assert_false(zip.bytes.failed);
        uint8_t *bytes = zip.bytes.bytes;
        memmove(bytes + end + rows[i].length, bytes + end, 22);
        memcpy(bytes + end, rows[i].extra, rows[i].length);
        zip_set(bytes + entry + 30, 2, rows[i].length);
        uint8_t *size = bytes + end + rows[i].length + 12;
        zip_set(size, 4, zip_get(size, 4) + rows[i].length);
        if (rows[i].words == NULL)
            accepted(rows[i].extra, bytes, zip.bytes.length);
        else
            refused(rows[i].extra, bytes, zip.bytes.length, CORRUPT, rows[i].words);
    }
}

/* A valid zip. In its local header, the second member, "version", has this extra field. */
static void build_with_extra(struct zip_build *zip, const void *extra, uint16_t extra_bytes)
{
    put_sound(zip);
    size_t local = zip->members[1].offset;
    size_t name_end = local + 30 + strlen("a/version");
    size_t data_bytes = zip->bytes.length - name_end;
    assert_non_null(buffer_extend(&zip->bytes, extra_bytes));
    uint8_t *bytes = zip->bytes.bytes;
    memmove(bytes + name_end + extra_bytes, bytes + name_end, data_bytes);
    memcpy(bytes + name_end, extra, extra_bytes);
    zip_set(bytes + local + 28, 2, extra_bytes);
    zip_build_end(zip);
}

/* Sizes of 64 bits although 32 suffice. Programs that do not know sizes in advance write them. */
TEST(test_local_zip64)
{
    static const struct {
        uint16_t length; /* of the record's data */
        uint64_t values[4];
        uint32_t fixed_size; /* the fixed fields; the size is 2 */
        bool is_sound;
    } rows[] = {
        {16, {2, 2}, UINT32_MAX, true},
        {16, {2, 2}, 2, true},
        {24, {2, 2, 44}, UINT32_MAX, true},
        {8, {44}, 2, true},
        {16, {3, 2}, UINT32_MAX, false},
        {16, {2, 3}, UINT32_MAX, false},
        {16, {0, 0}, UINT32_MAX, false},
        {16, {2, 2}, 3, false},
        {24, {2, 2, 45}, 2, false},
        {8, {0}, 2, false},
        {8, {44}, UINT32_MAX, false},
        {0, {0}, 2, false},
        {4, {2}, 2, false},
        {32, {2, 2, 44, 0}, 2, false},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        OWNED_ZIP_BUILD zip = {0};
        uint8_t extra[36] = {1, 0};

        zip_set(extra + 2, 2, rows[i].length);
        memcpy(extra + 4, rows[i].values, rows[i].length);
        build_with_extra(&zip, extra, rows[i].length + 4);
        assert_int_equal(zip.members[1].offset, 44);
        zip_set(zip.bytes.bytes + 44 + 18, 4, rows[i].fixed_size);
        zip_set(zip.bytes.bytes + 44 + 22, 4, rows[i].fixed_size);
        if (rows[i].is_sound)
            accepted("zip64", zip.bytes.bytes, zip.bytes.length);
        else
            refused("zip64", zip.bytes.bytes, zip.bytes.length, CORRUPT,
                    "'a/version': the sizes in its local header differ");
    }
}

/* Padding of the size of a disk block, which is more than a local header usually has. */
TEST(test_padded)
{
    static uint8_t pad[4000] = {'F', 'B', (sizeof(pad) - 4) % 256, (sizeof(pad) - 4) / 256};
    OWNED_ZIP_BUILD zip = {0};
    unsigned long n = 1;

    build_with_extra(&zip, pad, sizeof(pad));
    accepted("padded", zip.bytes.bytes, zip.bytes.length);
    for (bool has_fired = true; has_fired; n++) {
        struct sidestep_error err = {0};

        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status status = check(zip.bytes.bytes, zip.bytes.length, &err);
        has_fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(status, has_fired ? SIDESTEP_ENOMEM : SIDESTEP_OK);
    }
    assert_true(n >= 4); /* the directory, the long header, a piece of each member */
}

TEST(test_names)
{
    static const struct {
        const char *name;
        const char *words;
    } rows[] = {
        {"a/version", "it has 'version' twice"},
        {"a/DATA.pkl", "it has 'DATA.pkl' twice"},
        {"b/other", "'b/other' is not in the folder of the other members"},
        {"other", "'other' is not in the folder"},
        {"a/", "'a/' is not in the folder"},
        {"/other", "'/other' is not in the folder"},
        {"", "is not in the folder"},
        {"a/new\nline", "control byte 0x0a"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        OWNED_ZIP_BUILD zip = {0};

        put_sound(&zip);
        zip_build_text(&zip, rows[i].name, "x");
        zip_build_end(&zip);
        refused(rows[i].name, zip.bytes.bytes, zip.bytes.length, CORRUPT, rows[i].words);
    }
    for (size_t i = 2; i < ARRAY_LENGTH(rows) - 1; i++) {
        OWNED_ZIP_BUILD zip = {0};

        zip_build_text(&zip, rows[i].name,
                       "x"); /* as the first member, whose name gives the folder */
        put_sound(&zip);
        zip_build_end(&zip);
        refused(rows[i].name, zip.bytes.bytes, zip.bytes.length, CORRUPT, "is not in the folder");
    }
}

/* Members that share bytes, in the wrong order, or with something between them. */
TEST(test_tiling)
{
    static const struct {
        int moved; /* member whose entry moves */
        int32_t by;
        const char *words;
    } rows[] = {
        {1, -1, "'a/version' starts at"},
        {1, 1, "'a/version' starts at"},
        {0, 1, "'a/data.pkl' starts at 1, but the member before it ends at 0"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        OWNED_ZIP_BUILD zip = {0};

        put_sound(&zip);
        zip.members[rows[i].moved].offset += (uint32_t)rows[i].by;
        zip_build_end(&zip);
        refused("moved", zip.bytes.bytes, zip.bytes.length, CORRUPT, rows[i].words);
    }

    OWNED_ZIP_BUILD swapped = {0};
    put_sound(&swapped);
    __typeof__(swapped.members[0]) first = swapped.members[0];
    swapped.members[0] = swapped.members[1];
    swapped.members[1] = first;
    zip_build_end(&swapped);
    refused("swapped", swapped.bytes.bytes, swapped.bytes.length, CORRUPT, "but the member before");

    OWNED_ZIP_BUILD gap = {0};
    put_sound(&gap);
    buffer_put_u8(&gap.bytes, 0);
    zip_build_text(&gap, "a/other", "x");
    zip_build_end(&gap);
    refused("gap", gap.bytes.bytes, gap.bytes.length, CORRUPT, "'a/other' starts at");

    OWNED_ZIP_BUILD hidden = {0};
    put_sound(&hidden);
    zip_build_text(&hidden, "a/hidden", "x");
    hidden.count--;
    zip_build_end(&hidden);
    refused("hidden", hidden.bytes.bytes, hidden.bytes.length, CORRUPT, "belong to no member");
}

TEST(test_reaches_into_directory)
{
    OWNED_ZIP_BUILD zip = {0};

    put_sound(&zip);
    zip_build_text(&zip, "a/last", "four");
    uint32_t local = zip.members[2].offset;
    zip_set(zip.bytes.bytes + local + 18, 4, 5);
    zip_set(zip.bytes.bytes + local + 22, 4, 5);
    zip.members[2].size = 5;
    zip_build_end(&zip);
    refused("long", zip.bytes.bytes, zip.bytes.length, CORRUPT, "'a/last' reaches into the dir");
}

TEST(test_limits)
{
    struct zip_build *zip = calloc(1, sizeof(*zip));
    char names[ZIP_BUILD_MEMBERS][16];

    assert_non_null(zip);
    put_sound(zip);
    while (zip->count < ARCHIVE_MAX_RECORDS) {
        snprintf(names[zip->count], sizeof(names[0]), "a/data/%u", zip->count);
        zip_build_text(zip, names[zip->count], "x");
    }
    size_t before = zip->bytes.length;
    zip_build_end(zip);
    accepted("as many as may be", zip->bytes.bytes, zip->bytes.length);
    zip->bytes.length = before;
    zip_build_text(zip, "a/one more", "x");
    zip_build_end(zip);
    refused("one more", zip->bytes.bytes, zip->bytes.length, UNSUPPORTED,
            "1025 members are more than 1024");
    zip_build_release(zip);
    free(zip);

    OWNED_ZIP_BUILD none = {0};
    zip_build_end(&none);
    refused("none", none.bytes.bytes, none.bytes.length, CORRUPT, "it is empty");
}

TEST(test_directory_bytes)
{
    struct zip_build *zip = calloc(1, sizeof(*zip));
    char *names = malloc(20 * 60000);

    assert_non_null(zip);
    assert_non_null(names);
    put_sound(zip);
    for (size_t i = 0; i < 20; i++) {
        memset(names + i * 60000, 'n', 59999);
        memcpy(names + i * 60000, "a/", 2);
        names[i * 60000 + 59998] = (char)('a' + i);
        names[i * 60000 + 59999] = '\0';
        zip_build_text(zip, names + i * 60000, "");
    }
    zip_build_end(zip);
    refused("names", zip->bytes.bytes, zip->bytes.length, UNSUPPORTED, "is larger than 1048576");
    free(names);
    zip_build_release(zip);
    free(zip);
}

TEST(test_slice_of_a_file)
{
    uint8_t file[sizeof(golden) + 20] = {0};
    struct sidestep_error err = {0};

    memcpy(file + 10, golden, golden_bytes);
    struct source source = source_from_memory(file, golden_bytes + 20);
    assert_int_equal(archive_check(&source, 10, golden_bytes, &err), SIDESTEP_OK);
    assert_int_equal(archive_check(&source, 21, golden_bytes, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "outside the file's"));
    assert_int_equal(archive_check(&source, 10, UINT64_MAX, &err), SIDESTEP_ECORRUPT);
    assert_int_equal(archive_check(&source, UINT64_MAX, 10, &err), SIDESTEP_ECORRUPT);
}

TEST(test_load)
{
    OWNED_ARCHIVE_ZIP zip = {0};
    struct source source = source_from_memory(golden, golden_bytes);
    struct sidestep_error err = {0};
    const uint8_t *bytes = NULL;

    assert_int_equal(archive_zip_open(&zip, &source, 0, golden_bytes, &err), SIDESTEP_OK);
    assert_int_equal(zip.count, 7);
    assert_null(archive_zip_find(&zip, "data"));
    assert_null(archive_zip_find(&zip, "data/00"));
    const struct archive_member *member = archive_zip_find(&zip, "byteorder");
    assert_int_equal(archive_zip_load(&zip, member, 5, &bytes, &err), SIDESTEP_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "'byteorder' has 6 bytes, more than 5"));
    assert_int_equal(archive_zip_load(&zip, member, 6, &bytes, &err), SIDESTEP_OK);
    assert_string_equal((const char *)bytes, "little");
}

ALL_TESTS(read_golden, NULL);
