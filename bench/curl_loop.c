/* SPDX-License-Identifier: BSD-3-Clause */
/* curl_loop.c -- see curl_loop.h. */
#include "curl_loop.h"

#include <curl/curl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CONNECTIONS 64u
#define BUFFER_BYTES (512L << 10)

/* One connection and the piece that it moves. */
struct lane {
    CURL *easy;
    unsigned char *memory;
    size_t length, done;
};

struct text {
    char *bytes;
    size_t capacity, length;
};

static void need(bool fine, const char *what)
{
    if (!fine)
        bench_die("curl: %s", what);
}

static size_t give(char *to, size_t one, size_t room, void *context)
{
    struct lane *lane = context;
    size_t length = lane->length - lane->done;

    length = length < one * room ? length : one * room;
    memcpy(to, lane->memory + lane->done, length);
    lane->done += length;
    return length;
}

static size_t take(char *from, size_t one, size_t length, void *context)
{
    struct lane *lane = context;

    if (one * length > lane->length - lane->done)
        return 0;
    memcpy(lane->memory + lane->done, from, length);
    lane->done += length;
    return length;
}

static size_t take_text(char *from, size_t one, size_t length, void *context)
{
    struct text *text = context;

    (void)one;
    if (text->length + length < text->capacity)
        memcpy(text->bytes + text->length, from, length);
    text->length += length;
    return length;
}

static size_t take_nothing(char *from, size_t one, size_t length, void *context)
{
    (void)from;
    (void)context;
    return one * length;
}

/* A small request on a connection of its own. */
static void ask(const char *url, const char *method, char *answer, size_t bytes)
{
    struct text text = {.bytes = answer, .capacity = bytes};
    CURL *easy = curl_easy_init();

    need(easy != NULL, "no memory");
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(easy, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_text);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &text);
    need(curl_easy_perform(easy) == CURLE_OK, url);
    curl_easy_cleanup(easy);
    if (bytes != 0)
        answer[text.length < bytes ? text.length : bytes - 1] = '\0';
}

void curl_loop_text(const char *url, char *text, size_t bytes)
{
    ask(url, "GET", text, bytes);
}

void curl_loop_delete(const struct curl_loop *loop, const char *key)
{
    char url[1024];

    snprintf(url, sizeof(url), "%s/%s", loop->url, key);
    ask(url, "DELETE", NULL, 0);
}

struct transfer {
    const struct curl_loop *loop;
    char base[1200]; /* of the URL of a piece */
    bool is_upload;
    unsigned char *memory;
    uint64_t bytes;
    uint64_t next; /* piece */
    struct curl_slist *headers;
};

/* Set the next piece for ${lane}. False: there is none. */
static bool next_piece(struct transfer *t, struct lane *lane)
{
    uint64_t begin = t->next * t->loop->piece_bytes;
    char text[1300];

    if (begin >= t->bytes)
        return false;
    t->next++;
    lane->memory = t->memory + begin;
    lane->length =
        (size_t)(t->bytes - begin < t->loop->piece_bytes ? t->bytes - begin : t->loop->piece_bytes);
    lane->done = 0;
    if (!t->is_upload) {
        snprintf(text, sizeof(text), "%llu-%llu", (unsigned long long)begin,
                 (unsigned long long)(begin + lane->length - 1));
        curl_easy_setopt(lane->easy, CURLOPT_RANGE, text);
        return true;
    }
    if (t->loop->hashes) {
        struct sha256_ctx sha;
        uint8_t digest[SHA256_DIGEST_SIZE];
        sha256_init(&sha);
        sha256_update(&sha, lane->length, lane->memory);
        sha256_digest(&sha, sizeof(digest), digest);
    }
    snprintf(text, sizeof(text), "%s&partNumber=%llu", t->base, (unsigned long long)t->next);
    curl_easy_setopt(lane->easy, CURLOPT_URL, text);
    curl_easy_setopt(lane->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)lane->length);
    return true;
}

static void open_lane(const struct transfer *t, struct lane *lane)
{
    lane->easy = curl_easy_init();
    need(lane->easy != NULL, "no memory");
    curl_easy_setopt(lane->easy, CURLOPT_PRIVATE, lane);
    curl_easy_setopt(lane->easy, CURLOPT_URL, t->base);
    curl_easy_setopt(lane->easy, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(lane->easy, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(lane->easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    if (t->is_upload) {
        curl_easy_setopt(lane->easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(lane->easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
        curl_easy_setopt(lane->easy, CURLOPT_READFUNCTION, give);
        curl_easy_setopt(lane->easy, CURLOPT_READDATA, lane);
        curl_easy_setopt(lane->easy, CURLOPT_WRITEFUNCTION, take_nothing);
    } else {
        curl_easy_setopt(lane->easy, CURLOPT_WRITEFUNCTION, take);
        curl_easy_setopt(lane->easy, CURLOPT_WRITEDATA, lane);
    }
}

/* Give every lane that is through its next piece. Returns how many have ended. */
static unsigned go_on(struct transfer *t, CURLM *multi)
{
    const CURLMsg *message;
    unsigned ended = 0;
    int left;

    while ((message = curl_multi_info_read(multi, &left)) != NULL) {
        struct lane *lane = NULL;
        CURL *easy = message->easy_handle;
        need(message->data.result == CURLE_OK, curl_easy_strerror(message->data.result));
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&lane);
        need(lane->done == lane->length, "a piece is short");
        curl_multi_remove_handle(multi, easy);
        if (next_piece(t, lane))
            curl_multi_add_handle(multi, easy);
        else
            ended++;
    }
    return ended;
}

static void move_all(struct transfer *t)
{
    struct lane lanes[MOST_CONNECTIONS] = {{0}};
    CURLM *multi = curl_multi_init();
    unsigned open = 0, count = 0;
    int running;

    need(multi != NULL && t->loop->connections <= MOST_CONNECTIONS, "cannot begin");
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)t->loop->connections);
    for (; count < t->loop->connections; count++) {
        open_lane(t, &lanes[count]);
        if (next_piece(t, &lanes[count])) {
            curl_multi_add_handle(multi, lanes[count].easy);
            open++;
        }
    }
    while (open != 0) {
        need(curl_multi_perform(multi, &running) == CURLM_OK, "cannot go on");
        unsigned ended = go_on(t, multi);
        open -= ended;
        if (open != 0)
            curl_multi_poll(multi, NULL, 0, 1000, NULL);
    }
    for (unsigned i = 0; i < count; i++)
        curl_easy_cleanup(lanes[i].easy);
    curl_multi_cleanup(multi);
}

static void begin_upload(struct transfer *t, const char *key)
{
    char url[1100], answer[2048];

    snprintf(url, sizeof(url), "%s/%s?uploads=", t->loop->url, key);
    ask(url, "POST", answer, sizeof(answer));
    const char *id = strstr(answer, "<UploadId>");
    need(id != NULL, "the answer has no upload id");
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
    ask(t.base, "POST", answer, sizeof(answer));
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
