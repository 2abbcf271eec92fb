/* SPDX-License-Identifier: BSD-3-Clause */
/* client_object.c -- requests for one object: head, get, put. */
#include <assert.h>
#include <stdio.h>

#include "object/client_internal.h"

/* An error that is sent with status 200 has no size or tag. */
static enum sidestep_status check_head(struct request *request, struct sidestep_error *err)
{
    if (!request->answer.has_length)
        return FAIL(err, SIDESTEP_ECORRUPT, "the answer to HEAD has no Content-Length");
    if (request->answer.tag[0] == '\0')
        return FAIL(err, SIDESTEP_ECORRUPT, "the answer to HEAD has no ETag");
    return SIDESTEP_OK;
}

enum sidestep_status client_head(struct object_client *base, const char *key,
                                 struct object_info *info, struct sidestep_error *err)
{
    OWNED_REQUEST request = {
        .doing = "read the headers of",
        .action = "s3:GetObject",
        .method = "HEAD",
        .key = key,
        .answer = {.body = ANSWER_NO_BODY},
        .check = check_head,
    };

    TRY(client_check_key(request.doing, key, err));
    TRY(request_run(client_of(base), &request, err));
    client_fill_info(&request.answer, info);
    return SIDESTEP_OK;
}

enum sidestep_status client_get(struct object_client *base, const char *key, uint64_t offset,
                                const struct store_places *to, const char *tag,
                                struct object_info *info, struct sidestep_error *err)
{
    size_t length = store_places_bytes(to);
    OWNED_REQUEST request = {
        .doing = "read",
        .action = "s3:GetObject",
        .method = "GET",
        .key = key,
        .answer = {.body = ANSWER_RANGE, .places = to, .range_bytes = length, .offset = offset},
    };
    char range[64];
    uint64_t end;

    assert(length > 0);
    TRY(client_check_key(request.doing, key, err));
    if (!checked_add(offset, length, &end) || end > INT64_MAX)
        return FAIL(err, SIDESTEP_EINVAL, "read: no object has %zu bytes at offset %llu", length,
                    (unsigned long long)offset);
    snprintf(range, sizeof(range), "bytes=%llu-%llu", (unsigned long long)offset,
             (unsigned long long)(end - 1));
    request_add_header(&request, "range", range);
    if (tag != NULL)
        request_add_header(&request, "if-match", tag);
    TRY(request_run(client_of(base), &request, err));
    if (request.answer.received < length)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "read s3://%s/%.200s: the object has %llu bytes, not the %llu that are needed",
                    client_endpoint(client_of(base)).bucket, key,
                    (unsigned long long)request.answer.total, (unsigned long long)end);
    if (info != NULL) {
        client_fill_info(&request.answer, info);
        info->bytes = request.answer.total;
    }
    return SIDESTEP_OK;
}

/* Append the text to ${out}, without a copy if ${out} is empty. */
static void move_text(struct buffer *text, struct buffer *out)
{
    if (out->bytes == NULL && !out->failed) {
        *out = *text;
        *text = (struct buffer){0};
    } else {
        buffer_put(out, text->bytes, text->length);
    }
}

/* Check the checksum, if the store has one. That of an object of several parts has another form:
 * "abc=-2". */
static enum sidestep_status check_whole(struct request *request, struct sidestep_error *err)
{
    const struct answer *answer = &request->answer;
    char crc[CLIENT_CRC32C_CHARACTERS];

    if (strlen(answer->crc32c) != CLIENT_CRC32C_CHARACTERS - 1)
        return SIDESTEP_OK;
    client_crc32c_text(client_crc32c(answer->text.bytes, answer->text.length), crc);
    return strcmp(answer->crc32c, crc) == 0
               ? SIDESTEP_OK
               : FAIL(err, SIDESTEP_ECORRUPT, "its bytes do not match its x-amz-checksum-crc32c");
}

enum sidestep_status client_get_all(struct object_client *base, const char *key, size_t most,
                                    struct buffer *out, struct object_info *info,
                                    struct sidestep_error *err)
{
    OWNED_REQUEST request = {
        .doing = "read",
        .action = "s3:GetObject",
        .method = "GET",
        .key = key,
        .checksum = {"x-amz-checksum-mode", "ENABLED"},
        .is_content = true,
        .answer = {.body = ANSWER_TEXT, .text_limit = most},
        .check = check_whole,
    };
    struct sidestep_error why;

    TRY(client_check_key(request.doing, key, err));
    enum sidestep_status status = request_run(client_of(base), &request, &why);
    if (status == SIDESTEP_ECORRUPT && request.answer.is_too_long)
        return FAIL(err, status, "read s3://%s/%.200s: the object has more than %zu bytes",
                    client_endpoint(client_of(base)).bucket, key, most);
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    if (info != NULL) {
        client_fill_info(&request.answer, info);
        info->bytes = request.answer.text.length;
    }
    move_text(&request.answer.text, out);
    return buffer_check(out, err);
}

/* An answer without a tag may be from a proxy, or an error that is sent with status 200. */
static enum sidestep_status check_put(struct request *request, struct sidestep_error *err)
{
    if (request->answer.tag[0] == '\0')
        return FAIL(err, SIDESTEP_ECORRUPT, "the answer has no ETag");
    return SIDESTEP_OK;
}

/* The arguments of a put. */
struct put {
    const void *bytes;
    size_t length;
    bool if_absent;
    const char *maker; /* NULL: none */
    char *tag;         /* receives the new tag; may be NULL */
};

static enum sidestep_status send_put(struct client *client, const char *key, const char *if_tag,
                                     void *context, struct sidestep_error *err)
{
    const struct put *put = context;
    OWNED_REQUEST request = {
        .doing = "write",
        .action = "s3:PutObject",
        .method = "PUT",
        .key = key,
        .body = put->bytes,
        .body_length = put->length,
        .has_body = true,
        .is_write = true,
        .answer = {.body = ANSWER_NO_BODY},
        .check = check_put,
    };
    char crc[CLIENT_CRC32C_CHARACTERS];

    client_crc32c_text(client_crc32c(put->bytes, put->length), crc);
    request.checksum = (struct sign_pair){"x-amz-checksum-crc32c", crc};
    if (put->if_absent)
        request_add_header(&request, "if-none-match", "*");
    if (if_tag != NULL)
        request_add_header(&request, "if-match", if_tag);
    if (put->maker != NULL)
        request_add_header(&request, ANSWER_MAKER, put->maker);
    TRY(request_run(client, &request, err));
    if (put->tag != NULL)
        memcpy(put->tag, request.answer.tag, OBJECT_TAG_BYTES);
    return SIDESTEP_OK;
}

enum sidestep_status client_put(struct object_client *base, const char *key, const void *bytes,
                                size_t length, const struct object_condition *condition,
                                char tag[OBJECT_TAG_BYTES], struct sidestep_error *err)
{
    struct put put = {bytes, length, condition != NULL && condition->if_absent,
                      condition != NULL ? condition->maker : NULL, tag};
    const char *if_tag = condition != NULL ? condition->if_tag : NULL;

    assert(!put.if_absent || if_tag == NULL);
    TRY(client_check_key("write", key, err));
    return if_tag != NULL ? client_send_if(client_of(base), key, if_tag, send_put, &put, err)
                          : send_put(client_of(base), key, NULL, &put, err);
}
