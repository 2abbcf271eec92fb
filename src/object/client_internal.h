/* SPDX-License-Identifier: BSD-3-Clause */
/* client_internal.h -- the members of a client; for client*.c and request*.c. */
#ifndef OBJECT_CLIENT_INTERNAL_H
#define OBJECT_CLIENT_INTERNAL_H

#include "object/client.h"
#include "object/credentials.h"
#include "object/endpoint.h"
#include "object/request.h"

struct client {
    struct object_client base;
    /* Constant. */
    pid_t owner; /* the process with the driver thread */
    unsigned max_requests;
    unsigned near_reads;       /* concurrent reads from a store with low latency */
    uint64_t bytes_per_second; /* 0: no limit */
    uint64_t deadline_ns;
    const atomic_bool *cancelled; /* may be NULL */
    bool leaves_bodies_unsigned;  /* the user trusts the network, also without TLS */
    struct transport *transport;
    struct credentials *credentials;
    char description[ENDPOINT_HOST_BYTES + ENDPOINT_REGION_BYTES + 32];

    /* What earlier answers showed. */
    atomic_bool has_contact;      /* the host has answered */
    atomic_bool has_bucket;       /* the bucket exists */
    atomic_bool has_no_checksums; /* the store refuses checksum headers */
    atomic_bool has_bare_tags;    /* the store compares If-Match with the unquoted tag */
    atomic_uint_fast64_t request_count;
    atomic_uint_fast64_t retry_count;
    _Atomic uint64_t latency_ns;  /* from a request to the first byte of its answer; 0: unknown */
    _Atomic int64_t clock_offset; /* the store's clock minus this host's, in seconds */

    struct {
        struct lock lock LOCK_KIND(CLIENT);
        struct lock_condition freed;
        unsigned in_flight GUARDED_BY(&lock);
        uint64_t next_send_ns GUARDED_BY(&lock);    /* when the next body may be sent */
        struct endpoint endpoint GUARDED_BY(&lock); /* changes if the bucket is in another region */
    } shared;
};

static inline struct client *client_of(struct object_client *base)
{
    return (struct client *)base;
}

/* The requests of client.h, by file: client_object.c, client_delete.c, client_list.c,
 * client_upload.c. */
enum sidestep_status client_head(struct object_client *base, const char *key,
                                 struct object_info *info, struct sidestep_error *err);
enum sidestep_status client_get(struct object_client *base, const char *key, uint64_t offset,
                                const struct store_places *to, const char *tag,
                                struct object_info *info, struct sidestep_error *err);
enum sidestep_status client_get_all(struct object_client *base, const char *key, size_t most,
                                    struct buffer *out, struct object_info *info,
                                    struct sidestep_error *err);
enum sidestep_status client_put(struct object_client *base, const char *key, const void *bytes,
                                size_t length, const struct object_condition *condition,
                                char tag[OBJECT_TAG_BYTES], struct sidestep_error *err);
enum sidestep_status client_delete_keys(struct object_client *base, const char *const *keys,
                                        size_t count, struct sidestep_error *err);
enum sidestep_status client_delete_version(struct object_client *base, const char *key,
                                           const char *tag, struct sidestep_error *err);
enum sidestep_status client_list(struct object_client *base, const char *prefix, char delimiter,
                                 const char *after, unsigned most, object_each *each, void *context,
                                 struct sidestep_error *err);
enum sidestep_status client_upload_begin(struct object_client *base, const char *key,
                                         const char *maker, char upload_id[OBJECT_UPLOAD_ID_BYTES],
                                         struct sidestep_error *err);
enum sidestep_status client_upload_part(struct object_client *base, const char *key,
                                        const char *upload_id, unsigned number, const void *bytes,
                                        size_t length, struct object_part *part,
                                        struct sidestep_error *err);
enum sidestep_status client_upload_complete(struct object_client *base, const char *key,
                                            const char *upload_id, const struct object_part *parts,
                                            unsigned count, uint64_t length,
                                            const struct object_condition *condition,
                                            struct object_info *info, struct sidestep_error *err);
enum sidestep_status client_upload_abort(struct object_client *base, const char *key,
                                         const char *upload_id, struct sidestep_error *err);
enum sidestep_status client_upload_list(struct object_client *base, const char *prefix,
                                        object_each_upload *each, void *context,
                                        struct sidestep_error *err);

bool client_is_cancelled(const struct client *client);
/* False: cancelled. */
bool client_sleep(const struct client *client, uint64_t ms);
/* Wait until fewer than ${max_requests} are in flight.  False: cancelled. */
bool client_acquire_slot(struct client *client);
void client_release_slot(struct client *client);
/* ${ns}: from a request to the first byte of its answer; 0: unknown. */
void client_record_latency(struct client *client, uint64_t ns);
/* Wait until the bandwidth limit allows ${bytes} to be sent.  False: cancelled. */
bool client_wait_for_bandwidth(struct client *client, uint64_t bytes);
struct endpoint client_endpoint(struct client *client);
/* Send later requests to ${endpoint}. */
void client_set_endpoint(struct client *client, const struct endpoint *endpoint);

/* EINVAL: the key is empty, too long, or not UTF-8 without control characters. */
enum sidestep_status client_check_key(const char *doing, const char *key,
                                      struct sidestep_error *err);
/* Send a request that writes ${key} on the condition that it has ${tag}.  ${send} receives the tag
 * in the form that this store compares (client_condition.c). */
typedef enum sidestep_status client_send(struct client *client, const char *key, const char *tag,
                                         void *context, struct sidestep_error *err);
enum sidestep_status client_send_if(struct client *client, const char *key, const char *tag,
                                    client_send *send, void *context, struct sidestep_error *err);
/* Set the fields of ${info} that are known from headers. */
void client_fill_info(const struct answer *answer, struct object_info *info);
/* Base64 of a CRC-32C, as in headers, and a NUL. */
#define CLIENT_CRC32C_CHARACTERS 9u
uint32_t client_crc32c(const void *bytes, size_t length);
void client_crc32c_text(uint32_t crc, char text[CLIENT_CRC32C_CHARACTERS]);

#endif
