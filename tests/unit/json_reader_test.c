/* SPDX-License-Identifier: BSD-3-Clause */
/* json_reader_test.c -- JSON is read exactly, and all else is refused. */
#include "base/owned.h"
#include "format/json_reader.h"
#include "support/guard.h"
#include "support/unit.h"

/* Whole texts, and their problems (NULL: none). */
static const struct {
    const char *text;
    const char *problem;
} texts[] = {
    {"null", NULL},
    {" true\t", NULL},
    {"\r\nfalse\n", NULL},
    {"0", NULL},
    {"-0", NULL},
    {"-1.5e+10", NULL},
    {"1E5", NULL},
    {"0.0e-0", NULL},
    {"99999999999999999999999999", NULL},
    {"\"\"", NULL},
    {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e4\"", NULL},
    {"\"\x7f\xc3\xa4\xf0\x9f\x98\x80\"", NULL},
    {"[]", NULL},
    {"{}", NULL},
    {" [ ] ", NULL},
    {"[1,[2,{\"a\":[3]}],\"x\"]", NULL},
    {"{\"a\":{\"b\":{}},\"c\":[{},{}]}", NULL},
    {"[[[[[[[[]]]]]]]]", NULL},
    {"[{\"a\":[{\"b\":[{\"c\":[{\"d\":0}]}]}]},1]", NULL},
    {"", "a value is expected"},
    {" ", "a value is expected"},
    {"nul", "a value is expected"},
    {"nulll", "something follows the end"},
    {"True", "a value is expected"},
    {"NaN", "a value is expected"},
    {"Infinity", "a value is expected"},
    {"01", "a value is expected"},
    {"-", "a value is expected"},
    {"+1", "a value is expected"},
    {".5", "a value is expected"},
    {"1.", "a value is expected"},
    {"1.e5", "a value is expected"},
    {"1e", "a value is expected"},
    {"1e+", "a value is expected"},
    {"-a", "a value is expected"},
    {"0x10", "something follows the end"},
    {"1 2", "something follows the end"},
    {"'a'", "a value is expected"},
    {"// x\n1", "a value is expected"},
    {"\xef\xbb\xbf{}", "a value is expected"},
    {"\xa0", "a value is expected"},
    {"\"", "a string with a control byte or a wrong escape"},
    {"\"a", "a string with a control byte or a wrong escape"},
    {"\"\\", "a string with a control byte or a wrong escape"},
    {"\"\\\"", "a string with a control byte or a wrong escape"},
    {"\"\n\"", "a string with a control byte or a wrong escape"},
    {"\"\t\"", "a string with a control byte or a wrong escape"},
    {"\"\x1f\"", "a string with a control byte or a wrong escape"},
    {"\"\\x41\"", "a string with a control byte or a wrong escape"},
    {"\"\\'\"", "a string with a control byte or a wrong escape"},
    {"\"\\u\"", "a string with a control byte or a wrong escape"},
    {"\"\\u12\"", "a string with a control byte or a wrong escape"},
    {"\"\\u123", "a string with a control byte or a wrong escape"},
    {"\"\\u12g4\"", "a string with a control byte or a wrong escape"},
    {"\"\\u0000\"", "a string with a control byte or a wrong escape"},
    {"\"\\ud800\"", "a string with a control byte or a wrong escape"},
    {"\"\\udc00\"", "a string with a control byte or a wrong escape"},
    {"\"\\ud800\\", "a string with a control byte or a wrong escape"},
    {"\"\\ud800\\u", "a string with a control byte or a wrong escape"},
    {"\"\\ud800\\u0041\"", "a string with a control byte or a wrong escape"},
    {"\"\\ud800\\ud800\"", "a string with a control byte or a wrong escape"},
    {"\"\xff\"", "a string that is not UTF-8"},
    {"\"\xc0\x80\"", "a string that is not UTF-8"},
    {"\"\xed\xa0\x80\"", "a string that is not UTF-8"},
    {"\"\xc3\"", "a string that is not UTF-8"},
    {"[", "a value is expected"},
    {"[1", "a comma or a closing bracket is expected"},
    {"[1,", "a value is expected"},
    {"[1,]", "a value is expected"},
    {"[,1]", "a value is expected"},
    {"[1 2]", "a comma or a closing bracket is expected"},
    {"[1}", "a comma or a closing bracket is expected"},
    {"[]]", "something follows the end"},
    {"]", "a value is expected"},
    {"{", "a string is expected"},
    {"{\"a\"", "a colon is expected"},
    {"{\"a\":", "a value is expected"},
    {"{\"a\":}", "a value is expected"},
    {"{\"a\":1", "a comma or a closing bracket is expected"},
    {"{\"a\":1,", "a string is expected"},
    {"{\"a\":1,}", "a string is expected"},
    {"{a:1}", "a string is expected"},
    {"{1:1}", "a string is expected"},
    {"{\"a\" 1}", "a colon is expected"},
    {"{\"a\",1}", "a colon is expected"},
    {"{\"a\":1]", "a comma or a closing bracket is expected"},
    {"{}}", "something follows the end"},
    {"[[[[[[[[[", "arrays and objects are nested too deep"},
    {"{\"a\":[[[[[[[[]]]]]]]]}", "arrays and objects are nested too deep"},
};

TEST(texts_are_skipped_or_refused)
{
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        size_t length = strlen(texts[i].text);
        char *copy = guard_copy(texts[i].text, length + 1);
        struct json_reader j = json_reader_init(copy);
        json_reader_skip(&j);
        json_reader_end(&j);
        const char *got = j.problem != NULL ? j.problem : "nothing";
        if (strcmp(got, texts[i].problem != NULL ? texts[i].problem : "nothing") != 0)
            fail_msg("'%s': %s", texts[i].text, got);
        assert_true(j.position <= length);
        if (j.problem == NULL) {
            assert_int_equal(j.position, length);
            assert_int_equal(j.depth, 0);
        }
        guard_free(copy);
    }
}

TEST(strings_are_decoded_in_place)
{
    static const struct {
        const char *text, *value;
    } strings[] = {
        {"\"\"", ""},
        {"\"a b\"", "a b"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00E4\\u20aC\\ud83D\\uDe00.\"", "A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80."},
        {"\"\\u0001\\u007f\\u0080\\u07ff\\u0800\\uffff\"",
         "\x01\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"},
        {"\"\\ud800\\udc00\\udbff\\udfff\"", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(strings); i++) {
        char *copy = guard_copy(strings[i].text, strlen(strings[i].text) + 1);
        struct json_reader j = json_reader_init(copy);
        assert_string_equal(json_reader_string(&j), strings[i].value);
        json_reader_end(&j);
        assert_null(j.problem);
        guard_free(copy);
    }
}

TEST(integers_are_exact)
{
    static const struct {
        const char *text;
        int64_t value;
        const char *problem;
    } integers[] = {
        {"0", 0, NULL},
        {"-0", 0, NULL},
        {"9007199254740993", 9007199254740993, NULL},
        {"9223372036854775807", INT64_MAX, NULL},
        {"-9223372036854775808", INT64_MIN, NULL},
        {"9223372036854775808", 0, "an integer of more than 64 bits"},
        {"-9223372036854775809", 0, "an integer of more than 64 bits"},
        {"18446744073709551616", 0, "an integer of more than 64 bits"},
        {"340282366920938463463374607431768211456", 0, "an integer of more than 64 bits"},
        {"1.0", 0, "an integer is expected"},
        {"1e2", 0, "an integer is expected"},
        {"007", 0, "an integer is expected"},
        {"\"1\"", 0, "an integer is expected"},
        {"null", 0, "an integer is expected"},
        {"", 0, "an integer is expected"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(integers); i++) {
        char *copy = guard_copy(integers[i].text, strlen(integers[i].text) + 1);
        struct json_reader j = json_reader_init(copy);
        assert_int_equal(json_reader_integer(&j), integers[i].value);
        json_reader_end(&j);
        if (integers[i].problem == NULL)
            assert_null(j.problem);
        else
            assert_string_equal(j.problem, integers[i].problem);
        guard_free(copy);
    }
}

TEST(a_failure_lasts)
{
    char text[] = "{\"a\":x,\"b\":\"c\"}";
    struct json_reader j = json_reader_init(text);
    bool first = true;

    json_reader_enter(&j, '{');
    assert_true(json_reader_next(&j, '}', &first));
    assert_string_equal(json_reader_key(&j), "a");
    assert_false(json_reader_null(&j));
    assert_null(j.problem); /* a question is no failure */
    assert_int_equal(json_reader_integer(&j), 0);
    assert_string_equal(j.problem, "an integer is expected");
    assert_int_equal(j.position, 5);
    assert_false(json_reader_next(&j, '}', &first));
    assert_string_equal(json_reader_key(&j), "");
    assert_string_equal(json_reader_string(&j), "");
    assert_int_equal(json_reader_integer(&j), 0);
    assert_false(json_reader_null(&j));
    json_reader_enter(&j, '[');
    json_reader_skip(&j);
    json_reader_end(&j);
    assert_string_equal(j.problem, "an integer is expected");
    assert_int_equal(j.position, 5);
}
