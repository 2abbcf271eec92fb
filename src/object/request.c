/* SPDX-License-Identifier: BSD-3-Clause */
/* request.c -- repeats the attempts of a request, and reports its failure.  request_send.c makes
 * one attempt. */
#include "object/request.h"

#include <assert.h>
#include <stdio.h>

#include "object/client_internal.h"
#include "object/request_send.h"

void request_add_query(struct request *request, const char *name, const char *value)
{
    assert(request->query_count < REQUEST_MAX_PAIRS);
    request->query[request->query_count++] = (struct sign_pair){name, value};
}

void request_add_header(struct request *request, const char *name, const char *value)
{
    assert(request->header_count < REQUEST_MAX_PAIRS);
    request->headers[request->header_count++] = (struct sign_pair){name, value};
}

void request_put_xml(struct buffer *to, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            buffer_put_text(to, "&amp;");
            break;
        case '<':
            buffer_put_text(to, "&lt;");
            break;
        case '>':
            buffer_put_text(to, "&gt;");
            break;
        case '"':
            buffer_put_text(to, "&quot;");
            break;
        default:
            buffer_put_u8(to, (uint8_t)*text);
        }
    }
}

void request_release(struct request *request)
{
    answer_release(&request->answer);
}

static struct failure failure_of(const struct request_state *s)
{
    return (struct failure){
        .doing = s->request->doing,
        .action = s->request->action,
        .key = s->request->key,
        .endpoint = &s->endpoint,
        .origin = credentials_origin(s->client->credentials),
        .skew = s->facts.skew,
        .attempts = s->request->attempts,
        .is_unsure = s->request->is_write && s->request->is_unsure,
    };
}

/* Set the reason of the last failure, for messages. */
static void set_reason(struct request_state *s)
{
    const struct answer *answer = &s->request->answer;

    if (s->facts.outcome == TRANSPORT_DEADLINE || s->facts.outcome == TRANSPORT_CANCELLED) {
        if (s->reason[0] == '\0')
            snprintf(s->reason, sizeof(s->reason), "it took too long");
        return;
    }
    s->is_unknown_host = s->facts.outcome == TRANSPORT_UNKNOWN_HOST && !s->facts.has_contact;
    if (retry_is_contradiction(&s->facts) && answer->problem != NULL) {
        snprintf(s->reason, sizeof(s->reason), "the answer (HTTP status %d) is refused: %s",
                 answer->status, answer->problem);
    } else if (s->facts.verdict == RETRY_BODY_INVALID) {
        snprintf(s->reason, sizeof(s->reason), "%s", s->invalid.message);
    } else if (s->facts.outcome == TRANSPORT_ANSWERED) {
        failure_quote(answer, &s->request->report, s->reason, sizeof(s->reason));
    } else {
        snprintf(s->reason, sizeof(s->reason), "%s", s->call_reason);
    }
}

static const char *unsure_text(const struct request_state *s)
{
    return s->request->is_write && s->request->is_unsure
               ? "; the store may have carried it out, or may do so within 15 minutes"
               : "";
}

static enum sidestep_status fail_deadline(struct request_state *s, struct sidestep_error *err)
{
    struct failure failure = failure_of(s);
    char name[360];

    failure_name(&failure, name, sizeof(name));
    if (s->is_unknown_host)
        return FAIL(err, SIDESTEP_EINVAL,
                    "%s: there is no host %.100s (%s): check AWS_ENDPOINT_URL_S3, AWS_REGION, DNS "
                    "and the proxy",
                    name, s->endpoint.host, s->reason);
    return FAIL(err, SIDESTEP_ETIMEDOUT,
                "%s: no usable answer from %.100s in %u attempts and %llu s; the last one: %s%s",
                name, s->endpoint.host, s->request->attempts,
                (unsigned long long)((clock_now(clock_system()) - s->started_ns) / 1000000000u),
                s->reason, unsure_text(s));
}

static enum sidestep_status fail_cancelled(struct request_state *s, struct sidestep_error *err)
{
    struct failure failure = failure_of(s);
    char name[360];

    failure_name(&failure, name, sizeof(name));
    return FAIL(err, SIDESTEP_EABORTED, "%s: cancelled%s", name, unsure_text(s));
}

static enum sidestep_status fail_unanswered(struct request_state *s, struct sidestep_error *err)
{
    struct failure failure = failure_of(s);
    char name[360];

    failure_name(&failure, name, sizeof(name));
    switch (s->facts.outcome) {
    case TRANSPORT_NOT_TRUSTED:
        return FAIL(err, SIDESTEP_EINVAL,
                    "%s: %.100s cannot prove who it is (%s): name the file with its certificate "
                    "authority in AWS_CA_BUNDLE",
                    name, s->endpoint.host, s->reason);
    case TRANSPORT_IMPOSSIBLE:
        return FAIL(err, SIDESTEP_EINVAL, "%s: the request is not valid: %s", name, s->reason);
    case TRANSPORT_NO_MEMORY:
        return FAIL_NOMEM(err, s->request->body_length);
    case TRANSPORT_CANCELLED:
        return fail_cancelled(s, err);
    default:
        return fail_deadline(s, err);
    }
}

static enum sidestep_status give_up(struct request_state *s, struct sidestep_error *err)
{
    struct failure failure = failure_of(s);
    char name[360];

    if (retry_is_contradiction(&s->facts)) {
        failure_name(&failure, name, sizeof(name));
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "%s: the answers of %.100s cannot be used, %u times; the last one: %s%s", name,
                    s->endpoint.host, s->contradictions, s->reason, unsure_text(s));
    }
    if (s->facts.outcome != TRANSPORT_ANSWERED)
        return fail_unanswered(s, err);
    return failure_of_answer(&failure, &s->request->answer, &s->request->report, err);
}

/* Wait before the next attempt.  ETIMEDOUT: the deadline is earlier. */
static enum sidestep_status pause_before_next(struct request_state *s, struct sidestep_error *err)
{
    uint64_t random = 0;

    (void)random_bytes(&random, sizeof(random), NULL); /* if it fails, the pause is 0 */
    uint64_t ms =
        retry_pause_ms(s->request->attempts, random, s->request->answer.retry_after_seconds);
    if (clock_now(clock_system()) + ms * 1000000u >= s->deadline_ns)
        return fail_deadline(s, err);
    return client_sleep(s->client, ms) ? SIDESTEP_OK : fail_cancelled(s, err);
}

/* Prepare the next attempt, or give up. */
static enum sidestep_status prepare_next(struct request_state *s, enum retry_action action,
                                         struct sidestep_error *err)
{
    switch (action) {
    case RETRY_AGAIN:
        return pause_before_next(s, err);
    case RETRY_WITH_CREDENTIALS:
        s->facts.was_renewed = true;
        if (credentials_renew(s->client->credentials, s->identity.generation, err) == SIDESTEP_OK)
            return SIDESTEP_OK;
        return give_up(s, err);
    case RETRY_WITH_CLOCK:
        s->facts.was_clock_corrected = true;
        atomic_store(&s->client->clock_offset, s->clock_offset + s->facts.skew);
        return SIDESTEP_OK;
    case RETRY_REDIRECTED:
        s->facts.was_redirected = true;
        s->endpoint = s->redirect;
        return SIDESTEP_OK;
    case RETRY_WITHOUT_CHECKSUM:
        s->without_checksum = true;
        return SIDESTEP_OK;
    case RETRY_AS_GET:
        s->facts.was_sent_as_get = true;
        s->as_get = true;
        return SIDESTEP_OK;
    default:
        return give_up(s, err);
    }
}

/* Has the store in another region accepted the request?  Later ones are sent there; a redirect to
 * another host may be temporary. */
static bool is_right_region(const struct request_state *s)
{
    int status = s->request->answer.status;

    return s->facts.outcome == TRANSPORT_ANSWERED &&
           (status / 100 == 2 || status == 404 || status == 412) &&
           strcmp(s->endpoint.region, client_endpoint(s->client).region) != 0;
}

/* Record what an attempt showed, and decide what to do next. */
static enum retry_action decide(struct request_state *s)
{
    struct request *request = s->request;

    request->is_unsure |= request->is_write && retry_is_unsure(&s->facts);
    s->facts.contradictions = s->contradictions;
    enum retry_action action = retry_decide(&s->facts);
    s->contradictions += retry_is_contradiction(&s->facts);
    if (s->facts.outcome == TRANSPORT_ANSWERED)
        atomic_store(&s->client->has_contact, true);
    if (action == RETRY_DONE || strcmp(request->report.code, "NoSuchKey") == 0)
        atomic_store(&s->client->has_bucket, true);
    if (s->as_get && (action == RETRY_DONE || request->answer.status == 416)) {
        s->as_get = false; /* the cause is gone: send the HEAD again */
        action = RETRY_AGAIN;
    }
    if (action == RETRY_DONE && s->without_checksum) /* the checksum was the cause */
        atomic_store(&s->client->has_no_checksums, true);
    if (s->facts.was_redirected && is_right_region(s))
        client_set_endpoint(s->client, &s->endpoint);
    return action;
}

static enum sidestep_status run(struct request_state *s, struct sidestep_error *err)
{
    for (;;) {
        TRY(request_attempt(s, err));
        enum retry_action action = decide(s);
        if (action == RETRY_DONE)
            return SIDESTEP_OK;
        set_reason(s);
        TRY(prepare_next(s, action, err));
    }
}

static enum sidestep_status judge(const struct request *request, enum sidestep_status status,
                                  struct sidestep_error *err)
{
    bool removes = strcmp(request->method, "DELETE") == 0;

    status = retry_status(status, request->is_write && request->is_unsure, removes);
    if (err != NULL && status != SIDESTEP_OK)
        err->status = status;
    return status;
}

enum sidestep_status request_run(struct client *client, struct request *request,
                                 struct sidestep_error *err)
{
    OWNED_BY(request_state_release) struct request_state s = {.client = client, .request = request};

    if (client->owner != getpid())
        return FAIL(err, SIDESTEP_EFORKED,
                    "%s: the connections to the store belong to the process that forked this one: "
                    "open the store again",
                    request->doing);
    s.endpoint = client_endpoint(client);
    s.without_checksum = atomic_load(&client->has_no_checksums);
    if (!client_acquire_slot(client))
        return fail_cancelled(&s, err);
    s.started_ns = clock_now(clock_system());
    s.deadline_ns = s.started_ns + client->deadline_ns;
    enum sidestep_status status = run(&s, err);
    client_release_slot(client);
    if (status != SIDESTEP_OK && err != NULL) /* whatever it quotes of the answer */
        credentials_blank(client->credentials, err->message);
    return judge(request, status, err);
}

enum sidestep_status request_run_removal(struct client *client, struct request *request,
                                         struct sidestep_error *err)
{
    struct sidestep_error why;
    enum sidestep_status status = request_run(client, request, &why);

    if (status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    return error_copy(err, &why);
}
