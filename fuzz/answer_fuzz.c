/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * answer_fuzz.c -- feeds any answer of a store to the parser: its head line by line, its body in
 * pieces. The first two bytes of the input choose what was asked for. An answer that is accepted
 * must be what was asked for, and what is printed of one must be printable.
 */
#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "object/failure.h"

#define MOST_BYTES 64u /* of a range, and of a text */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_printable(const char *text)
{
    for (; *text != '\0'; text++)
        if (!isprint((unsigned char)*text))
            return false;
    return true;
}

/* What lies behind the head; it ends with an empty line, as libcurl sees it. */
static size_t feed_head(struct answer *answer, const char *bytes, size_t size)
{
    size_t at = 0;
    bool goes_on = true;

    while (goes_on && at < size && !(answer->has_head && answer->status != 100)) {
        const char *end = memchr(bytes + at, '\n', size - at);
        size_t length = end != NULL ? (size_t)(end - bytes) + 1 - at : size - at;
        goes_on = answer_take_header(answer, bytes + at, length);
        at += length;
    }
    assert(goes_on || answer->problem != NULL || answer->text.failed);
    return goes_on ? at : size;
}

static void feed_body(struct answer *answer, const char *bytes, size_t size, size_t piece)
{
    for (size_t at = 0; at < size; at += piece)
        if (!answer_take_body(answer, bytes + at, size - at < piece ? size - at : piece)) {
            assert(answer->problem != NULL || answer->text.failed);
            return;
        }
}

static void check_texts(const struct answer *answer)
{
    assert(is_printable(answer->tag) && strlen(answer->tag) < sizeof(answer->tag));
    assert(is_printable(answer->request_id) && is_printable(answer->crc32c));
    assert(is_printable(answer->region) && is_printable(answer->location));
    assert(answer->header_bytes <= ANSWER_MAX_HEADER_BYTES || answer->problem != NULL);
}

/* The range that was asked for, or as much of it as the object has. */
static void check_accepted(const struct answer *answer)
{
    bool is_success = answer->status / 100 == 2;

    if (!is_success || answer->body != ANSWER_RANGE)
        return;
    assert(answer->received == answer->range_bytes ||
           answer->total < answer->offset + answer->range_bytes);
    assert(answer->status != 206 || answer->first == answer->offset);
}

static void check_failure(const struct answer *answer)
{
    struct endpoint endpoint = {.bucket = "b", .host = "h", .region = "r"};
    struct failure failure = {.doing = "get",
                              .action = "s3:GetObject",
                              .key = "k",
                              .endpoint = &endpoint,
                              .origin = "a test"};
    struct failure_report report;
    struct sidestep_error err = {.rank = -1};

    failure_read(answer->text.bytes, answer->text.length, &report);
    assert(is_printable(report.code) && is_printable(report.message) &&
           is_printable(report.request_id) && is_printable(report.region));
    enum sidestep_status status = failure_of_answer(&failure, answer, &report, &err);
    assert(status != SIDESTEP_OK && (int32_t)status == err.status);
    assert(is_printable(err.message));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char first[MOST_BYTES], rest[MOST_BYTES], last[MOST_BYTES];
    struct store_place list[] = {{first, 0}, {NULL, 0}, {last, 0}};
    const struct store_places places = {.list = list, .count = 3, .rest = rest};
    struct answer answer = {.places = &places, .text_limit = MOST_BYTES};

    if (size < 2)
        return 0;
    answer.body = (enum answer_body)(data[0] % 3);
    answer.offset = data[0] / 3;
    answer.range_bytes = 1 + data[1] % MOST_BYTES;
    list[0].bytes = data[0] % (answer.range_bytes + 1);
    list[1].bytes = (answer.range_bytes - list[0].bytes) / 2;
    list[2].bytes = answer.range_bytes - list[0].bytes - list[1].bytes;
    const char *bytes = (const char *)data + 2;
    size_t head = feed_head(&answer, bytes, size - 2);
    if (answer.problem == NULL)
        feed_body(&answer, bytes + head, size - 2 - head, 1 + data[1] / MOST_BYTES * 7);
    check_texts(&answer);
    assert(answer.received <= answer.range_bytes);
    assert(answer.text.length <= ANSWER_MAX_ERROR_BYTES);
    if (answer_check(&answer))
        check_accepted(&answer);
    check_failure(&answer);
    answer_release(&answer);
    return 0;
}
