/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * listen.c -- a small HTTP server, on one thread, by libmicrohttpd.
 *
 * A request for the metrics is suspended until the loop looks, and one look answers all requests
 * that came before it began.  So no answer is older than its request, and any number of requests
 * costs one look at a time, and one a second at most.
 *
 * A connection has one request and PATIENCE to send it and to take the answer.  If more than
 * MAX_IDLE do neither, the one that has been here longest goes: clients that say nothing, or say it
 * byte by byte, keep nobody out.  Who finds no place waits in the kernel's queue.
 */
#include "listen.h"

#include "listen_address.h"
#include "output.h"
#include "verify_path.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BETWEEN_LOOKS_MS 1000
#define PATIENCE_MS 10000
#define MAX_VISITORS 64
#define MAX_IDLE 32        /* fewer, so that there is room for those who wait for a look */
#define REQUEST_BYTES 8192 /* of a request with its headers, and of the headers of the answer */
#define LIBRARY "libmicrohttpd.so.12"

#define FUNCTIONS(X)                                                                               \
    X(start_daemon)                                                                                \
    X(stop_daemon)                                                                                 \
    X(run_wait)                                                                                    \
    X(get_connection_info)                                                                         \
    X(suspend_connection)                                                                          \
    X(resume_connection)                                                                           \
    X(create_response_from_buffer)                                                                 \
    X(add_response_header)                                                                         \
    X(queue_response)                                                                              \
    X(destroy_response)

/* Loaded when it is needed: it brings GnuTLS, with which every command would start 1.5 ms later. */
struct library {
#define MEMBER(name) __typeof__(MHD_##name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

struct visitor {
    struct MHD_Connection *connection; /* NULL: a free place */
    int64_t since_ms;                  /* it came, or its answer is ready */
    enum { READING, WAITING, ANSWERING, LEAVING } state;
};

struct server {
    struct library mhd;
    struct visitor visitors[MAX_VISITORS];
    char *text; /* of the last look */
    size_t length;
};

static bool load_library(struct library *mhd)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL); /* stays loaded */
    void *symbol;

    if (library == NULL)
        return false;
#define FIND(name)                                                                                 \
    if ((symbol = dlsym(library, "MHD_" #name)) == NULL)                                           \
        return false;                                                                              \
    memcpy(&mhd->name, &symbol, sizeof(symbol));
    FUNCTIONS(FIND)
#undef FIND
    return true;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- visitors */

/* The one that has been here longest, of those that do not wait for a look. */
static struct visitor *oldest_idle(struct server *s, size_t *count)
{
    struct visitor *oldest = NULL;

    *count = 0;
    for (struct visitor *v = s->visitors; v < s->visitors + MAX_VISITORS; v++) {
        if (v->connection == NULL || v->state == WAITING || v->state == LEAVING)
            continue;
        ++*count;
        if (oldest == NULL || v->since_ms < oldest->since_ms)
            oldest = v;
    }
    return oldest;
}

/* libmicrohttpd sees the end of the connection, and closes it. */
static void send_away(struct server *s, struct visitor *v)
{
    (void)shutdown(
        s->mhd.get_connection_info(v->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
        SHUT_RDWR);
    v->state = LEAVING;
}

static void on_connection(void *context, struct MHD_Connection *connection, void **place,
                          enum MHD_ConnectionNotificationCode code)
{
    struct server *s = context;
    struct visitor *v = *place;
    size_t idle;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        v->connection = NULL;
        return;
    }
    v = oldest_idle(s, &idle);
    if (idle >= MAX_IDLE)
        send_away(s, v);
    v = s->visitors;
    while (v < s->visitors + MAX_VISITORS && v->connection != NULL)
        v++;
    assert(v < s->visitors + MAX_VISITORS); /* as MHD_OPTION_CONNECTION_LIMIT says */
    *v = (struct visitor){.connection = connection, .since_ms = now_ms(), .state = READING};
    *place = v;
}

static void send_away_slow(struct server *s)
{
    struct visitor *v;
    size_t idle;

    while ((v = oldest_idle(s, &idle)) != NULL && now_ms() - v->since_ms > PATIENCE_MS)
        send_away(s, v);
}

/* ---- requests */

static enum MHD_Result reply(struct server *s, struct MHD_Connection *connection, unsigned code,
                             const char *type, const char *text, size_t length)
{
    struct MHD_Response *response =
        s->mhd.create_response_from_buffer(length, (void *)text, MHD_RESPMEM_MUST_COPY);

    if (response == NULL)
        return MHD_NO; /* closes the connection */
    (void)s->mhd.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)s->mhd.add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)s->mhd.add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = s->mhd.queue_response(connection, code, response);
    s->mhd.destroy_response(response);
    return result;
}

static enum MHD_Result say(struct server *s, struct MHD_Connection *connection, unsigned code,
                           const char *text)
{
    return reply(s, connection, code, "text/plain; charset=utf-8", text, strlen(text));
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_bytes, void **request)
{
    struct server *s = context;
    struct visitor *v =
        s->mhd.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;

    (void)version, (void)body, (void)body_bytes, (void)request;
    if (v->state == ANSWERING)
        return reply(s, connection, MHD_HTTP_OK,
                     "application/openmetrics-text; version=1.0.0; charset=utf-8", s->text,
                     s->length);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return say(s, connection, MHD_HTTP_METHOD_NOT_ALLOWED, "Only GET and HEAD.\n");
    if (strcmp(url, "/") == 0)
        return say(s, connection, MHD_HTTP_OK, "The metrics are at /metrics.\n");
    if (strcmp(url, "/metrics") != 0)
        return say(s, connection, MHD_HTTP_NOT_FOUND, "The metrics are at /metrics.\n");
    if (v->state == LEAVING)
        return MHD_NO;
    v->state = WAITING;
    s->mhd.suspend_connection(connection);
    return MHD_YES;
}

/* Answer all who wait. */
static void resume_waiting(struct server *s)
{
    for (struct visitor *v = s->visitors; v < s->visitors + MAX_VISITORS; v++) {
        if (v->connection == NULL || v->state != WAITING)
            continue;
        v->state = ANSWERING;
        v->since_ms = now_ms();
        s->mhd.resume_connection(v->connection);
    }
}

static bool is_any_waiting(const struct server *s)
{
    for (const struct visitor *v = s->visitors; v < s->visitors + MAX_VISITORS; v++)
        if (v->connection != NULL && v->state == WAITING)
            return true;
    return false;
}

/* Returns false if libmicrohttpd fails. */
static bool serve(const struct cli *cli, struct server *s, struct MHD_Daemon *daemon,
                  char *(*look)(const struct cli *cli, size_t *length))
{
    int64_t next_ms = now_ms();
    bool works = true;

    while (works && !cli_interrupt_received()) {
        int64_t left_ms = next_ms - now_ms();
        bool waits = is_any_waiting(s);

        if (waits && left_ms <= 0) {
            next_ms = now_ms() + BETWEEN_LOOKS_MS;
            free(s->text);
            s->text = look(cli, &s->length);
            if (cli_interrupt_received()) /* it may have ended early: nobody gets it */
                break;
            resume_waiting(s);
        }
        works = s->mhd.run_wait(daemon, waits && left_ms > 0 ? (int32_t)left_ms
                                                             : BETWEEN_LOOKS_MS) == MHD_YES;
        send_away_slow(s);
    }
    resume_waiting(s); /* stop_daemon() wants nobody suspended; nobody gets an answer */
    return works;
}

int cli_listen_run(const struct cli *cli, char *(*look)(const struct cli *cli, size_t *length))
{
    static struct server s;
    struct sidestep_error err = {0};
    char name[CLI_LISTEN_ADDRESS_BYTES];
    int fd = -1;

    if (!load_library(&s.mhd)) {
        cli_error_set(&err, SIDESTEP_EUNSUPPORTED, "%s: --listen needs libmicrohttpd 0.9.73: %s",
                      cli->command->name, dlerror());
        return cli_output_error(cli, &err);
    }
    if (cli_listen_address_open(cli, &fd, name, &err) != SIDESTEP_OK) {
        if (err.status == SIDESTEP_EINVAL)
            return cli_output_usage(cli, "%s", err.message);
        if (err.sys_errno != EADDRINUSE || !cli_has_option(cli, CLI_OPTION_OUT))
            return cli_output_error(cli, &err);
        cli_output_warning(cli, "%s", err.message);
        return 0;
    }
    cli_interrupt_watch();
    struct MHD_Daemon *daemon = s.mhd.start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, &s,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_CONNECTION, on_connection, &s,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_VISITORS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)REQUEST_BYTES, MHD_OPTION_END);
    if (daemon == NULL)
        close(fd);
    else
        cli_output_note(cli, "%s: listening on http://%s/metrics", cli->command->name, name);
    bool works = daemon != NULL && serve(cli, &s, daemon, look);
    if (daemon != NULL)
        s.mhd.stop_daemon(daemon); /* closes the socket, too */
    free(s.text);
    if (works)
        return 0;
    cli_error_set(&err, SIDESTEP_EIO, "%s: libmicrohttpd stopped serving %s: %s",
                  cli->command->name, name, strerror(errno));
    return cli_output_error(cli, &err);
}
