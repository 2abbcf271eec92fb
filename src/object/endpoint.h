/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * endpoint.h -- where requests go: scheme, host, bucket and region, and how a key becomes a URL.
 *
 * At AWS it is "https://BUCKET.s3.REGION.amazonaws.com/KEY".  At any other endpoint, and for a
 * bucket with a dot in its name (which no certificate matches), it is "https://HOST/BUCKET/KEY".
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

/* ${url} NULL: AWS in ${region}.  EINVAL: an argument is not valid. */
enum sidestep_status endpoint_init(struct endpoint *endpoint, const char *url, const char *bucket,
                                   const char *region, struct sidestep_error *err);
/* Append the escaped path of ${key}; NULL: of the bucket. */
void endpoint_put_path(const struct endpoint *endpoint, const char *key, struct buffer *to);

/* At AWS this also changes the host.  False: ${region} is not valid. */
bool endpoint_set_region(struct endpoint *endpoint, const char *region);
/* Follow a redirect: take the host of ${location}, and nothing else of it.  False: it may belong to
 * another owner, or the redirect is from https to http. */
bool endpoint_follow(struct endpoint *endpoint, const char *location);

#endif
