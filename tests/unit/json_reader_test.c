/* SPDX-License-Identifier: BSD-3-Clause */
/* jsontext_test.c -- what is JSON is read exactly, and what is not is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/owned.h"
#include "format/json_reader.h"
#include "support/guard.h"

/* Whole texts, and what is wrong with them (NULL: nothing). */
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
    {"", "a value belongs here"},
    {" ", "a value belongs here"},
    {"nul", "a value belongs here"},
    {"nulll", "something behind the end"},
    {"True", "a value belongs here"},
    {"NaN", "a value belongs here"},
    {"Infinity", "a value belongs here"},
    {"01", "a value belongs here"},
    {"-", "a value belongs here"},
    {"+1", "a value belongs here"},
    {".5", "a value belongs here"},
    {"1.", "a value belongs here"},
    {"1.e5", "a value belongs here"},
    {"1e", "a value belongs here"},
    {"1e+", "a value belongs here"},
    {"-a", "a value belongs here"},
    {"0x10", "something behind the end"},
    {"1 2", "something behind the end"},
    {"'a'", "a value belongs here"},
    {"// x\n1", "a value belongs here"},
    {"\xef\xbb\xbf{}", "a value belongs here"},
    {"\xa0", "a value belongs here"},
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
    {"[", "a value belongs here"},
    {"[1", "a comma or a closing bracket belongs here"},
    {"[1,", "a value belongs here"},
    {"[1,]", "a value belongs here"},
    {"[,1]", "a value belongs here"},
    {"[1 2]", "a comma or a closing bracket belongs here"},
    {"[1}", "a comma or a closing bracket belongs here"},
    {"[]]", "something behind the end"},
    {"]", "a value belongs here"},
    {"{", "a string belongs here"},
    {"{\"a\"", "a colon belongs here"},
    {"{\"a\":", "a value belongs here"},
    {"{\"a\":}", "a value belongs here"},
    {"{\"a\":1", "a comma or a closing bracket belongs here"},
    {"{\"a\":1,", "a string belongs here"},
    {"{\"a\":1,}", "a string belongs here"},
    {"{a:1}", "a string belongs here"},
    {"{1:1}", "a string belongs here"},
    {"{\"a\" 1}", "a colon belongs here"},
    {"{\"a\",1}", "a colon belongs here"},
    {"{\"a\":1]", "a comma or a closing bracket belongs here"},
    {"{}}", "something behind the end"},
    {"[[[[[[[[[", "too many arrays and objects in each other"},
    {"{\"a\":[[[[[[[[]]]]]]]]}", "too many arrays and objects in each other"},
};

static void texts_are_skipped_or_refused(void **state)
{
    (void)state;
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

static void strings_are_decoded_in_place(void **state)
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

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(strings); i++) {
        char *copy = guard_copy(strings[i].text, strlen(strings[i].text) + 1);
        struct json_reader j = json_reader_init(copy);
        assert_string_equal(json_reader_string(&j), strings[i].value);
        json_reader_end(&j);
        assert_null(j.problem);
        guard_free(copy);
    }
}

static void integers_are_exact(void **state)
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
        {"1.0", 0, "an integer belongs here"},
        {"1e2", 0, "an integer belongs here"},
        {"007", 0, "an integer belongs here"},
        {"\"1\"", 0, "an integer belongs here"},
        {"null", 0, "an integer belongs here"},
        {"", 0, "an integer belongs here"},
    };

    (void)state;
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

static void a_failure_sticks(void **state)
{
    char text[] = "{\"a\":x,\"b\":\"c\"}";
    struct json_reader j = json_reader_init(text);
    bool first = true;

    (void)state;
    json_reader_enter(&j, '{');
    assert_true(json_reader_next(&j, '}', &first));
    assert_string_equal(json_reader_key(&j), "a");
    assert_false(json_reader_null(&j));
    assert_null(j.problem); /* a question is no failure */
    assert_int_equal(json_reader_integer(&j), 0);
    assert_string_equal(j.problem, "an integer belongs here");
    assert_int_equal(j.position, 5);
    assert_false(json_reader_next(&j, '}', &first));
    assert_string_equal(json_reader_key(&j), "");
    assert_string_equal(json_reader_string(&j), "");
    assert_int_equal(json_reader_integer(&j), 0);
    assert_false(json_reader_null(&j));
    json_reader_enter(&j, '[');
    json_reader_skip(&j);
    json_reader_end(&j);
    assert_string_equal(j.problem, "an integer belongs here");
    assert_int_equal(j.position, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_skipped_or_refused),
        cmocka_unit_test(strings_are_decoded_in_place),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(a_failure_sticks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
