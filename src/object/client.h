/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * client.h -- requests to one bucket of an S3-compatible store.
 *
 * struct object_ops has one function per request. Each one sends it, and repeats it where that is
 * safe and useful: after 429, 500, 502, 503, 504, a reset, a short answer or a time-out, with
 * exponential back-off and full jitter, until the deadline (struct object_config). All of them
 * block.
 *
 * Messages say what was being done, "s3://BUCKET/KEY", the HTTP status, the store's own code and
 * message, the request id, and what to do. No message has a secret. Statuses:
 *   ENOTFOUND    the key does not exist (404 NoSuchKey)
 *   EINVAL       the bucket does not exist, or the URL, endpoint or region is wrong
 *   EPERM        401, 403: wrong or missing credentials, no permission, an expired token
 *   EEXISTS      412: the condition of a conditional request does not hold
 *   EUNSUPPORTED 501: the store does not support this request or condition
 *   ECORRUPT     every repeated answer contradicts itself or its checksum
 *   ETIMEDOUT    no usable answer before the deadline
 *   EABORTED     ${cancelled} was set
 *   ENOSPC       the store is full, or a quota is used up
 *   EIO          anything else
 * After ETIMEDOUT, EABORTED, ECORRUPT and EIO a request that writes may have been carried out, and
 * may still be carried out until its signature expires (OBJECT_SIGNATURE_SECONDS). After the other
 * statuses it was not, and will not be: if an earlier attempt may have been, a request that writes
 * ends with EIO, whatever the last attempt was told (403, 404, 412, 501 ...). Only a removal that
 * finds nothing to remove is certain. So a caller reads back what there is after one of the four.
 */
#ifndef OBJECT_CLIENT_H
#define OBJECT_CLIENT_H

#include <stdatomic.h>

#include "base/base.h"
#include "store/store.h"

#define OBJECT_TAG_BYTES 132u            /* an entity tag with its quotes, and a NUL */
#define OBJECT_UPLOAD_ID_BYTES 1025u     /* an upload id, and a NUL */
#define OBJECT_KEY_BYTES 1025u           /* a key, UTF-8, and a NUL */
#define OBJECT_MIN_PART_BYTES (5u << 20) /* of every part but the last */
#define OBJECT_MAX_PARTS 10000u
#define OBJECT_MAX_LISTED 1000u          /* keys in one answer, and keys of one delete_keys() */
#define OBJECT_SIGNATURE_SECONDS 900     /* a request that was signed longer ago is refused */
#define OBJECT_MAX_DEADLINE_SECONDS 600u /* upper limit of SIDESTEP_OBJECT_DEADLINE_MS */

/* The settings of a client. A field that is zero is set from the environment, then the default:
 * the comments name both. Strings are copied. */
struct object_config {
    const char *endpoint; /* "https://host[:port]"; AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL; AWS */
    const char *region;   /* AWS_REGION, AWS_DEFAULT_REGION, the profile; "us-east-1" */
    const char *profile;  /* AWS_PROFILE; "default" */
    /* In flight; SIDESTEP_OBJECT_REQUESTS; 64, of which 16 read if the latency is low. */
    unsigned max_requests;
    uint64_t bytes_per_second; /* sent; SIDESTEP_OBJECT_BYTES_PER_SECOND; no limit */
    /* For a request with all its repetitions; SIDESTEP_OBJECT_DEADLINE_MS; 5 minutes. */
    uint64_t deadline_ns;
    unsigned stall_seconds;       /* a connection that is idle for so long is closed; 30 */
    const atomic_bool *cancelled; /* if set, waits and repetitions end; may be NULL */
};

#define OBJECT_MAKER_BYTES 33u /* 32 characters, and a NUL */

/* The condition of a request that writes. At most one of the first two is set. */
struct object_condition {
    bool if_absent;     /* If-None-Match: * */
    const char *if_tag; /* If-Match: this tag; NULL: none */
    /* Who writes the object: kept with it, and returned by head(), so that a writer that got no
     * answer can check. NULL: unknown. Of an upload: as given to upload_begin(). */
    const char *maker;
};

struct object_info {
    char key[OBJECT_KEY_BYTES]; /* list() and upload_list() only; "" otherwise */
    char tag[OBJECT_TAG_BYTES];
    char maker[OBJECT_MAKER_BYTES]; /* head() and get() only; "": unknown */
    uint64_t bytes;
    int64_t modified; /* seconds since 1970, by the store's clock */
    int64_t now;      /* the store's clock when it answered (Date); 0: unknown */
};

/* A part of a multipart upload. */
struct object_part {
    char tag[OBJECT_TAG_BYTES]; /* "": this part was not sent */
    uint32_t crc32c;            /* of its bytes */
    bool is_checked;            /* the store has checked the CRC, and keeps it */
};

typedef bool object_each(void *context, const struct object_info *info);
typedef bool object_each_upload(void *context, const struct object_info *info,
                                const char *upload_id);

/* Implementations embed it as their first member. */
struct object_client {
    const struct object_ops *ops;
};

/* The requests. Tests put a simulated bucket behind the same table. */
struct object_ops {
    enum sidestep_status (*head)(struct object_client *client, const char *key,
                                 struct object_info *info, struct sidestep_error *err);
    /* Fill ${to}, at least one byte, with the bytes from ${offset} on. ${tag}: only of that version
     * (If-Match; EEXISTS: it changed); NULL: of any. ${info} may be NULL; its size is that of the
     * whole object. ECORRUPT: the object is shorter. */
    enum sidestep_status (*get)(struct object_client *client, const char *key, uint64_t offset,
                                const struct store_places *to, const char *tag,
                                struct object_info *info, struct sidestep_error *err);
    /* Read a whole object of at most ${most} bytes (ECORRUPT: it is larger) and append it to
     * ${out}. */
    enum sidestep_status (*get_all)(struct object_client *client, const char *key, size_t most,
                                    struct buffer *out, struct object_info *info,
                                    struct sidestep_error *err);
    /* Put a whole object, of at most 5 GiB. ${condition} NULL: none. ${tag} receives the new entity
     * tag; may be NULL. ECORRUPT: the answer has none, so the outcome is unknown. EEXISTS: no
     * attempt was carried out, unless a proxy sent one twice. */
    enum sidestep_status (*put)(struct object_client *client, const char *key, const void *bytes,
                                size_t length, const struct object_condition *condition,
                                char tag[OBJECT_TAG_BYTES], struct sidestep_error *err);
    /* Delete up to OBJECT_MAX_LISTED keys with one request (one key: DELETE). A key that does not
     * exist counts as deleted. The error names the first key that the store refused to delete;
     * the others are deleted. */
    enum sidestep_status (*delete_keys)(struct object_client *client, const char *const *keys,
                                        size_t count, struct sidestep_error *err);
    /* Delete the version ${tag} of a key. EEXISTS: the key has another version. A key that does not
     * exist counts as deleted. Some stores refuse the condition (EUNSUPPORTED: nothing was
     * deleted); others ignore it, and delete any version. */
    enum sidestep_status (*delete_version)(struct object_client *client, const char *key,
                                           const char *tag, struct sidestep_error *err);
    /* Call ${each} for every key that starts with ${prefix}, in byte order, and stop when it
     * returns false. With ${delimiter} '/', keys are cut after the first '/' that follows the
     * prefix, and such a common prefix is passed once, with bytes 0 and an empty tag. 0: no
     * delimiter. ${after}: only keys after this one; NULL: all. ${most}: the highest number of
     * keys; 0: all. One request per 1,000 keys. ${each} runs on the caller's thread. ECORRUPT: the
     * listing repeats itself, or is not in order. */
    enum sidestep_status (*list)(struct object_client *client, const char *prefix, char delimiter,
                                 const char *after, unsigned most, object_each *each, void *context,
                                 struct sidestep_error *err);

    /* ---- multipart uploads: the object appears when the upload is completed ---- */

    /* ${maker}: as in a condition. */
    enum sidestep_status (*upload_begin)(struct object_client *client, const char *key,
                                         const char *maker, char upload_id[OBJECT_UPLOAD_ID_BYTES],
                                         struct sidestep_error *err);
    /* Send part ${number} (1 to OBJECT_MAX_PARTS), from any thread, in any order; it may be sent
     * again. ${bytes} must not change during the call. */
    enum sidestep_status (*upload_part)(struct object_client *client, const char *key,
                                        const char *upload_id, unsigned number, const void *bytes,
                                        size_t length, struct object_part *part,
                                        struct sidestep_error *err);
    /* Complete from parts 1 to ${count}, of ${length} bytes in total; then check the object (HEAD):
     * its size must be ${length}, and its maker that of the condition. If the answer was lost,
     * this check decides. ${condition} NULL: none. */
    enum sidestep_status (*upload_complete)(struct object_client *client, const char *key,
                                            const char *upload_id, const struct object_part *parts,
                                            unsigned count, uint64_t length,
                                            const struct object_condition *condition,
                                            struct object_info *info, struct sidestep_error *err);
    /* An upload that does not exist counts as aborted. */
    enum sidestep_status (*upload_abort)(struct object_client *client, const char *key,
                                         const char *upload_id, struct sidestep_error *err);
    /* Call ${each} for every upload under way whose key starts with ${prefix}: info has its key,
     * and its begin as ${modified}. */
    enum sidestep_status (*upload_list)(struct object_client *client, const char *prefix,
                                        object_each_upload *each, void *context,
                                        struct sidestep_error *err);

    /* How many concurrent reads are useful: more if the latency is higher. */
    unsigned (*reads)(const struct object_client *client);
    /* The store's endpoint and region, for `doctor` and messages. */
    const char *(*describe)(const struct object_client *client);
    /* How many requests this client sent, repetitions included. */
    uint64_t (*request_count)(const struct object_client *client);
    /* How many of these were repetitions. */
    uint64_t (*retry_count)(const struct object_client *client);
    /* No request may be in flight. Wipes all secrets. */
    void (*free)(struct object_client *client);
};

/* Find endpoint, region and credentials, and start the driver thread. Sends nothing to the
 * store, but may request credentials from the service that has them (credentials.h). ${bucket} is
 * checked. EPERM: there are no credentials; the message lists where they were looked for.
 * EUNSUPPORTED: built without libcurl. After a fork the child must create its own clients: requests
 * of the parent's fail with EFORKED, and freeing one only frees memory. */
enum sidestep_status object_client_new(const char *bucket, const struct object_config *config,
                                       struct object_client **out, struct sidestep_error *err);
static inline void object_client_free(struct object_client **client)
{
    if (*client != NULL)
        (*client)->ops->free(*client);
    *client = NULL;
}

#endif
