/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * endpoint.h -- where requests go: scheme, host, bucket and region, and how a key becomes a URL.
 *
 * AWS itself gets "https://BUCKET.s3.REGION.amazonaws.com/KEY".  Any other endpoint, and a bucket
 * with a dot in its name (for which no certificate holds), gets "https://HOST/BUCKET/KEY".
 */
#ifndef OBJECT_ENDPOINT_H
#define OBJECT_ENDPOINT_H

#include "base/base.h"

#define ENDPOINT_HOST_BYTES 280u
#define ENDPOINT_REGION_BYTES 64u
#define ENDPOINT_BUCKET_BYTES 256u

struct endpoint {
    bool is_tls;
    bool is_aws; /* no endpoint was given */
    bool bucket_in_host;
    char host[ENDPOINT_HOST_BYTES]; /* with the port, as the header Host has it */
    char region[ENDPOINT_REGION_BYTES];
    char bucket[ENDPOINT_BUCKET_BYTES];
};

/* ${url} NULL: AWS in ${region}.  EINVAL: a part is not what it should be. */
enum sidestep_status endpoint_init(struct endpoint *endpoint, const char *url, const char *bucket,
                                   const char *region, struct sidestep_error *err);
/* Append the escaped path of ${key}; NULL: of the bucket. */
void endpoint_put_path(const struct endpoint *endpoint, const char *key, struct buffer *to);

/* The bucket is in ${region}: with AWS the host changes, too.  False: that is no region. */
bool endpoint_move(struct endpoint *endpoint, const char *region);
/* A redirect to ${location}: take its host, if it belongs to who the endpoint belongs to and the
 * connection gets no less safe; false otherwise.  Only the host is taken. */
bool endpoint_follow(struct endpoint *endpoint, const char *location);

#endif
