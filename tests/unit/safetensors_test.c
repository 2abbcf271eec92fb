/* SPDX-License-Identifier: BSD-3-Clause */
/* safetensors_test.c -- headers and indexes, valid and wrong ones. */
#include "base/fault.h"
#include "format/safetensors.h"
#include "support/unit.h"

/* Make a file: the header, and ${data_bytes} of data. */
static void make_file(struct buffer *file, const char *header, size_t data_bytes)
{
    buffer_put_u64le(file, strlen(header));
    buffer_put_text(file, header);
    for (size_t i = 0; i < data_bytes; i++)
        buffer_put_u8(file, (uint8_t)i);
    assert_false(file->failed);
}

static enum sidestep_status read_file(const struct buffer *file, struct arena *arena,
                                      struct safetensors *out, struct sidestep_error *err)
{
    struct source source = source_from_memory(file->bytes, file->length);

    return safetensors_read_header(&source, arena, out, err);
}

TEST(headers_round_trip)
{
    static const int64_t shape[] = {2, 3}, empty[] = {0, 5};
    const struct safetensors_tensor tensors[] = {
        {.name = "a.\"quoted\"\n\\name", .dtype = SIDESTEP_FLOAT32, .ndim = 2, .shape = shape},
        {.name = "scalar", .dtype = SIDESTEP_BFLOAT16},
        {.name = "empty", .dtype = SIDESTEP_INT64, .ndim = 2, .shape = empty},
        {.name = "f4", .dtype = SIDESTEP_FLOAT4_E2M1FN_X2, .ndim = 2, .shape = shape},
        {.name = "\xc3\xa4", .dtype = SIDESTEP_BOOL, .ndim = 1, .shape = shape},
    };
    static const uint64_t bytes[] = {24, 2, 0, 6, 2};
    OWNED_BUFFER file = {0};
    OWNED_ARENA arena = {0};
    struct safetensors found;
    uint64_t at;

    assert_int_equal(safetensors_write_header(tensors, 5, &file, NULL), SIDESTEP_OK);
    assert_int_equal(file.length % 8, 0);
    at = file.length;
    for (int i = 0; i < 34; i++)
        buffer_put_u8(&file, 1);
    assert_int_equal(read_file(&file, &arena, &found, NULL), SIDESTEP_OK);
    assert_int_equal(found.count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(found.tensors[i].name, tensors[i].name);
        assert_int_equal(found.tensors[i].dtype, tensors[i].dtype);
        assert_int_equal(found.tensors[i].ndim, tensors[i].ndim);
        for (uint32_t d = 0; d < tensors[i].ndim; d++)
            assert_int_equal(found.tensors[i].shape[d], tensors[i].shape[d]);
        assert_int_equal(found.tensors[i].bytes, bytes[i]);
        assert_int_equal(found.tensors[i].offset, at);
        at += bytes[i];
    }
}

TEST(unsupported_dtypes_and_names_are_refused)
{
    OWNED_BUFFER file = {0};
    const struct safetensors_tensor strange = {.name = "x", .dtype = SIDESTEP_COMPLEX128};
    const struct safetensors_tensor named = {.name = "__metadata__", .dtype = SIDESTEP_BOOL};

    assert_int_equal(safetensors_write_header(&strange, 1, &file, NULL), SIDESTEP_EUNSUPPORTED);
    assert_int_equal(safetensors_write_header(&named, 1, &file, NULL), SIDESTEP_EUNSUPPORTED);
}

#define PLACES(text) "\"__metadata__\":{\"DCP_SHARDING_INFO\":\"" text "\"}"
#define T(name, offsets)                                                                           \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" offsets "}"

TEST(hostile_headers_are_refused)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        enum sidestep_status status;
        const char *says;
    } cases[] = {
        {"{}", 0, SIDESTEP_OK, ""},
        {"{" T("a", "[0,4]") "}", 4, SIDESTEP_OK, ""},
        {"{" T("a", "[4,8]") "," T("b", "[0,4]") "}   ", 8, SIDESTEP_OK, ""},
        {"{\"__metadata__\":{\"a\":\"b\"}," T("a", "[0,4]") "}", 4, SIDESTEP_OK, ""},
        {"{" T("a", "[0,4]") "}", 5, SIDESTEP_ECORRUPT, "but 5 follow"},
        {"{" T("a", "[0,4]") "}", 3, SIDESTEP_ECORRUPT, "which has 3"},
        {"{" T("a", "[0,4]") "," T("a", "[4,8]") "}", 8, SIDESTEP_ECORRUPT, "twice"},
        {"{" T("a", "[0,4]") "," T("b", "[2,6]") "}", 6, SIDESTEP_ECORRUPT, "but others end at"},
        {"{" T("a", "[0,4]") "," T("b", "[5,9]") "}", 9, SIDESTEP_ECORRUPT, "others end"},
        {"{" T("a", "[0,5]") "}", 5, SIDESTEP_ECORRUPT, "make 4 bytes"},
        {"{" T("a", "[4,0]") "}", 4, SIDESTEP_ECORRUPT, "no valid"},
        {"{" T("a", "[-4,0]") "}", 4, SIDESTEP_ECORRUPT, "no valid"},
        {"{" T("a", "[0,4,8]") "}", 4, SIDESTEP_ECORRUPT, "no valid"},
        {"{" T("a", "[0,4.5]") "}", 4, SIDESTEP_ECORRUPT, "header"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, SIDESTEP_ECORRUPT, "no valid"},
        {"{\"a\":{\"dtype\":\"Q8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
         SIDESTEP_EUNSUPPORTED, "Q8"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-4],\"data_offsets\":[0,4]}}", 4, SIDESTEP_ECORRUPT,
         "'a'"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
         SIDESTEP_ECORRUPT, "'a'"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1,
         SIDESTEP_EUNSUPPORTED, "4 bits"},
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, SIDESTEP_EUNSUPPORTED,
         "a name of 0"},
        {"{\"a\":[[[[[[[[[]]]]]]]]]}", 0, SIDESTEP_ECORRUPT, "header"},
        {"{\"__metadata__\":{\"a\":[[[[[[[[[]]]]]]]]]}}", 0, SIDESTEP_ECORRUPT, "nested too deep"},
        {"{\"__metadata__\":[]}", 0, SIDESTEP_ECORRUPT, "an object is expected"},
        {"{" PLACES("{\\\"a\\\":{\\\"saved_offsets\\\":[7]}}") "," T("a", "[0,4]") "}", 4,
         SIDESTEP_OK, ""},
        {"{" PLACES("{\\\"b\\\":{}}") "," T("a", "[0,4]") "}", 4, SIDESTEP_OK, ""},
        {"{" PLACES("{\\\"a\\\":{}}") "," T("a", "[0,4]") "}", 4, SIDESTEP_ECORRUPT, "'a' has no"},
        {"{" PLACES("{\\\"a\\\":{\\\"saved_offsets\\\":[-1]}}") "," T("a", "[0,4]") "}", 4,
         SIDESTEP_ECORRUPT, "no valid place"},
        {"{" PLACES("{\\\"a\\\":{\\\"saved_offsets\\\":[1,1]}}") "," T("a", "[0,4]") "}", 4,
         SIDESTEP_ECORRUPT, "no valid place"},
        {"{" PLACES("{\\\"a\\\":{\\\"saved_offsets\\\":[9223372036854775807]}}") "," T("a",
                                                                                       "[0,4]") "}",
         4, SIDESTEP_ECORRUPT, "no valid place"},
        {"{" PLACES("{\\\"a\\\":3}") "," T("a", "[0,4]") "}", 4, SIDESTEP_ECORRUPT,
         "of its DCP_SHARDING_INFO"},
        {"{" T("a", "[0,4]") "} x", 4, SIDESTEP_ECORRUPT, "header"},
        {"{" T("a", "[0,4]"), 4, SIDESTEP_ECORRUPT, "header"},
        {"[]", 0, SIDESTEP_ECORRUPT, "does not begin"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        OWNED_BUFFER file = {0};
        OWNED_ARENA arena = {0};
        struct sidestep_error err = {0};
        struct safetensors found;

        make_file(&file, cases[i].header, cases[i].data_bytes);
        enum sidestep_status status = read_file(&file, &arena, &found, &err);
        if (status != cases[i].status || strstr(err.message, cases[i].says) == NULL)
            fail_msg("%s: %d, '%s'", cases[i].header, (int)status, err.message);
    }
}

TEST(lengths_of_headers_are_checked)
{
    static const uint64_t lengths[] = {UINT64_MAX, 1u << 20, SAFETENSORS_MAX_HEADER_BYTES + 1, 3};

    for (size_t i = 0; i < 4; i++) {
        OWNED_BUFFER file = {0};
        OWNED_ARENA arena = {0};
        struct safetensors found;

        buffer_put_u64le(&file, lengths[i]);
        buffer_put_text(&file, "{}");
        assert_int_equal(read_file(&file, &arena, &found, NULL), SIDESTEP_ECORRUPT);
    }
}

TEST(an_index_is_read_and_written)
{
    const struct safetensors_index_entry places[] = {{"a", "x.safetensors"}, {"b.\"c\"", "y"}};
    OWNED_BUFFER text = {0};
    OWNED_ARENA arena = {0};
    struct safetensors_index_entry *found = NULL;
    size_t count = 0;

    safetensors_index_write(places, 2, 12345, &text);
    buffer_put_u8(&text, '\0');
    assert_non_null(strstr((char *)text.bytes, "\"total_size\": 12345"));
    assert_int_equal(safetensors_index_read((char *)text.bytes, &arena, &found, &count, NULL),
                     SIDESTEP_OK);
    assert_int_equal(count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(found[i].name, places[i].name);
        assert_string_equal(found[i].file, places[i].file);
    }
}

TEST(hostile_indexes_are_refused)
{
    static const struct {
        const char *text;
        enum sidestep_status status;
    } cases[] = {
        {"{\"weight_map\":{}}", SIDESTEP_OK},
        {"{}", SIDESTEP_ECORRUPT},
        {"{\"weight_map\":[]}", SIDESTEP_ECORRUPT},
        {"{\"weight_map\":{\"a\":1}}", SIDESTEP_ECORRUPT},
        {"{\"weight_map\":{},\"weight_map\":{}}", SIDESTEP_ECORRUPT},
        {"{\"weight_map\":{\"a\":\"../x\"}}", SIDESTEP_EUNSAFE},
        {"{\"weight_map\":{\"a\":\"/etc/x\"}}", SIDESTEP_EUNSAFE},
        {"{\"weight_map\":{\"a\":\"x/y\"}}", SIDESTEP_EUNSAFE},
        {"{\"weight_map\":{\"a\":\"..\"}}", SIDESTEP_EUNSAFE},
        {"{\"weight_map\":{\"a\":\"\"}}", SIDESTEP_EUNSAFE},
        {"{\"weight_map\":{\"a\":\"x\\ny\"}}", SIDESTEP_EUNSAFE},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[128];
        OWNED_ARENA arena = {0};
        struct safetensors_index_entry *found;
        size_t count;

        snprintf(text, sizeof(text), "%s", cases[i].text);
        if (safetensors_index_read(text, &arena, &found, &count, NULL) != cases[i].status)
            fail_msg("%s", cases[i].text);
    }
}

TEST(short_memory_is_not_damage)
{
    for (unsigned long nth = 1;; nth++) {
        OWNED_BUFFER file = {0};
        OWNED_ARENA arena = {0};
        struct safetensors found;

        make_file(&file,
                  "{" PLACES("{\\\"a\\\":{\\\"saved_offsets\\\":[7]}}") "," T("a", "[0,4]") "," T(
                      "b", "[4,8]") "}",
                  8);
        fault_arm("memory", nth, false, ENOMEM);
        enum sidestep_status status = read_file(&file, &arena, &found, NULL);
        bool fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(status, fired ? SIDESTEP_ENOMEM : SIDESTEP_OK);
        if (!fired)
            return;
    }
}
