/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * path_test.c -- paths of nested state dicts, and their integer keys: in names, footers,
 * `.metadata`, and in wrong files.
 */
#include "base/fault.h"
#include "base/owned.h"
#include "format/dcp_metadata.h"
#include "format/pickle.h"
#include "model/path.h"
#include "support/footer_sample.h"
#include "support/guard.h"
#include "support/metadata_show.h"
#include "support/pickle_build.h"
#include "support/unit.h"

#define KEY(text)                                                                                  \
    {                                                                                              \
        .key = text                                                                                \
    }
#define INDEX(number)                                                                              \
    {                                                                                              \
        .index = number                                                                            \
    }
#define INT(number)                                                                                \
    {                                                                                              \
        .index = number, .flags = SIDESTEP_PATH_INT_KEY                                            \
    }

TEST(names_are_spelled)
{
    static const struct {
        const char *name;
        uint32_t length;
        struct sidestep_path_item path[3];
        bool spells;
    } cases[] = {
        {"a.0.b", 3, {KEY("a"), INDEX(0), KEY("b")}, true},
        {"a.0.b", 3, {KEY("a"), INT(0), KEY("b")}, true},
        {"a.-3", 2, {KEY("a"), INT(-3)}, true},
        {"-9223372036854775808", 1, {INT(INT64_MIN)}, true},
        {"a.00", 2, {KEY("a"), INT(0)}, false},
        {"a.0", 1, {KEY("a")}, false},
        {"a", 2, {KEY("a"), INT(0)}, false},
        {"", 1, {KEY("")}, true},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        assert_int_equal(path_matches_name(cases[i].name, cases[i].path, cases[i].length),
                         cases[i].spells);
}

TEST(integer_keys_are_texts_and_back)
{
    static const struct {
        const char *text;
        bool is_integer;
        int64_t number;
    } cases[] = {
        {"0", true, 0},
        {"7", true, 7},
        {"-1", true, -1},
        {"10", true, 10},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"18446744073709551616", false, 0},
        {"99999999999999999999999999", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"-0", false, 0},
        {"00", false, 0},
        {"01", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1x", false, 0},
        {"0x1", false, 0},
        {"--1", false, 0},
    };
    char decimal[PATH_ITEM_DECIMAL_BYTES];

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct sidestep_path_item item = KEY(cases[i].text);

        assert_int_equal(path_set_int_keys(&item, 1, 1), cases[i].is_integer);
        assert_int_equal(path_int_keys(&item, 1), cases[i].is_integer);
        assert_string_equal(path_item_text(&item, decimal), cases[i].text);
        if (!cases[i].is_integer)
            continue;
        assert_null(item.key);
        assert_int_equal(item.index, cases[i].number);
    }
}

TEST(only_keys_become_integers)
{
    struct sidestep_path_item path[] = {KEY("1"), INDEX(2), KEY("3"), KEY("x")};
    struct sidestep_path_item longest[64];

    assert_true(path_set_int_keys(path, 4, 0));
    assert_false(path_set_int_keys(path, 4, 1 << 4)); /* no such item */
    assert_false(path_set_int_keys(path, 4, UINT64_C(1) << 63));
    assert_false(path_set_int_keys(path, 4, 1 << 1)); /* an index */
    assert_false(path_set_int_keys(path, 4, 1 << 0 | 1 << 3));
    assert_string_equal(path[0].key, "1"); /* nothing was changed */
    assert_true(path_set_int_keys(path, 4, 1 << 0 | 1 << 2));
    assert_int_equal(path_int_keys(path, 4), 1 << 0 | 1 << 2);
    assert_false(path_set_int_keys(path, 4, 1 << 0)); /* it is one already */
    for (size_t i = 0; i < ARRAY_LENGTH(longest); i++)
        longest[i] = (struct sidestep_path_item)KEY("5");
    assert_true(path_set_int_keys(longest, 64, UINT64_MAX));
    assert_int_equal(path_int_keys(longest, 64), UINT64_MAX);
}

/* ---------------------------------------------------------------- footers */

/* Integer keys in paths that join to the name, and in one that does not. */
static void sample_with_integers(struct sample *sample)
{
    static const struct sidestep_path_item joined[] = {KEY("model"), INT(0), INT(-7)};
    static const struct sidestep_path_item listed[] = {KEY("x"), INT(-5), KEY(""), KEY("a.b")};
    static const struct sidestep_path_item lone[] = {INT(INT64_MAX)};

    sample_init(sample);
    sample->items[WEIGHT].name = "model.0.-7";
    sample->items[WEIGHT].path_length = 3;
    sample->items[WEIGHT].path = joined;
    sample->items[LISTED].path = listed;
    sample->items[NOTHING].name = "9223372036854775807";
    sample->items[NOTHING].path = lone;
}

TEST(footers_keep_integer_keys)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER bytes = {0}, again = {0};
    struct sidestep_error err = {0};
    struct sample sample;
    struct footer footer;

    sample_with_integers(&sample);
    sample.footer.optional_features = UINT64_C(1) << 40;
    sample_encode(&sample, &bytes);
    assert_int_equal(bytes.length, footer_encoded_bytes(&sample.footer));
    assert_int_equal(sample_read(bytes.bytes, bytes.length, &arena, &footer, &err), SIDESTEP_OK);
    assert_int_equal(footer.optional_features, UINT64_C(1) << 40 | FOOTER_OPTIONAL_INT_KEYS);
    assert_int_equal(footer.count, SAMPLES);
    for (size_t i = 0; i < SAMPLES; i++)
        sample_assert_equal(&footer.items[i], &sample.items[i]);
    assert_int_equal(footer_encode(&footer, SAMPLE_ITEMS_END, &again, &err), SIDESTEP_OK);
    assert_int_equal(again.length, bytes.length);
    assert_memory_equal(again.bytes, bytes.bytes, bytes.length);
    /* The encoder sets the feature if paths need it, not if the caller does. */
    sample_init(&sample);
    sample.footer.optional_features = FOOTER_OPTIONAL_INT_KEYS;
    again.length = 0;
    sample_encode(&sample, &again);
    assert_int_equal(sample_read(again.bytes, again.length, &arena, &footer, &err), SIDESTEP_OK);
    assert_int_equal(footer.optional_features, 0);
}

/* A reader that does not know the feature sees the texts that stock torch sees. */
TEST(other_readers_see_texts)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER bytes = {0};
    struct sample sample;
    struct footer footer;

    sample_with_integers(&sample);
    sample_encode(&sample, &bytes);
    sample_put_le(bytes.bytes + 24, UINT64_C(1) << 40, 8); /* an unknown feature */
    sample_fix_hashes(bytes.bytes, bytes.length);
    assert_int_equal(sample_read(bytes.bytes, bytes.length, &arena, &footer, NULL), SIDESTEP_OK);
    assert_string_equal(footer.items[WEIGHT].path[1].key, "0");
    assert_string_equal(footer.items[WEIGHT].path[2].key, "-7");
    assert_string_equal(footer.items[LISTED].path[1].key, "-5");
    assert_int_equal(footer.items[LISTED].path[1].flags, 0);
}

/* The extensions of sample_with_integers(): bit, bytes, then number and mask of three items. */
TEST(wrong_lists_of_integer_keys_are_refused)
{
    static const struct {
        unsigned at, bytes;
        uint64_t value;
        const char *says;
    } lies[] = {
        {0, 4, 1, "the list of integer keys is malformed"},   /* another feature's */
        {0, 4, 200, "the list of integer keys is malformed"}, /* no feature's */
        {4, 4, 35, "the list of integer keys is malformed"},
        {4, 4, 37, "the list of integer keys is malformed"},
        {4, 4, 0, "the list of integer keys is malformed"},
        {4, 4, 0xffffffff, "the list of integer keys is malformed"},
        {8, 4, SAMPLES, "the list of integer keys is malformed"},
        {8, 4, 0xffffffff, "the list of integer keys is malformed"},
        {8, 4, LISTED, "'a.b': integer keys 0x6 that its path does not have"},
        {20, 4, WEIGHT, "the list of integer keys is malformed"}, /* not ascending */
        {12, 8, 0, "the list of integer keys is malformed"},
        {12, 8, 8, "'model.0.-7': integer keys 0x8 that its path does not have"},
        {12, 8, 1, "'model.0.-7': integer keys 0x1 that its path does not have"},
        {12, 8, UINT64_C(1) << 63, "that its path does not have"},
    };
    OWNED_BUFFER bytes = {0};
    struct sample sample;

    sample_with_integers(&sample);
    sample_encode(&sample, &bytes);
    size_t extensions = bytes.length - FOOTER_TRAILER_BYTES - 44;
    for (size_t i = 0; i < ARRAY_LENGTH(lies); i++) {
        OWNED_ARENA arena = {0};
        OWNED_BUFFER lie = {0};
        struct sidestep_error err = {0};
        struct footer footer;

        buffer_put(&lie, bytes.bytes, bytes.length);
        sample_put_le(lie.bytes + extensions + lies[i].at, lies[i].value, lies[i].bytes);
        sample_fix_hashes(lie.bytes, lie.length);
        assert_int_equal(sample_read(lie.bytes, lie.length, &arena, &footer, &err),
                         SIDESTEP_ECORRUPT);
        if (strstr(err.message, lies[i].says) == NULL)
            fail_msg("lie %zu: '%s'", i, err.message);
    }
}

/* The feature without its list, and only the list of another feature. */
TEST(a_feature_without_its_list)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER bytes = {0};
    struct sidestep_error err = {0};
    struct sample sample;
    struct footer footer;

    sample_init(&sample);
    sample_encode(&sample, &bytes);
    sample_put_le(bytes.bytes + 24, FOOTER_OPTIONAL_INT_KEYS, 8);
    sample_fix_hashes(bytes.bytes, bytes.length);
    assert_int_equal(sample_read(bytes.bytes, bytes.length, &arena, &footer, &err),
                     SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "the list of integer keys is malformed"));
}

/* ---------------------------------------------------------------- .metadata */

/* ${count} objects "d.<i>": the key of every third is a list index, of every third an integer, of
 * the others a text. */
static void make_objects(struct metadata *metadata, size_t count)
{
    metadata->entries = arena_new(&metadata->arena, count, sizeof(*metadata->entries));
    assert_non_null(metadata->entries);
    metadata->count = count;
    for (size_t i = 0; i < count; i++) {
        struct metadata_entry *e = &metadata->entries[i];
        struct sidestep_path_item *path = arena_new(&metadata->arena, 2, sizeof(*path));

        assert_non_null(path);
        e->name = arena_printf(&metadata->arena, "d.%zu", i);
        path[0].key = "d";
        path[1].index = (int64_t)i;
        if (i % 3 == 1)
            path[1].flags = SIDESTEP_PATH_INT_KEY;
        if (i % 3 == 2)
            path[1].key = arena_printf(&metadata->arena, "%zu", i);
        e->path = path;
        e->path_length = 2;
        e->is_object = true;
        e->storage = (struct metadata_storage){.file = "f", .offset = i, .length = 1};
    }
}

TEST(metadata_keeps_integer_keys)
{
    static const size_t counts[] = {1, 2, 3, 3 * 1000, 3 * 1000 + 3, 2 * 3 * 1000};

    for (size_t k = 0; k < ARRAY_LENGTH(counts); k++) {
        OWNED_METADATA metadata = {0}, again = {0};
        OWNED_BUFFER out = {0};
        struct sidestep_error err = {0};

        make_objects(&metadata, counts[k]);
        assert_int_equal(dcp_metadata_write(&out, &metadata, &err), SIDESTEP_OK);
        assert_int_equal(memmem(out.bytes, out.length, "sidestep_int_keys", 17) != NULL,
                         counts[k] > 1); /* absent if there are no integer keys */
        assert_int_equal(dcp_metadata_read(out.bytes, out.length, &again, &err), SIDESTEP_OK);
        OWNED_BUFFER shown = metadata_show(&metadata), shown_again = metadata_show(&again);
        assert_string_equal((char *)shown.bytes, (char *)shown_again.bytes);
        if (counts[k] > 1)
            assert_non_null(strstr((char *)shown_again.bytes, "d.1 (d, int 1) object"));
    }
}

#define TUPLE_OF_65                                                                                \
    "(0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,"   \
    "33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,"   \
    "63,64)"

/* Values of the attribute for {'d': {'1': object, ...}}, with paths ('d', '1', 2). */
static const struct {
    const char *int_keys;
    enum sidestep_status status;
    const char *expected;
} attributes[] = {
    {"{}", SIDESTEP_OK, "d.1.2 (d, 1, 2) object"},
    {"None", SIDESTEP_OK, "d.1.2 (d, 1, 2) object"},
    {"{'d.1.2': (1,)}", SIDESTEP_OK, "d.1.2 (d, int 1, 2) object"},
    {"{'d.1.2': ()}", SIDESTEP_OK, "d.1.2 (d, 1, 2) object"},
    {"{'gone': (0, 5, 63)}", SIDESTEP_OK, "d.1.2 (d, 1, 2) object"},
    {"{'bare': (0,)}", SIDESTEP_OK, "bare () object"},
    {"{'gone': (64,)}", SIDESTEP_ECORRUPT, "position 64 is out of order or too large"},
    {"{'d.1.2': (0,)}", SIDESTEP_ECORRUPT,
     "'d.1.2': sidestep_int_keys names keys that are not int"},
    {"{'d.1.2': (2,)}", SIDESTEP_ECORRUPT,
     "'d.1.2': sidestep_int_keys names keys that are not int"},
    {"{'d.1.2': (3,)}", SIDESTEP_ECORRUPT,
     "'d.1.2': sidestep_int_keys names keys that are not int"},
    {"{'d.1.2': (1,), 'd.1.2': (1,)}", SIDESTEP_ECORRUPT, "names keys that are not integers"},
    {"{'d.1.2': (1, 1)}", SIDESTEP_ECORRUPT, "position 1 is out of order or too large"},
    {"{'d.1.2': (1, 0)}", SIDESTEP_ECORRUPT, "position 0 is out of order or too large"},
    {"{'d.1.2': (-1,)}", SIDESTEP_ECORRUPT, "a position of sidestep_int_keys is -1"},
    {"{'d.1.2': ('1',)}", SIDESTEP_ECORRUPT, "a position of sidestep_int_keys is not an int"},
    {"{'d.1.2': " TUPLE_OF_65 "}", SIDESTEP_ECORRUPT, "is not a short tuple"},
    {"{'d.1.2': [1]}", SIDESTEP_ECORRUPT, "a value of sidestep_int_keys is not a short tuple"},
    {"{1: (1,)}", SIDESTEP_ECORRUPT, "a name of sidestep_int_keys is not a str"},
    {"[1]", SIDESTEP_ECORRUPT, "sidestep_int_keys is not a dict"},
    {"<posix system>('x')", SIDESTEP_EUNSAFE, "sidestep_int_keys is not a dict but made by"},
    {"{'d.1.2': <posix system>('x')}", SIDESTEP_EUNSAFE, "which is not run"},
    {"{<posix system>('x'): (1,)}", SIDESTEP_EUNSAFE, "which is not run"},
    {"{'d.1.2': (<posix system>('x'),)}", SIDESTEP_EUNSAFE, "which is not run"},
};

TEST(contents_of_the_integer_key_attribute)
{
    for (size_t i = 0; i < ARRAY_LENGTH(attributes); i++) {
        OWNED_METADATA metadata = {0};
        OWNED_BUFFER text = {0};
        struct sidestep_error err = {0};

        buffer_printf(&text,
                      "$Metadata{'state_dict_metadata': {'d.1.2': $BytesStorageMetadata., 'bare': "
                      "$BytesStorageMetadata.}, 'planner_data': {'d.1.2': ('d', '1', 2)}, "
                      "'storage_data': {$MetadataIndex{'fqn': 'd.1.2'}: "
                      "<torch.distributed.checkpoint.filesystem _StorageInfo>{'relative_path': "
                      "'f', 'offset': 0, 'length': 1}, $MetadataIndex{'fqn': 'bare'}: "
                      "<torch.distributed.checkpoint.filesystem _StorageInfo>{'relative_path': "
                      "'f', 'offset': 1, 'length': 1}}, 'sidestep_int_keys': %s}",
                      attributes[i].int_keys);
        buffer_put_u8(&text, 0);
        OWNED_BUFFER pickle = pickle_build((char *)text.bytes);
        void *copy = guard_copy(pickle.bytes, pickle.length);
        enum sidestep_status status = dcp_metadata_read(copy, pickle.length, &metadata, &err);
        guard_free(copy);
        OWNED_BUFFER shown = metadata_show(&metadata);
        const char *said = status == SIDESTEP_OK ? (char *)shown.bytes : err.message;
        if (status != attributes[i].status || strstr(said, attributes[i].expected) == NULL)
            fail_msg("%s: status %d, '%s'", attributes[i].int_keys, (int)status, said);
    }
}

TEST(when_memory_is_short)
{
    unsigned long fired = 0;

    for (unsigned long n = 1;; n++) {
        OWNED_METADATA metadata = {0}, again = {0};
        OWNED_ARENA arena = {0};
        OWNED_BUFFER out = {0}, footer_bytes = {0};
        struct sidestep_error err = {0};
        struct sample sample;
        struct footer footer;

        make_objects(&metadata, 3);
        sample_with_integers(&sample);
        sample_encode(&sample, &footer_bytes);
        fault_arm("memory", n, false, 0);
        enum sidestep_status status = dcp_metadata_write(&out, &metadata, &err);
        if (status == SIDESTEP_OK)
            status = dcp_metadata_read(out.bytes, out.length, &again, &err);
        if (status == SIDESTEP_OK)
            status = sample_read(footer_bytes.bytes, footer_bytes.length, &arena, &footer, &err);
        bool hit = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(status, hit ? SIDESTEP_ENOMEM : SIDESTEP_OK);
        if (!hit)
            break;
        fired++;
    }
    assert_true(fired > 5);
}
