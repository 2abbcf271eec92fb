/* SPDX-License-Identifier: BSD-3-Clause */
/* sign.c -- AWS Signature Version 4. */
#include "object/sign.h"

#include <assert.h>
#include <nettle/base16.h>
#include <nettle/hmac.h>
#include <stdio.h>

#include "object/escape.h"

#define DATE_DIGITS 8 /* of a time: the day */
#define ALGORITHM "AWS4-HMAC-SHA256"

_Static_assert(SIGN_KEY_BYTES == SHA256_DIGEST_SIZE, "a key is a SHA-256");
_Static_assert(SIGN_HEX_BYTES == BASE16_ENCODE_LENGTH(SHA256_DIGEST_SIZE) + 1, "a hash in digits");

void sign_time(time_t when, char text[SIGN_TIME_BYTES])
{
    struct tm utc;

    (void)gmtime_r(&when, &utc);
    if (strftime(text, SIGN_TIME_BYTES, "%Y%m%dT%H%M%SZ", &utc) == 0)
        text[0] = '\0';
}

static void put_hex(const uint8_t digest[SHA256_DIGEST_SIZE], char hex[SIGN_HEX_BYTES])
{
    base16_encode_update(hex, SHA256_DIGEST_SIZE, digest);
    hex[SIGN_HEX_BYTES - 1] = '\0';
}

void sign_sha256(const void *bytes, size_t length, char hex[SIGN_HEX_BYTES])
{
    struct sha256_ctx context;
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_init(&context);
    sha256_update(&context, length, bytes);
    sha256_digest(&context, sizeof(digest), digest);
    put_hex(digest, hex);
}

/* Sort by name and then by value. */
static void sort_pairs(const struct sign_pair *pairs, unsigned count,
                       const struct sign_pair *sorted[SIGN_MAX_PAIRS])
{
    assert(count <= SIGN_MAX_PAIRS);
    for (unsigned i = 0; i < count; i++) {
        unsigned at = i;
        for (; at > 0; at--) {
            const struct sign_pair *before = sorted[at - 1];
            int order = strcmp(before->name, pairs[i].name);
            if (order < 0 || (order == 0 && strcmp(before->value, pairs[i].value) <= 0))
                break;
            sorted[at] = before;
        }
        sorted[at] = &pairs[i];
    }
}

void sign_query(const struct sign_pair *pairs, unsigned count, struct buffer *to)
{
    const struct sign_pair *sorted[SIGN_MAX_PAIRS];

    sort_pairs(pairs, count, sorted);
    for (unsigned i = 0; i < count; i++) {
        if (i != 0)
            buffer_put_u8(to, '&');
        escape_put(to, sorted[i]->name, false);
        buffer_put_u8(to, '=');
        escape_put(to, sorted[i]->value, false);
    }
}

static void hmac(const uint8_t *key, size_t key_length, const void *text, size_t length,
                 uint8_t digest[SHA256_DIGEST_SIZE])
{
    struct hmac_sha256_ctx context;

    hmac_sha256_set_key(&context, key_length, key);
    hmac_sha256_update(&context, length, text);
    hmac_sha256_digest(&context, SHA256_DIGEST_SIZE, digest);
    explicit_bzero(&context, sizeof(context));
}

void sign_key(const char *secret, const char *time, const char *region, const char *service,
              uint8_t key[SIGN_KEY_BYTES])
{
    struct hmac_sha256_ctx context;
    char start[64];
    size_t length = strlen(secret);

    /* The key of the first HMAC is "AWS4" and the secret, hashed if it is longer than a block: HMAC
     * is defined so. */
    memset(start, 0, sizeof(start));
    if (length + 4 <= sizeof(start)) {
        memcpy(start, "AWS4", 4);
        memcpy(start + 4, secret, length);
    } else {
        struct sha256_ctx sha;
        sha256_init(&sha);
        sha256_update(&sha, 4, (const uint8_t *)"AWS4");
        sha256_update(&sha, length, (const uint8_t *)secret);
        sha256_digest(&sha, SHA256_DIGEST_SIZE, (uint8_t *)start);
        explicit_bzero(&sha, sizeof(sha));
    }
    hmac_sha256_set_key(&context, sizeof(start), (const uint8_t *)start);
    hmac_sha256_update(&context, DATE_DIGITS, (const uint8_t *)time);
    hmac_sha256_digest(&context, SIGN_KEY_BYTES, key);
    hmac(key, SIGN_KEY_BYTES, region, strlen(region), key);
    hmac(key, SIGN_KEY_BYTES, service, strlen(service), key);
    hmac(key, SIGN_KEY_BYTES, "aws4_request", strlen("aws4_request"), key);
    explicit_bzero(start, sizeof(start));
    explicit_bzero(&context, sizeof(context));
}

static void put_header_names(const struct sign_pair *const *sorted, unsigned count,
                             struct buffer *to)
{
    for (unsigned i = 0; i < count; i++)
        buffer_printf(to, "%s%s", i != 0 ? ";" : "", sorted[i]->name);
}

/* The SHA-256 of the canonical request. */
static void hash_request(const struct sign_request *request, const struct sign_pair *const *sorted,
                         struct buffer *scratch, char hex[SIGN_HEX_BYTES])
{
    buffer_printf(scratch, "%s\n%s\n%s\n", request->method, request->path, request->query);
    for (unsigned i = 0; i < request->header_count; i++)
        buffer_printf(scratch, "%s:%s\n", sorted[i]->name, sorted[i]->value);
    buffer_put_u8(scratch, '\n');
    put_header_names(sorted, request->header_count, scratch);
    buffer_printf(scratch, "\n%s", request->payload);
    sign_sha256(scratch->bytes, scratch->failed ? 0 : scratch->length, hex);
}

void sign_authorization(const struct sign_request *request, const char *access_key,
                        const uint8_t key[SIGN_KEY_BYTES], struct buffer *to)
{
    const struct sign_pair *sorted[SIGN_MAX_PAIRS];
    OWNED_BUFFER scratch = {0};
    uint8_t signature[SHA256_DIGEST_SIZE];
    char hex[SIGN_HEX_BYTES];

    sort_pairs(request->headers, request->header_count, sorted);
    hash_request(request, sorted, &scratch, hex);
    to->failed |= scratch.failed;
    scratch.length = 0;
    buffer_printf(&scratch, "%s\n%s\n%.*s/%s/%s/aws4_request\n%s", ALGORITHM, request->time,
                  DATE_DIGITS, request->time, request->region, request->service, hex);
    hmac(key, SIGN_KEY_BYTES, scratch.bytes, scratch.failed ? 0 : scratch.length, signature);
    to->failed |= scratch.failed;
    put_hex(signature, hex);
    buffer_printf(to, "%s Credential=%s/%.*s/%s/%s/aws4_request, SignedHeaders=", ALGORITHM,
                  access_key, DATE_DIGITS, request->time, request->region, request->service);
    put_header_names(sorted, request->header_count, to);
    buffer_printf(to, ", Signature=%s", hex);
}
