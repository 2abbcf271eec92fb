/* SPDX-License-Identifier: BSD-3-Clause */
/* object_url.c -- parses "s3://BUCKET/KEY". Rules for buckets: AWS, "General purpose bucket naming
 * rules"; MinIO, Ceph and Swift follow them, too. */
#include "object/object_url.h"

#include <stdio.h>
#include <string.h>

#define BUCKET_CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789.-"
#define BUCKET_MIN_LENGTH 3u

bool object_url_is_one(const char *path)
{
    return strncmp(path, OBJECT_SCHEME, strlen(OBJECT_SCHEME)) == 0;
}

size_t object_url_trimmed(const char *path)
{
    size_t length = strlen(path);

    while (object_url_is_one(path) && length > strlen(OBJECT_SCHEME) && path[length - 1] == '/')
        length--;
    return length;
}

static enum sidestep_status take_bucket(const char *path, size_t length, struct object_url *url,
                                        struct sidestep_error *err)
{
    const char *name = path + strlen(OBJECT_SCHEME);

    if (length == 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' names no bucket: write s3://BUCKET/PREFIX", path);
    if (strcspn(name, "@") < strcspn(name, "/") || strcspn(name, ":") < length)
        return FAIL(err, SIDESTEP_EINVAL,
                    "'%s' is not of the form s3://BUCKET/PREFIX: give the keys as "
                    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and the host as "
                    "AWS_ENDPOINT_URL_S3",
                    path);
    if (length < BUCKET_MIN_LENGTH || length >= sizeof(url->bucket) ||
        strspn(name, BUCKET_CHARACTERS) < length || name[0] == '.' || name[0] == '-' ||
        name[length - 1] == '.' || name[length - 1] == '-')
        return FAIL(err, SIDESTEP_EINVAL,
                    "'%.*s' in '%s' cannot be a bucket: a name has 3 to 63 of a-z, 0-9, '.' and "
                    "'-', and begins and ends with a letter or digit",
                    (int)length, name, path);
    snprintf(url->bucket, sizeof(url->bucket), "%.*s", (int)length, name);
    return SIDESTEP_OK;
}

bool object_url_is_component(const char *begin, size_t length)
{
    return length != 0 && !(length == 1 && begin[0] == '.') &&
           !(length == 2 && begin[0] == '.' && begin[1] == '.');
}

static enum sidestep_status check_component(const char *path, const char *begin, size_t length,
                                            struct sidestep_error *err)
{
    if (!object_url_is_component(begin, length))
        return FAIL(err, SIDESTEP_EINVAL,
                    "'%s' has an empty component, '.' or '..', which object stores take literally",
                    path);
    return SIDESTEP_OK;
}

enum sidestep_status object_url_parse(const char *path, struct object_url *url,
                                      struct sidestep_error *err)
{
    *url = (struct object_url){0};
    if (!object_url_is_one(path))
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is not of the form s3://BUCKET/PREFIX", path);
    const char *bucket = path + strlen(OBJECT_SCHEME);
    size_t bucket_length = strcspn(bucket, "/");
    TRY(take_bucket(path, bucket_length, url, err));
    const char *key = bucket + bucket_length;
    if (key[0] == '/')
        key++;
    size_t length = strlen(key);
    if (length != 0 && key[length - 1] == '/')
        length--;
    if (length >= sizeof(url->key))
        return FAIL(err, SIDESTEP_EINVAL, "the key in '%.80s...' has more than %zu bytes", path,
                    sizeof(url->key) - 1);
    if (!utf8_is_valid(key, length))
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is not UTF-8, which keys of object stores are",
                    path);
    for (size_t at = 0; at < length;) {
        size_t component = 0;
        while (at + component < length && key[at + component] != '/')
            component++;
        TRY(check_component(path, key + at, component, err));
        at += component + 1;
    }
    memcpy(url->key, key, length);
    return SIDESTEP_OK;
}
