/* SPDX-License-Identifier: BSD-3-Clause */
/* curl_loop.c -- uploads and reads an object with libcurl, on one thread and several connections.
 */
#include "curl_loop.h"

#include <curl/curl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONNECTIONS 64u
#define BUFFER_BYTES (512L << 10)

/* One connection and the piece of the object that it moves. */
struct connection {
    CURL *easy;
    unsigned char *memory;
    size_t length, done;
};

struct response {
    char *bytes;
    size_t capacity, length;
};

static void require(bool is_true, const char *what)
{
    if (!is_true)
        bench_die("curl: %s", what);
}

static size_t read_piece(char *to, size_t one, size_t room, void *context)
{
    struct connection *connection = context;
    size_t length = connection->length - connection->done;

    length = length < one * room ? length : one * room;
    memcpy(to, connection->memory + connection->done, length);
    connection->done += length;
    return length;
}

static size_t store_piece(char *from, size_t one, size_t length, void *context)
{
    struct connection *connection = context;

    if (one * length > connection->length - connection->done)
        return 0;
    memcpy(connection->memory + connection->done, from, length);
    connection->done += length;
    return length;
}

static size_t store_text(char *from, size_t one, size_t length, void *context)
{
    struct response *response = context;

    (void)one;
    if (response->length + length < response->capacity)
        memcpy(response->bytes + response->length, from, length);
    response->length += length;
    return length;
}

static size_t discard(char *from, size_t one, size_t length, void *context)
{
    (void)from;
    (void)context;
    return one * length;
}

/* Make a small request on a connection of its own. */
static void request(const char *url, const char *method, char *text, size_t bytes)
{
    struct response response = {.bytes = text, .capacity = bytes};
    CURL *easy = curl_easy_init();

    require(easy != NULL, "no memory");
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(easy, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, store_text);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &response);
    require(curl_easy_perform(easy) == CURLE_OK, url);
    curl_easy_cleanup(easy);
    if (bytes != 0)
        text[response.length < bytes ? response.length : bytes - 1] = '\0';
}

void curl_loop_text(const char *url, char *text, size_t bytes)
{
    request(url, "GET", text, bytes);
}

void curl_loop_delete(const struct curl_loop *loop, const char *key)
{
    char url[1024];

    snprintf(url, sizeof(url), "%s/%s", loop->url, key);
    request(url, "DELETE", NULL, 0);
}

struct transfer {
    const struct curl_loop *loop;
    char base[1200]; /* the URL of a piece begins with it */
    bool is_upload;
    unsigned char *memory;
    uint64_t bytes;
    uint64_t next; /* number of the next piece */
    struct curl_slist *headers;
};

/* Assign the next piece to ${connection}. False: there is none. */
static bool next_piece(struct transfer *t, struct connection *connection)
{
    uint64_t begin = t->next * t->loop->piece_bytes;
    char text[1300];

    if (begin >= t->bytes)
        return false;
    t->next++;
    connection->memory = t->memory + begin;
    connection->length =
        (size_t)(t->bytes - begin < t->loop->piece_bytes ? t->bytes - begin : t->loop->piece_bytes);
    connection->done = 0;
    if (!t->is_upload) {
        snprintf(text, sizeof(text), "%llu-%llu", (unsigned long long)begin,
                 (unsigned long long)(begin + connection->length - 1));
        curl_easy_setopt(connection->easy, CURLOPT_RANGE, text);
        return true;
    }
    if (t->loop->hashes) {
        struct sha256_ctx sha;
        uint8_t digest[SHA256_DIGEST_SIZE];
        sha256_init(&sha);
        sha256_update(&sha, connection->length, connection->memory);
        sha256_digest(&sha, sizeof(digest), digest);
    }
    snprintf(text, sizeof(text), "%s&partNumber=%llu", t->base, (unsigned long long)t->next);
    curl_easy_setopt(connection->easy, CURLOPT_URL, text);
    curl_easy_setopt(connection->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)connection->length);
    return true;
}

static void open_connection(const struct transfer *t, struct connection *connection)
{
    connection->easy = curl_easy_init();
    require(connection->easy != NULL, "no memory");
    curl_easy_setopt(connection->easy, CURLOPT_PRIVATE, connection);
    curl_easy_setopt(connection->easy, CURLOPT_URL, t->base);
    curl_easy_setopt(connection->easy, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(connection->easy, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(connection->easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    if (t->is_upload) {
        curl_easy_setopt(connection->easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(connection->easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
        curl_easy_setopt(connection->easy, CURLOPT_READFUNCTION, read_piece);
        curl_easy_setopt(connection->easy, CURLOPT_READDATA, connection);
        curl_easy_setopt(connection->easy, CURLOPT_WRITEFUNCTION, discard);
    } else {
        curl_easy_setopt(connection->easy, CURLOPT_WRITEFUNCTION, store_piece);
        curl_easy_setopt(connection->easy, CURLOPT_WRITEDATA, connection);
    }
}

/* Start the next piece on each connection that has finished one. Returns the number of connections
 * that have no further piece. */
static unsigned start_next_pieces(struct transfer *t, CURLM *multi)
{
    const CURLMsg *message;
    unsigned ended = 0;
    int left;

    while ((message = curl_multi_info_read(multi, &left)) != NULL) {
        struct connection *connection = NULL;
        CURL *easy = message->easy_handle;
        require(message->data.result == CURLE_OK, curl_easy_strerror(message->data.result));
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&connection);
        require(connection->done == connection->length, "a piece is truncated");
        curl_multi_remove_handle(multi, easy);
        if (next_piece(t, connection))
            curl_multi_add_handle(multi, easy);
        else
            ended++;
    }
    return ended;
}

static void move_all(struct transfer *t)
{
    struct connection connections[MAX_CONNECTIONS] = {{0}};
    CURLM *multi = curl_multi_init();
    unsigned open = 0, count = 0;
    int running;

    require(multi != NULL && t->loop->connections <= MAX_CONNECTIONS, "cannot start the transfer");
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)t->loop->connections);
    for (; count < t->loop->connections; count++) {
        open_connection(t, &connections[count]);
        if (next_piece(t, &connections[count])) {
            curl_multi_add_handle(multi, connections[count].easy);
            open++;
        }
    }
    while (open != 0) {
        require(curl_multi_perform(multi, &running) == CURLM_OK, "the transfer failed");
        open -= start_next_pieces(t, multi);
        if (open != 0)
            curl_multi_poll(multi, NULL, 0, 1000, NULL);
    }
    for (unsigned i = 0; i < count; i++)
        curl_easy_cleanup(connections[i].easy);
    curl_multi_cleanup(multi);
}

static void begin_upload(struct transfer *t, const char *key)
{
    char url[1100], answer[2048];

    snprintf(url, sizeof(url), "%s/%s?uploads=", t->loop->url, key);
    request(url, "POST", answer, sizeof(answer));
    const char *id = strstr(answer, "<UploadId>");
    require(id != NULL, "the response has no upload id");
    snprintf(t->base, sizeof(t->base), "%s/%s?uploadId=%.*s", t->loop->url, key,
             (int)strcspn(id + 10, "<"), id + 10);
}

double curl_loop_put(const struct curl_loop *loop, const char *key, const void *memory,
                     uint64_t bytes)
{
    struct transfer t = {.loop = loop,
                         .is_upload = true,
                         .memory = (unsigned char *)(uintptr_t)memory,
                         .bytes = bytes,
                         .headers = curl_slist_append(NULL, "Expect:")};
    char answer[2048];
    double began = bench_now();

    begin_upload(&t, key);
    move_all(&t);
    request(t.base, "POST", answer, sizeof(answer));
    double seconds = bench_now() - began;
    curl_slist_free_all(t.headers);
    return seconds;
}

double curl_loop_get(const struct curl_loop *loop, const char *key, void *memory, uint64_t bytes)
{
    struct transfer t = {.loop = loop, .memory = memory, .bytes = bytes};
    double began = bench_now();

    snprintf(t.base, sizeof(t.base), "%s/%s", loop->url, key);
    move_all(&t);
    return bench_now() - began;
}
