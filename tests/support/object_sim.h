/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_sim.h -- a bucket in memory: the requests of object/client.h, each one atomic, with the
 * faults that object stores have.
 *
 * Every request asks a hook what happens to it. It is carried out, or refused, or it is carried out
 * and its answer gets lost, or it is late: the client hears an error, and the request is carried
 * out by a later call of object_sim_land(), if its signature is still valid then. Or it is left
 * out, as if the client had not made it: it hears that all went well. The bucket has a clock of its
 * own, which only object_sim_advance() moves.
 *
 * A bucket may be used by many threads. The hook is called without locks held, so it may switch to
 * another coroutine.
 */
#ifndef SUPPORT_OBJECT_SIM_H
#define SUPPORT_OBJECT_SIM_H

#include "object/object_store.h"

struct object_bucket;

enum object_fate {
    OBJECT_DONE,    /* carried out */
    OBJECT_REFUSED, /* EIO, and nothing happened */
    OBJECT_LOST,    /* carried out, but the client hears ETIMEDOUT */
    OBJECT_LATE,    /* ETIMEDOUT; object_sim_land() may carry it out (puts, completions, deletes) */
    OBJECT_SKIPPED, /* nothing happened, and the client hears OK; what it asks for is not there */
    OBJECT_RESET,   /* as OBJECT_LATE, but the client hears EIO: the connection was closed */
};

/* What the bucket does not do as AWS does. */
#define OBJECT_SIM_IGNORES_CONDITIONS 1u
#define OBJECT_SIM_REFUSES_CONDITIONS 2u /* 501 */
#define OBJECT_SIM_IGNORES_IF_MATCH 4u   /* but keeps If-None-Match */

typedef enum object_fate object_hook(void *context, int client, const char *request,
                                     const char *key);

/* NULL: memory is short. Parts but the last must have ${min_part_bytes}; 0: any. */
struct object_bucket *object_sim_new(unsigned flags, size_t min_part_bytes);
void object_sim_free(struct object_bucket **bucket);
/* A copy, without its hook. NULL: memory is short. */
struct object_bucket *object_sim_clone(const struct object_bucket *bucket);
/* Two buckets with the same contents, ages, uploads and late requests have the same hash. */
uint64_t object_sim_hash(const struct object_bucket *bucket);
void object_sim_set_hook(struct object_bucket *bucket, object_hook *hook, void *context);
/* A client with number ${number}; free it with object_client_free(). NULL: memory is short. */
struct object_client *object_sim_client(struct object_bucket *bucket, int number);
/* The client is gone: all that it asks from now on fails with EIO and does nothing. Late requests
 * of it stay. */
void object_sim_die(struct object_bucket *bucket, int number);

/* Let ${seconds} pass on the bucket's clock. */
void object_sim_advance(struct object_bucket *bucket, int64_t seconds);
/* Late requests that wait. */
size_t object_sim_late_count(const struct object_bucket *bucket);
/* Carry out late request ${index}, unless its signature is no longer valid or its condition does
 * not hold. Either way it is no longer late. */
void object_sim_land(struct object_bucket *bucket, size_t index);

/* Requests so far, and what is there, for assertions. */
uint64_t object_sim_request_count(const struct object_bucket *bucket);
size_t object_sim_count(const struct object_bucket *bucket);        /* objects */
size_t object_sim_upload_count(const struct object_bucket *bucket); /* uploads under way */
/* The bytes of an object, which stay valid until it changes; NULL: there is none. */
const uint8_t *object_sim_bytes(struct object_bucket *bucket, const char *key, size_t *length);
/* Put an object as somebody else would. False: memory is short. */
bool object_sim_put(struct object_bucket *bucket, const char *key, const void *bytes,
                    size_t length);
/* Flip a bit of an object. */
void object_sim_flip(struct object_bucket *bucket, const char *key, size_t at);
/* The key at ${index} in byte order; NULL: there are fewer. */
const char *object_sim_key(const struct object_bucket *bucket, size_t index);

#endif
