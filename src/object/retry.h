/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * retry.h -- decides what to do after an attempt: finish, repeat it, with or without a change, or
 * give up.  Pure.
 */
#ifndef OBJECT_RETRY_H
#define OBJECT_RETRY_H

#include "object/transport.h"

#define RETRY_BASE_MS 50u
#define RETRY_MAX_PAUSE_MS 20000u
#define RETRY_MAX_AFTER_MS 60000u           /* of Retry-After */
#define RETRY_MAX_CONTRADICTIONS 4u         /* answers that are not valid */
#define RETRY_FIRST_CONTACT_NS 20000000000u /* for a host that has never answered */
#define RETRY_SKEW_SECONDS 300 /* a difference of clocks that may be the cause of a 403 */

enum retry_action {
    RETRY_DONE,
    RETRY_GIVE_UP,
    RETRY_AGAIN,            /* after a pause */
    RETRY_WITH_CREDENTIALS, /* after new ones were fetched */
    RETRY_WITH_CLOCK,       /* with the store's time */
    RETRY_REDIRECTED,       /* after a redirect to another region or host */
    RETRY_WITHOUT_CHECKSUM, /* the store may not support the header */
    RETRY_AS_GET,           /* HEAD: its answer has no body, so get the error with a GET */
};

/* The body of a success: valid, an <Error>, or not valid. */
enum retry_verdict { RETRY_BODY_VALID, RETRY_BODY_ERROR, RETRY_BODY_INVALID };

/* What happened in one attempt, and what was changed after earlier ones. */
struct retry_facts {
    enum transport_outcome outcome;
    int status;
    enum retry_verdict verdict;
    const char *code;    /* of the error in the body; "" */
    const char *message; /* "" */
    bool was_sent;       /* at least a part of the request */
    bool was_resent;     /* ... and from its beginning once more, within the attempt */
    bool is_head;
    bool is_redirect;    /* the answer names another region or host */
    bool has_checksum;   /* a checksum was sent to a store that may not support it */
    bool can_renew;      /* new credentials can be fetched */
    int64_t skew;        /* the store's clock minus this host's, in seconds; 0: unknown */
    bool is_key_certain; /* a 404 of HEAD is for the key, as the bucket exists */
    bool has_contact;    /* the host has answered before */
    uint64_t elapsed_ns; /* since the first attempt began */
    bool was_renewed, was_clock_corrected, was_redirected, was_sent_as_get;
    bool is_too_long;        /* the object is, so repeating is useless */
    unsigned contradictions; /* before this one */
};

enum retry_action retry_decide(const struct retry_facts *facts);
/* Is the answer not valid? */
bool retry_is_contradiction(const struct retry_facts *facts);
/* May the store have carried the request out, or do so later? */
bool retry_is_unsure(const struct retry_facts *facts);
/* What a request reports whose last attempt had ${status}. If an earlier attempt of a write may
 * have been carried out, or may be later (${is_unsure}), then whatever the last one was told,
 * nobody knows what there is: EIO, so that the caller reads it back. Only what is to be removed,
 * and is not there, is gone. */
enum sidestep_status retry_status(enum sidestep_status status, bool is_unsure, bool removes);
/* How long to wait after attempt ${attempt} (from 1): full jitter from ${random}, but at least
 * Retry-After. */
uint64_t retry_pause_ms(unsigned attempt, uint64_t random, unsigned retry_after_seconds);

#endif
