/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * manifest_test.c -- manifests are written and read again, and damaged or wrong ones are refused.
 */
#include "base/fault.h"
#include "base/owned.h"
#include "format/manifest.h"
#include "support/guard.h"
#include "support/unit.h"

#define ID "0123456789abcdef0123456789abcdef"
#define RUN "00112233445566778899aabbccddeeff"
#define OLDER "fedcba9876543210fedcba9876543210"
#define HASH_LINE_BYTES 72u

static struct manifest_file sample_files[] = {
    {.name = "__0_0.distcp", .bytes = 1048576, .origin = ID},
    {.name = "__0_1." OLDER ".distcp", .bytes = 0, .origin = OLDER},
    {.name = "a/b-c_D.9", .bytes = INT64_MAX, .origin = ID},
};

static struct manifest sample(void)
{
    struct manifest manifest = {.save_id = ID,
                                .run_id = RUN,
                                .incarnation = INT64_MAX,
                                .step = 9007199254740993, /* no double */
                                .world_size = 2,
                                .saved_at = 1767323045,
                                .optional_features = UINT64_C(0x8000000000000001),
                                .metadata_bytes = 4242,
                                .file_count = ARRAY_LENGTH(sample_files),
                                .files = sample_files};

    for (unsigned i = 0; i < HASH_SHA256_BYTES; i++) {
        manifest.metadata_sha256[i] = (uint8_t)i;
        for (size_t f = 0; f < ARRAY_LENGTH(sample_files); f++)
            sample_files[f].footer_sha256[i] = (uint8_t)(0x10 * f + i);
    }
    return manifest;
}

static void encode(const struct manifest *manifest, struct buffer *out)
{
    struct sidestep_error err = {0};

    if (manifest_encode(manifest, out, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
}

static enum sidestep_status decode(const void *bytes, size_t length, struct arena *arena,
                                   struct manifest *out, struct sidestep_error *err)
{
    void *copy = guard_copy(bytes, length);
    enum sidestep_status status = manifest_decode(copy, length, arena, out, err);

    guard_free(copy);
    return status;
}

/* ${json} and a newline, with the line of its hash. */
static void seal(const char *json, size_t length, struct buffer *out)
{
    uint8_t digest[HASH_SHA256_BYTES];
    char hex[2 * HASH_SHA256_BYTES + 1];

    out->length = 0;
    buffer_put(out, json, length);
    buffer_put_u8(out, '\n');
    hash_sha256(out->bytes, out->length, digest);
    hash_to_hex(digest, sizeof(digest), hex);
    buffer_printf(out, "sha256 %s\n", hex);
}

static void decode_fails(const struct buffer *bytes, enum sidestep_status status, const char *words)
{
    OWNED_ARENA arena = {0};
    struct manifest manifest;
    struct sidestep_error err = {0};

    if (decode(bytes->bytes, bytes->length, &arena, &manifest, &err) != status ||
        strstr(err.message, words) == NULL || strncmp(err.message, "manifest: ", 10) != 0)
        fail_msg("status %d, '%s', not '%s'", err.status, err.message, words);
    assert_null(manifest.files);
}

/* ------------------------------------------------------------------ round trips */

static void assert_manifests_equal(const struct manifest *a, const struct manifest *b)
{
    assert_string_equal(a->save_id, b->save_id);
    assert_string_equal(a->run_id, b->run_id);
    assert_int_equal(a->incarnation, b->incarnation);
    assert_int_equal(a->step, b->step);
    assert_string_equal(a->naming, b->naming);
    assert_int_equal(a->world_size, b->world_size);
    assert_int_equal(a->saved_at, b->saved_at);
    assert_int_equal(a->required_features, b->required_features);
    assert_int_equal(a->optional_features, b->optional_features);
    assert_int_equal(a->metadata_bytes, b->metadata_bytes);
    assert_memory_equal(a->metadata_sha256, b->metadata_sha256, HASH_SHA256_BYTES);
    assert_int_equal(a->file_count, b->file_count);
    for (size_t i = 0; i < a->file_count; i++) {
        assert_string_equal(a->files[i].name, b->files[i].name);
        assert_int_equal(a->files[i].bytes, b->files[i].bytes);
        assert_memory_equal(a->files[i].footer_sha256, b->files[i].footer_sha256,
                            HASH_SHA256_BYTES);
        assert_string_equal(a->files[i].origin, b->files[i].origin);
    }
}

TEST(manifests_round_trip)
{
    struct manifest manifests[3] = {sample(), sample(), sample()};

    manifests[1].run_id[0] = '\0';
    manifests[1].incarnation = 0;
    manifests[1].step = -1;
    manifests[1].file_count = 0;
    manifests[2].step = 0;
    strcpy(manifests[2].naming, "schritt_{step:08}-größe.dcp");
    manifests[2].world_size = SIDESTEP_MAX_RANKS;
    for (size_t i = 0; i < ARRAY_LENGTH(manifests); i++) {
        OWNED_ARENA arena = {0};
        OWNED_BUFFER bytes = {0}, again = {0};
        struct manifest out;
        encode(&manifests[i], &bytes);
        assert_int_equal(decode(bytes.bytes, bytes.length, &arena, &out, NULL), SIDESTEP_OK);
        assert_manifests_equal(&manifests[i], &out);
        encode(&out, &again);
        assert_int_equal(again.length, bytes.length);
        assert_memory_equal(again.bytes, bytes.bytes, bytes.length);
    }
}

/* A part names its ranks, and has files of no others. */
TEST(parts_round_trip)
{
    static const uint32_t ranks[] = {0, 1, 2, 7, 9, 10};
    OWNED_BUFFER bytes = {0};
    OWNED_ARENA arena = {0};
    struct manifest manifest = sample(), out;
    struct manifest_file file = sample_files[0];

    file.name = "__7_0.distcp";
    manifest.files = &file;
    manifest.file_count = 1;
    manifest.world_size = 16;
    manifest.metadata_bytes = 0;
    manifest.required_features = MANIFEST_REQUIRED_PART;
    manifest.part = (struct manifest_part){ranks, ARRAY_LENGTH(ranks), 3};
    encode(&manifest, &bytes);
    assert_non_null(memmem(bytes.bytes, bytes.length, "[0,2,7,7,9,10]", 14));
    assert_int_equal(decode(bytes.bytes, bytes.length, &arena, &out, NULL), SIDESTEP_OK);
    assert_manifests_equal(&manifest, &out);
    assert_int_equal(out.part.parts, 3);
    assert_int_equal(out.part.rank_count, ARRAY_LENGTH(ranks));
    assert_memory_equal(out.part.ranks, ranks, sizeof(ranks));
    assert_string_equal(manifest_part_text(&out).text, "0-2, 7, 9-10");
    for (uint32_t rank = 0; rank < 16; rank++)
        assert_int_equal(manifest_has_rank(&out, rank),
                         rank <= 2 || rank == 7 || rank == 9 || rank == 10);
    file.name = "__8_0.distcp";
    bytes.length = 0;
    assert_int_equal(manifest_encode(&manifest, &bytes, NULL), SIDESTEP_EINVAL);
}

/* The text of version 1, which never changes. */
TEST(the_text_is_that_of_version_1)
{
    OWNED_BUFFER bytes = {0};
    struct manifest manifest = sample();
    char golden[4096];
    FILE *file = fopen("tests/golden/manifest/version-1.txt", "rb");

    assert_non_null(file);
    size_t length = fread(golden, 1, sizeof(golden), file);
    fclose(file);
    encode(&manifest, &bytes);
    assert_int_equal(bytes.length, length);
    assert_memory_equal(bytes.bytes, golden, length);
}

TEST(a_wrong_clock_causes_no_failure)
{
    static const struct {
        int64_t saved_at, kept;
        const char *text;
    } times[] = {
        {0, 0, "\"1970-01-01T00:00:00Z\""},
        {-1, 0, "\"1970-01-01T00:00:00Z\""},
        {INT64_MIN, 0, "\"1970-01-01T00:00:00Z\""},
        {INT32_MAX + INT64_C(1), INT32_MAX + INT64_C(1), "\"2038-01-19T03:14:08Z\""},
        {253402300799, 253402300799, "\"9999-12-31T23:59:59Z\""},
        {253402300800, 253402300799, "\"9999-12-31T23:59:59Z\""},
        {INT64_MAX, 253402300799, "\"9999-12-31T23:59:59Z\""},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(times); i++) {
        OWNED_ARENA arena = {0};
        OWNED_BUFFER bytes = {0};
        struct manifest manifest = sample(), out;
        manifest.saved_at = times[i].saved_at;
        encode(&manifest, &bytes);
        assert_non_null(memmem(bytes.bytes, bytes.length, times[i].text, strlen(times[i].text)));
        assert_int_equal(decode(bytes.bytes, bytes.length, &arena, &out, NULL), SIDESTEP_OK);
        assert_int_equal(out.saved_at, times[i].kept);
    }
}

/* ------------------------------------------------------------------ damage */

TEST(every_flipped_bit_is_found)
{
    OWNED_BUFFER bytes = {0};
    struct manifest manifest = sample();

    encode(&manifest, &bytes);
    for (size_t bit = 0; bit < 8 * bytes.length; bit++) {
        bytes.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        decode_fails(&bytes, SIDESTEP_ECORRUPT, "");
        bytes.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* Fix the hash after each change, to test the parser: what it accepts can be written and read
 * again. */
TEST(every_flipped_bit_behind_the_hash)
{
    OWNED_BUFFER bytes = {0}, sealed = {0};
    struct manifest manifest = sample();
    size_t accepted = 0;

    encode(&manifest, &bytes);
    for (size_t bit = 0; bit < 8 * (bytes.length - HASH_LINE_BYTES - 1); bit++) {
        OWNED_ARENA arena = {0};
        OWNED_BUFFER again = {0};
        struct manifest out, twice;
        bytes.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        seal((const char *)bytes.bytes, bytes.length - HASH_LINE_BYTES - 1, &sealed);
        if (decode(sealed.bytes, sealed.length, &arena, &out, NULL) == SIDESTEP_OK) {
            encode(&out, &again);
            assert_int_equal(decode(again.bytes, again.length, &arena, &twice, NULL), SIDESTEP_OK);
            assert_manifests_equal(&out, &twice);
            accepted++;
        }
        bytes.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(accepted > 0); /* a digit of a hash */
}

TEST(every_truncation_is_refused)
{
    OWNED_BUFFER bytes = {0}, sealed = {0};
    struct manifest manifest = sample();

    encode(&manifest, &bytes);
    size_t length = bytes.length;
    for (bytes.length = 0; bytes.length < length; bytes.length++)
        decode_fails(&bytes, SIDESTEP_ECORRUPT, "it is not two lines");
    buffer_put_u8(&bytes, '\n');
    decode_fails(&bytes, SIDESTEP_ECORRUPT, "it is not two lines");
    for (size_t cut = 0; cut < length - HASH_LINE_BYTES - 1; cut++) {
        seal((const char *)bytes.bytes, cut, &sealed);
        decode_fails(&sealed, SIDESTEP_ECORRUPT, "");
    }
}

TEST(the_second_line_is_strict)
{
    OWNED_BUFFER bytes = {0};
    struct manifest manifest = sample();

    encode(&manifest, &bytes);
    uint8_t *line = bytes.bytes + bytes.length - HASH_LINE_BYTES;
    line[0] = 'S';
    decode_fails(&bytes, SIDESTEP_ECORRUPT, "its second line is not \"sha256\" and 64");
    line[0] = 's';
    line[HASH_LINE_BYTES - 1] = ' ';
    decode_fails(&bytes, SIDESTEP_ECORRUPT, "its second line is not \"sha256\" and 64");
    line[HASH_LINE_BYTES - 1] = '\n';
    line[7] = line[7] == '0' ? '1' : '0';
    decode_fails(&bytes, SIDESTEP_ECORRUPT, "the SHA-256 of its first line is not the one in");
    line[7] = 'A';
    decode_fails(&bytes, SIDESTEP_ECORRUPT, "its second line is not \"sha256\" and 64");
}

/* ------------------------------------------------------------------ lies */

#define EIGHT "ssssssss"
#define FILE_0 "{\"name\":\"__0_0.distcp\",\"bytes\":1048576,"
static const struct {
    const char *from; /* in the JSON; its first occurrence is replaced ... */
    const char *to;   /* ... by this */
    enum sidestep_status status;
    const char *words;
} lies[] = {
    {"sidestep-manifest", "sidestep", SIDESTEP_ECORRUPT, "\"format\" is not \"sidestep-manifest\""},
    {"\"format\":", "\"f\":", SIDESTEP_ECORRUPT, "key 1 is not \"format\""},
    {"\"version\":1", "\"version\":0", SIDESTEP_ECORRUPT, "\"version\" is 0"},
    {"\"version\":1", "\"version\":2", SIDESTEP_EUNSUPPORTED, "version 2 is newer than this"},
    {"\"version\":1", "\"version\":1.0", SIDESTEP_ECORRUPT,
     "\"version\", at byte 40: an integer is expected"},
    {"\"version\":1", "\"version\":\"1\"", SIDESTEP_ECORRUPT,
     "\"version\", at byte 40: an integer is expected"},
    {"\"version\":1", "\"version\":1,\"version\":1", SIDESTEP_ECORRUPT, "key 3 is not \"req"},
    {ID, "0123456789abcdef0123456789abcde", SIDESTEP_ECORRUPT, "save_id is not 32 hexadecimal"},
    {ID, "0123456789abcdef0123456789abcdeF", SIDESTEP_ECORRUPT, "save_id is not 32 hexadecimal"},
    {ID, ID "0", SIDESTEP_ECORRUPT, "\"save_id\" is longer than 32 bytes"},
    {ID, "", SIDESTEP_ECORRUPT, "save_id is not 32 hexadecimal digits"},
    {RUN, "0", SIDESTEP_ECORRUPT, "run_id is neither empty nor 32 hexadecimal digits"},
    {":9223372036854775807,\"step\"", ":9223372036854775808,\"step\"", SIDESTEP_ECORRUPT,
     "an integer of more than 64 bits"},
    {":9223372036854775807,\"step\"", ":-1,\"step\"", SIDESTEP_ECORRUPT, "\"incarnation\" is -1"},
    {":9223372036854775807,\"step\"", ":1e3,\"step\"", SIDESTEP_ECORRUPT, "an integer is expected"},
    {"\"step\":9007199254740993", "\"step\":-1", SIDESTEP_ECORRUPT, "\"step\" is -1"},
    {"\"step\":9007199254740993", "\"step\":\"7\"", SIDESTEP_ECORRUPT, "an integer is expected"},
    {"\"step\":9007199254740993", "\"stop\":7", SIDESTEP_ECORRUPT, "there is no \"step\""},
    {"\"step\":", "\"naming\":\"step-\",\"step\":", SIDESTEP_ECORRUPT, "naming is 'step-'"},
    {"\"step\":", "\"naming\":\"step-{step}\",\"step\":", SIDESTEP_ECORRUPT, /* as without */
     "naming is 'step-{step}'"},
    {"\"step\":", "\"naming\":\"{step:08d}\",\"step\":", SIDESTEP_ECORRUPT,
     "naming is '{step:08d}', not '{step:08}'"},
    {"\"step\":", "\"naming\":\"a/{step:08}\",\"step\":", SIDESTEP_ECORRUPT, "naming is 'a/"},
    {"\"step\":", "\"naming\":null,\"step\":", SIDESTEP_ECORRUPT, "a string is expected"},
    {"\"step\":", "\"naming\":\"{step:08}\",\"naming\":\"{step:08}\",\"step\":", SIDESTEP_ECORRUPT,
     "\"naming\" appears twice"},
    {"\"step\":",
     "\"naming\":\"{step:020}" EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT
         EIGHT EIGHT EIGHT EIGHT EIGHT "\",\"step\":",
     SIDESTEP_ECORRUPT, "\"naming\" is longer than 136 bytes"},
    {"\"world_size\":2", "\"world_size\":0", SIDESTEP_ECORRUPT, "world_size is 0"},
    {"\"world_size\":2", "\"world_size\":1048577", SIDESTEP_ECORRUPT, "\"world_size\" is 1048577"},
    {"\"saved_at\":\"", "\"saved\":\"", SIDESTEP_ECORRUPT, "there is no \"saved_at\""},
    {"unix\":1767323045", "unix\":253402300800", SIDESTEP_ECORRUPT, "\"saved_at_unix\" is 2534023"},
    {"unix\":1767323045", "unix\":-1", SIDESTEP_ECORRUPT, "\"saved_at_unix\" is -1"},
    {"features\":\"0000000000000000", "features\":\"0000000000000010", SIDESTEP_EUNSUPPORTED,
     "feature bit 4 is required, and newer"},
    {"features\":\"0000000000000000", "features\":\"8000000000000000", SIDESTEP_EUNSUPPORTED,
     "feature bit 63 is required, and newer"},
    {"features\":\"0000000000000000", "features\":\"000000000000000", SIDESTEP_ECORRUPT,
     "\"required_features\" is not 16 hexadecimal digits"},
    {"features\":\"0000000000000000", "features\":\"0000000000000001", SIDESTEP_ECORRUPT,
     "a part in some fields, and not in others"},
    {"\"files\":[", "\"parts\":2,\"part\":[0,0],\"files\":[", SIDESTEP_ECORRUPT,
     "a part in some fields, and not in others"},
    {"\"files\":[", "\"part\":[0],\"files\":[", SIDESTEP_ECORRUPT, "an odd number of ranks"},
    {"\"files\":[", "\"part\":[1,0],\"files\":[", SIDESTEP_ECORRUPT, "has the ranks 1 to 0"},
    {"\"files\":[", "\"part\":[0,1,1,2],\"files\":[", SIDESTEP_ECORRUPT, "has the ranks 1 to 2"},
    {"\"files\":[", "\"part\":[0,1048576],\"files\":[", SIDESTEP_ECORRUPT, "\"part\" is 1048576"},
    {"\"8000000000000001\"", "9223372036854775807", SIDESTEP_ECORRUPT, "a string is expected"},
    {"\"metadata\":{", "\"metadata\":[],\"m\":{", SIDESTEP_ECORRUPT, "an object is expected"},
    {"\"bytes\":4242", "\"bytes\":-1", SIDESTEP_ECORRUPT, "\"bytes\" is -1"},
    {"\"sha256\":\"00", "\"sha256\":\"0", SIDESTEP_ECORRUPT, "\"sha256\" is not 64 hexadecimal"},
    {"\"sha256\":\"00", "\"sha256\":\"0g", SIDESTEP_ECORRUPT, "\"sha256\" is not 64 hexadecimal"},
    {"\"files\":[", "\"files\":{},\"f\":[", SIDESTEP_ECORRUPT, "an array is expected"},
    {"\"files\":[", "\"files\":[7,", SIDESTEP_ECORRUPT, ": an object is expected"},
    {FILE_0, "{\"bytes\":1048576,", SIDESTEP_ECORRUPT, "there is no \"name\""},
    {FILE_0, "{\"name\":\"__0_0.distcp\",", SIDESTEP_ECORRUPT, "there is no \"bytes\""},
    {FILE_0, FILE_0 "\"bytes\":1,", SIDESTEP_ECORRUPT, "\"bytes\" appears twice"},
    {"__0_0.distcp", "", SIDESTEP_ECORRUPT, "the file name '' is not allowed"},
    {"__0_0.distcp", "..", SIDESTEP_ECORRUPT, "the file name '..' is not allowed"},
    {"__0_0.distcp", "../x", SIDESTEP_ECORRUPT, "the file name '../x' is not allowed"},
    {"__0_0.distcp", "/etc/passwd", SIDESTEP_ECORRUPT, "the file name '/etc/passwd' is not"},
    {"__0_0.distcp", "a//b", SIDESTEP_ECORRUPT, "the file name 'a//b' is not allowed"},
    {"__0_0.distcp", "a\\\\b", SIDESTEP_ECORRUPT, "is not allowed"},
    {"__0_0.distcp", "a b", SIDESTEP_ECORRUPT, "the file name 'a b' is not allowed"},
    {"__0_0.distcp", "\\u001b[2J", SIDESTEP_ECORRUPT, "the file name '\\x1b[2J' is not allowed"},
    {"__0_0.distcp", "\xc3\xa4", SIDESTEP_ECORRUPT, "is not allowed"},
    {"__0_0.distcp", "a\\u0000b", SIDESTEP_ECORRUPT, "a wrong escape"},
    {"__0_0.distcp", "\xff", SIDESTEP_ECORRUPT, "not UTF-8"},
    {"__0_0.distcp", "a/b-c_D.9", SIDESTEP_ECORRUPT, "the file 'a/b-c_D.9' is listed twice"},
    {"\"origin\":\"" ID, "\"origin\":\"", SIDESTEP_ECORRUPT, "'__0_0.distcp': origin is not a"},
    {"{\"format\"", "[{\"format\"", SIDESTEP_ECORRUPT, "an object is expected"},
    {"]}", "]}x", SIDESTEP_ECORRUPT, "something follows the end"},
    {"]}", "]}{}", SIDESTEP_ECORRUPT, "something follows the end"},
    {",\"files\"", "\n,\"files\"", SIDESTEP_ECORRUPT, "it is not two lines"},
    {"\"step\":", "\"x\":[[[[[[[1]]]]]]],\"step\":", SIDESTEP_OK, ""},
    {"\"step\":", "\"x\":[[[[[[[[1]]]]]]]],\"step\":", SIDESTEP_ECORRUPT,
     "arrays and objects are nested too deep"},
    {"\"step\":", "\"x\":\"[[[[[[[[[[{{{{{{{\\\"[[[[[[[[[\\\\\",\"step\":", SIDESTEP_OK, ""},
    {"\"save_id\":", "\"s\\u0061ve_id\" : ", SIDESTEP_OK, ""},
    {"]}", "],\"future\":{\"a\":1.5,\"b\":[true,false,null]}}", SIDESTEP_OK, ""},
};

TEST(contradictions_are_refused_with_a_reason)
{
    OWNED_BUFFER bytes = {0};
    struct manifest manifest = sample();

    encode(&manifest, &bytes);
    size_t length = bytes.length - HASH_LINE_BYTES - 1;
    for (size_t i = 0; i < ARRAY_LENGTH(lies); i++) {
        OWNED_BUFFER json = {0}, sealed = {0};
        const uint8_t *at = memmem(bytes.bytes, length, lies[i].from, strlen(lies[i].from));
        assert_non_null(at);
        buffer_put(&json, bytes.bytes, (size_t)(at - bytes.bytes));
        buffer_put_text(&json, lies[i].to);
        at += strlen(lies[i].from);
        buffer_put(&json, at, (size_t)(bytes.bytes + length - at));
        seal((const char *)json.bytes, json.length, &sealed);
        if (lies[i].status != SIDESTEP_OK) {
            decode_fails(&sealed, lies[i].status, lies[i].words);
            continue;
        }
        OWNED_ARENA arena = {0};
        struct manifest out;
        struct sidestep_error err = {0};
        if (decode(sealed.bytes, sealed.length, &arena, &out, &err) != SIDESTEP_OK)
            fail_msg("lie %zu: %s", i, err.message);
        assert_manifests_equal(&manifest, &out);
    }
}

TEST(text_that_is_not_an_object_is_refused)
{
    static const char *const texts[] = {"", "null", "1", "\"x\"", "[]", "{", "{}", "{} {}"};
    OWNED_BUFFER sealed = {0};

    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        seal(texts[i], strlen(texts[i]), &sealed);
        decode_fails(&sealed, SIDESTEP_ECORRUPT, "");
    }
}

TEST(manifests_that_a_reader_refuses_are_not_written)
{
    static const char *const words[] = {
        "save_id is not",
        "run_id is neither",
        "incarnation is 9223372036854775808",
        "step is -2",
        "world_size is 0",
        "world_size is 1048577 (1 to 1048576 are allowed)",
        "feature bit 1 is required",
        "metadata.bytes is 9223372036854775808",
        "4194305 files (at most 4194304)",
    };

    for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
        OWNED_BUFFER bytes = {0};
        struct sidestep_error err = {0};
        struct manifest manifest = sample();
        manifest.save_id[3] = i == 0 ? 'x' : '0';
        manifest.run_id[1] = i == 1 ? '\0' : '0';
        manifest.incarnation += i == 2;
        manifest.step = i == 3 ? -2 : 1;
        manifest.world_size = i == 4 ? 0 : SIDESTEP_MAX_RANKS + (i == 5);
        manifest.required_features = i == 6 ? 2 : 0;
        manifest.metadata_bytes = (uint64_t)INT64_MAX + (i == 7);
        manifest.file_count = i == 8 ? MANIFEST_MAX_FILES + 1 : 1;
        assert_int_equal(manifest_encode(&manifest, &bytes, &err),
                         i == 6 ? SIDESTEP_EUNSUPPORTED : SIDESTEP_EINVAL);
        assert_non_null(strstr(err.message, words[i]));
        assert_int_equal(bytes.length, 0);
    }
}

/* ------------------------------------------------------------------ limits and failures */

TEST(limit_of_bytes)
{
    OWNED_ARENA arena = {0};
    struct manifest manifest;
    struct sidestep_error err = {0};

    assert_int_equal(manifest_decode("", MANIFEST_MAX_BYTES + 1, &arena, &manifest, &err),
                     SIDESTEP_ECORRUPT); /* refused by its size alone */
    assert_non_null(strstr(err.message, "268435457 bytes (at most 268435456)"));
}

/* Too many files, because their names have the maximal length. */
TEST(limit_of_written_bytes)
{
    enum { FILES = 70000 };
    OWNED struct manifest_file *files = calloc(FILES, sizeof(*files));
    OWNED char *names = calloc(FILES, 4096);
    OWNED_BUFFER bytes = {0};
    struct manifest manifest = sample();
    struct sidestep_error err = {0};

    assert_non_null(files);
    assert_non_null(names);
    for (size_t i = 0; i < FILES; i++) {
        files[i] = sample_files[0];
        files[i].name = names + 4096 * i;
        memset(names + 4096 * i, 'n', 4095);
        snprintf(names + 4096 * i, 4096, "%zu", i);
        names[4096 * i + strlen(names + 4096 * i)] = 'n';
    }
    manifest.files = files;
    manifest.file_count = FILES;
    assert_int_equal(manifest_encode(&manifest, &bytes, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "70000 files would take"));
}

/* The memory grows with the text, not with what it claims to contain. */
TEST(hostile_lists_stay_small)
{
    static const char *const units[] = {"{}", "{\"name\":\"a\"}", "0", "[]"};
    OWNED_BUFFER json = {0}, sealed = {0};

    for (size_t i = 0; i < ARRAY_LENGTH(units); i++) {
        OWNED_ARENA arena = {0};
        struct manifest manifest;
        json.length = 0;
        buffer_put_text(&json, "{\"format\":\"sidestep-manifest\",\"version\":1,"
                               "\"required_features\":\"0000000000000000\",\"files\":[");
        for (unsigned n = 0; n < 100000; n++)
            buffer_printf(&json, "%s%s", n != 0 ? "," : "", units[i]);
        buffer_put_text(&json, "]}");
        seal((const char *)json.bytes, json.length, &sealed);
        assert_int_equal(decode(sealed.bytes, sealed.length, &arena, &manifest, NULL),
                         SIDESTEP_ECORRUPT);
        assert_true(arena.used_bytes <= 2 * sealed.length);
    }
}

TEST(every_allocation_may_fail)
{
    OWNED_BUFFER bytes = {0};
    struct manifest manifest = sample();
    unsigned long fired = 0;

    encode(&manifest, &bytes);
    for (unsigned long n = 1;; n++, fired++) {
        OWNED_BUFFER out = {0};
        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status status = manifest_encode(&manifest, &out, NULL);
        if (fault_fired() == NULL)
            break;
        assert_int_equal(status, SIDESTEP_ENOMEM);
    }
    for (unsigned long n = 1;; n++, fired++) {
        OWNED_ARENA arena = {0};
        struct manifest out;
        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status status = decode(bytes.bytes, bytes.length, &arena, &out, NULL);
        if (fault_fired() == NULL)
            break;
        assert_int_equal(status, SIDESTEP_ENOMEM);
        assert_null(out.files);
    }
    fault_arm("", 0, false, 0);
    assert_true(fired >= 4);
}
