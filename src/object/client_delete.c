/* SPDX-License-Identifier: BSD-3-Clause */
/* client_delete.c -- deletes one key, one version of a key, or many keys with one request. */
#include <nettle/base64.h>
#include <nettle/md5.h>
#include <stdio.h>

#include "object/client_internal.h"
#include "object/xml.h"

/* Base64 of an MD5, and a NUL.  Old stores support no other checksum of this request. */
#define MD5_CHARACTERS (BASE64_ENCODE_RAW_LENGTH(MD5_DIGEST_SIZE) + 1)

/* The keys that an answer says were not deleted: the first, why, and their number. */
struct refusals {
    struct xml_reader reader;
    struct refusal {
        char key[OBJECT_KEY_BYTES];
        char code[64];
        char message[160];
    } now, first;
    unsigned count;
};

static void md5_text(const struct buffer *body, char text[MD5_CHARACTERS])
{
    struct md5_ctx context;
    uint8_t digest[MD5_DIGEST_SIZE];

    md5_init(&context);
    md5_update(&context, body->length, body->bytes);
    md5_digest(&context, sizeof(digest), digest);
    base64_encode_raw(text, sizeof(digest), digest);
    text[MD5_CHARACTERS - 1] = '\0';
}

static bool take_element(struct xml_reader *reader, const char *path, char *text)
{
    struct refusals *r = (struct refusals *)reader;

    if (strcmp(path, "DeleteResult/Error/Key") == 0)
        snprintf(r->now.key, sizeof(r->now.key), "%s", text);
    else if (strcmp(path, "DeleteResult/Error/Code") == 0)
        snprintf(r->now.code, sizeof(r->now.code), "%s", text);
    else if (strcmp(path, "DeleteResult/Error/Message") == 0)
        snprintf(r->now.message, sizeof(r->now.message), "%s", text);
    else if (strcmp(path, "DeleteResult/Error") == 0) {
        if (strcmp(r->now.code, "NoSuchKey") != 0 && r->count++ == 0)
            r->first = r->now;
        r->now = (struct refusal){.key = ""};
    } else if (strchr(path, '/') == NULL && strcmp(path, "DeleteResult") != 0) {
        reader->problem = "it is not a DeleteResult";
        return false;
    }
    return true;
}

/* If a key was not deleted for a temporary reason, the whole request is repeated. */
static enum sidestep_status check_refusals(struct request *request, struct sidestep_error *err)
{
    struct refusals *r = request->context;

    *r = (struct refusals){.reader = {.element = take_element}};
    TRY(xml_read(request->answer.text.bytes, request->answer.text.length, &r->reader, err));
    if (r->count == 0)
        return SIDESTEP_OK;
    struct retry_facts facts = {.outcome = TRANSPORT_ANSWERED, .status = 200, .message = ""};
    facts.verdict = RETRY_BODY_ERROR;
    facts.code = r->first.code;
    if (retry_decide(&facts) == RETRY_AGAIN) {
        request->report.is_error = true;
        snprintf(request->report.code, sizeof(request->report.code), "%s", r->first.code);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status fail_refused(struct client *client, struct refusals *r,
                                         const struct answer *answer, struct sidestep_error *err)
{
    enum sidestep_status status = failure_status(200, r->first.code, true);

    answer_copy_printable(r->first.code, sizeof(r->first.code), r->first.code);
    answer_copy_printable(r->first.message, sizeof(r->first.message), r->first.message);
    status = FAIL(err, status,
                  "delete s3://%s/%.200s: %s \"%s\" (request %s), and %u more; the others are "
                  "deleted",
                  client_endpoint(client).bucket, r->first.key, r->first.code, r->first.message,
                  answer->request_id[0] != '\0' ? answer->request_id : "?", r->count - 1);
    if (err != NULL)
        credentials_blank(client->credentials, err->message);
    return status;
}

static enum sidestep_status put_keys(const char *const *keys, size_t count, struct buffer *body,
                                     struct sidestep_error *err)
{
    buffer_put_text(body, "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                          "<Quiet>true</Quiet>");
    for (size_t i = 0; i < count; i++) {
        TRY(client_check_key("delete", keys[i], err));
        buffer_put_text(body, "<Object><Key>");
        request_put_xml(body, keys[i]);
        buffer_put_text(body, "</Key></Object>");
    }
    buffer_put_text(body, "</Delete>");
    return buffer_check(body, err);
}

/* ${tag} NULL: any version. */
static enum sidestep_status delete_one(struct client *client, const char *key, const char *tag,
                                       void *context UNUSED, struct sidestep_error *err)
{
    OWNED_REQUEST request = {
        .doing = "delete",
        .action = "s3:DeleteObject",
        .method = "DELETE",
        .key = key,
        .is_write = true,
        .answer = {.body = ANSWER_TEXT, .text_limit = ANSWER_MAX_ERROR_BYTES},
    };

    TRY(client_check_key(request.doing, key, err));
    if (tag != NULL)
        request_add_header(&request, "if-match", tag);
    return request_run_removal(client, &request, err);
}

static enum sidestep_status delete_many(struct client *client, const char *const *keys,
                                        size_t count, struct sidestep_error *err)
{
    OWNED_BUFFER body = {0};
    OWNED struct refusals *refusals = memory_new(1, sizeof(*refusals));
    char md5[MD5_CHARACTERS];

    if (refusals == NULL)
        return FAIL_NOMEM(err, sizeof(*refusals));
    TRY(put_keys(keys, count, &body, err));
    md5_text(&body, md5);
    OWNED_REQUEST request = {
        .doing = "delete many keys of",
        .action = "s3:DeleteObject",
        .method = "POST",
        .body = body.bytes,
        .body_length = body.length,
        .has_body = true,
        .is_write = true,
        .answer = {.body = ANSWER_TEXT, .text_limit = ANSWER_MAX_XML_BYTES},
        .check = check_refusals,
        .context = refusals,
    };
    request_add_query(&request, "delete", "");
    request_add_header(&request, "content-md5", md5);
    request_add_header(&request, "content-type", "application/xml");
    TRY(request_run(client, &request, err));
    return refusals->count != 0 ? fail_refused(client, refusals, &request.answer, err)
                                : SIDESTEP_OK;
}

enum sidestep_status client_delete_keys(struct object_client *base, const char *const *keys,
                                        size_t count, struct sidestep_error *err)
{
    if (count > OBJECT_MAX_LISTED)
        return FAIL(err, SIDESTEP_EINVAL, "delete: %zu keys are too many for one request", count);
    if (count == 0)
        return SIDESTEP_OK;
    return count == 1 ? delete_one(client_of(base), keys[0], NULL, NULL, err)
                      : delete_many(client_of(base), keys, count, err);
}

enum sidestep_status client_delete_version(struct object_client *base, const char *key,
                                           const char *tag, struct sidestep_error *err)
{
    return client_send_if(client_of(base), key, tag, delete_one, NULL, err);
}
