/* SPDX-License-Identifier: BSD-3-Clause */
/* request_send.h -- one attempt of a request: signed, sent, and its answer read; for request.c. */
#ifndef OBJECT_REQUEST_SEND_H
#define OBJECT_REQUEST_SEND_H

#include "object/client_internal.h"

/* A request under way. */
struct sending {
    struct client *client;
    struct request *request;
    struct endpoint endpoint;  /* where the next attempt goes */
    struct endpoint elsewhere; /* where the answer says that it should go */
    bool as_get;               /* HEAD, asked as GET of one byte */
    uint64_t started_ns, deadline_ns;
    bool without_checksum; /* the store may not know it */
    unsigned contradictions;
    struct retry_facts facts;       /* of the last attempt */
    struct sidestep_error nonsense; /* what the judge said of it */
    bool is_unknown_host;           /* before the deadline, there was no such host */
    char call_reason[160];
    char reason[400]; /* of the last failure, for people */

    /* Of the attempt. */
    struct credentials_identity identity;
    int64_t clock_offset; /* that it was signed with */
    char time[SIGN_TIME_BYTES];
    char payload[SIGN_HEX_BYTES]; /* of the body, once it is known */
    struct buffer path, query, url, authorization;
};

/* Fills ${facts}.  An error is final: the request cannot be made, or the judge said so. */
enum sidestep_status sending_attempt(struct sending *s, struct sidestep_error *err);
/* Wipes what is secret. */
void sending_release(struct sending *s);

#endif
