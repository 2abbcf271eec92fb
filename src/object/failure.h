/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * failure.h -- reads the errors in a store's answers, and writes messages that say what to do.
 * Pure.
 */
#ifndef OBJECT_FAILURE_H
#define OBJECT_FAILURE_H

#include "object/answer.h"
#include "object/endpoint.h"

/* The fields of an <Error>.  Empty texts: not given. */
struct failure_report {
    bool is_error; /* the document is an <Error> */
    char code[64];
    char message[160];
    char request_id[80];
    char region[ENDPOINT_REGION_BYTES];
};

/* Read the body of an answer.  If it is not an <Error>, the report is empty. */
void failure_read(const void *bytes, size_t length, struct failure_report *report);

/* The circumstances of a request that failed. */
struct failure {
    const char *doing;  /* "write" */
    const char *action; /* what a policy has to allow, "s3:PutObject" */
    const char *key;    /* NULL: the bucket */
    const struct endpoint *endpoint;
    const char *origin; /* of the credentials */
    int64_t skew;       /* the store's clock minus this host's, in seconds */
    unsigned attempts;
    bool is_unsure; /* an attempt may have been carried out, or may be later */
};

/* Fail with the status and the message for an answer after which the request is not repeated. */
enum sidestep_status failure_of_answer(const struct failure *failure, const struct answer *answer,
                                       const struct failure_report *report,
                                       struct sidestep_error *err);
/* ${has_report}: the answer has an <Error>. */
enum sidestep_status failure_status(int status, const char *code, bool has_report);
/* Write "write s3://b/k" to ${text}; a long key is shortened in the middle. */
void failure_name(const struct failure *failure, char *text, size_t size);
/* Write "403 AccessDenied \"Access Denied\" (request 123)" to ${text}. */
void failure_quote(const struct answer *answer, const struct failure_report *report, char *text,
                   size_t size);

#endif
