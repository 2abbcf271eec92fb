/* SPDX-License-Identifier: BSD-3-Clause */
/* failure.c -- turns error answers of a store into statuses and messages. */
#include "object/failure.h"

#include <stdio.h>

#include "object/xml.h"

struct error_reader {
    struct xml_reader reader;
    struct failure_report *report;
};

static bool take_element(struct xml_reader *reader, const char *path, char *text)
{
    struct failure_report *report = ((struct error_reader *)reader)->report;

    if (strcmp(path, "Error") == 0)
        report->is_error = true;
    else if (strcmp(path, "Error/Code") == 0)
        answer_copy_printable(report->code, sizeof(report->code), text);
    else if (strcmp(path, "Error/Message") == 0)
        answer_copy_printable(report->message, sizeof(report->message), text);
    else if (strcmp(path, "Error/RequestId") == 0)
        answer_copy_printable(report->request_id, sizeof(report->request_id), text);
    else if (strcmp(path, "Error/Region") == 0)
        answer_copy_printable(report->region, sizeof(report->region), text);
    return true;
}

void failure_read(const void *bytes, size_t length, struct failure_report *report)
{
    struct error_reader reader = {.reader = {.element = take_element}, .report = report};

    *report = (struct failure_report){.is_error = false};
    if (length != 0 && xml_read(bytes, length, &reader.reader, NULL) == SIDESTEP_OK &&
        report->is_error)
        return;
    *report = (struct failure_report){.is_error = false};
}

static const struct {
    const char *code;
    enum sidestep_status status;
} statuses[] = {
    {"NoSuchKey", SIDESTEP_ENOTFOUND},
    {"NoSuchUpload", SIDESTEP_ENOTFOUND},
    {"NoSuchBucket", SIDESTEP_EINVAL},
    {"InvalidBucketName", SIDESTEP_EINVAL},
    {"PermanentRedirect", SIDESTEP_EINVAL},
    {"TemporaryRedirect", SIDESTEP_EINVAL},
    {"AuthorizationHeaderMalformed", SIDESTEP_EINVAL},
    {"IllegalLocationConstraintException", SIDESTEP_EINVAL},
    {"AccessDenied", SIDESTEP_EPERM},
    {"InvalidAccessKeyId", SIDESTEP_EPERM},
    {"SignatureDoesNotMatch", SIDESTEP_EPERM},
    {"ExpiredToken", SIDESTEP_EPERM},
    {"ExpiredTokenException", SIDESTEP_EPERM},
    {"TokenRefreshRequired", SIDESTEP_EPERM},
    {"InvalidToken", SIDESTEP_EPERM},
    {"RequestTimeTooSkewed", SIDESTEP_EPERM},
    {"PreconditionFailed", SIDESTEP_EEXISTS},
    {"NotImplemented", SIDESTEP_EUNSUPPORTED},
    {"InvalidRange", SIDESTEP_ECORRUPT},
    {"BadDigest", SIDESTEP_ECORRUPT},
    {"XAmzContentSHA256Mismatch", SIDESTEP_ECORRUPT},
    {"XAmzContentChecksumMismatch", SIDESTEP_ECORRUPT},
    {"IncompleteBody", SIDESTEP_ECORRUPT},
    {"XMinioStorageFull", SIDESTEP_ENOSPC},
    {"QuotaExceeded", SIDESTEP_ENOSPC},
};

enum sidestep_status failure_status(int status, const char *code, bool has_report)
{
    for (size_t i = 0; i < ARRAY_LENGTH(statuses); i++)
        if (strcmp(statuses[i].code, code) == 0)
            return statuses[i].status;
    switch (status) {
    case 301:
    case 302:
    case 307:
    case 308:
        return SIDESTEP_EINVAL;
    case 401:
    case 403:
        return SIDESTEP_EPERM;
    case 404: /* without an S3 error it tells nothing about the key */
        return has_report ? SIDESTEP_ENOTFOUND : SIDESTEP_EINVAL;
    case 412:
        return SIDESTEP_EEXISTS;
    case 416:
        return SIDESTEP_ECORRUPT;
    case 501:
        return SIDESTEP_EUNSUPPORTED;
    case 507:
        return SIDESTEP_ENOSPC;
    default:
        return SIDESTEP_EIO;
    }
}

void failure_name(const struct failure *failure, char *text, size_t size)
{
    size_t length = failure->key != NULL ? strlen(failure->key) : 0;

    if (length <= 160)
        snprintf(text, size, "%s s3://%.63s%s%s", failure->doing, failure->endpoint->bucket,
                 failure->key != NULL ? "/" : "", failure->key != NULL ? failure->key : "");
    else
        snprintf(text, size, "%s s3://%.63s/%.60s...%s", failure->doing, failure->endpoint->bucket,
                 failure->key, failure->key + length - 97);
}

void failure_quote(const struct answer *answer, const struct failure_report *report, char *text,
                   size_t size)
{
    const char *id = answer->request_id[0] != '\0' ? answer->request_id : report->request_id;

    snprintf(text, size, "%d%s%s%s%s%s%s%s%s", answer->status, report->code[0] != '\0' ? " " : "",
             report->code, report->message[0] != '\0' ? " \"" : "", report->message,
             report->message[0] != '\0' ? "\"" : "", id[0] != '\0' ? " (request " : "", id,
             id[0] != '\0' ? ")" : "");
}

/* ---- advice: the last clause of a message ---- */

struct advice {
    char text[400];
};

static bool has_code(const struct failure_report *report, const char *code)
{
    return strcmp(report->code, code) == 0;
}

static void advise_denied(const struct failure *f, const struct failure_report *report,
                          struct advice *a)
{
    if (has_code(report, "SignatureDoesNotMatch"))
        snprintf(a->text, sizeof(a->text),
                 "the secret key does not belong to the access key (from %.160s): check "
                 "AWS_SECRET_ACCESS_KEY, or the profile",
                 f->origin);
    else if (has_code(report, "InvalidAccessKeyId"))
        snprintf(a->text, sizeof(a->text),
                 "this store does not know the access key (from %.160s): check AWS_ACCESS_KEY_ID, "
                 "AWS_PROFILE and the endpoint",
                 f->origin);
    else if (has_code(report, "RequestTimeTooSkewed"))
        snprintf(a->text, sizeof(a->text),
                 "this machine's clock is %lld s %s the store's: set it, with NTP for example",
                 (long long)(f->skew < 0 ? -f->skew : f->skew),
                 f->skew < 0 ? "ahead of" : "behind");
    else
        snprintf(a->text, sizeof(a->text),
                 "the credentials (from %.160s) do not permit this: allow %s%s", f->origin,
                 f->action,
                 f->key != NULL && strcmp(f->action, "s3:GetObject") == 0
                     ? " and s3:ListBucket (without it a missing key also looks like this)"
                     : "");
}

static void advise_redirect(const struct failure *f, const struct answer *answer,
                            const struct failure_report *report, struct advice *a)
{
    const char *region = answer->region[0] != '\0' ? answer->region : report->region;
    const char *place =
        answer->location[0] != '\0' ? answer->location : "the store does not say which";

    if (region[0] != '\0' && strcmp(region, f->endpoint->region) != 0)
        snprintf(a->text, sizeof(a->text),
                 "the bucket is in region %.63s, not in %s: set AWS_REGION=%.63s", region,
                 f->endpoint->region, region);
    else
        snprintf(a->text, sizeof(a->text),
                 "the bucket is at another endpoint (%.*s): correct AWS_ENDPOINT_URL_S3, or "
                 "AWS_REGION",
                 (int)min_u64(strcspn(place, "?"), 100), place); /* no signature in its query */
}

static void advise(const struct failure *f, const struct answer *answer,
                   const struct failure_report *report, enum sidestep_status status,
                   struct advice *a)
{
    bool has_expired = strncmp(report->code, "ExpiredToken", 12) == 0 ||
                       has_code(report, "TokenRefreshRequired") || has_code(report, "InvalidToken");

    a->text[0] = '\0';
    if (has_expired)
        snprintf(a->text, sizeof(a->text),
                 "the session token (from %.160s) is no longer valid: renew it, or use a source "
                 "that sidestep can renew by itself (a profile, a role)",
                 f->origin);
    else if (has_code(report, "NoSuchBucket"))
        snprintf(a->text, sizeof(a->text),
                 "there is no such bucket at %.100s: check the name, AWS_ENDPOINT_URL_S3 and "
                 "AWS_REGION; sidestep does not create buckets",
                 f->endpoint->host);
    else if (has_code(report, "NoSuchUpload"))
        snprintf(a->text, sizeof(a->text), "the upload was completed, aborted or swept");
    else if (status == SIDESTEP_EPERM)
        advise_denied(f, report, a);
    else if (answer->status / 100 == 3 || has_code(report, "AuthorizationHeaderMalformed"))
        advise_redirect(f, answer, report, a);
    else if (answer->status == 404 && !report->is_error)
        snprintf(a->text, sizeof(a->text),
                 "%.100s does not answer like an S3 store: check AWS_ENDPOINT_URL_S3",
                 f->endpoint->host);
    else if (status == SIDESTEP_EEXISTS)
        snprintf(a->text, sizeof(a->text),
                 "the condition of the request does not hold: the object exists, or was changed");
    else if (answer->status == 416)
        snprintf(a->text, sizeof(a->text), "the object is shorter than the requested range");
    else if (status == SIDESTEP_EUNSUPPORTED)
        snprintf(a->text, sizeof(a->text), "this store does not support that");
    else if (status == SIDESTEP_ENOSPC)
        snprintf(a->text, sizeof(a->text), "the store is full, or a quota is used up");
}

enum sidestep_status failure_of_answer(const struct failure *failure, const struct answer *answer,
                                       const struct failure_report *report,
                                       struct sidestep_error *err)
{
    enum sidestep_status status = failure_status(answer->status, report->code, report->is_error);
    char name[360], quote[400];
    struct advice advice;

    failure_name(failure, name, sizeof(name));
    failure_quote(answer, report, quote, sizeof(quote));
    advise(failure, answer, report, status, &advice);
    return FAIL(err, status, "%s: %s%s%s%s", name, quote, advice.text[0] != '\0' ? ": " : "",
                advice.text,
                failure->is_unsure ? "; an earlier attempt may have been carried out" : "");
}
