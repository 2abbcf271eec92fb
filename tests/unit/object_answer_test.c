/* SPDX-License-Identifier: BSD-3-Clause */
/* object_answer_test.c -- heads, bodies, XML, dates and redirects of a server that nobody trusts.
 */
#include "base/fault.h"
#include "base/owned.h"
#include "object/answer.h"
#include "object/endpoint.h"
#include "object/failure.h"
#include "object/listing.h"
#include "object/xml.h"
#include "support/guard.h"
#include "support/unit.h"

/* Feed a head, line by line, from memory that ends where no memory is.  Returns the problem. */
static const char *feed(struct answer *answer, const char *head)
{
    answer_reset(answer);
    for (const char *line = head; *line != '\0';) {
        size_t length = strcspn(line, "\n") + 1;
        char *copy = guard_copy(line, length);
        bool fine = answer_take_header(answer, copy, length);
        guard_free(copy);
        assert_int_equal(fine, answer->problem == NULL);
        if (!fine)
            return answer->problem;
        line += length;
    }
    return NULL;
}

TEST(a_head)
{
    struct answer answer = {.body = ANSWER_NO_BODY};

    assert_null(feed(&answer, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 206 Partial\r\n"
                              "ETag: \"abc\"\r\nContent-Length: 10\r\n"
                              "content-range: bytes 5-14/100\r\nx-amz-request-id: id\xff\r\n"
                              "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nNo colon\r\n"
                              "Date:Mon, 07 Nov 1994 08:49:37 GMT\r\nRetry-After: 9\r\n\r\n"));
    assert_int_equal(answer.status, 206);
    assert_string_equal(answer.tag, "\"abc\"");
    assert_string_equal(answer.request_id, "id?");
    assert_true(answer.has_length && answer.length == 10);
    assert_true(answer.has_range && answer.first == 5 && answer.last == 14 && answer.total == 100);
    assert_int_equal(answer.modified, 784111777);
    assert_int_equal(answer.date, 784111777 + 86400);
    assert_int_equal(answer.retry_after_seconds, 9);
    assert_true(answer.has_head);
}

TEST(wrong_heads)
{
    static const struct {
        const char *line, *problem;
    } table[] = {
        {"HTTP/1.1 abc\n", "first line"},
        {"HTTP/1.1 99 x\n", "first line"},
        {"HTTP/1.1 600 x\n", "first line"},
        {"HTTP/1.1\n", "first line"},
        {"Content-Length: -1\n", "Content-Length"},
        {"Content-Length: \n", "Content-Length"},
        {"Content-Length: 18446744073709551616\n", "Content-Length"},
        {"Content-Length: 1x\n", "Content-Length"},
        {"Content-Range: items 0-1/2\n", "Content-Range"},
        {"Content-Range: bytes 1-0/2\n", "Content-Range"},
        {"Content-Range: bytes 0-1/x\n", "Content-Range"},
        {"Content-Range: bytes 0-\n", "Content-Range"},
        {"ETag: \"\x01\"\n", "ETag"},
        {"ETag: \"\xc3\xa4\"\n", "ETag"},
        {"x-amz-bucket-region: a\x7f\n", "region"},
    };
    struct answer answer = {.body = ANSWER_NO_BODY};
    char long_tag[400];

    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        const char *problem = feed(&answer, table[i].line);
        assert_non_null(problem);
        assert_non_null(strstr(problem, table[i].problem));
    }
    snprintf(long_tag, sizeof(long_tag), "ETag: %0*d\n", (int)OBJECT_TAG_BYTES, 0);
    assert_non_null(feed(&answer, long_tag));
    snprintf(long_tag, sizeof(long_tag), "ETag: %0*d\n", (int)OBJECT_TAG_BYTES - 1, 0);
    assert_null(feed(&answer, long_tag));
    assert_false(answer_take_header(&answer, "a\0b\n", 4));
}

TEST(endless_heads)
{
    struct answer answer = {.body = ANSWER_NO_BODY};
    static char line[1000];
    size_t taken = 0;

    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\n';
    while (answer_take_header(&answer, line, sizeof(line)))
        taken += sizeof(line);
    assert_true(taken <= ANSWER_MAX_HEADER_BYTES && taken + sizeof(line) > ANSWER_MAX_HEADER_BYTES);
    /* A new first line does not begin the count anew. */
    answer = (struct answer){.body = ANSWER_NO_BODY};
    for (taken = 0; answer_take_header(&answer, "HTTP/1.1 100 x\r\n", 16); taken += 16)
        assert_true(taken <= ANSWER_MAX_HEADER_BYTES);
}

/* A range of 10 bytes from 5 on: what comes, and what is said of it. */
static const struct {
    const char *head;
    size_t body;
    const char *problem;
    size_t received;
    uint64_t total;
} ranges[] = {
    {"HTTP/1.1 206 x\nContent-Range: bytes 5-14/100\n\n", 10, NULL, 10, 100},
    {"HTTP/1.1 206 x\nContent-Range: bytes 5-14/*\n\n", 10, NULL, 10, UINT64_MAX},
    {"HTTP/1.1 206 x\nContent-Range: bytes 5-14/15\n\n", 10, NULL, 10, 15},
    {"HTTP/1.1 206 x\nContent-Range: bytes 5-11/12\n\n", 7, NULL, 7, 12},
    {"HTTP/1.1 206 x\nContent-Range: bytes 5-11/100\n\n", 7, "a part", 0, 100},
    {"HTTP/1.1 206 x\nContent-Range: bytes 5-11/*\n\n", 7, "a part", 0, UINT64_MAX},
    {"HTTP/1.1 206 x\nContent-Range: bytes 6-15/100\n\n", 10, "not the requested range", 0, 100},
    {"HTTP/1.1 206 x\nContent-Range: bytes 5-15/100\n\n", 11, "not the requested range", 0, 100},
    {"HTTP/1.1 206 x\n\n", 10, "no Content-Range", 0, 0},
    {"HTTP/1.1 200 x\nContent-Length: 100\n\n", 100, "the whole object", 0, 0},
    {"HTTP/1.1 206 x\nContent-Range: bytes 5-14/100\n\n", 11, "longer", 0, 100},
    {"HTTP/1.1 206 x\nContent-Range: bytes 5-14/100\n\n", 9, "shorter", 9, 100},
    {"HTTP/1.1 206 x\nContent-Range: bytes 5-14/100\n\n", 0, "shorter", 0, 100},
};

/* The body of an answer, in pieces of ${most}. */
static bool take(struct answer *answer, const char *bytes, size_t length, size_t most)
{
    for (size_t at = 0; at < length; at += most)
        if (!answer_take_body(answer, bytes + at, min_u64(most, length - at)))
            return false;
    return true;
}

/* The bytes of a range go to several places, however they arrive. */
TEST(places_of_a_range)
{
    for (size_t most = 1; most <= 10; most++) {
        char *first = guard_copy("...", 3), *rest = guard_copy("......", 6);
        char *last = guard_copy(".", 1);
        const struct store_place list[] = {{NULL, 2}, {first, 3}, {first, 0},
                                           {NULL, 2}, {NULL, 2},  {last, 1}};
        const struct store_places places = {list, ARRAY_LENGTH(list), rest};
        struct answer answer = {.body = ANSWER_RANGE, .places = &places, .range_bytes = 10};
        assert_int_equal(store_places_bytes(&places), 10);
        for (int attempt = 0; attempt < 2; attempt++) { /* the second begins anew */
            assert_null(feed(&answer, "HTTP/1.1 206 x\nContent-Range: bytes 0-9/100\n\n"));
            assert_true(take(&answer, "0123456789", attempt == 0 ? 7 : 10, most));
            assert_int_equal(answer_check(&answer), attempt == 1);
        }
        assert_memory_equal(first, "234", 3);
        assert_memory_equal(rest, "015678", 6);
        assert_memory_equal(last, "9", 1);
        guard_free(first);
        guard_free(rest);
        guard_free(last);
    }
}

TEST(ranges_of_an_object)
{
    static const char bytes[200];

    for (size_t i = 0; i < ARRAY_LENGTH(ranges); i++) {
        char *to = guard_copy(bytes, 10);
        const struct store_place place = {to, 10};
        const struct store_places places = {.list = &place, .count = 1};
        struct answer answer = {
            .body = ANSWER_RANGE, .places = &places, .range_bytes = 10, .offset = 5};
        assert_null(feed(&answer, ranges[i].head));
        bool fine = ranges[i].body == 0 || answer_take_body(&answer, bytes, ranges[i].body);
        fine = fine && answer_check(&answer);
        assert_int_equal(fine, ranges[i].problem == NULL);
        if (ranges[i].problem != NULL)
            assert_non_null(strstr(answer.problem, ranges[i].problem));
        else
            assert_int_equal(answer.received, ranges[i].received);
        assert_int_equal(answer.total, ranges[i].total);
        guard_free(to);
    }
}

/* The whole object stands for a range that begins with it. */
TEST(whole_objects)
{
    char to[10];
    const struct store_place place = {to, 10};
    const struct store_places places = {.list = &place, .count = 1};
    struct answer answer = {.body = ANSWER_RANGE, .places = &places, .range_bytes = 10};

    assert_null(feed(&answer, "HTTP/1.1 200 x\nContent-Length: 10\n\n"));
    assert_true(answer_take_body(&answer, "0123456789", 10) && answer_check(&answer));
    assert_null(feed(&answer, "HTTP/1.1 200 x\nContent-Length: 4\n\n"));
    assert_true(answer_take_body(&answer, "0123", 4) && answer_check(&answer));
    assert_int_equal(answer.total, 4);
    assert_null(feed(&answer, "HTTP/1.1 200 x\nContent-Length: 11\n\n"));
    assert_false(answer_take_body(&answer, "01234567890", 11));
    assert_null(feed(&answer, "HTTP/1.1 200 x\n\n"));
    assert_false(answer_take_body(&answer, "0123456789", 10));
}

TEST(limits_of_texts)
{
    static char bytes[ANSWER_MAX_ERROR_BYTES + 1];
    struct answer answer = {.body = ANSWER_TEXT, .text_limit = 100};

    assert_null(feed(&answer, "HTTP/1.1 200 x\nContent-Length: 100\n\n"));
    assert_true(answer_take_body(&answer, bytes, 60) && answer_take_body(&answer, bytes, 40));
    assert_true(answer_check(&answer));
    assert_false(answer_take_body(&answer, bytes, 1));
    assert_true(answer.is_too_long);
    assert_null(feed(&answer, "HTTP/1.1 500 x\nContent-Length: 100\n\n"));
    assert_true(answer_take_body(&answer, bytes, ANSWER_MAX_ERROR_BYTES));
    assert_false(answer_take_body(&answer, bytes, 1));
    assert_false(answer.is_too_long);
    assert_null(feed(&answer, "HTTP/1.1 200 x\n\n"));
    assert_false(answer_check(&answer)); /* its end is nowhere said */
    assert_null(feed(&answer, "HTTP/1.1 200 x\nTransfer-Encoding: chunked\n\n"));
    assert_true(answer_check(&answer));
    assert_null(feed(&answer, "HTTP/1.1 200 x\nContent-Length: 0\n"));
    assert_false(answer_check(&answer)); /* its head is cut off */
    answer_release(&answer);
}

TEST(dates)
{
    static const struct {
        const char *text;
        int64_t seconds;
    } table[] = {
        {"Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
        {"1994-11-06T08:49:37.000Z", 784111777},
        {"1994-11-06T08:49:37Z", 784111777},
        {"Thu, 29 Feb 2024 00:00:00 GMT", 1709164800},
        {"Sun, 06 Nvo 1994 08:49:37 GMT", 0},
        {"Sun, 06 anF 1994 08:49:37 GMT", 0},
        {"Sun, 32 Nov 1994 08:49:37 GMT", 0},
        {"Sun, 06 Nov 1969 08:49:37 GMT", 0},
        {"Sun, 06 Nov 1994 24:49:37 GMT", 0},
        {"1994-13-06T08:49:37Z", 0},
        {"1994-00-06T08:49:37Z", 0},
        {"", 0},
        {"now", 0},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(table); i++)
        assert_int_equal(answer_date(table[i].text), table[i].seconds);
}

/* ------------------------------------------------------------------ XML */

struct seen {
    struct xml_reader reader;
    struct buffer text;
};

static bool see(struct xml_reader *reader, const char *path, char *text)
{
    struct seen *seen = (struct seen *)reader;

    reader->problem = "enough";
    buffer_printf(&seen->text, "%s=%s;", path, text);
    return strcmp(text, "stop") != 0;
}

static enum sidestep_status read_xml(const char *text, size_t length, struct seen *seen,
                                     struct sidestep_error *err)
{
    char *copy = guard_copy(text, length);

    buffer_release(&seen->text);
    seen->reader.element = see;
    enum sidestep_status status = xml_read(copy, length, &seen->reader, err);
    guard_free(copy);
    buffer_put_u8(&seen->text, '\0');
    return status;
}

TEST(xml_is_read)
{
    static const struct {
        const char *text;
        const char *seen;
        const char *problem;
    } table[] = {
        {"<a/>", "a=;", NULL},
        {" \r\n\t<?xml version=\"1.0\"?>\n<a><b>x&amp;&#228;</b> <c/></a>",
         "a/b=x&\xc3\xa4;a/c=;a=;", NULL},
        {"<a><![CDATA[<x>]]></a>", "a=<x>;", NULL},
        {"<a><b>stop</b><c/></a>", NULL, "enough"},
        {"", NULL, "not well-formed"},
        {"   ", NULL, "not well-formed"},
        {"<a>", NULL, "not well-formed"},
        {"<a></b>", NULL, "not well-formed"},
        {"<a/><b/>", NULL, "not well-formed"},
        {"<a>\xff</a>", NULL, "not well-formed"},
        {"<a>&b;</a>", NULL, "not well-formed"},
        {"<!DOCTYPE a><a/>", NULL, "document type"},
        {"<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>", NULL, "document type"},
        {"<!DOCTYPE a SYSTEM \"http://h/\"><a/>", NULL, "document type"},
    };
    struct seen seen = {.text = {0}};
    struct sidestep_error err;

    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        enum sidestep_status status = read_xml(table[i].text, strlen(table[i].text), &seen, &err);
        assert_int_equal(status, table[i].problem == NULL ? SIDESTEP_OK : SIDESTEP_ECORRUPT);
        if (table[i].problem != NULL)
            assert_non_null(strstr(err.message, table[i].problem));
        else
            assert_string_equal((const char *)seen.text.bytes, table[i].seen);
    }
    buffer_release(&seen.text);
}

/* One of everything that has a limit, at it and behind it. */
static enum sidestep_status read_many(const char *before, const char *piece, size_t count,
                                      const char *after)
{
    OWNED_BUFFER text = {0};
    struct seen seen = {.text = {0}};

    buffer_put_text(&text, before);
    for (size_t i = 0; i < count; i++)
        buffer_put_text(&text, piece);
    buffer_put_text(&text, after);
    enum sidestep_status status = read_xml((const char *)text.bytes, text.length, &seen, NULL);
    buffer_release(&seen.text);
    return status;
}

TEST(limits_of_xml)
{
    assert_int_equal(read_many("<a>", "x", XML_MAX_TEXT_BYTES - 1, "</a>"), SIDESTEP_OK);
    assert_int_equal(read_many("<a>", "x", XML_MAX_TEXT_BYTES, "</a>"), SIDESTEP_ECORRUPT);
    assert_int_equal(read_many("<a>", "<b/>", XML_MAX_ELEMENTS - 1, "</a>"), SIDESTEP_OK);
    assert_int_equal(read_many("<a>", "<b/>", XML_MAX_ELEMENTS, "</a>"), SIDESTEP_ECORRUPT);
    assert_int_equal(read_many("<", "n", XML_MAX_NAME_BYTES, "/>"), SIDESTEP_OK);
    assert_int_equal(read_many("<", "n", XML_MAX_NAME_BYTES + 1, "/>"), SIDESTEP_ECORRUPT);
    assert_int_equal(read_many("<a><a><a><a><a><a><a>", "<a/>", 1, "</a></a></a></a></a></a></a>"),
                     SIDESTEP_OK);
    assert_int_equal(
        read_many("<a><a><a><a><a><a><a><a>", "<a/>", 1, "</a></a></a></a></a></a></a></a>"),
        SIDESTEP_ECORRUPT);
}

TEST(errors)
{
    static const char text[] = "<Error><Code>NoSuchKey</Code><Message>a\nb\xc3\xa4</Message>"
                               "<RequestId>7</RequestId><Region>r</Region></Error>";
    struct failure_report report;

    failure_read(text, sizeof(text) - 1, &report);
    assert_true(report.is_error);
    assert_string_equal(report.code, "NoSuchKey");
    assert_string_equal(report.message, "a?b??");
    assert_string_equal(report.request_id, "7");
    assert_string_equal(report.region, "r");
    failure_read(text, sizeof(text) - 2, &report);
    assert_false(report.is_error);
    assert_string_equal(report.code, "");
    failure_read("<html><Error/></html>", 21, &report);
    assert_false(report.is_error);
    failure_read(NULL, 0, &report);
    assert_false(report.is_error);
}

/* ------------------------------------------------------------------ where requests go */

TEST(redirects)
{
    static const struct {
        const char *endpoint, *location, *host; /* host NULL: not followed */
    } table[] = {
        {"https://h.example:1", "https://h.example:1/b/k", "h.example:1"},
        {"https://h.example:1", "https://b.h.example:1/k", "b.h.example:1"},
        {"https://h.example:1", "http://h.example:1/b/k", NULL},
        {"https://h.example:1", "https://h.example/b/k", NULL},
        {"https://h.example", "https://xh.example/", NULL},
        {"https://h.example", "https://h.example.evil/", NULL},
        {"https://h.example", "https://h.example:443/", "h.example"},
        {"https://h.example", "https://h.example@evil/", NULL},
        {"https://h.example", "//h.example/", NULL},
        {"https://h.example", "ftp://h.example/", NULL},
        {"http://h.example", "https://h.example/", "h.example"},
        {NULL, "https://b.s3-us-west-2.amazonaws.com/k", "b.s3-us-west-2.amazonaws.com"},
        {NULL, "https://s3.eu-west-1.amazonaws.com/b/k", "s3.eu-west-1.amazonaws.com"},
        {NULL, "https://s3.amazonaws.com/b/k", "s3.amazonaws.com"},
        {NULL, "https://b.s3.cn-north-1.amazonaws.com.cn/k", "b.s3.cn-north-1.amazonaws.com.cn"},
        {NULL, "https://ec2-1-2-3-4.compute.amazonaws.com/", NULL},
        {NULL, "https://s3-mine.us-east-1.elb.amazonaws.com/", NULL},
        {NULL, "https://evil.com/.amazonaws.com", NULL},
        {NULL, "https://c.s3.eu-west-1.amazonaws.com/k", NULL},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        struct endpoint endpoint;
        assert_int_equal(endpoint_init(&endpoint, table[i].endpoint, "b", "us-east-1", NULL),
                         SIDESTEP_OK);
        struct endpoint before = endpoint;
        if (endpoint_follow(&endpoint, table[i].location) != (table[i].host != NULL))
            fail_msg("%s", table[i].location);
        assert_string_equal(endpoint.host, table[i].host != NULL ? table[i].host : before.host);
    }
}

TEST(regions)
{
    struct endpoint endpoint;

    assert_int_equal(endpoint_init(&endpoint, NULL, "bucket", "us-east-1", NULL), SIDESTEP_OK);
    assert_string_equal(endpoint.host, "bucket.s3.us-east-1.amazonaws.com");
    assert_true(endpoint_set_region(&endpoint, "cn-north-1"));
    assert_string_equal(endpoint.host, "bucket.s3.cn-north-1.amazonaws.com.cn");
    assert_false(endpoint_set_region(&endpoint, "evil.com/"));
    assert_false(endpoint_set_region(&endpoint, ""));
    assert_string_equal(endpoint.region, "cn-north-1");
    assert_int_equal(endpoint_init(&endpoint, "http://h:80/", "bucket", "r", NULL), SIDESTEP_OK);
    assert_true(endpoint_set_region(&endpoint, "s"));
    assert_string_equal(endpoint.host, "h");
}

TEST(paths)
{
    struct endpoint endpoint;
    OWNED_BUFFER made = {0};

    assert_int_equal(endpoint_init(&endpoint, NULL, "bucket", "r", NULL), SIDESTEP_OK);
    endpoint_put_path(&endpoint, "a b/c", &made);
    endpoint_put_path(&endpoint, NULL, &made);
    assert_int_equal(endpoint_init(&endpoint, "http://h", "bucket", "r", NULL), SIDESTEP_OK);
    endpoint_put_path(&endpoint, "a b/c", &made);
    endpoint_put_path(&endpoint, NULL, &made);
    buffer_put_u8(&made, '\0');
    assert_string_equal((const char *)made.bytes, "/a%20b/c//bucket/a%20b/c/bucket");
}

/* ------------------------------------------------------------------ memory */

TEST(no_memory)
{
    static const char text[] = "<ListBucketResult><Contents><Key>p/a</Key><Size>1</Size>"
                               "<ETag>t</ETag></Contents></ListBucketResult>";
    bool fired = true;

    for (unsigned long n = 1; fired; n++) {
        struct listing_page page = {.prefix = "p/"};
        struct sidestep_error err = {0};
        fault_arm("memory|xml", n, false, 12);
        enum sidestep_status status = listing_read(&page, text, sizeof(text) - 1, &err);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(status, fired ? SIDESTEP_ENOMEM : SIDESTEP_OK);
        assert_int_equal(page.count, fired ? 0 : 1);
        listing_release(&page);
    }
}
