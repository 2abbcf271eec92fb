/* SPDX-License-Identifier: BSD-3-Clause */
/* retry.c -- decides whether and how a request is repeated. */
#include "object/retry.h"

static bool is_one_of(const char *code, const char *const *codes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(code, codes[i]) == 0)
            return true;
    return false;
}

/* A temporary failure of the store, by its status or its code. */
static bool is_transient(const struct retry_facts *facts)
{
    static const char *const codes[] = {
        "InternalError",          "SlowDown",         "ServiceUnavailable",
        "RequestTimeout",         "Throttling",       "RequestLimitExceeded",
        "BandwidthLimitExceeded", "OperationAborted", "ConditionalRequestConflict",
        "SlowDownRead",           "SlowDownWrite",    "ServerBusy",
    };

    switch (facts->status) {
    case 408:
    case 425:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
        return true;
    default:
        return is_one_of(facts->code, codes, ARRAY_LENGTH(codes));
    }
}

/* The store received different bytes than were sent. */
static bool is_damaged_in_transit(const char *code)
{
    static const char *const codes[] = {"BadDigest", "XAmzContentSHA256Mismatch",
                                        "XAmzContentChecksumMismatch", "InvalidDigest",
                                        "IncompleteBody"};

    return is_one_of(code, codes, ARRAY_LENGTH(codes));
}

static bool is_about_credentials(const struct retry_facts *facts)
{
    static const char *const codes[] = {"ExpiredToken", "TokenRefreshRequired", "InvalidToken",
                                        "InvalidAccessKeyId", "ExpiredTokenException"};

    return facts->status == 401 || is_one_of(facts->code, codes, ARRAY_LENGTH(codes));
}

static bool is_about_clock(const struct retry_facts *facts)
{
    bool is_skewed = facts->skew > RETRY_SKEW_SECONDS || facts->skew < -RETRY_SKEW_SECONDS;

    return strcmp(facts->code, "RequestTimeTooSkewed") == 0 || (facts->status == 403 && is_skewed);
}

/* Stores that do not support the headers report this in many ways. */
static bool is_about_checksum(const struct retry_facts *facts)
{
    static const char *const codes[] = {"NotImplemented",      "InvalidArgument", "InvalidRequest",
                                        "UnsupportedArgument", "MalformedXML",    ""};

    if (!facts->has_checksum || (facts->status != 400 && facts->status != 501))
        return false;
    return is_one_of(facts->code, codes, ARRAY_LENGTH(codes)) ||
           strcasestr(facts->message, "checksum") != NULL;
}

bool retry_is_contradiction(const struct retry_facts *facts)
{
    if (facts->outcome == TRANSPORT_REFUSED)
        return true;
    return facts->outcome == TRANSPORT_ANSWERED &&
           (facts->verdict == RETRY_BODY_INVALID || is_damaged_in_transit(facts->code));
}

bool retry_is_unsure(const struct retry_facts *facts)
{
    if (facts->was_resent)
        return true;
    if (facts->outcome == TRANSPORT_ANSWERED)
        return facts->status == 500 || (facts->status >= 502 && facts->status <= 504) ||
               facts->verdict != RETRY_BODY_VALID;
    return facts->was_sent;
}

static enum retry_action decide_unanswered(const struct retry_facts *facts)
{
    switch (facts->outcome) {
    case TRANSPORT_UNKNOWN_HOST:
    case TRANSPORT_NOT_CONNECTED:
        return facts->has_contact || facts->elapsed_ns < RETRY_FIRST_CONTACT_NS ? RETRY_AGAIN
                                                                                : RETRY_GIVE_UP;
    case TRANSPORT_BROKEN:
    case TRANSPORT_STALLED:
        return RETRY_AGAIN;
    default:
        return RETRY_GIVE_UP;
    }
}

static enum retry_action decide_error(const struct retry_facts *facts)
{
    if (facts->is_redirect)
        return facts->was_redirected ? RETRY_GIVE_UP : RETRY_REDIRECTED;
    if (is_transient(facts))
        return RETRY_AGAIN;
    if (facts->is_head && !facts->was_sent_as_get && facts->status != 412 &&
        !(facts->status == 404 && facts->is_key_certain))
        return RETRY_AS_GET;
    if (is_about_clock(facts) && !facts->was_clock_corrected)
        return RETRY_WITH_CLOCK;
    if (is_about_credentials(facts) && facts->can_renew && !facts->was_renewed)
        return RETRY_WITH_CREDENTIALS;
    return is_about_checksum(facts) ? RETRY_WITHOUT_CHECKSUM : RETRY_GIVE_UP;
}

enum retry_action retry_decide(const struct retry_facts *facts)
{
    bool is_success = facts->status >= 200 && facts->status < 300;

    if (retry_is_contradiction(facts))
        return !facts->is_too_long && facts->contradictions + 1 < RETRY_MAX_CONTRADICTIONS
                   ? RETRY_AGAIN
                   : RETRY_GIVE_UP;
    if (facts->outcome != TRANSPORT_ANSWERED)
        return decide_unanswered(facts);
    if (is_success && facts->verdict == RETRY_BODY_VALID)
        return RETRY_DONE;
    return decide_error(facts);
}

static bool is_unanswered(enum sidestep_status status)
{
    return status == SIDESTEP_EIO || status == SIDESTEP_ETIMEDOUT || status == SIDESTEP_EABORTED ||
           status == SIDESTEP_ECORRUPT;
}

enum sidestep_status retry_status(enum sidestep_status status, bool is_unsure, bool removes)
{
    if (status == SIDESTEP_OK || !is_unsure || is_unanswered(status) ||
        (removes && status == SIDESTEP_ENOTFOUND) ||
        fault_hit("object.certain")) /* a negative control: tests must notice it */
        return status;
    return SIDESTEP_EIO;
}

uint64_t retry_pause_ms(unsigned attempt, uint64_t random, unsigned retry_after_seconds)
{
    uint64_t most = RETRY_MAX_PAUSE_MS;
    uint64_t asked = min_u64((uint64_t)retry_after_seconds * 1000, RETRY_MAX_AFTER_MS);

    if (attempt >= 1 && attempt <= 16)
        most = min_u64((uint64_t)RETRY_BASE_MS << (attempt - 1), RETRY_MAX_PAUSE_MS);
    return max_u64(random % (most + 1), asked);
}
