/* SPDX-License-Identifier: BSD-3-Clause */
/* client_upload.c -- multipart uploads: an object in parts.  See client.h. */
#include <stdio.h>

#include "object/client_internal.h"
#include "object/xml.h"

/* The text of one element of an answer. */
struct wanted {
    struct xml_reader reader;
    const char *root; /* the answer has to be one of these */
    const char *path; /* of the element; NULL: of no interest */
    char *to;
    size_t size;
    bool is_found;
};

static bool take_element(struct xml_reader *reader, const char *path, char *text)
{
    struct wanted *wanted = (struct wanted *)reader;
    bool is_root = strchr(path, '/') == NULL;

    reader->problem = "it is not the answer to this request, or a text in it is too long";
    if (is_root)
        return strcmp(path, wanted->root) == 0;
    if (wanted->path == NULL || strcmp(path, wanted->path) != 0)
        return true;
    if (text[0] == '\0' || strlen(text) >= wanted->size)
        return false;
    snprintf(wanted->to, wanted->size, "%s", text);
    wanted->is_found = true;
    return true;
}

static enum sidestep_status judge(struct request *request, struct sidestep_error *err)
{
    struct wanted *wanted = request->context;

    wanted->reader.element = take_element;
    wanted->is_found = wanted->path == NULL;
    TRY(xml_read(request->answer.text.bytes, request->answer.text.length, &wanted->reader, err));
    return wanted->is_found ? SIDESTEP_OK
                            : FAIL(err, SIDESTEP_ECORRUPT, "the answer has no %s", wanted->path);
}

enum sidestep_status client_upload_begin(struct object_client *base, const char *key,
                                         const char *maker, char upload_id[OBJECT_UPLOAD_ID_BYTES],
                                         struct sidestep_error *err)
{
    struct wanted wanted = {
        .root = "InitiateMultipartUploadResult",
        .path = "InitiateMultipartUploadResult/UploadId",
        .to = upload_id,
        .size = OBJECT_UPLOAD_ID_BYTES,
    };
    OWNED_REQUEST request = {
        .doing = "begin an upload to",
        .action = "s3:PutObject",
        .method = "POST",
        .key = key,
        .has_body = true,
        .is_write = true,
        .checksum = {"x-amz-checksum-algorithm", "CRC32C"},
        .answer = {.body = ANSWER_TEXT, .text_limit = ANSWER_MAX_ERROR_BYTES},
        .judge = judge,
        .context = &wanted,
    };

    TRY(client_check_key(request.doing, key, err));
    request_add_query(&request, "uploads", "");
    if (maker != NULL)
        request_add_header(&request, ANSWER_MAKER, maker);
    return request_run(client_of(base), &request, err);
}

/* Without its tag a part cannot be completed. */
static enum sidestep_status judge_part(struct request *request, struct sidestep_error *err)
{
    const char *crc = request->answer.crc32c;

    if (request->answer.tag[0] == '\0')
        return FAIL(err, SIDESTEP_ECORRUPT, "the answer has no ETag");
    if (crc[0] != '\0' && strcmp(crc, request->checksum.value) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "the store has another CRC-32C of it, %s", crc);
    return SIDESTEP_OK;
}

enum sidestep_status client_upload_part(struct object_client *base, const char *key,
                                        const char *upload_id, unsigned number, const void *bytes,
                                        size_t length, struct object_part *part,
                                        struct sidestep_error *err)
{
    char doing[48], number_text[16], crc[CLIENT_CRC32C_CHARACTERS];
    OWNED_REQUEST request = {
        .doing = doing,
        .action = "s3:PutObject",
        .method = "PUT",
        .key = key,
        .body = bytes,
        .body_length = length,
        .has_body = true,
        .is_write = true,
        .checksum = {"x-amz-checksum-crc32c", crc},
        .answer = {.body = ANSWER_NO_BODY},
        .judge = judge_part,
    };

    snprintf(doing, sizeof(doing), "upload part %u of", number);
    TRY(client_check_key(doing, key, err));
    if (number == 0 || number > OBJECT_MAX_PARTS)
        return FAIL(err, SIDESTEP_EINVAL, "%s '%.200s': parts are numbered from 1 to %u", doing,
                    key, OBJECT_MAX_PARTS);
    part->tag[0] = '\0';
    part->crc32c = client_crc32c(bytes, length);
    client_crc32c_text(part->crc32c, crc);
    snprintf(number_text, sizeof(number_text), "%u", number);
    request_add_query(&request, "partNumber", number_text);
    request_add_query(&request, "uploadId", upload_id);
    TRY(request_run(client_of(base), &request, err));
    memcpy(part->tag, request.answer.tag, sizeof(part->tag));
    part->is_checked = request.answer.crc32c[0] != '\0';
    return SIDESTEP_OK;
}

/* Stores that know nothing of checksums refuse elements that they do not know. */
static enum sidestep_status put_parts(const struct object_part *parts, unsigned count,
                                      struct buffer *body, struct sidestep_error *err)
{
    char crc[CLIENT_CRC32C_CHARACTERS];

    if (count == 0 || count > OBJECT_MAX_PARTS)
        return FAIL(err, SIDESTEP_EINVAL, "complete an upload: %u parts; it has 1 to %u", count,
                    OBJECT_MAX_PARTS);
    buffer_put_text(body, "<CompleteMultipartUpload "
                          "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (unsigned i = 0; i < count; i++) {
        if (parts[i].tag[0] == '\0')
            return FAIL(err, SIDESTEP_EINVAL, "complete an upload: part %u was not sent", i + 1);
        buffer_put_text(body, "<Part><ETag>");
        request_put_xml(body, parts[i].tag);
        buffer_printf(body, "</ETag><PartNumber>%u</PartNumber>", i + 1);
        client_crc32c_text(parts[i].crc32c, crc);
        if (parts[i].is_checked)
            buffer_printf(body, "<ChecksumCRC32C>%s</ChecksumCRC32C>", crc);
        buffer_put_text(body, "</Part>");
    }
    buffer_put_text(body, "</CompleteMultipartUpload>");
    return buffer_check(body, err);
}

/* What completes an upload, and what came of it. */
struct completion {
    const char *upload_id;
    const struct buffer *body;
    bool if_absent;
    bool is_unsure;
};

static enum sidestep_status complete(struct client *client, const char *key, const char *if_tag,
                                     void *context, struct sidestep_error *err)
{
    struct wanted wanted = {.root = "CompleteMultipartUploadResult"};
    struct completion *completion = context;
    OWNED_REQUEST request = {
        .doing = "complete the upload of",
        .action = "s3:PutObject",
        .method = "POST",
        .key = key,
        .body = completion->body->bytes,
        .body_length = completion->body->length,
        .has_body = true,
        .is_write = true,
        .answer = {.body = ANSWER_TEXT, .text_limit = ANSWER_MAX_ERROR_BYTES},
        .judge = judge,
        .context = &wanted,
    };

    request_add_query(&request, "uploadId", completion->upload_id);
    request_add_header(&request, "content-type", "application/xml");
    if (completion->if_absent)
        request_add_header(&request, "if-none-match", "*");
    if (if_tag != NULL)
        request_add_header(&request, "if-match", if_tag);
    enum sidestep_status status = request_run(client, &request, err);
    completion->is_unsure |= request.is_unsure || strcmp(request.report.code, "NoSuchUpload") == 0;
    return status;
}

static bool is_by(const struct object_info *info, const char *maker)
{
    return maker == NULL || strcmp(info->maker, maker) == 0;
}

static enum sidestep_status fail_other(struct client *client, const char *key, uint64_t length,
                                       bool is_ours, const struct object_info *info,
                                       struct sidestep_error *err)
{
    if (!is_ours)
        return FAIL(err, SIDESTEP_EEXISTS,
                    "complete the upload of s3://%s/%.200s: another process replaced it meanwhile",
                    client_endpoint(client).bucket, key);
    return FAIL(err, SIDESTEP_ECORRUPT,
                "complete the upload of s3://%s/%.200s: the object has %llu bytes instead of %llu",
                client_endpoint(client).bucket, key, (unsigned long long)info->bytes,
                (unsigned long long)length);
}

enum sidestep_status client_upload_complete(struct object_client *base, const char *key,
                                            const char *upload_id, const struct object_part *parts,
                                            unsigned count, uint64_t length,
                                            const struct object_condition *condition,
                                            struct object_info *info, struct sidestep_error *err)
{
    static const struct object_condition none = {0};
    const struct object_condition *c = condition != NULL ? condition : &none;
    struct sidestep_error why = {.rank = -1}, look = {.rank = -1};
    struct client *client = client_of(base);
    OWNED_BUFFER body = {0};

    TRY(client_check_key("complete the upload of", key, err));
    TRY(put_parts(parts, count, &body, err));
    struct completion completion = {upload_id, &body, c->if_absent, false};
    enum sidestep_status status =
        c->if_tag != NULL ? client_send_if(client, key, c->if_tag, complete, &completion, &why)
                          : complete(client, key, NULL, &completion, &why);
    if (status != SIDESTEP_OK && !completion.is_unsure)
        return error_copy(err, &why);
    /* What is there decides, whatever was said. */
    enum sidestep_status looked = client_head(base, key, info, &look);
    if (looked == SIDESTEP_OK && info->bytes == length && is_by(info, c->maker))
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    if (looked == SIDESTEP_OK)
        return fail_other(client, key, length, is_by(info, c->maker), info, err);
    /* It was completed, and not seen since: nobody may take it for refused. */
    return FAIL(err, SIDESTEP_EIO, "complete the upload of '%.200s': done, but: %.700s", key,
                look.message);
}

enum sidestep_status client_upload_abort(struct object_client *base, const char *key,
                                         const char *upload_id, struct sidestep_error *err)
{
    OWNED_REQUEST request = {
        .doing = "abort the upload of",
        .action = "s3:AbortMultipartUpload",
        .method = "DELETE",
        .key = key,
        .is_write = true,
        .answer = {.body = ANSWER_TEXT, .text_limit = ANSWER_MAX_ERROR_BYTES},
    };

    TRY(client_check_key(request.doing, key, err));
    request_add_query(&request, "uploadId", upload_id);
    return request_run_removal(client_of(base), &request, err);
}
