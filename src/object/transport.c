/* SPDX-License-Identifier: BSD-3-Clause */
/* transport.c -- runs HTTP exchanges on a driver thread. */
#include "object/transport.h"

#include <assert.h>
#include <stdio.h>

#include "object/secret.h"
#include "object/transport_easy.h"

#define IDLE_POLL_MS 60000
#define WATCHFUL_POLL_MS 50 /* if there is ${cancelled} */

struct transport {
    struct transport_config config;
    char *ca_bundle; /* of ${config} */
    struct libcurl curl;
    CURLM *multi; /* of the driver only, except curl_multi_wakeup() */
    pthread_t driver;
    pid_t owner;
    struct exchange *active; /* of the driver only: in ${multi} */
    struct {
        struct lock lock LOCK_KIND(TRANSPORT);
        struct lock_condition done;
        struct exchange *queue GUARDED_BY(&lock); /* not yet in ${multi} */
        bool stop GUARDED_BY(&lock);
    } shared;
};

static bool is_cancelled(const struct transport *transport)
{
    return transport->config.cancelled != NULL && atomic_load(transport->config.cancelled);
}

static void finish(struct transport *transport, struct exchange *exchange, CURLcode code)
{
    lock_acquire(&transport->shared.lock);
    exchange->code = code;
    exchange->done = true;
    lock_wake_all(&transport->shared.done);
    lock_release(&transport->shared.lock);
}

/* Move the queue to libcurl.  False: stop, as nothing is left to do. */
static bool take_queue(struct transport *transport)
{
    struct exchange *queue, *next;

    lock_acquire(&transport->shared.lock);
    queue = transport->shared.queue;
    transport->shared.queue = NULL;
    bool stop = transport->shared.stop;
    lock_release(&transport->shared.lock);
    for (; queue != NULL; queue = next) {
        next = queue->next;
        if (transport->curl.multi_add_handle(transport->multi, queue->easy) != CURLM_OK) {
            finish(transport, queue, CURLE_OUT_OF_MEMORY);
            continue;
        }
        queue->next = transport->active;
        transport->active = queue;
    }
    return !stop || transport->active != NULL;
}

/* Remove an exchange from libcurl, and return it to its caller. */
static void end(struct transport *transport, struct exchange *exchange, CURLcode code)
{
    struct exchange **link = &transport->active;

    while (*link != exchange)
        link = &(*link)->next;
    *link = exchange->next;
    (void)transport->curl.multi_remove_handle(transport->multi, exchange->easy);
    finish(transport, exchange, code);
}

static void collect(struct transport *transport)
{
    const CURLMsg *message;
    int left;

    while ((message = transport->curl.multi_info_read(transport->multi, &left)) != NULL) {
        struct exchange *exchange = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result; /* the message is freed with the handle */
        (void)transport->curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE,
                                           (char **)&exchange);
        end(transport, exchange, code);
    }
}

static void *drive(void *argument)
{
    struct transport *transport = argument;
    int running;

    while (take_queue(transport)) {
        CURLMcode code = transport->curl.multi_perform(transport->multi, &running);
        collect(transport);
        while (transport->active != NULL && (code != CURLM_OK || is_cancelled(transport)))
            end(transport, transport->active,
                code != CURLM_OK ? CURLE_OUT_OF_MEMORY : CURLE_ABORTED_BY_CALLBACK);
        bool watchful = transport->active != NULL && transport->config.cancelled != NULL;
        (void)transport->curl.multi_poll(transport->multi, NULL, 0,
                                         watchful ? WATCHFUL_POLL_MS : IDLE_POLL_MS, NULL);
    }
    return NULL;
}

static enum sidestep_status start(struct transport *transport, struct sidestep_error *err)
{
    long connections = (long)transport->config.connections;

    transport->multi = fault_hit("curl") ? NULL : transport->curl.multi_init();
    if (transport->multi == NULL)
        return FAIL(err, SIDESTEP_ENOMEM, "cannot start libcurl: memory is short");
    (void)transport->curl.multi_setopt(transport->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
    (void)transport->curl.multi_setopt(transport->multi, CURLMOPT_MAXCONNECTS, connections);
    (void)transport->curl.multi_setopt(transport->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS,
                                       connections);
    enum sidestep_status status =
        thread_start(&transport->driver, "sidestep-object", drive, transport, err);
    if (status != SIDESTEP_OK)
        (void)transport->curl.multi_cleanup(transport->multi);
    return status;
}

void transport_free(struct transport *transport)
{
    if (transport == NULL)
        return;
    /* A forked child has no driver, and must not send on the connections of its parent. */
    if (transport->owner == getpid()) {
        lock_acquire(&transport->shared.lock);
        transport->shared.stop = true;
        assert(transport->shared.queue == NULL);
        lock_release(&transport->shared.lock);
        (void)transport->curl.multi_wakeup(transport->multi);
        (void)pthread_join(transport->driver, NULL);
        (void)transport->curl.multi_cleanup(transport->multi);
        lock_condition_destroy(&transport->shared.done);
        lock_destroy(&transport->shared.lock);
    }
    free(transport->ca_bundle);
    free(transport);
}

static void free_unstarted(struct transport **transport)
{
    if (*transport != NULL) {
        free((*transport)->ca_bundle);
        free(*transport);
    }
}

static enum sidestep_status keep_certificates(struct transport *transport,
                                              struct sidestep_error *err)
{
    char path[BESIDE_PATH_BYTES];
    const char *file = transport->config.ca_bundle;

    if (file == NULL)
        file = libcurl_certificates(&transport->curl, path);
    if (file == NULL)
        return SIDESTEP_OK;
    transport->ca_bundle = memory_strdup(file);
    if (transport->ca_bundle == NULL)
        return FAIL_NOMEM(err, strlen(file));
    transport->config.ca_bundle = transport->ca_bundle;
    return SIDESTEP_OK;
}

enum sidestep_status transport_probe(struct sidestep_error *err)
{
    struct libcurl functions;

    return libcurl_load(&functions, err);
}

enum sidestep_status transport_new(const struct transport_config *config, struct transport **out,
                                   struct sidestep_error *err)
{
    OWNED_BY(free_unstarted) struct transport *transport = memory_new(1, sizeof(*transport));

    *out = NULL;
    if (transport == NULL)
        return FAIL_NOMEM(err, sizeof(*transport));
    TRY(libcurl_load(&transport->curl, err));
    transport->config = *config;
    TRY(keep_certificates(transport, err));
    transport->owner = getpid();
    lock_init(&transport->shared.lock, LOCK_TRANSPORT);
    lock_condition_init(&transport->shared.done);
    TRY(start(transport, err));
    *out = TAKE(transport);
    return SIDESTEP_OK;
}

static void queue_and_wait(struct transport *transport, struct exchange *exchange)
{
    lock_acquire(&transport->shared.lock);
    exchange->next = transport->shared.queue;
    transport->shared.queue = exchange;
    lock_release(&transport->shared.lock);
    (void)transport->curl.multi_wakeup(transport->multi);
    lock_acquire(&transport->shared.lock);
    while (!exchange->done)
        lock_wait(&transport->shared.lock, &transport->shared.done);
    lock_release(&transport->shared.lock);
}

static enum transport_outcome outcome_of(const struct exchange *exchange)
{
    const struct transport_call *call = exchange->call;

    switch (exchange->code) {
    case CURLE_OK:
        return answer_check(call->answer) ? TRANSPORT_ANSWERED : TRANSPORT_REFUSED;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return TRANSPORT_UNKNOWN_HOST;
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
        return TRANSPORT_NOT_CONNECTED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return TRANSPORT_NOT_TRUSTED;
    case CURLE_OPERATION_TIMEDOUT:
        return clock_now(clock_system()) >= call->deadline_ns ? TRANSPORT_DEADLINE
                                                              : TRANSPORT_STALLED;
    case CURLE_ABORTED_BY_CALLBACK:
        return TRANSPORT_CANCELLED;
    case CURLE_OUT_OF_MEMORY:
        return TRANSPORT_NO_MEMORY;
    case CURLE_URL_MALFORMAT:
    case CURLE_BAD_FUNCTION_ARGUMENT:
        return TRANSPORT_IMPOSSIBLE;
    case CURLE_WRITE_ERROR:
        if (call->answer->text.failed)
            return TRANSPORT_NO_MEMORY;
        return call->answer->problem != NULL ? TRANSPORT_REFUSED : TRANSPORT_BROKEN;
    default:
        return TRANSPORT_BROKEN;
    }
}

/* OpenSSL and GnuTLS report this if the server does not use TLS. */
static bool speaks_plain_http(const char *reason)
{
    return strstr(reason, "wrong version number") != NULL ||
           strstr(reason, "unexpected TLS packet") != NULL;
}

/* libcurl quotes the URL of a proxy, with its password. */
static void explain(struct exchange *exchange, char *reason, size_t bytes)
{
    const char *text = exchange->reason[0] != '\0' ? exchange->reason
                                                   : exchange->curl->easy_strerror(exchange->code);

    secret_blank_proxies(exchange->reason);
    if (exchange->code == CURLE_SSL_CONNECT_ERROR && speaks_plain_http(text))
        snprintf(reason, bytes,
                 "the endpoint speaks plain http, not TLS: write http:// instead of https://");
    else
        snprintf(reason, bytes, "%s", text);
}

static uint64_t first_byte_ns(const struct exchange *exchange)
{
    curl_off_t sent_us = 0, came_us = 0;
    const struct libcurl *curl = exchange->curl;

    (void)curl->easy_getinfo(exchange->easy, CURLINFO_PRETRANSFER_TIME_T, &sent_us);
    (void)curl->easy_getinfo(exchange->easy, CURLINFO_STARTTRANSFER_TIME_T, &came_us);
    return came_us > sent_us ? (uint64_t)(came_us - sent_us) * 1000u : 0;
}

enum transport_outcome transport_perform(struct transport *transport, struct transport_call *call)
{
    struct exchange exchange = {.call = call, .curl = &transport->curl};
    long sent = 0;

    assert(transport->owner == getpid());
    answer_reset(call->answer);
    call->reason[0] = '\0';
    if (is_cancelled(transport))
        return TRANSPORT_CANCELLED;
    if (clock_now(clock_system()) >= call->deadline_ns)
        return TRANSPORT_DEADLINE;
    if (!exchange_init(&exchange, &transport->config)) {
        exchange_release(&exchange);
        return TRANSPORT_NO_MEMORY;
    }
    queue_and_wait(transport, &exchange);
    enum transport_outcome outcome = outcome_of(&exchange);
    call->was_sent =
        transport->curl.easy_getinfo(exchange.easy, CURLINFO_REQUEST_SIZE, &sent) == CURLE_OK &&
        sent > 0;
    call->first_byte_ns = first_byte_ns(&exchange);
    explain(&exchange, call->reason, sizeof(call->reason));
    exchange_release(&exchange);
    return outcome;
}
