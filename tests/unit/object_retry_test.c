/* SPDX-License-Identifier: BSD-3-Clause */
/* object_retry_test.c -- what is done after an attempt, for every kind of answer. */
#include "object/failure.h"
#include "object/retry.h"
#include "support/unit.h"

static struct retry_facts answered(int status, const char *code)
{
    return (struct retry_facts){
        .outcome = TRANSPORT_ANSWERED, .status = status, .code = code, .message = ""};
}

static struct retry_facts unanswered(enum transport_outcome outcome)
{
    return (struct retry_facts){.outcome = outcome, .code = "", .message = ""};
}

/* Answers to a GET, of a client that can do nothing about itself. */
static const struct {
    int status;
    const char *code;
    enum retry_action action;
} answers[] = {
    {200, "", RETRY_DONE},
    {204, "", RETRY_DONE},
    {206, "", RETRY_DONE},
    {500, "InternalError", RETRY_AGAIN},
    {500, "", RETRY_AGAIN},
    {502, "", RETRY_AGAIN},
    {503, "SlowDown", RETRY_AGAIN},
    {504, "", RETRY_AGAIN},
    {429, "TooManyRequests", RETRY_AGAIN},
    {408, "", RETRY_AGAIN},
    {400, "RequestTimeout", RETRY_AGAIN},
    {409, "ConditionalRequestConflict", RETRY_AGAIN},
    {409, "OperationAborted", RETRY_AGAIN},
    {400, "BadDigest", RETRY_AGAIN},
    {400, "IncompleteBody", RETRY_AGAIN},
    {400, "XAmzContentSHA256Mismatch", RETRY_AGAIN},
    {400, "InvalidRequest", RETRY_GIVE_UP},
    {400, "ExpiredToken", RETRY_GIVE_UP},
    {401, "", RETRY_GIVE_UP},
    {403, "AccessDenied", RETRY_GIVE_UP},
    {403, "RequestTimeTooSkewed", RETRY_WITH_CLOCK},
    {404, "NoSuchKey", RETRY_GIVE_UP},
    {409, "BucketAlreadyExists", RETRY_GIVE_UP},
    {412, "PreconditionFailed", RETRY_GIVE_UP},
    {416, "InvalidRange", RETRY_GIVE_UP},
    {501, "NotImplemented", RETRY_GIVE_UP},
    {505, "", RETRY_GIVE_UP},
    {301, "PermanentRedirect", RETRY_GIVE_UP},
};

TEST(every_answer)
{
    for (size_t i = 0; i < ARRAY_LENGTH(answers); i++) {
        struct retry_facts facts = answered(answers[i].status, answers[i].code);
        if (retry_decide(&facts) != answers[i].action)
            fail_msg("%d %s: action %d", answers[i].status, answers[i].code, retry_decide(&facts));
    }
}

TEST(errors_inside_a_success)
{
    struct retry_facts facts = answered(200, "InternalError");

    facts.verdict = RETRY_BODY_ERROR;
    assert_int_equal(retry_decide(&facts), RETRY_AGAIN);
    facts.code = "AccessDenied";
    assert_int_equal(retry_decide(&facts), RETRY_GIVE_UP);
    facts.verdict = RETRY_BODY_INVALID;
    assert_int_equal(retry_decide(&facts), RETRY_AGAIN);
}

TEST(nothing_for_ever)
{
    struct retry_facts facts = unanswered(TRANSPORT_REFUSED);

    for (unsigned before = 0; before < RETRY_MAX_CONTRADICTIONS - 1; before++) {
        facts.contradictions = before;
        assert_int_equal(retry_decide(&facts), RETRY_AGAIN);
    }
    facts.contradictions = RETRY_MAX_CONTRADICTIONS - 1;
    assert_int_equal(retry_decide(&facts), RETRY_GIVE_UP);
    facts.contradictions = 0;
    facts.is_too_long = true;
    assert_int_equal(retry_decide(&facts), RETRY_GIVE_UP);
}

TEST(no_answer)
{
    static const enum transport_outcome again[] = {TRANSPORT_BROKEN, TRANSPORT_STALLED,
                                                   TRANSPORT_UNKNOWN_HOST, TRANSPORT_NOT_CONNECTED};
    static const enum transport_outcome over[] = {TRANSPORT_NOT_TRUSTED, TRANSPORT_DEADLINE,
                                                  TRANSPORT_CANCELLED, TRANSPORT_NO_MEMORY,
                                                  TRANSPORT_IMPOSSIBLE};

    for (size_t i = 0; i < ARRAY_LENGTH(again); i++) {
        struct retry_facts facts = unanswered(again[i]);
        assert_int_equal(retry_decide(&facts), RETRY_AGAIN);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(over); i++) {
        struct retry_facts facts = unanswered(over[i]);
        assert_int_equal(retry_decide(&facts), RETRY_GIVE_UP);
    }
    struct retry_facts facts = unanswered(TRANSPORT_NOT_CONNECTED);
    facts.elapsed_ns = RETRY_FIRST_CONTACT_NS;
    assert_int_equal(retry_decide(&facts), RETRY_GIVE_UP);
    facts.has_contact = true;
    assert_int_equal(retry_decide(&facts), RETRY_AGAIN);
}

/* What can be changed is changed once. */
TEST(once_only)
{
    struct retry_facts facts = answered(400, "ExpiredToken");

    facts.can_renew = true;
    assert_int_equal(retry_decide(&facts), RETRY_WITH_CREDENTIALS);
    facts.was_renewed = true;
    assert_int_equal(retry_decide(&facts), RETRY_GIVE_UP);
    facts = answered(403, "RequestTimeTooSkewed");
    facts.was_clock_corrected = true;
    assert_int_equal(retry_decide(&facts), RETRY_GIVE_UP);
    facts = answered(301, "PermanentRedirect");
    facts.is_redirect = true;
    assert_int_equal(retry_decide(&facts), RETRY_REDIRECTED);
    facts.was_redirected = true;
    assert_int_equal(retry_decide(&facts), RETRY_GIVE_UP);
}

/* Whatever the last attempt was told, an earlier one may have been carried out. */
TEST(refused_after_an_attempt_without_an_answer)
{
    static const enum sidestep_status refusals[] = {
        SIDESTEP_ENOTFOUND,    SIDESTEP_EINVAL, SIDESTEP_EPERM,  SIDESTEP_EEXISTS,
        SIDESTEP_EUNSUPPORTED, SIDESTEP_ENOSPC, SIDESTEP_ENOMEM,
    };
    static const enum sidestep_status open[] = {
        SIDESTEP_OK, SIDESTEP_EIO, SIDESTEP_ETIMEDOUT, SIDESTEP_EABORTED, SIDESTEP_ECORRUPT,
    };

    for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
        assert_int_equal(retry_status(refusals[i], true, false), SIDESTEP_EIO);
        assert_int_equal(retry_status(refusals[i], false, false), refusals[i]);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(open); i++)
        assert_int_equal(retry_status(open[i], true, false), open[i]);
    /* What is to be removed, and is not there, is gone. */
    assert_int_equal(retry_status(SIDESTEP_ENOTFOUND, true, true), SIDESTEP_ENOTFOUND);
    assert_int_equal(retry_status(SIDESTEP_EPERM, true, true), SIDESTEP_EIO);
}

/* A 403 says nothing of clocks, but its date does. */
TEST(clocks)
{
    struct retry_facts facts = answered(403, "AccessDenied");

    facts.skew = RETRY_SKEW_SECONDS;
    assert_int_equal(retry_decide(&facts), RETRY_GIVE_UP);
    facts.skew = RETRY_SKEW_SECONDS + 1;
    assert_int_equal(retry_decide(&facts), RETRY_WITH_CLOCK);
    facts.skew = -facts.skew;
    assert_int_equal(retry_decide(&facts), RETRY_WITH_CLOCK);
}

TEST(head_has_no_body)
{
    static const int statuses[] = {400, 401, 403, 404, 405, 416};

    for (size_t i = 0; i < ARRAY_LENGTH(statuses); i++) {
        struct retry_facts facts = answered(statuses[i], "");
        facts.is_head = true;
        assert_int_equal(retry_decide(&facts), RETRY_AS_GET);
        facts.was_sent_as_get = true;
        assert_int_equal(retry_decide(&facts), RETRY_GIVE_UP);
    }
    struct retry_facts facts = answered(404, "");
    facts.is_head = facts.is_key_certain = true;
    assert_int_equal(retry_decide(&facts), RETRY_GIVE_UP);
    facts = answered(503, "");
    facts.is_head = true;
    assert_int_equal(retry_decide(&facts), RETRY_AGAIN);
}

TEST(checksums)
{
    static const struct {
        int status;
        const char *code, *message;
        enum retry_action action;
    } table[] = {
        {400, "InvalidRequest", "", RETRY_WITHOUT_CHECKSUM},
        {501, "NotImplemented", "", RETRY_WITHOUT_CHECKSUM},
        {400, "", "", RETRY_WITHOUT_CHECKSUM},
        {400, "Odd", "what is this Checksum", RETRY_WITHOUT_CHECKSUM},
        {400, "Odd", "no", RETRY_GIVE_UP},
        {403, "AccessDenied", "checksum", RETRY_GIVE_UP},
        {400, "BadDigest", "", RETRY_AGAIN},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        struct retry_facts facts = answered(table[i].status, table[i].code);
        facts.message = table[i].message;
        facts.has_checksum = true;
        assert_int_equal(retry_decide(&facts), table[i].action);
        facts.has_checksum = false;
        assert_int_not_equal(retry_decide(&facts), RETRY_WITHOUT_CHECKSUM);
    }
}

TEST(what_may_have_been_done)
{
    static const struct {
        int status;
        bool is_unsure;
    } table[] = {
        {200, false}, {204, false}, {403, false}, {404, false}, {429, false}, {500, true},
        {501, false}, {502, true},  {503, true},  {504, true},  {507, false},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        struct retry_facts facts = answered(table[i].status, "");
        facts.was_sent = true;
        assert_int_equal(retry_is_unsure(&facts), table[i].is_unsure);
    }
    struct retry_facts facts = answered(200, "");
    facts.verdict = RETRY_BODY_ERROR;
    assert_true(retry_is_unsure(&facts));
    facts = unanswered(TRANSPORT_BROKEN);
    assert_false(retry_is_unsure(&facts));
    facts.was_sent = true;
    assert_true(retry_is_unsure(&facts));
}

TEST(pauses)
{
    for (unsigned attempt = 1; attempt < 100; attempt++) {
        uint64_t most = attempt < 10 ? min_u64((uint64_t)RETRY_BASE_MS << (attempt - 1), 20000)
                                     : RETRY_MAX_PAUSE_MS;
        assert_int_equal(retry_pause_ms(attempt, 0, 0), 0);
        assert_int_equal(retry_pause_ms(attempt, most, 0), most);
        assert_int_equal(retry_pause_ms(attempt, most + 1, 0), 0);
        assert_true(retry_pause_ms(attempt, UINT64_MAX, 0) <= most);
        assert_int_equal(retry_pause_ms(attempt, 0, 3), 3000);
        assert_int_equal(retry_pause_ms(attempt, 0, 100000), RETRY_MAX_AFTER_MS);
    }
}

static const struct {
    int status;
    const char *code;
    bool has_report;
    enum sidestep_status expected;
} statuses[] = {
    {404, "NoSuchKey", true, SIDESTEP_ENOTFOUND},
    {404, "NoSuchBucket", true, SIDESTEP_EINVAL},
    {404, "NoSuchUpload", true, SIDESTEP_ENOTFOUND},
    {404, "Odd", true, SIDESTEP_ENOTFOUND},
    {404, "", false, SIDESTEP_EINVAL},
    {301, "", false, SIDESTEP_EINVAL},
    {400, "AuthorizationHeaderMalformed", true, SIDESTEP_EINVAL},
    {400, "ExpiredToken", true, SIDESTEP_EPERM},
    {401, "", false, SIDESTEP_EPERM},
    {403, "", false, SIDESTEP_EPERM},
    {200, "AccessDenied", true, SIDESTEP_EPERM},
    {412, "", false, SIDESTEP_EEXISTS},
    {416, "", false, SIDESTEP_ECORRUPT},
    {400, "BadDigest", true, SIDESTEP_ECORRUPT},
    {501, "", false, SIDESTEP_EUNSUPPORTED},
    {507, "", false, SIDESTEP_ENOSPC},
    {400, "", false, SIDESTEP_EIO},
    {409, "", false, SIDESTEP_EIO},
    {500, "InternalError", true, SIDESTEP_EIO},
};

TEST(every_status)
{
    for (size_t i = 0; i < ARRAY_LENGTH(statuses); i++)
        assert_int_equal(
            failure_status(statuses[i].status, statuses[i].code, statuses[i].has_report),
            statuses[i].expected);
}

/* The longest of everything leaves room for what to do. */
TEST(long_sentences)
{
    struct endpoint endpoint = {.region = "us-east-1", .host = "h"};
    char key[1025];
    struct answer answer = {.status = 403};
    struct failure_report report = {.is_error = true, .code = "SignatureDoesNotMatch"};
    struct failure failure = {.doing = "complete the upload of",
                              .action = "s3:PutObject",
                              .key = key,
                              .endpoint = &endpoint,
                              .origin = "the environment",
                              .is_unsure = true};
    struct sidestep_error err;

    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    memcpy(key + sizeof(key) - 5, ".end", 4);
    memset(endpoint.bucket, 'b', sizeof(endpoint.bucket) - 1);
    memset(report.message, 'm', sizeof(report.message) - 1);
    memset(answer.request_id, 'i', sizeof(answer.request_id) - 1);
    assert_int_equal(failure_of_answer(&failure, &answer, &report, &err), SIDESTEP_EPERM);
    assert_non_null(strstr(err.message, "s3://b"));
    assert_non_null(strstr(err.message, "kkk...kkk"));
    assert_non_null(strstr(err.message, "kkk.end: 403 SignatureDoesNotMatch \"mm"));
    assert_non_null(strstr(err.message, "check AWS_SECRET_ACCESS_KEY"));
}
