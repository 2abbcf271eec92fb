/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c -- parses endpoints, and follows redirects to others. */
#include "object/endpoint.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#include "object/escape.h"

static bool has_only(const char *text, const char *allowed)
{
    return text[0] != '\0' && text[strspn(text, allowed)] == '\0';
}

static bool is_region(const char *text)
{
    return strlen(text) < ENDPOINT_REGION_BYTES &&
           has_only(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
}

/* "host", "host:port", "[::1]:port" */
static bool is_host(const char *text)
{
    return strlen(text) < ENDPOINT_HOST_BYTES && text[0] != '.' && text[0] != ':' &&
           has_only(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:[]");
}

/* Also allows names that only older buckets have. */
static bool is_bucket(const char *text)
{
    size_t length = strlen(text);

    return length < ENDPOINT_BUCKET_BYTES && isalnum((unsigned char)text[0]) &&
           has_only(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
}

/* Can it be one label of a host name, so that a wildcard certificate matches? */
static bool fits_in_host(const char *bucket)
{
    return strlen(bucket) <= 63 && has_only(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-");
}

static const char *aws_domain(const char *region)
{
    return strncmp(region, "cn-", 3) == 0 ? "amazonaws.com.cn" : "amazonaws.com";
}

static void set_aws_host(struct endpoint *endpoint)
{
    snprintf(endpoint->host, sizeof(endpoint->host), "%.63s%ss3.%s.%s",
             endpoint->bucket_in_host ? endpoint->bucket : "", endpoint->bucket_in_host ? "." : "",
             endpoint->region, aws_domain(endpoint->region));
}

/* Split "https://host[:port][/]" into scheme and host.  The default port is removed, as in the
 * header Host. */
static bool parse_url(const char *url, bool *is_tls, char host[ENDPOINT_HOST_BYTES])
{
    const char *after = strstr(url, "://");

    if (after == NULL)
        return false;
    size_t scheme = (size_t)(after - url);
    if (scheme == 5 && strncasecmp(url, "https", 5) == 0)
        *is_tls = true;
    else if (scheme == 4 && strncasecmp(url, "http", 4) == 0)
        *is_tls = false;
    else
        return false;
    after += 3;
    size_t length = strcspn(after, "/?#");
    if (length >= ENDPOINT_HOST_BYTES)
        return false;
    snprintf(host, ENDPOINT_HOST_BYTES, "%.*s", (int)length, after);
    const char *default_port = *is_tls ? ":443" : ":80";
    size_t host_length = strlen(host), port_length = strlen(default_port);
    if (host_length > port_length && strcmp(host + host_length - port_length, default_port) == 0)
        host[host_length - port_length] = '\0';
    return is_host(host);
}

static bool has_path(const char *url)
{
    const char *after = strstr(url, "://");
    const char *path = after != NULL ? after + 3 + strcspn(after + 3, "/?#") : "";

    return path[0] != '\0' && strcmp(path, "/") != 0;
}

enum sidestep_status endpoint_init(struct endpoint *endpoint, const char *url, const char *bucket,
                                   const char *region, struct sidestep_error *err)
{
    *endpoint = (struct endpoint){.is_aws = url == NULL, .is_tls = true};
    if (!is_bucket(bucket))
        return FAIL(err, SIDESTEP_EINVAL,
                    "'%.300s' is not a bucket name: at most %u letters, digits, '-', '_' and '.'",
                    bucket, ENDPOINT_BUCKET_BYTES - 1);
    if (!is_region(region))
        return FAIL(err, SIDESTEP_EINVAL,
                    "'%.100s' is not a region: AWS_REGION is a name like \"eu-west-1\"", region);
    snprintf(endpoint->bucket, sizeof(endpoint->bucket), "%s", bucket);
    snprintf(endpoint->region, sizeof(endpoint->region), "%s", region);
    endpoint->bucket_in_host = endpoint->is_aws && fits_in_host(bucket);
    if (endpoint->is_aws) {
        set_aws_host(endpoint);
    } else if (strchr(url, '@') != NULL) { /* not quoted, because messages end up in logs */
        return FAIL(err, SIDESTEP_EINVAL,
                    "the endpoint has a user name or a password in its URL: write only "
                    "\"https://HOST:PORT\" (AWS_ENDPOINT_URL_S3), and give the keys as "
                    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    } else if (!parse_url(url, &endpoint->is_tls, endpoint->host) || has_path(url)) {
        return FAIL(err, SIDESTEP_EINVAL,
                    "the endpoint '%.300s' is not the URL of a store, which is \"https://HOST\" or "
                    "\"https://HOST:PORT\", without a path (AWS_ENDPOINT_URL_S3)",
                    url);
    }
    return SIDESTEP_OK;
}

void endpoint_put_path(const struct endpoint *endpoint, const char *key, struct buffer *to)
{
    buffer_put_u8(to, '/');
    if (!endpoint->bucket_in_host) {
        escape_put(to, endpoint->bucket, false);
        if (key != NULL)
            buffer_put_u8(to, '/');
    }
    if (key != NULL)
        escape_put(to, key, true);
}

bool endpoint_set_region(struct endpoint *endpoint, const char *region)
{
    if (!is_region(region))
        return false;
    snprintf(endpoint->region, sizeof(endpoint->region), "%s", region);
    if (endpoint->is_aws)
        set_aws_host(endpoint);
    return true;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);

    return length > end_length && strcasecmp(text + length - end_length, end) == 0;
}

/* "BUCKET.s3.REGION.amazonaws.com", the same with "s3-", and both without the bucket.  Other hosts
 * of that domain belong to others. */
static bool is_aws_store(const char *host, const char *bucket)
{
    size_t length = strlen(bucket);
    char name[ENDPOINT_HOST_BYTES];

    if (strncmp(host, bucket, length) == 0 && host[length] == '.')
        host += length + 1;
    if (!ends_with(host, ".amazonaws.com") && !ends_with(host, ".amazonaws.com.cn"))
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)(strstr(host, ".amazonaws.") - host), host);
    return strcmp(name, "s3") == 0 ||
           ((strncmp(name, "s3.", 3) == 0 || strncmp(name, "s3-", 3) == 0) && is_region(name + 3));
}

bool endpoint_follow(struct endpoint *endpoint, const char *location)
{
    char host[ENDPOINT_HOST_BYTES], suffix[ENDPOINT_HOST_BYTES + 1];
    size_t length = strlen(endpoint->bucket);
    bool is_tls;

    if (!parse_url(location, &is_tls, host) || (endpoint->is_tls && !is_tls))
        return false;
    snprintf(suffix, sizeof(suffix), ".%s", endpoint->host);
    if (endpoint->is_aws ? !is_aws_store(host, endpoint->bucket)
                         : strcasecmp(host, endpoint->host) != 0 && !ends_with(host, suffix))
        return false;
    if (strcasecmp(host, endpoint->host) != 0)
        endpoint->bucket_in_host =
            strncmp(host, endpoint->bucket, length) == 0 && host[length] == '.';
    endpoint->is_tls = is_tls;
    snprintf(endpoint->host, sizeof(endpoint->host), "%s", host);
    return true;
}
