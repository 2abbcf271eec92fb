/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * failure.h -- errors of a store: read from its answers, and told to the person who has to act.
 * Pure.
 */
#ifndef OBJECT_FAILURE_H
#define OBJECT_FAILURE_H

#include "object/answer.h"
#include "object/endpoint.h"

/* What an <Error> says.  Empty texts: it did not say, or there was none. */
struct failure_report {
    bool is_error; /* the document is an <Error> */
    char code[64];
    char message[160];
    char request_id[80];
    char region[ENDPOINT_REGION_BYTES];
};

/* Read the body of an answer.  Anything else than an <Error> gives an empty report. */
void failure_read(const void *bytes, size_t length, struct failure_report *report);

/* The circumstances of a request that failed. */
struct failure {
    const char *doing;  /* "put" */
    const char *action; /* what a policy has to allow, "s3:PutObject" */
    const char *key;    /* NULL: the bucket */
    const struct endpoint *endpoint;
    const char *origin; /* of the credentials */
    int64_t skew;       /* the store's clock minus ours, in seconds */
    unsigned attempts;
    bool is_unsure; /* it may have been carried out, or may be later */
};

/* An answer that was final: the status by its code and HTTP status, and a sentence. */
enum sidestep_status failure_of_answer(const struct failure *failure, const struct answer *answer,
                                       const struct failure_report *report,
                                       struct sidestep_error *err);
/* The status alone. */
enum sidestep_status failure_status(int status, const char *code, bool has_report);
/* "put s3://b/k", in ${text}; a long key is cut in the middle. */
void failure_name(const struct failure *failure, char *text, size_t size);
/* "403 AccessDenied \"Access Denied\" (request 123)", in ${text}. */
void failure_quote(const struct answer *answer, const struct failure_report *report, char *text,
                   size_t size);

#endif
