/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * retry.h -- what to do after an attempt: be content, try again, change something first, or give
 * up.  Pure: facts in, a decision out.
 */
#ifndef OBJECT_RETRY_H
#define OBJECT_RETRY_H

#include "object/transport.h"

#define RETRY_BASE_MS 50u
#define RETRY_MOST_MS 20000u
#define RETRY_MOST_AFTER_MS 60000u          /* of what the store asks for (Retry-After) */
#define RETRY_MOST_CONTRADICTIONS 4u        /* answers that make no sense */
#define RETRY_FIRST_CONTACT_NS 20000000000u /* before a host that never answered is given up */
#define RETRY_SKEW_SECONDS 300              /* between clocks: from here on a 403 may mean that */

enum retry_action {
    RETRY_DONE,
    RETRY_GIVE_UP,
    RETRY_AGAIN,            /* after a pause */
    RETRY_WITH_CREDENTIALS, /* after new ones were fetched */
    RETRY_WITH_CLOCK,       /* with the store's time */
    RETRY_ELSEWHERE,        /* after a redirect to another region or host */
    RETRY_WITHOUT_CHECKSUM, /* this store does not know the headers */
    RETRY_AS_GET,           /* HEAD: its answer has no body, so ask for the reason by GET */
};

/* What a success with an error inside, or a body that makes no sense, is turned into. */
enum retry_verdict { RETRY_BODY_FINE, RETRY_BODY_ERROR, RETRY_BODY_NONSENSE };

/* What happened in one attempt, and what was done about earlier ones. */
struct retry_facts {
    enum transport_outcome outcome;
    int status;
    enum retry_verdict verdict;
    const char *code;    /* of the error in the body; "" */
    const char *message; /* "" */
    bool was_sent;       /* some of the request, at least */
    bool is_head;
    bool is_elsewhere;   /* the answer names another region or host */
    bool has_checksum;   /* headers with a checksum were sent, to a store that may not know them */
    bool can_renew;      /* credentials */
    int64_t skew;        /* the store's clock minus ours, in seconds; 0: it did not say */
    bool is_key_certain; /* a 404 of HEAD means the key, as the bucket was seen */
    bool has_contact;    /* this client had an answer before */
    uint64_t elapsed_ns; /* since the first attempt began */
    bool was_renewed, was_clocked, was_moved, was_explained;
    bool is_too_long;        /* the answer: it will be so again */
    unsigned contradictions; /* before this one */
};

enum retry_action retry_decide(const struct retry_facts *facts);
/* Does this attempt count as a contradiction? */
bool retry_is_contradiction(const struct retry_facts *facts);
/* May the store have carried the request out, or do so later? */
bool retry_is_unsure(const struct retry_facts *facts);
/* How long to wait after attempt ${attempt} (from 1): full jitter from ${random}, and at least what
 * the store asks for. */
uint64_t retry_pause_ms(unsigned attempt, uint64_t random, unsigned retry_after_seconds);

#endif
