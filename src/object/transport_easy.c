/* SPDX-License-Identifier: BSD-3-Clause */
/* transport_easy.c -- sets the options of one call. */
#include "object/transport_easy.h"

#include <stdio.h>
#include <sys/socket.h>

#define BUFFER_BYTES (512L << 10)
#define USER_AGENT                                                                                 \
    "sidestep/" ERROR_STR(SIDESTEP_VERSION_MAJOR) "." ERROR_STR(                                   \
        SIDESTEP_VERSION_MINOR) "." ERROR_STR(SIDESTEP_VERSION_PATCH)
#define STALL_BYTES_PER_SECOND 1L

/* Set an option, or return false from the function that uses this. */
#define SET(exchange, option, value)                                                               \
    do {                                                                                           \
        if ((exchange)->curl->easy_setopt((exchange)->easy, (option), (value)) != CURLE_OK)        \
            return false;                                                                          \
    } while (0)

static size_t on_header(char *line, size_t one, size_t length, void *context)
{
    struct exchange *exchange = context;

    (void)one;
    return answer_take_header(exchange->call->answer, line, length) ? length : 0;
}

static size_t on_body(char *bytes, size_t one, size_t length, void *context)
{
    struct exchange *exchange = context;

    (void)one;
    return answer_take_body(exchange->call->answer, bytes, length) ? length : 0;
}

static size_t on_send(char *to, size_t one, size_t room, void *context)
{
    struct exchange *exchange = context;
    size_t length = exchange->call->body_length - exchange->sent;

    if (length > one * room)
        length = one * room;
    if (length != 0)
        memcpy(to, (const char *)exchange->call->body + exchange->sent, length);
    exchange->sent += length;
    return length;
}

/* libcurl starts again if an idle connection was closed, and tells nobody. */
static int on_seek(void *context, curl_off_t offset, int origin)
{
    struct exchange *exchange = context;

    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > exchange->call->body_length)
        return CURL_SEEKFUNC_CANTSEEK;
    exchange->call->was_resent |= exchange->sent != 0;
    exchange->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* Programs that the trainer starts must not inherit the connection. */
static curl_socket_t on_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)context;
    (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static bool add_header(struct exchange *exchange, const char *line)
{
    struct curl_slist *longer = exchange->curl->slist_append(exchange->headers, line);

    if (longer == NULL)
        return false;
    exchange->headers = longer;
    return true;
}

static bool set_headers(struct exchange *exchange)
{
    const struct transport_call *call = exchange->call;
    OWNED_BY(buffer_wipe) struct buffer line = {0};
    bool is_added = add_header(exchange, "Expect:");

    for (unsigned i = 0; is_added && i < call->header_count; i++) {
        line.length = 0;
        /* libcurl sends "name;" as a header without a value. */
        buffer_printf(&line, call->headers[i].value[0] != '\0' ? "%s: %s" : "%s;%s",
                      call->headers[i].name, call->headers[i].value);
        buffer_put_u8(&line, '\0');
        is_added = !line.failed && add_header(exchange, (const char *)line.bytes);
    }
    SET(exchange, CURLOPT_HTTPHEADER, exchange->headers);
    return is_added;
}

static bool set_protocol(struct exchange *exchange)
{
    SET(exchange, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    SET(exchange, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(exchange, CURLOPT_FOLLOWLOCATION, 0L);
    SET(exchange, CURLOPT_PATH_AS_IS, 1L);
    SET(exchange, CURLOPT_NOSIGNAL, 1L);
    SET(exchange, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    SET(exchange, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(exchange, CURLOPT_TCP_KEEPALIVE, 1L);
    SET(exchange, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(exchange, CURLOPT_USERAGENT, USER_AGENT);
    SET(exchange, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    return true;
}

static bool set_limits(struct exchange *exchange, const struct transport_config *config)
{
    uint64_t now = clock_now(clock_system());
    uint64_t left_ms =
        (exchange->call->deadline_ns - min_u64(now, exchange->call->deadline_ns)) / 1000000u;

    SET(exchange, CURLOPT_TIMEOUT_MS, (long)min_u64(left_ms + 1, 1u << 30));
    SET(exchange, CURLOPT_CONNECTTIMEOUT, (long)exchange->call->connect_seconds);
    SET(exchange, CURLOPT_LOW_SPEED_LIMIT, STALL_BYTES_PER_SECOND);
    SET(exchange, CURLOPT_LOW_SPEED_TIME, (long)config->stall_seconds);
    if (config->bytes_per_second != 0 && exchange->call->has_body)
        SET(exchange, CURLOPT_MAX_SEND_SPEED_LARGE,
            (curl_off_t)min_u64(config->bytes_per_second, INT64_MAX));
    SET(exchange, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    return true;
}

static bool set_request(struct exchange *exchange)
{
    const struct transport_call *call = exchange->call;

    SET(exchange, CURLOPT_URL, call->url);
    if (strcmp(call->method, "HEAD") == 0) {
        SET(exchange, CURLOPT_NOBODY, 1L);
        return true;
    }
    if (call->has_body) {
        SET(exchange, CURLOPT_UPLOAD, 1L);
        SET(exchange, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->body_length);
        SET(exchange, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
        SET(exchange, CURLOPT_READFUNCTION, on_send);
        SET(exchange, CURLOPT_READDATA, exchange);
        SET(exchange, CURLOPT_SEEKFUNCTION, on_seek);
        SET(exchange, CURLOPT_SEEKDATA, exchange);
    }
    SET(exchange, CURLOPT_CUSTOMREQUEST, call->method);
    return true;
}

bool exchange_init(struct exchange *exchange, const struct transport_config *config)
{
    exchange->easy = fault_hit("curl") ? NULL : exchange->curl->easy_init();
    if (exchange->easy == NULL)
        return false;
    SET(exchange, CURLOPT_PRIVATE, exchange);
    SET(exchange, CURLOPT_ERRORBUFFER, exchange->reason);
    SET(exchange, CURLOPT_HEADERFUNCTION, on_header);
    SET(exchange, CURLOPT_HEADERDATA, exchange);
    SET(exchange, CURLOPT_WRITEFUNCTION, on_body);
    SET(exchange, CURLOPT_WRITEDATA, exchange);
    if (config->ca_bundle != NULL)
        SET(exchange, CURLOPT_CAINFO, config->ca_bundle);
    if (exchange->call->no_proxy)
        SET(exchange, CURLOPT_NOPROXY, "*");
    return set_protocol(exchange) && set_limits(exchange, config) && set_request(exchange) &&
           set_headers(exchange);
}

void exchange_release(struct exchange *exchange)
{
    if (exchange->easy != NULL)
        exchange->curl->easy_cleanup(exchange->easy);
    for (struct curl_slist *header = exchange->headers; header != NULL; header = header->next)
        explicit_bzero(header->data, strlen(header->data));
    exchange->curl->slist_free_all(exchange->headers);
}
