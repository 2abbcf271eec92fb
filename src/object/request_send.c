/* SPDX-License-Identifier: BSD-3-Clause */
/* request_send.c -- makes one attempt of a request. */
#include "object/request_send.h"

#include <stdio.h>
#include <time.h>

#define CONNECT_SECONDS 10u

void request_state_release(struct request_state *s)
{
    buffer_release(&s->path);
    buffer_release(&s->query);
    buffer_release(&s->url);
    buffer_release(&s->authorization);
    explicit_bzero(&s->identity, sizeof(s->identity));
}

/* Set path, query and URL, each with a NUL. */
static enum sidestep_status make_url(struct request_state *s, struct sidestep_error *err)
{
    s->path.length = s->query.length = s->url.length = 0;
    endpoint_put_path(&s->endpoint, s->request->key, &s->path);
    buffer_put_u8(&s->path, '\0');
    sign_query(s->request->query, s->request->query_count, &s->query);
    buffer_put_u8(&s->query, '\0');
    TRY(buffer_check(&s->path, err));
    TRY(buffer_check(&s->query, err));
    buffer_printf(&s->url, "%s://%s%s%s%s", s->endpoint.is_tls ? "https" : "http", s->endpoint.host,
                  (const char *)s->path.bytes, s->query.length > 1 ? "?" : "",
                  (const char *)s->query.bytes);
    buffer_put_u8(&s->url, '\0');
    return buffer_check(&s->url, err);
}

/* Is the checksum sent?  To AWS always, to other stores until they refuse it. */
static bool sends_checksum(const struct request_state *s)
{
    return s->request->checksum.name != NULL && !s->without_checksum;
}

/* Without TLS, the body is signed, unless the user trusts the network and the store compares a
 * checksum. */
static const char *payload_of(struct request_state *s)
{
    if (s->endpoint.is_tls || (s->client->leaves_bodies_unsigned && sends_checksum(s)))
        return SIGN_UNSIGNED_PAYLOAD;
    if (s->payload[0] == '\0')
        sign_sha256(s->request->body, s->request->body_length, s->payload);
    return s->payload;
}

static unsigned fill_headers(struct request_state *s, struct sign_pair headers[SIGN_MAX_PAIRS])
{
    unsigned count = 0;

    headers[count++] = (struct sign_pair){"host", s->endpoint.host};
    headers[count++] = (struct sign_pair){"x-amz-content-sha256", payload_of(s)};
    headers[count++] = (struct sign_pair){"x-amz-date", s->time};
    if (s->identity.token[0] != '\0')
        headers[count++] = (struct sign_pair){"x-amz-security-token", s->identity.token};
    for (unsigned i = 0; i < s->request->header_count; i++)
        headers[count++] = s->request->headers[i];
    if (sends_checksum(s))
        headers[count++] = s->request->checksum;
    if (s->as_get)
        headers[count++] = (struct sign_pair){"range", "bytes=0-0"};
    return count;
}

/* Sign with the current time and credentials, and add the signature to ${headers}. */
static enum sidestep_status sign(struct request_state *s, const char *method,
                                 struct sign_pair *headers, unsigned *count,
                                 struct sidestep_error *err)
{
    s->clock_offset = atomic_load(&s->client->clock_offset);
    sign_time(time(NULL) + (time_t)s->clock_offset, s->time);
    TRY(credentials_identify(s->client->credentials, s->time, s->endpoint.region, &s->identity,
                             err));
    *count = fill_headers(s, headers);
    struct sign_request request = {
        .method = method,
        .path = (const char *)s->path.bytes,
        .query = (const char *)s->query.bytes,
        .headers = headers,
        .header_count = *count,
        .payload = payload_of(s),
        .time = s->time,
        .region = s->endpoint.region,
        .service = "s3",
    };
    s->authorization.length = 0;
    sign_authorization(&request, s->identity.access_key, s->identity.key, &s->authorization);
    buffer_put_u8(&s->authorization, '\0');
    TRY(buffer_check(&s->authorization, err));
    headers[(*count)++] = (struct sign_pair){"authorization", (const char *)s->authorization.bytes};
    return SIDESTEP_OK;
}

static void send_request(struct request_state *s, const char *method,
                         const struct sign_pair *headers, unsigned count)
{
    struct request *request = s->request;
    struct transport_call call = {
        .method = method,
        .url = (const char *)s->url.bytes,
        .headers = headers,
        .header_count = count,
        .body = request->body,
        .body_length = request->body_length,
        .has_body = request->has_body,
        .deadline_ns = s->deadline_ns,
        .connect_seconds = CONNECT_SECONDS,
        .answer = &request->answer,
    };

    request->attempts++;
    atomic_fetch_add(&s->client->request_count, 1);
    atomic_fetch_add(&s->client->retry_count, request->attempts > 1);
    s->facts.outcome = transport_perform(s->client->transport, &call);
    s->facts.was_sent = call.was_sent;
    s->facts.was_resent = call.was_resent;
    if (s->facts.outcome == TRANSPORT_ANSWERED && !request->has_body)
        client_record_latency(s->client, call.first_byte_ns);
    snprintf(s->call_reason, sizeof(s->call_reason), "%s", call.reason);
}

/* Does the answer name another region, or another host that may be used? */
static bool find_redirect(struct request_state *s)
{
    const struct answer *answer = &s->request->answer;
    const struct failure_report *report = &s->request->report;
    const char *region = answer->region[0] != '\0' ? answer->region : report->region;
    bool is_redirect = answer->status == 301 || answer->status == 302 || answer->status == 307 ||
                       answer->status == 308;
    bool is_region_wrong = (is_redirect || answer->status == 400 || answer->status == 403) &&
                           region[0] != '\0' && strcmp(region, s->endpoint.region) != 0;

    s->redirect = s->endpoint;
    if (!is_redirect && !is_region_wrong)
        return false;
    if (is_region_wrong && !endpoint_set_region(&s->redirect, region))
        return false;
    bool is_followed =
        answer->location[0] != '\0' && endpoint_follow(&s->redirect, answer->location);
    return is_region_wrong || is_followed;
}

/* Read the error in the body of an answer, also of one with status 200, or check a success. */
static enum sidestep_status read_body(struct request_state *s, struct sidestep_error *err)
{
    struct request *request = s->request;
    const struct buffer *text = &request->answer.text;
    bool is_success = request->answer.status >= 200 && request->answer.status < 300;

    if (text->length != 0 &&
        (!is_success || memmem(text->bytes, text->length, "<Error", 6) != NULL))
        failure_read(text->bytes, text->length, &request->report);
    if (!is_success || s->as_get)
        return SIDESTEP_OK;
    if (request->report.is_error) {
        s->facts.verdict = RETRY_BODY_ERROR;
        return SIDESTEP_OK;
    }
    enum sidestep_status status =
        request->check != NULL ? request->check(request, &s->invalid) : SIDESTEP_OK;
    if (status == SIDESTEP_OK && request->report.is_error)
        s->facts.verdict = RETRY_BODY_ERROR;
    if (status == SIDESTEP_ECORRUPT) {
        s->facts.verdict = RETRY_BODY_INVALID;
        return SIDESTEP_OK;
    }
    if (status != SIDESTEP_OK)
        error_copy(err, &s->invalid);
    return status;
}

static enum sidestep_status gather_facts(struct request_state *s, struct sidestep_error *err)
{
    struct request *request = s->request;
    const struct answer *answer = &request->answer;
    struct retry_facts *facts = &s->facts;

    facts->status = answer->status;
    facts->is_too_long = answer->is_too_long && request->is_content;
    facts->verdict = RETRY_BODY_VALID;
    facts->code = request->report.code;
    facts->message = request->report.message;
    facts->is_head = strcmp(request->method, "HEAD") == 0 && !s->as_get;
    facts->is_redirect = false;
    facts->has_checksum = sends_checksum(s) && !s->endpoint.is_aws;
    facts->can_renew = credentials_are_renewable(s->client->credentials);
    facts->skew = answer->date != 0 ? answer->date - ((int64_t)time(NULL) + s->clock_offset) : 0;
    facts->is_key_certain = atomic_load(&s->client->has_bucket);
    facts->has_contact = atomic_load(&s->client->has_contact);
    facts->elapsed_ns = clock_now(clock_system()) - s->started_ns;
    if (facts->outcome != TRANSPORT_ANSWERED)
        return SIDESTEP_OK;
    TRY(read_body(s, err));
    facts->is_redirect = find_redirect(s);
    if (facts->is_head && answer->status == 404 && facts->is_key_certain) {
        request->report.is_error = true; /* HEAD has no body with an <Error> */
        snprintf(request->report.code, sizeof(request->report.code), "NoSuchKey");
    }
    return SIDESTEP_OK;
}

enum sidestep_status request_attempt(struct request_state *s, struct sidestep_error *err)
{
    struct sign_pair headers[SIGN_MAX_PAIRS + 1];
    const char *method = s->as_get ? "GET" : s->request->method;
    unsigned count;

    s->request->report = (struct failure_report){.is_error = false};
    TRY(make_url(s, err));
    uint64_t began_ns = clock_now(clock_system());
    bool may_send = client_wait_for_bandwidth(s->client, s->request->body_length);
    s->deadline_ns +=
        clock_now(clock_system()) - began_ns; /* waiting for the limit does not count */
    if (!may_send) {
        answer_reset(&s->request->answer);
        s->facts.outcome = TRANSPORT_CANCELLED;
        s->facts.was_sent = s->facts.was_resent = false;
        return gather_facts(s, err);
    }
    TRY(sign(s, method, headers, &count, err));
    send_request(s, method, headers, count);
    TRACE(object, "%s %s: outcome %d, status %d %s", method, (const char *)s->url.bytes,
          (int)s->facts.outcome, s->request->answer.status, s->call_reason);
    return gather_facts(s, err);
}
