/* SPDX-License-Identifier: BSD-3-Clause */
/* answer.c -- reads the head and the body of an answer to a request. */
#include "object/answer.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>
#include <time.h>

#define MAX_RETRY_AFTER_SECONDS 3600u

void answer_reset(struct answer *answer)
{
    struct answer fresh = {
        .body = answer->body,
        .places = answer->places,
        .range_bytes = answer->range_bytes,
        .offset = answer->offset,
        .text_limit = answer->text_limit,
        .text = answer->text,
    };

    fresh.text.length = 0;
    fresh.text.failed = false;
    *answer = fresh;
}

void answer_release(struct answer *answer)
{
    buffer_release(&answer->text);
}

static bool refuse(struct answer *answer, const char *problem)
{
    if (answer->problem == NULL)
        answer->problem = problem;
    return false;
}

/* Seconds since 1970 of a date; 0 if a field is out of range. */
static int64_t seconds_since_1970(struct tm *fields, const char *month)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

    if (month != NULL) {
        const char *found = strlen(month) == 3 ? strstr(months, month) : NULL;
        if (found == NULL || (found - months) % 3 != 0)
            return 0;
        fields->tm_mon = (int)(found - months) / 3;
    }
    if (fields->tm_year < 1970 || fields->tm_year > 9999 || fields->tm_mon < 0 ||
        fields->tm_mon > 11 || fields->tm_mday < 1 || fields->tm_mday > 31 || fields->tm_hour < 0 ||
        fields->tm_hour > 23 || fields->tm_min < 0 || fields->tm_min > 59 || fields->tm_sec < 0 ||
        fields->tm_sec > 60)
        return 0;
    fields->tm_year -= 1900;
    return (int64_t)timegm(fields);
}

int64_t answer_date(const char *text)
{
    struct tm fields = {0};
    char month[4];

    if (sscanf(text, "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d GMT", &fields.tm_mday, month,
               &fields.tm_year, &fields.tm_hour, &fields.tm_min, &fields.tm_sec) == 6)
        return seconds_since_1970(&fields, month);
    fields = (struct tm){0};
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d", &fields.tm_year, &fields.tm_mon, &fields.tm_mday,
               &fields.tm_hour, &fields.tm_min, &fields.tm_sec) == 6) {
        fields.tm_mon--;
        return seconds_since_1970(&fields, NULL);
    }
    return 0;
}

/* Read decimal digits; ${*after} is what follows them. */
static bool parse_number(const char *text, uint64_t *number, const char **after)
{
    uint64_t value = 0;

    if (!isdigit((unsigned char)*text))
        return false;
    for (; isdigit((unsigned char)*text); text++)
        if (!checked_mul(value, 10, &value) || !checked_add(value, (uint64_t)(*text - '0'), &value))
            return false;
    *number = value;
    *after = text;
    return true;
}

static bool take_length(struct answer *answer, const char *value)
{
    const char *after;

    answer->has_length = parse_number(value, &answer->length, &after) && *after == '\0';
    return answer->has_length || refuse(answer, "its Content-Length is not a number");
}

/* "bytes 0-9/100"; each side of the slash may be a star, the first only after status 416. */
static bool take_range(struct answer *answer, const char *value)
{
    const char *at;

    if (strncasecmp(value, "bytes ", 6) != 0)
        return refuse(answer, "the unit of its Content-Range is not bytes");
    value += 6;
    if (*value == '*') {
        at = value + 1;
    } else {
        if (!parse_number(value, &answer->first, &at) || *at != '-' ||
            !parse_number(at + 1, &answer->last, &at) || answer->last < answer->first)
            return refuse(answer, "its Content-Range is not a range");
        answer->has_range = true;
    }
    answer->total = UINT64_MAX;
    if (*at != '/' ||
        (strcmp(at, "/*") != 0 && (!parse_number(at + 1, &answer->total, &at) || *at != '\0')))
        return refuse(answer, "its Content-Range is not a range");
    return true;
}

/* Copy a value that is sent back later: printable ASCII only, and it must fit. */
static bool take_text(struct answer *answer, const char *value, char *to, size_t size,
                      const char *problem)
{
    if (strlen(value) >= size)
        return refuse(answer, problem);
    for (const char *c = value; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
            return refuse(answer, problem);
    snprintf(to, size, "%s", value);
    return true;
}

void answer_copy_printable(char *to, size_t size, const char *value)
{
    size_t length = 0;

    for (; value[length] != '\0' && length + 1 < size; length++) {
        unsigned char c = (unsigned char)value[length];
        to[length] = c >= 0x20 && c <= 0x7e ? (char)c : '?';
    }
    to[length] = '\0';
}

static bool take_field(struct answer *answer, const char *name, const char *value)
{
    uint64_t seconds;

    if (strcasecmp(name, "content-length") == 0)
        return take_length(answer, value);
    if (strcasecmp(name, "content-range") == 0)
        return take_range(answer, value);
    if (strcasecmp(name, "etag") == 0)
        return take_text(answer, value, answer->tag, sizeof(answer->tag),
                         "its ETag is not an entity tag");
    if (strcasecmp(name, "transfer-encoding") == 0)
        answer->is_chunked = strcasecmp(value, "chunked") == 0;
    else if (strcasecmp(name, "x-amz-request-id") == 0)
        answer_copy_printable(answer->request_id, sizeof(answer->request_id), value);
    else if (strcasecmp(name, ANSWER_MAKER) == 0)
        answer_copy_printable(answer->maker, sizeof(answer->maker), value);
    else if (strcasecmp(name, "x-amz-checksum-crc32c") == 0)
        answer_copy_printable(answer->crc32c, sizeof(answer->crc32c), value);
    else if (strcasecmp(name, "x-amz-bucket-region") == 0)
        return take_text(answer, value, answer->region, sizeof(answer->region),
                         "its x-amz-bucket-region is not a region");
    else if (strcasecmp(name, "location") == 0)
        return take_text(answer, value, answer->location, sizeof(answer->location),
                         "its Location is not a URL");
    else if (strcasecmp(name, "date") == 0)
        answer->date = answer_date(value);
    else if (strcasecmp(name, "last-modified") == 0)
        answer->modified = answer_date(value);
    else if (strcasecmp(name, "retry-after") == 0 && parse_number(value, &seconds, &value))
        answer->retry_after_seconds = (unsigned)min_u64(seconds, MAX_RETRY_AFTER_SECONDS);
    return true;
}

/* "HTTP/1.1 200 OK": the first line of an answer.  It may follow an answer with status 100. */
static bool take_status(struct answer *answer, const char *line)
{
    const char *blank = strchr(line, ' ');
    size_t header_bytes = answer->header_bytes;
    uint64_t status;

    answer_reset(answer);
    answer->header_bytes = header_bytes; /* the limit is for all heads together */
    if (blank == NULL || !parse_number(blank + 1, &status, &blank) || status < 100 || status > 599)
        return refuse(answer, "its first line is not an HTTP status line");
    answer->status = (int)status;
    return true;
}

bool answer_take_header(struct answer *answer, const char *line, size_t length)
{
    char text[2048];

    answer->header_bytes += length;
    if (answer->header_bytes > ANSWER_MAX_HEADER_BYTES)
        return refuse(answer, "its headers are too long");
    if (length >= sizeof(text) || memchr(line, '\0', length) != NULL)
        return length >= sizeof(text) ? true : refuse(answer, "its headers contain a NUL");
    while (length > 0 && strchr("\r\n \t", line[length - 1]) != NULL)
        length--;
    memcpy(text, line, length);
    text[length] = '\0';
    answer->has_head |= length == 0; /* the empty line after it */
    if (strncmp(text, "HTTP/", 5) == 0)
        return take_status(answer, text);
    char *colon = strchr(text, ':');
    if (colon == NULL)
        return true;
    *colon = '\0';
    return take_field(answer, text, colon + 1 + strspn(colon + 1, " \t"));
}

static bool is_success(const struct answer *answer)
{
    return answer->status >= 200 && answer->status < 300;
}

/* Check before the first byte is kept that this is the requested range. */
static bool check_range(struct answer *answer)
{
    uint64_t end = answer->offset + answer->range_bytes;

    if (answer->status == 206) {
        if (!answer->has_range)
            return refuse(answer, "it has no Content-Range");
        if (answer->first != answer->offset || answer->last >= end)
            return refuse(answer, "it is not the requested range");
        if (answer->last + 1 < end && answer->total >= end)
            return refuse(answer, "it is only a part of the requested range");
        return true;
    }
    if (answer->offset != 0 || !answer->has_length || answer->length > answer->range_bytes)
        return refuse(answer, "it is the whole object, not the requested range");
    answer->total = answer->length;
    return true;
}

static bool take_range_bytes(struct answer *answer, const void *bytes, size_t length)
{
    if (answer->received == 0 && !check_range(answer))
        return false;
    if (length > answer->range_bytes - answer->received)
        return refuse(answer, "it is longer than the requested range");
    store_places_put(answer->places, &answer->cursor, bytes, length);
    answer->received += length;
    return true;
}

bool answer_take_body(struct answer *answer, const void *bytes, size_t length)
{
    size_t limit = is_success(answer) ? answer->text_limit : ANSWER_MAX_ERROR_BYTES;

    if (is_success(answer) && answer->body == ANSWER_RANGE)
        return take_range_bytes(answer, bytes, length);
    if (is_success(answer) && answer->body == ANSWER_NO_BODY)
        return true;
    answer->is_too_long = is_success(answer) && length > limit - answer->text.length;
    if (length > limit - answer->text.length)
        return refuse(answer, "it exceeds the size limit");
    buffer_put(&answer->text, bytes, length);
    return !answer->text.failed;
}

bool answer_check(struct answer *answer)
{
    if (answer->problem != NULL)
        return false;
    if (!answer->has_head)
        return refuse(answer, "its headers are cut off");
    if (is_success(answer) && answer->status != 204 && answer->body == ANSWER_TEXT &&
        !answer->has_length && !answer->is_chunked)
        return refuse(answer, "it has no Content-Length");
    if (!is_success(answer) || answer->body != ANSWER_RANGE)
        return true;
    if (answer->received == 0 && !check_range(answer))
        return false;
    /* The caller compares ${total} if the object ends within the range. */
    if (answer->received < answer->range_bytes &&
        answer->total >= answer->offset + answer->range_bytes)
        return refuse(answer, "it is shorter than the requested range");
    return true;
}
