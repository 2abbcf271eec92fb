/* SPDX-License-Identifier: BSD-3-Clause */
/* object_sign_test.c -- signatures are those of AWS's published examples; texts in URLs are escaped
 * in the one way that they allow.  tests/objects/test_client_signature.py compares with botocore.
 */
#include "base/fault.h"
#include "base/owned.h"
#include "object/escape.h"
#include "object/sign.h"
#include "support/unit.h"

#define ACCESS_KEY "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define TIME "20130524T000000Z"
#define HOST "examplebucket.s3.amazonaws.com"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define BODY "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"

/* https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, its four examples.
 * Headers and parameters stand here in another order than they are signed in. */
static const struct {
    const char *method, *path, *payload;
    struct sign_pair query[3], headers[6];
    const char *names, *signature;
} examples[] = {
    {"GET",
     "/test.txt",
     EMPTY,
     {{NULL, NULL}},
     {{"x-amz-date", TIME},
      {"range", "bytes=0-9"},
      {"host", HOST},
      {"x-amz-content-sha256", EMPTY}},
     "host;range;x-amz-content-sha256;x-amz-date",
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
    {"PUT",
     "/test%24file.text",
     BODY,
     {{NULL, NULL}},
     {{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
      {"x-amz-date", TIME},
      {"x-amz-content-sha256", BODY},
      {"host", HOST},
      {"date", "Fri, 24 May 2013 00:00:00 GMT"}},
     "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
    {"GET",
     "/",
     EMPTY,
     {{"lifecycle", ""}},
     {{"host", HOST}, {"x-amz-date", TIME}, {"x-amz-content-sha256", EMPTY}},
     "host;x-amz-content-sha256;x-amz-date",
     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
    {"GET",
     "/",
     EMPTY,
     {{"prefix", "J"}, {"max-keys", "2"}},
     {{"host", HOST}, {"x-amz-date", TIME}, {"x-amz-content-sha256", EMPTY}},
     "host;x-amz-content-sha256;x-amz-date",
     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
};

static unsigned count_pairs(const struct sign_pair *pairs)
{
    unsigned count = 0;

    while (pairs[count].name != NULL)
        count++;
    return count;
}

TEST(published_examples)
{
    uint8_t key[SIGN_KEY_BYTES];
    char hex[SIGN_HEX_BYTES], expected[400];

    sign_key(SECRET, TIME, "us-east-1", "s3", key);
    for (size_t i = 0; i < ARRAY_LENGTH(examples); i++) {
        OWNED_BUFFER query = {0}, made = {0};
        sign_query(examples[i].query, count_pairs(examples[i].query), &query);
        buffer_put_u8(&query, '\0');
        struct sign_request request = {
            .method = examples[i].method,
            .path = examples[i].path,
            .query = (const char *)query.bytes,
            .headers = examples[i].headers,
            .header_count = count_pairs(examples[i].headers),
            .payload = examples[i].payload,
            .time = TIME,
            .region = "us-east-1",
            .service = "s3",
        };
        sign_authorization(&request, ACCESS_KEY, key, &made);
        buffer_put_u8(&made, '\0');
        snprintf(expected, sizeof(expected),
                 "AWS4-HMAC-SHA256 Credential=" ACCESS_KEY "/20130524/us-east-1/s3/aws4_request, "
                 "SignedHeaders=%s, Signature=%s",
                 examples[i].names, examples[i].signature);
        assert_string_equal((const char *)made.bytes, expected);
    }
    sign_sha256("Welcome to Amazon S3.", 21, hex);
    assert_string_equal(hex, BODY);
    sign_sha256("", 0, hex);
    assert_string_equal(hex, EMPTY);
}

/* Every part of a request changes its signature. */
TEST(nothing_is_left_out)
{
    const struct sign_pair headers[] = {{"host", "h"}, {"x-amz-date", TIME}};
    const struct sign_pair others[] = {{"host", "i"}, {"x-amz-date", TIME}};
    const struct sign_request base = {"GET", "/k", "", headers, 2, EMPTY, TIME, "r", "s3"};
    struct sign_request variants[9];
    OWNED_BUFFER first = {0};
    uint8_t key[SIGN_KEY_BYTES];

    for (size_t i = 0; i < ARRAY_LENGTH(variants); i++)
        variants[i] = base;
    variants[1].method = "PUT";
    variants[2].path = "/l";
    variants[3].query = "a=";
    variants[4].headers = others;
    variants[5].header_count = 1;
    variants[6].payload = SIGN_UNSIGNED_PAYLOAD;
    variants[7].time = "20130524T000001Z";
    variants[8].region = "s";
    sign_key(SECRET, TIME, "r", "s3", key);
    sign_authorization(&base, "a", key, &first);
    for (size_t i = 0; i < ARRAY_LENGTH(variants); i++) {
        OWNED_BUFFER made = {0};
        sign_authorization(&variants[i], "a", key, &made);
        bool is_same =
            made.length == first.length && memcmp(made.bytes, first.bytes, made.length) == 0;
        assert_int_equal(is_same, i == 0);
    }
}

/* The secret, the day, the region and the service make the key. */
TEST(keys_are_derived)
{
    static const char *const parts[][4] = {
        {SECRET, TIME, "r", "s3"},
        {"other", TIME, "r", "s3"},
        {SECRET, "20130525T000000Z", "r", "s3"},
        {SECRET, TIME, "q", "s3"},
        {SECRET, TIME, "r", "sts"},
    };
    uint8_t made[ARRAY_LENGTH(parts)][SIGN_KEY_BYTES], again[SIGN_KEY_BYTES];

    for (size_t i = 0; i < ARRAY_LENGTH(parts); i++) {
        sign_key(parts[i][0], parts[i][1], parts[i][2], parts[i][3], made[i]);
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(made[i], made[k], SIGN_KEY_BYTES);
    }
    sign_key(SECRET, "20130524T235959Z", "r", "s3", again);
    assert_memory_equal(again, made[0], SIGN_KEY_BYTES);
}

TEST(times)
{
    char text[SIGN_TIME_BYTES];

    sign_time(1369353600, text);
    assert_string_equal(text, TIME);
    sign_time(0, text);
    assert_string_equal(text, "19700101T000000Z");
}

TEST(queries_are_sorted)
{
    static const struct sign_pair pairs[] = {
        {"b", "2"}, {"a", "z"}, {"b", "1"}, {"a-b", ""}, {"B", "x y"}, {"a", ""},
    };
    OWNED_BUFFER made = {0};

    sign_query(pairs, ARRAY_LENGTH(pairs), &made);
    buffer_put_u8(&made, '\0');
    assert_string_equal((const char *)made.bytes, "B=x%20y&a=&a=z&a-b=&b=1&b=2");
}

TEST(escaping)
{
    OWNED_BUFFER made = {0};
    char text[1024];
    size_t length = 0;

    escape_put(&made, "aZ09-._~ /+%\x7f\x80\xff\x01!*'()", true);
    escape_put(&made, "/", false);
    buffer_put_u8(&made, '\0');
    assert_string_equal((const char *)made.bytes,
                        "aZ09-._~%20/%2B%25%7F%80%FF%01%21%2A%27%28%29%2F");
    for (unsigned c = 1; c < 256; c++)
        text[length++] = (char)c;
    text[length] = '\0';
    OWNED_BUFFER all = {0};
    escape_put(&all, text, false);
    buffer_put_u8(&all, '\0');
    assert_true(escape_decode((char *)all.bytes));
    assert_string_equal((const char *)all.bytes, text);
}

TEST(decoding)
{
    static const char *const wrong[] = {"%", "%a", "a%0", "%0g", "%g0", "%00", "a%00b", "%%41"};
    char right[] = "a+b%2b%2B%c3%a4";

    assert_true(escape_decode(right));
    assert_string_equal(right, "a b++\xc3\xa4");
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        char text[16];
        snprintf(text, sizeof(text), "%s", wrong[i]);
        assert_false(escape_decode(text));
    }
}

/* Memory is short at any point: the result says so. */
TEST(no_memory)
{
    const struct sign_pair headers[] = {{"host", "h"}, {"range", "bytes=0-1"}};
    const struct sign_request request = {"GET", "/k", "", headers, 2, EMPTY, TIME, "r", "s3"};
    uint8_t key[SIGN_KEY_BYTES] = {0};
    bool fired = true;

    for (unsigned long n = 1; fired; n++) {
        OWNED_BUFFER made = {0};
        fault_arm("memory", n, false, 12);
        sign_authorization(&request, "a", key, &made);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(buffer_check(&made, NULL) != SIDESTEP_OK, fired);
    }
}
