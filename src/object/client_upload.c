/* SPDX-License-Identifier: BSD-3-Clause */
/* client_upload.c -- requests of multipart uploads. */
#include <stdio.h>

#include "object/client_internal.h"
#include "object/xml.h"

/* Checks the root of an answer, and takes the text of one element. */
struct element_text {
    struct xml_reader reader;
    const char *root; /* required root element */
    const char *path; /* of the element; NULL: none is needed */
    char *to;
    size_t size;
    bool is_found;
};

static bool take_element(struct xml_reader *reader, const char *path, char *text)
{
    struct element_text *element = (struct element_text *)reader;
    bool is_root = strchr(path, '/') == NULL;

    reader->problem = "it is not the answer to this request, or a text in it is too long";
    if (is_root)
        return strcmp(path, element->root) == 0;
    if (element->path == NULL || strcmp(path, element->path) != 0)
        return true;
    if (text[0] == '\0' || strlen(text) >= element->size)
        return false;
    snprintf(element->to, element->size, "%s", text);
    element->is_found = true;
    return true;
}

static enum sidestep_status check_answer(struct request *request, struct sidestep_error *err)
{
    struct element_text *element = request->context;

    element->reader.element = take_element;
    element->is_found = element->path == NULL;
    TRY(xml_read(request->answer.text.bytes, request->answer.text.length, &element->reader, err));
    return element->is_found ? SIDESTEP_OK
                             : FAIL(err, SIDESTEP_ECORRUPT, "the answer has no %s", element->path);
}

enum sidestep_status client_upload_begin(struct object_client *base, const char *key,
                                         const char *maker, char upload_id[OBJECT_UPLOAD_ID_BYTES],
                                         struct sidestep_error *err)
{
    struct element_text element = {
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
        .check = check_answer,
        .context = &element,
    };

    TRY(client_check_key(request.doing, key, err));
    request_add_query(&request, "uploads", "");
    if (maker != NULL)
        request_add_header(&request, ANSWER_MAKER, maker);
    return request_run(client_of(base), &request, err);
}

/* The tag is needed to complete the upload. */
static enum sidestep_status check_part(struct request *request, struct sidestep_error *err)
{
    const char *crc = request->answer.crc32c;

    if (request->answer.tag[0] == '\0')
        return FAIL(err, SIDESTEP_ECORRUPT, "the answer has no ETag");
    if (crc[0] != '\0' && strcmp(crc, request->checksum.value) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "the store computed a different CRC-32C, %s", crc);
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
        .check = check_part,
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

/* Stores without checksums refuse the element ChecksumCRC32C, so it is only sent to others. */
static enum sidestep_status put_parts(const struct object_part *parts, unsigned count,
                                      struct buffer *body, struct sidestep_error *err)
{
    char crc[CLIENT_CRC32C_CHARACTERS];

    if (count == 0 || count > OBJECT_MAX_PARTS)
        return FAIL(err, SIDESTEP_EINVAL,
                    "complete an upload: it has %u parts, but 1 to %u are allowed", count,
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

/* The arguments of a completion, and whether its outcome is unknown. */
struct completion {
    const char *upload_id;
    const struct buffer *body;
    bool if_absent;
    bool is_unsure;
};

static enum sidestep_status complete(struct client *client, const char *key, const char *if_tag,
                                     void *context, struct sidestep_error *err)
{
    struct element_text element = {.root = "CompleteMultipartUploadResult"};
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
        .check = check_answer,
        .context = &element,
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
                                       bool is_own, const struct object_info *info,
                                       struct sidestep_error *err)
{
    if (!is_own)
        return FAIL(err, SIDESTEP_EEXISTS,
                    "complete the upload of s3://%s/%.200s: another process replaced the object",
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
    struct sidestep_error why = {.rank = -1}, head_error = {.rank = -1};
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
    /* The object itself decides, whatever the answers were. */
    enum sidestep_status head_status = client_head(base, key, info, &head_error);
    if (head_status == SIDESTEP_OK && info->bytes == length && is_by(info, c->maker))
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    if (head_status == SIDESTEP_OK)
        return fail_other(client, key, length, is_by(info, c->maker), info, err);
    /* The upload was completed but could not be checked. EEXISTS would mean that it was refused. */
    return FAIL(err, SIDESTEP_EIO,
                "complete the upload of '%.200s': completed, but the check failed: %.700s", key,
                head_error.message);
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
