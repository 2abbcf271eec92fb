/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_sim.h -- a bucket in memory: the requests of object/client.h, each one atomic, with the
 * faults that object stores have.
 *
 * A hook decides the fate of every request (enum object_fate). A late request returns an error to
 * the client, and object_sim_land() carries it out later, if its signature is still valid then. The
 * bucket has its own clock, which only object_sim_advance() changes.
 *
 * Many threads may use a bucket. The hook is called without locks held, so it may switch to another
 * coroutine.
 */
#ifndef SUPPORT_OBJECT_SIM_H
#define SUPPORT_OBJECT_SIM_H

#include "object/object_store.h"

struct object_bucket;

enum object_fate {
    OBJECT_DONE,    /* carried out */
    OBJECT_REFUSED, /* not carried out; the client gets EIO */
    OBJECT_LOST,    /* carried out, but the client gets ETIMEDOUT */
    OBJECT_LATE,    /* ETIMEDOUT; object_sim_land() may carry it out (puts, completions, deletes) */
    OBJECT_SKIPPED, /* not carried out, but the client gets OK; a read finds no object */
    OBJECT_RESET,   /* as OBJECT_LATE, but the client gets EIO: the connection was closed */
    /* What a client gets whose repetition is refused for certain (403): after an attempt that was
     * carried out; after one that is late; and after none, EPERM. */
    OBJECT_LOST_THEN_REFUSED,
    OBJECT_LATE_THEN_REFUSED,
    OBJECT_FORBIDDEN,
};

/* How the bucket differs from AWS. */
#define OBJECT_SIM_IGNORES_CONDITIONS 1u
#define OBJECT_SIM_REFUSES_CONDITIONS 2u /* 501 */
#define OBJECT_SIM_IGNORES_IF_MATCH 4u   /* but not If-None-Match */

typedef enum object_fate object_hook(void *context, int client, const char *request,
                                     const char *key);

/* A hook whose context this is: request number ${at} meets ${fate}, all others nothing. */
struct object_meeting {
    unsigned seen, at;
    enum object_fate fate;
};
object_hook object_sim_meet;

/* NULL: out of memory. Parts but the last must have ${min_part_bytes}; 0: any. */
struct object_bucket *object_sim_new(unsigned flags, size_t min_part_bytes);
void object_sim_free(struct object_bucket **bucket);
/* A copy, without its hook. NULL: out of memory. */
struct object_bucket *object_sim_clone(const struct object_bucket *bucket);
/* Two buckets with the same contents, ages, uploads and late requests have the same hash. */
uint64_t object_sim_hash(const struct object_bucket *bucket);
void object_sim_set_hook(struct object_bucket *bucket, object_hook *hook, void *context);
/* A client with number ${number}; free it with object_client_free(). NULL: out of memory. */
struct object_client *object_sim_client(struct object_bucket *bucket, int number);
/* Kill a client: all its later requests fail with EIO and do nothing. Its late requests stay. */
void object_sim_die(struct object_bucket *bucket, int number);

/* Let ${seconds} pass on the bucket's clock. */
void object_sim_advance(struct object_bucket *bucket, int64_t seconds);
/* The number of late requests. */
size_t object_sim_late_count(const struct object_bucket *bucket);
/* Carry out late request ${index}, unless its signature is no longer valid or its condition does
 * not hold. Either way it is no longer late. */
void object_sim_land(struct object_bucket *bucket, size_t index);

/* For assertions: the number of requests so far, and the contents of the bucket. */
uint64_t object_sim_request_count(const struct object_bucket *bucket);
size_t object_sim_count(const struct object_bucket *bucket);        /* objects */
size_t object_sim_upload_count(const struct object_bucket *bucket); /* uploads under way */
/* The bytes of an object, which stay valid until it changes; NULL: there is none. */
const uint8_t *object_sim_bytes(struct object_bucket *bucket, const char *key, size_t *length);
/* Put an object without a client. False: out of memory. */
bool object_sim_put(struct object_bucket *bucket, const char *key, const void *bytes,
                    size_t length);
/* Flip a bit of an object. */
void object_sim_flip(struct object_bucket *bucket, const char *key, size_t at);
/* The key at ${index} in byte order; NULL: there are fewer. */
const char *object_sim_key(const struct object_bucket *bucket, size_t index);

#endif
