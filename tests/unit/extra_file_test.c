/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * extra_file_test.c -- names of extra files, and the lists of them in footers and manifests, are
 * written and read again, and wrong ones are refused.
 */
#include "base/owned.h"
#include "format/format.h"
#include "support/footer_sample.h"
#include "support/unit.h"

#define ID "0123456789abcdef0123456789abcdef"

/* ------------------------------------------------------------------ names */

TEST(names_that_frameworks_use_are_allowed)
{
    static const char *const names[] = {
        "trainer_state.json",
        "rng_state_0.pth",
        "additional_chat_templates/tool use.jinja",
        "a/b/c/d/e/f/g/h",
        "gr\xc3\xb6\xc3\x9f"
        "e.txt",
        "__init__.py",
        "_0_0.distcp",
        "x.metadata",
        "...",
        "\"quoted\" \\ backslash",
    };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (extra_file_check_name(names[i], SIDESTEP_EINVAL, NULL) != SIDESTEP_OK)
            fail_msg("'%s' is refused", names[i]);
}

TEST(names_that_lead_elsewhere_or_to_other_files_are_refused)
{
    static const struct {
        const char *name, *words;
    } names[] = {
        {"", "not a relative path"},       {"/etc/passwd", "not a relative path"},
        {"..", "not a relative path"},     {"a/../b", "not a relative path"},
        {"a//b", "not a relative path"},   {"a/", "not a relative path"},
        {"./a", "not a relative path"},    {"a\nb", "not a relative path"},
        {"\x7f", "not a relative path"},   {"\xff", "not UTF-8"},
        {"e\xcc\x81.txt", "combining"},    {".metadata", "own files"},
        {".Metadata." ID, "own files"},    {".sidestep.manifest." ID, "own files"},
        {"a/.SIDESTEP/b", "own files"},    {"__0_0.distcp", "own files"},
        {"a/__3." ID ".yes", "own files"}, {"a/b/c/d/e/f/g/h/i", "8 levels"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        struct sidestep_error err = {0};
        if (extra_file_check_name(names[i].name, SIDESTEP_EINVAL, &err) != SIDESTEP_EINVAL ||
            strstr(err.message, names[i].words) == NULL)
            fail_msg("'%s': status %d: %s", names[i].name, err.status, err.message);
    }
}

TEST(the_longest_name_is_allowed_and_one_more_byte_is_not)
{
    char name[EXTRA_FILE_MAX_NAME_BYTES + 2];

    memset(name, 'x', sizeof(name));
    name[EXTRA_FILE_MAX_NAME_BYTES] = '\0';
    assert_int_equal(extra_file_check_name(name, SIDESTEP_EINVAL, NULL), SIDESTEP_OK);
    name[EXTRA_FILE_MAX_NAME_BYTES] = 'x';
    name[EXTRA_FILE_MAX_NAME_BYTES + 1] = '\0';
    assert_int_equal(extra_file_check_name(name, SIDESTEP_EINVAL, NULL), SIDESTEP_EINVAL);
}

TEST(names_that_some_file_systems_take_for_one_are_refused)
{
    static const struct {
        const char *first, *second, *words; /* NULL: both are allowed */
    } pairs[] = {
        {"a", "b", NULL},
        {"a/b", "a/c", NULL},
        {"a.b", "a/b", NULL},
        {"a", "a", "but for case"},
        {"Config.json", "config.JSON", "but for case"},
        {"gr\xc3\xb6\xc3\x9f"
         "e",
         "gr\xc3\x96\xc3\x9f"
         "e",
         "but for case"},
        {"a", "a/b", "has the name of its directory"},
        {"a/b/c", "A/b", "lies in a directory of this name"},
        {"A/b", "a/c", NULL},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(pairs); i++) {
        OWNED_EXTRA_FILE_NAMES names = {0};
        struct sidestep_error err = {0};
        const struct extra_file first = {.name = pairs[i].first, .rank = 2};
        const struct extra_file second = {.name = pairs[i].second, .rank = 3};
        assert_int_equal(extra_file_names_add(&names, &first, SIDESTEP_EINVAL, NULL), SIDESTEP_OK);
        enum sidestep_status status = extra_file_names_add(&names, &second, SIDESTEP_EINVAL, &err);
        if ((status == SIDESTEP_OK) != (pairs[i].words == NULL) ||
            (status != SIDESTEP_OK && (strstr(err.message, pairs[i].words) == NULL ||
                                       strstr(err.message, "of rank 3: a file of rank 2") == NULL)))
            fail_msg("'%s', '%s': status %d: %s", pairs[i].first, pairs[i].second, status,
                     err.message);
    }
}

/* ------------------------------------------------------------------ in manifests */

static struct extra_file sample_extras[] = {
    {.name = "trainer_state.json", .bytes = 12, .sha256 = {1, 2, 3}, .rank = 0},
    {.name = "a \"b\"/gr\xc3\xb6\xc3\x9f"
             "e.txt",
     .stored = "__1_7." ID ".file",
     .bytes = SIDESTEP_MAX_FILE_BYTES,
     .rank = 1},
    {.name = "optimizer_0", .is_alias = true, .rank = 0},
};

static struct manifest sample_manifest(void)
{
    return (struct manifest){.save_id = ID,
                             .step = 1,
                             .world_size = 2,
                             .extra_count = ARRAY_LENGTH(sample_extras),
                             .extras = sample_extras};
}

TEST(manifests_keep_the_list)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER bytes = {0}, again = {0};
    struct manifest manifest = sample_manifest(), out;

    assert_int_equal(manifest_encode(&manifest, &bytes, NULL), SIDESTEP_OK);
    assert_int_equal(manifest_decode(bytes.bytes, bytes.length, &arena, &out, NULL), SIDESTEP_OK);
    assert_int_equal(out.extra_count, ARRAY_LENGTH(sample_extras));
    for (size_t i = 0; i < out.extra_count; i++) {
        const struct extra_file *a = &sample_extras[i], *b = &out.extras[i];
        assert_string_equal(a->name, b->name);
        assert_string_equal(extra_file_stored(a), extra_file_stored(b));
        assert_int_equal(a->bytes, b->bytes);
        assert_int_equal(a->rank, b->rank);
        assert_int_equal(a->is_alias, b->is_alias);
        assert_memory_equal(a->sha256, b->sha256, HASH_SHA256_BYTES);
    }
    assert_int_equal(manifest_encode(&out, &again, NULL), SIDESTEP_OK);
    assert_int_equal(again.length, bytes.length);
    assert_memory_equal(again.bytes, bytes.bytes, bytes.length);
}

static void refuse(const struct manifest *manifest, const char *words)
{
    OWNED_BUFFER bytes = {0};
    struct sidestep_error err = {0};

    if (manifest_encode(manifest, &bytes, &err) != SIDESTEP_EINVAL ||
        strstr(err.message, words) == NULL)
        fail_msg("status %d: '%s', not '%s'", err.status, err.message, words);
}

TEST(lists_that_contradict_themselves_are_refused)
{
    struct manifest_file shard = {.name = "shard", .origin = ID};
    struct extra_file files[2];
    struct manifest manifest = sample_manifest();

    manifest.extras = files;
    manifest.extra_count = 2;
    memcpy(files, sample_extras, sizeof(files));
    files[1].name = "Trainer_State.json";
    refuse(&manifest, "but for case");
    files[1] = files[0];
    files[1].name = "other";
    files[1].stored = "__0_0.distcp";
    refuse(&manifest, "stored as '__0_0.distcp'");
    files[1].stored = "__1_7." ID ".file"; /* of rank 1 */
    refuse(&manifest, "stored as");
    files[1].stored = "__0_7.0123456789abcdef0123456789abcdee.file"; /* of another save */
    refuse(&manifest, "stored as");
    files[1].stored = "__1_7." ID ".file";
    files[1].rank = files[0].rank = 1;
    files[0].stored = files[1].stored;
    refuse(&manifest, "stored as");
    files[0].stored = NULL;
    files[0].name = "shard"; /* as a file of torch could be called */
    manifest.files = &shard;
    manifest.file_count = 1;
    refuse(&manifest, "stored as 'shard'");
    files[0].name = "a";
    files[0].rank = 2;
    refuse(&manifest, "of rank 2");
    files[0].rank = 0;
    files[0].bytes = SIDESTEP_MAX_FILE_BYTES + 1;
    refuse(&manifest, "bytes (at most");
    files[0].bytes = 0;
    files[0].is_alias = true;
    files[0].stored = "__0_1." ID ".file";
    refuse(&manifest, "is a link and has bytes");
    manifest.extra_count = EXTRA_FILE_MAX_COUNT + 1;
    refuse(&manifest, "extra files (at most");
}

/* ------------------------------------------------------------------ in footers */

TEST(footers_keep_the_list)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER bytes = {0};
    struct sample sample;
    struct footer footer;
    struct extra_file files[] = {{.name = "a/b", .bytes = 5, .sha256 = {9}, .rank = 3},
                                 {.name = "hook.bin", .rank = 3, .first_rank = true},
                                 {.name = "optimizer_0", .rank = 3, .is_alias = true}};

    sample_init(&sample);
    sample.footer.shard = 0;
    sample.footer.extras = files;
    sample.footer.extra_count = ARRAY_LENGTH(files);
    uint64_t expected = footer_encoded_bytes(&sample.footer);
    sample_encode(&sample, &bytes);
    assert_int_equal(bytes.length, expected);
    assert_int_equal(sample_read(bytes.bytes, bytes.length, &arena, &footer, NULL), SIDESTEP_OK);
    assert_int_equal(footer.optional_features, FOOTER_OPTIONAL_EXTRAS);
    assert_int_equal(footer.extra_count, ARRAY_LENGTH(files));
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        assert_string_equal(footer.extras[i].name, files[i].name);
        assert_int_equal(footer.extras[i].bytes, files[i].bytes);
        assert_int_equal(footer.extras[i].rank, 3);
        assert_int_equal(footer.extras[i].is_alias, files[i].is_alias);
        assert_int_equal(footer.extras[i].first_rank, files[i].first_rank);
        assert_memory_equal(footer.extras[i].sha256, files[i].sha256, HASH_SHA256_BYTES);
    }
}

static void refuse_footer(struct sample *sample, const char *words)
{
    OWNED_BUFFER bytes = {0};
    struct sidestep_error err = {0};

    if (footer_encode(&sample->footer, SAMPLE_ITEMS_END, &bytes, &err) != SIDESTEP_EINVAL ||
        strstr(err.message, words) == NULL)
        fail_msg("status %d: '%s', not '%s'", err.status, err.message, words);
}

TEST(footers_refuse_wrong_lists)
{
    struct sample sample;
    struct extra_file files[] = {{.name = "a", .rank = 3}, {.name = "A", .rank = 3}};

    sample_init(&sample);
    sample.footer.extras = files;
    sample.footer.extra_count = 1;
    refuse_footer(&sample, "extra files in shard 1");
    sample.footer.shard = 0;
    sample.footer.extra_count = 2;
    refuse_footer(&sample, "but for case");
    files[1].name = "../b";
    refuse_footer(&sample, "not a relative path");
    files[1].name = "b";
    files[1].rank = 2;
    refuse_footer(&sample, "of rank 2");
    sample.footer.extra_count = SIDESTEP_MAX_FILES + 1;
    refuse_footer(&sample, "extra files (at most");
}

/* Whatever the parser accepts is what the encoder writes. */
TEST(every_flipped_bit_of_a_list_is_refused_or_written_again)
{
    struct extra_file files[] = {{.name = "a/b", .bytes = 5, .rank = 3},
                                 {.name = "c", .rank = 3, .first_rank = true}};
    OWNED_BUFFER bytes = {0};
    struct sample sample;
    size_t accepted = 0, refused = 0;

    sample_init(&sample);
    sample.footer.shard = 0;
    sample.footer.count = 1;
    sample.footer.extras = files;
    sample.footer.extra_count = ARRAY_LENGTH(files);
    sample_encode(&sample, &bytes);
    sample_flip_bits(bytes.bytes, bytes.length, &accepted, &refused);
    assert_true(accepted != 0 && refused != 0);
}
