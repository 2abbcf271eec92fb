/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_server.c -- the program object-server: answers HTTP requests for the objects of the bucket
 * "bench" (object_server.h).
 *
 * It listens on a free port of 127.0.0.1, or of the address that is its argument, prints the
 * endpoint as one line of JSON, and ends at the end of its standard input. GET /!requests returns
 * the number of earlier requests. GET /!delay?ms=20 delays every later response by 20 milliseconds.
 */
#include "object_server.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BUCKET "bench"
#define HEAD_BYTES ((size_t)64 << 10)
#define SOCKET_BYTES (4 << 20)

static atomic_ullong request_count;
static atomic_uint delay_ms; /* before each response, as if the store were far away */

struct connection {
    int fd;
    char head[HEAD_BYTES + 1];
    size_t used; /* bytes in ${head}: a request's head, and what was received with it */
    size_t end;  /* end of the head, then of the part of the body that was consumed */
    char method[8];
    char target[4096];
    char key[SERVER_KEY_BYTES]; /* "": the request is for the bucket */
    char *query;
    bool is_broken;
};

/* ---- responses */

static bool send_all(struct connection *c, struct iovec *pieces, int count)
{
    while (count != 0) {
        struct msghdr message = {.msg_iov = pieces,
                                 .msg_iovlen = (size_t)(count < 64 ? count : 64)};
        ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        if (sent <= 0)
            return !(c->is_broken = true);
        for (; count != 0 && (size_t)sent >= pieces->iov_len; pieces++, count--)
            sent -= (ssize_t)pieces->iov_len;
        if (count != 0) {
            pieces->iov_base = (char *)pieces->iov_base + sent;
            pieces->iov_len -= (size_t)sent;
        }
    }
    return true;
}

static void answer(struct connection *c, const char *status, const char *headers, const char *body)
{
    char head[1024], date[40];
    time_t now = time(NULL);
    struct tm utc;

    (void)strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &utc));
    int used = snprintf(head, sizeof(head),
                        "HTTP/1.1 %s\r\nDate: %s\r\nx-amz-request-id: 1\r\n%sContent-Length: "
                        "%zu\r\n\r\n",
                        status, date, headers, strlen(body));
    struct iovec pieces[] = {{head, (size_t)used}, {(void *)(uintptr_t)body, strlen(body)}};
    (void)send_all(c, pieces, body[0] != '\0' ? 2 : 1);
}

static void answer_error(struct connection *c, const char *status, const char *code)
{
    char body[256];

    snprintf(body, sizeof(body), "<Error><Code>%s</Code><Message>bench</Message></Error>", code);
    answer(c, status, "", strcmp(c->method, "HEAD") == 0 ? "" : body);
}

/* ---- the heads of requests */

static bool read_head(struct connection *c)
{
    for (;;) {
        c->head[c->used] = '\0';
        const char *end = strstr(c->head, "\r\n\r\n");
        if (end != NULL) {
            c->end = (size_t)(end - c->head) + 4;
            return true;
        }
        if (c->used == HEAD_BYTES)
            return false;
        ssize_t more = recv(c->fd, c->head + c->used, HEAD_BYTES - c->used, 0);
        if (more <= 0)
            return false;
        c->used += (size_t)more;
    }
}

/* The start of a header's value, which ends with its line; NULL: the request has no such header. */
static const char *find_header(const struct connection *c, const char *name)
{
    size_t length = strlen(name);

    for (const char *line = strstr(c->head, "\r\n"); line != NULL && line + 4 < c->head + c->end;
         line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, length) == 0 && line[2 + length] == ':')
            return line + 3 + length + strspn(line + 3 + length, " ");
    return NULL;
}

static void unescape(char *text)
{
    char *to = text;

    for (const char *at = text; *at != '\0'; at++) {
        unsigned value;
        if (*at == '%' && sscanf(at + 1, "%2x", &value) == 1) {
            *to++ = (char)value;
            at += 2;
        } else {
            *to++ = *at;
        }
    }
    *to = '\0';
}

static bool parse_target(struct connection *c)
{
    if (sscanf(c->head, "%7s %4095s", c->method, c->target) != 2)
        return false;
    c->query = strchr(c->target, '?');
    if (c->query != NULL)
        *c->query++ = '\0';
    else
        c->query = c->target + strlen(c->target);
    unescape(c->target);
    const char *key =
        strncmp(c->target, "/" BUCKET, sizeof(BUCKET)) == 0 ? c->target + sizeof(BUCKET) : "";
    snprintf(c->key, sizeof(c->key), "%s", key[0] == '/' ? key + 1 : key);
    return true;
}

/* Does the query have this parameter? Sets ${to} to its value, or to "". */
static bool get_parameter(const struct connection *c, const char *name, char *to, size_t bytes)
{
    size_t length = strlen(name);

    to[0] = '\0';
    for (const char *at = c->query; at != NULL && *at != '\0';) {
        const char *next = strchr(at, '&');
        size_t all = next != NULL ? (size_t)(next - at) : strlen(at);
        if (strncmp(at, name, length) == 0 && (at[length] == '=' || all == length)) {
            if (all > length)
                snprintf(to, bytes, "%.*s", (int)(all - length - 1), at + length + 1);
            unescape(to);
            return true;
        }
        at = next != NULL ? next + 1 : NULL;
    }
    return false;
}

/* ---- bodies */

/* Remove the frames of "aws-chunked" from ${bytes}. */
static size_t decode_chunks(unsigned char *bytes, size_t length)
{
    size_t at = 0, kept = 0;

    while (at < length) {
        size_t size = strtoul((char *)bytes + at, NULL, 16);
        unsigned char *line = memchr(bytes + at, '\n', length - at);
        if (line == NULL || size == 0)
            break;
        at = (size_t)(line - bytes) + 1;
        if (size > length - at)
            break;
        memmove(bytes + kept, bytes + at, size);
        kept += size;
        at += size + 2;
    }
    return kept;
}

static bool receive(struct connection *c, unsigned char *to, size_t bytes)
{
    size_t had = c->used - c->end < bytes ? c->used - c->end : bytes;

    memcpy(to, c->head + c->end, had);
    c->end += had;
    while (had < bytes) {
        ssize_t more = recv(c->fd, to + had, bytes - had, MSG_WAITALL);
        if (more <= 0)
            return false;
        had += (size_t)more;
    }
    return true;
}

static bool read_body(struct connection *c, struct server_piece *body)
{
    const char *length = find_header(c, "content-length"),
               *coding = find_header(c, "content-encoding");
    const char *expect = find_header(c, "expect");
    bool is_chunked = coding != NULL && strncmp(coding, "aws-chunked", 11) == 0;

    if (find_header(c, "transfer-encoding") != NULL)
        return false; /* no client of the benchmark sends it */
    body->length = length != NULL ? strtoul(length, NULL, 10) : 0;
    body->bytes = server_memory(body->length + 1);
    if (expect != NULL) {
        struct iovec go = {(char *)(uintptr_t) "HTTP/1.1 100 Continue\r\n\r\n", 25};
        (void)send_all(c, &go, 1);
    }
    if (!receive(c, body->bytes, body->length))
        return false;
    body->bytes[body->length] = '\0';
    if (is_chunked)
        body->length = decode_chunks(body->bytes, body->length);
    return true;
}

/* ---- requests */

static void answer_tag(struct connection *c, uint64_t tag)
{
    char headers[64];

    snprintf(headers, sizeof(headers), "ETag: \"%llu\"\r\n", (unsigned long long)tag);
    answer(c, "200 OK", headers, "");
}

/* CopyObject, with which other programs rename. ${source}: "bucket/key", up to the line's end. */
static void copy(struct connection *c, const char *source)
{
    char key[SERVER_KEY_BYTES], text[128];
    size_t length = strcspn(source, "\r");

    if (length >= sizeof(key))
        length = sizeof(key) - 1;
    memcpy(key, source, length);
    key[length] = '\0';
    unescape(key);
    const char *name = strstr(key, BUCKET "/");
    struct server_object *from =
        name != NULL ? server_object_get(name + sizeof(BUCKET "/") - 1) : NULL;
    if (from == NULL) {
        answer_error(c, "404 Not Found", "NoSuchKey");
        return;
    }
    struct server_piece *piece = (struct server_piece *)(void *)server_memory(sizeof(*piece));
    *piece = (struct server_piece){.bytes = server_memory(from->length + 1)};
    for (size_t i = 0; i < from->piece_count; i++) {
        memcpy(piece->bytes + piece->length, from->pieces[i].bytes, from->pieces[i].length);
        piece->length += from->pieces[i].length;
    }
    server_object_release(from);
    uint64_t tag = server_object_put(c->key, piece, 1, SERVER_ALWAYS, 0);
    snprintf(text, sizeof(text), "<CopyObjectResult><ETag>\"%llu\"</ETag></CopyObjectResult>",
             (unsigned long long)tag);
    answer(c, "200 OK", "Content-Type: application/xml\r\n", text);
}

static void put(struct connection *c, struct server_piece body)
{
    const char *absent = find_header(c, "if-none-match"), *tag = find_header(c, "if-match");
    char text[64], id[64];

    if (get_parameter(c, "uploadId", id, sizeof(id)) &&
        get_parameter(c, "partNumber", text, sizeof(text))) {
        unsigned number = (unsigned)strtoul(text, NULL, 10);
        if (server_upload_part(strtoull(id, NULL, 10), number, body))
            answer_tag(c, number);
        else
            answer_error(c, "404 Not Found", "NoSuchUpload");
        return;
    }
    struct server_piece *piece = (struct server_piece *)(void *)server_memory(sizeof(*piece));
    *piece = body;
    uint64_t new_tag = server_object_put(
        c->key, piece, 1,
        absent != NULL ? SERVER_IF_ABSENT : (tag != NULL ? SERVER_IF_TAG : SERVER_ALWAYS),
        tag != NULL ? strtoull(tag + 1, NULL, 10) : 0);
    if (new_tag != 0)
        answer_tag(c, new_tag);
    else
        answer_error(c, "412 Precondition Failed", "PreconditionFailed");
}

/* Delete every <Key> of ${body}. */
static void delete_many(struct connection *c, char *body)
{
    for (char *at = strstr(body, "<Key>"); at != NULL; at = strstr(at, "<Key>")) {
        char *end = strstr(at, "</Key>");
        if (end == NULL)
            break;
        *end = '\0';
        server_object_delete(at + 5);
        at = end + 1;
    }
    answer(c, "200 OK", "", "<DeleteResult></DeleteResult>");
}

static void post(struct connection *c, struct server_piece body)
{
    char id[64], text[2048];

    if (get_parameter(c, "delete", id, sizeof(id))) {
        delete_many(c, (char *)body.bytes);
    } else if (get_parameter(c, "uploads", id, sizeof(id))) {
        snprintf(text, sizeof(text),
                 "<InitiateMultipartUploadResult><Bucket>" BUCKET "</Bucket><Key>%s</Key>"
                 "<UploadId>%llu</UploadId></InitiateMultipartUploadResult>",
                 c->key, (unsigned long long)server_upload_begin());
        answer(c, "200 OK", "", text);
    } else if (get_parameter(c, "uploadId", id, sizeof(id))) {
        uint64_t tag = server_upload_complete(strtoull(id, NULL, 10), c->key);
        snprintf(text, sizeof(text),
                 "<CompleteMultipartUploadResult><Bucket>" BUCKET "</Bucket><Key>%s</Key><ETag>"
                 "&quot;%llu&quot;</ETag></CompleteMultipartUploadResult>",
                 c->key, (unsigned long long)tag);
        if (tag != 0)
            answer(c, "200 OK", "", text);
        else
            answer_error(c, "404 Not Found", "NoSuchUpload");
    } else {
        answer_error(c, "501 Not Implemented", "NotImplemented");
    }
    server_memory_free(body.bytes);
}

/* Send ${head}, and then bytes [begin, end) of ${object}. */
static void send_object(struct connection *c, const struct server_object *object, char *head,
                        uint64_t begin, uint64_t end)
{
    struct iovec *pieces =
        (struct iovec *)(void *)server_memory((object->piece_count + 1) * sizeof(struct iovec));
    uint64_t at = 0;
    int count = 1;

    pieces[0] = (struct iovec){head, strlen(head)};
    for (size_t i = 0; i < object->piece_count; at += object->pieces[i++].length) {
        const struct server_piece *piece = &object->pieces[i];
        uint64_t first = begin > at ? begin - at : 0;
        uint64_t last = end > at ? end - at : 0;
        last = last < piece->length ? last : piece->length;
        if (first < last)
            pieces[count++] = (struct iovec){piece->bytes + first, last - first};
    }
    (void)send_all(c, pieces, count);
    server_memory_free((unsigned char *)pieces);
}

static void get(struct connection *c)
{
    struct server_object *object = server_object_get(c->key);
    const char *range = find_header(c, "range"), *tag = find_header(c, "if-match");
    unsigned long long begin = 0, last = 0;
    char head[512], when[40], content_range[80] = "";
    struct tm utc;

    if (object == NULL) {
        answer_error(c, "404 Not Found", "NoSuchKey");
        return;
    }
    uint64_t end = object->length;
    int found = range != NULL ? sscanf(range, "bytes=%llu-%llu", &begin, &last) : 0;
    if (found == 2 && last + 1 < end)
        end = last + 1;
    if (tag != NULL && strtoull(tag + 1, NULL, 10) != object->tag) {
        answer_error(c, "412 Precondition Failed", "PreconditionFailed");
    } else if (begin > end || (found > 0 && begin == end)) {
        answer_error(c, "416 Range Not Satisfiable", "InvalidRange");
    } else {
        if (found > 0)
            snprintf(content_range, sizeof(content_range),
                     "Content-Range: bytes %llu-%llu/%llu\r\n", begin, (unsigned long long)end - 1,
                     (unsigned long long)object->length);
        (void)strftime(when, sizeof(when), "%a, %d %b %Y %H:%M:%S GMT",
                       gmtime_r(&object->modified, &utc));
        snprintf(head, sizeof(head),
                 "HTTP/1.1 %s\r\nDate: %s\r\nx-amz-request-id: 1\r\nETag: \"%llu\"\r\n"
                 "Last-Modified: %s\r\nAccept-Ranges: bytes\r\n%sContent-Length: %llu\r\n\r\n",
                 found > 0 ? "206 Partial Content" : "200 OK", when,
                 (unsigned long long)object->tag, when, content_range,
                 (unsigned long long)end - begin);
        send_object(c, object, head, begin, strcmp(c->method, "HEAD") == 0 ? begin : end);
    }
    server_object_release(object);
}

static void list(struct connection *c)
{
    char prefix[SERVER_KEY_BYTES], after[SERVER_KEY_BYTES], delimiter[8], max_keys[16];
    struct server_text xml = {0};

    if (get_parameter(c, "uploads", after, sizeof(after))) {
        answer(c, "200 OK", "",
               "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>"
               "</ListMultipartUploadsResult>");
        return;
    }
    (void)get_parameter(c, "prefix", prefix, sizeof(prefix));
    (void)get_parameter(c, "delimiter", delimiter, sizeof(delimiter));
    if (!get_parameter(c, "continuation-token", after, sizeof(after)))
        (void)get_parameter(c, "start-after", after, sizeof(after));
    size_t keys = get_parameter(c, "max-keys", max_keys, sizeof(max_keys))
                      ? strtoul(max_keys, NULL, 10)
                      : 1000;
    server_print(&xml,
                 "<ListBucketResult><Name>" BUCKET "</Name><Prefix>%s</Prefix><MaxKeys>%zu"
                 "</MaxKeys>",
                 prefix, keys);
    server_list(prefix, after, delimiter[0], keys < 1000 ? keys : 1000, &xml);
    server_print(&xml, "</ListBucketResult>");
    answer(c, "200 OK", "Content-Type: application/xml\r\n", xml.bytes);
    free(xml.bytes);
}

static void answer_get(struct connection *c)
{
    char text[32];

    if (strcmp(c->target, "/!requests") == 0) {
        snprintf(text, sizeof(text), "%llu", atomic_fetch_sub(&request_count, 1) - 1);
        answer(c, "200 OK", "", text);
    } else if (strcmp(c->target, "/!delay") == 0 && get_parameter(c, "ms", text, sizeof(text))) {
        atomic_store(&delay_ms, (unsigned)strtoul(text, NULL, 10));
        answer(c, "200 OK", "", "");
    } else if (c->key[0] != '\0') {
        get(c);
    } else if (strcmp(c->method, "HEAD") == 0) {
        answer(c, "200 OK", "", "");
    } else {
        list(c);
    }
}

static void answer_delete(struct connection *c)
{
    char id[64];

    if (get_parameter(c, "uploadId", id, sizeof(id)))
        server_upload_abort(strtoull(id, NULL, 10));
    else
        server_object_delete(c->key);
    answer(c, "204 No Content", "", "");
}

static bool serve_request(struct connection *c)
{
    struct server_piece body = {0};

    if (!read_head(c) || !parse_target(c))
        return false;
    atomic_fetch_add(&request_count, 1);
    if ((strcmp(c->method, "PUT") == 0 || strcmp(c->method, "POST") == 0) && !read_body(c, &body)) {
        server_memory_free(body.bytes);
        return false;
    }
    if (atomic_load(&delay_ms) != 0)
        (void)usleep(1000 * atomic_load(&delay_ms));
    const char *source = find_header(c, "x-amz-copy-source");
    if (strcmp(c->method, "PUT") == 0 && source != NULL) {
        copy(c, source);
        server_memory_free(body.bytes);
    } else if (strcmp(c->method, "PUT") == 0)
        put(c, body);
    else if (strcmp(c->method, "POST") == 0)
        post(c, body);
    else if (strcmp(c->method, "DELETE") == 0)
        answer_delete(c);
    else
        answer_get(c);
    memmove(c->head, c->head + c->end, c->used - c->end);
    c->used -= c->end;
    return !c->is_broken;
}

static void *serve_connection(void *argument)
{
    struct connection *c = argument;

    while (serve_request(c)) {
    }
    (void)close(c->fd);
    free(c);
    return NULL;
}

static void *accept_connections(void *argument)
{
    int listening = *(int *)argument;

    for (;;) {
        struct connection *c = calloc(1, sizeof(*c));
        int one = 1, bytes = SOCKET_BYTES;
        pthread_t thread;
        if (c == NULL || (c->fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC)) < 0)
            exit(1);
        (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void)setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
        if (pthread_create(&thread, NULL, serve_connection, c) != 0)
            exit(1);
        (void)pthread_detach(thread);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *where = argc == 2 ? argv[1] : "127.0.0.1";
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof(address);
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_t thread;
    char byte;

    server_bucket_init();
    if (inet_pton(AF_INET, where, &address.sin_addr) != 1 || listening < 0 ||
        bind(listening, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listening, 256) != 0 ||
        getsockname(listening, (struct sockaddr *)&address, &length) != 0 ||
        pthread_create(&thread, NULL, accept_connections, &listening) != 0) {
        perror("object-server");
        return 1;
    }
    printf("{\"endpoint\": \"http://%s:%u\", \"bucket\": \"" BUCKET "\"}\n", where,
           ntohs(address.sin_port));
    (void)fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
}
