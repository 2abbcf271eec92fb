/* SPDX-License-Identifier: BSD-3-Clause */
/* object_server.h -- a bucket in memory that an HTTP/1.1 server offers, for measurements only.
 *
 * It checks no signature and no checksum and computes no hash, so that it costs little more than
 * moving the bytes through the kernel. Each connection has a thread. The memory of deleted objects
 * is reused. The program ends when it is out of memory. */
#ifndef BENCH_OBJECT_SERVER_H
#define BENCH_OBJECT_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERVER_KEY_BYTES 1100u
#define SERVER_MAX_PARTS 10001u

/* Bytes of an object: the body of a PUT, or one part of an upload. */
struct server_piece {
    unsigned char *bytes;
    size_t length;
};

/* Does not change while it is in the bucket, except ${users}. */
struct server_object {
    char *key;
    unsigned users; /* count of references, guarded by the bucket's lock */
    uint64_t tag;
    long modified;
    uint64_t length;
    size_t piece_count;
    struct server_piece *pieces;
};

enum server_condition { SERVER_ALWAYS, SERVER_IF_ABSENT, SERVER_IF_TAG };

/* Any thread may call these functions: they take the bucket's lock. */
void server_bucket_init(void);
unsigned char *server_memory(size_t bytes);
void server_memory_free(unsigned char *bytes);
/* NULL: there is no such object. The caller must server_object_release() it. */
struct server_object *server_object_get(const char *key);
void server_object_release(struct server_object *object);
/* Takes ownership of ${pieces}. Returns the tag; 0: the condition is not met. */
uint64_t server_object_put(const char *key, struct server_piece *pieces, size_t count,
                           enum server_condition condition, uint64_t tag);
void server_object_delete(const char *key);
struct server_text {
    char *bytes;
    size_t length, capacity;
};
__attribute__((format(printf, 2, 3))) void server_print(struct server_text *text, const char *fmt,
                                                        ...);
/* Appends as XML up to ${max_keys} keys after ${after} that begin with ${prefix}. */
void server_list(const char *prefix, const char *after, char delimiter, size_t max_keys,
                 struct server_text *xml);

/* Uploads in parts; ${id}: what server_upload_begin() returned. */
uint64_t server_upload_begin(void);
bool server_upload_part(uint64_t id, unsigned number, struct server_piece piece);
/* Returns the tag; 0: there is no such upload. */
uint64_t server_upload_complete(uint64_t id, const char *key);
void server_upload_abort(uint64_t id);

#endif
