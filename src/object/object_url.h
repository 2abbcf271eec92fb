/* SPDX-License-Identifier: BSD-3-Clause */
/* object_url.h -- parses "s3://BUCKET/KEY". */
#ifndef OBJECT_OBJECT_URL_H
#define OBJECT_OBJECT_URL_H

#include "object/client.h"

#define OBJECT_SCHEME "s3://"
#define OBJECT_BUCKET_BYTES 64u /* a bucket's name, and a NUL */

struct object_url {
    char bucket[OBJECT_BUCKET_BYTES];
    char key[OBJECT_KEY_BYTES]; /* without slashes at its ends; "": the bucket itself */
};

/* Is ${path} the URL of an object store? */
bool object_url_is_one(const char *path);
/* Can the ${length} bytes at ${begin} be one component of a key: not empty, not "." or ".."? */
bool object_url_is_component(const char *begin, size_t length);
/* The length of ${path}, without the slashes at the end if it is a URL. */
size_t object_url_trimmed(const char *path);
/* EINVAL: no bucket, a bucket's name that S3 does not allow, a key that is too long, is not UTF-8,
 * or has a component that is empty, "." or "..". The message says which. */
enum sidestep_status object_url_parse(const char *path, struct object_url *url,
                                      struct sidestep_error *err);

#endif
