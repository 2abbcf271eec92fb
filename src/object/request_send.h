/* SPDX-License-Identifier: BSD-3-Clause */
/* request_send.h -- one attempt of a request: sign, send, read the answer; for request.c only. */
#ifndef OBJECT_REQUEST_SEND_H
#define OBJECT_REQUEST_SEND_H

#include "object/client_internal.h"

/* A request in progress. */
struct request_state {
    struct client *client;
    struct request *request;
    struct endpoint endpoint; /* where the next attempt goes */
    struct endpoint redirect; /* where the answer redirects it */
    bool as_get;              /* a HEAD that is sent as GET of one byte */
    uint64_t started_ns, deadline_ns;
    bool without_checksum; /* the store may not support it */
    unsigned contradictions;
    struct retry_facts facts;      /* of the last attempt */
    struct sidestep_error invalid; /* what ${check} found in it */
    bool is_unknown_host; /* the host was not found in the last attempt before the deadline */
    char call_reason[160];
    char reason[400]; /* of the last failure, for messages */

    /* Of the last attempt. */
    struct credentials_identity identity;
    int64_t clock_offset; /* used to sign it */
    char time[SIGN_TIME_BYTES];
    char payload[SIGN_HEX_BYTES]; /* of the body, computed once; "": not yet */
    struct buffer path, query, url, authorization;
};

/* Sets ${facts}.  An error is final: the request cannot be signed, or ${check} failed. */
enum sidestep_status request_attempt(struct request_state *s, struct sidestep_error *err);
/* Wipes secrets. */
void request_state_release(struct request_state *s);

#endif
