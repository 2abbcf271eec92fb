/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sign.h -- AWS Signature Version 4 of one request.  Pure: no clock, no environment, no network.
 * Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 *
 * The path and the query are signed as they are sent: escape.h escapes both, and sign_query() sorts
 * the parameters as the signature requires, so that the URL has the same order.
 */
#ifndef OBJECT_SIGN_H
#define OBJECT_SIGN_H

#include <time.h>

#include "base/base.h"

#define SIGN_KEY_BYTES 32u
#define SIGN_HEX_BYTES 65u  /* a SHA-256 in hexadecimal digits, and a NUL */
#define SIGN_TIME_BYTES 17u /* "20130524T000000Z", and a NUL */
#define SIGN_MAX_PAIRS 24u
#define SIGN_UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"

struct sign_pair {
    const char *name;
    const char *value;
};

/* What is signed. */
struct sign_request {
    const char *method;
    const char *path;                /* escaped, from its first '/' */
    const char *query;               /* from sign_query(); "": none */
    const struct sign_pair *headers; /* lower-case names, without blanks around the values */
    unsigned header_count;           /* at most SIGN_MAX_PAIRS */
    const char *payload; /* SHA-256 of the body in hexadecimal digits, or SIGN_UNSIGNED_PAYLOAD */
    const char *time;    /* from sign_time(), as in the header x-amz-date */
    const char *region;
    const char *service; /* "s3" */
};

void sign_time(time_t when, char text[SIGN_TIME_BYTES]);
void sign_sha256(const void *bytes, size_t length, char hex[SIGN_HEX_BYTES]);
/* Append the parameters, escaped and sorted, "a=1&b=". */
void sign_query(const struct sign_pair *pairs, unsigned count, struct buffer *to);
/* The key for requests on the day of ${time}, to one region and service. */
void sign_key(const char *secret, const char *time, const char *region, const char *service,
              uint8_t key[SIGN_KEY_BYTES]);
/* Append the value of the header Authorization. */
void sign_authorization(const struct sign_request *request, const char *access_key,
                        const uint8_t key[SIGN_KEY_BYTES], struct buffer *to);

#endif
