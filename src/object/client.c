/* SPDX-License-Identifier: BSD-3-Clause */
/* client.c -- creates a client from its settings, and frees it. */
#include "object/client.h"

#include <assert.h>
#include <stdio.h>
#include <strings.h>

#include "object/client_internal.h"

#define DEFAULT_REQUESTS 64u
#define NEAR_READS 16u  /* at once from a store with a low latency */
#define FAR_NS 5000000u /* a latency from which on more reads at once are faster */
#define MAX_REQUESTS 1024u
#define DEFAULT_DEADLINE_NS (300u * 1000000000ull)
#define DEFAULT_STALL_SECONDS 30u

static enum sidestep_status set_limits(struct client *client, const struct object_config *config,
                                       struct sidestep_error *err)
{
    uint64_t requests, rate, deadline_ms;

    TRY(profile_number("SIDESTEP_OBJECT_REQUESTS", 1, MAX_REQUESTS, &requests, err));
    TRY(profile_number("SIDESTEP_OBJECT_BYTES_PER_SECOND", 1, INT64_MAX, &rate, err));
    TRY(profile_number("SIDESTEP_OBJECT_DEADLINE_MS", 1, OBJECT_MAX_DEADLINE_SECONDS * 1000u,
                       &deadline_ms, err));
    if (config->max_requests > MAX_REQUESTS)
        return FAIL(err, SIDESTEP_EINVAL, "%u concurrent requests exceed the limit of %u",
                    config->max_requests, MAX_REQUESTS);
    client->max_requests = requests != 0 ? (unsigned)requests : DEFAULT_REQUESTS;
    if (config->max_requests != 0)
        client->max_requests = config->max_requests;
    client->near_reads =
        requests != 0 || config->max_requests != 0 ? client->max_requests : NEAR_READS;
    client->bytes_per_second = config->bytes_per_second != 0 ? config->bytes_per_second : rate;
    client->deadline_ns = deadline_ms != 0 ? deadline_ms * 1000000u : DEFAULT_DEADLINE_NS;
    if (config->deadline_ns != 0)
        client->deadline_ns = config->deadline_ns;
    client->cancelled = config->cancelled;
    return SIDESTEP_OK;
}

static const char *first_set(const char *const *texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (texts[i] != NULL && texts[i][0] != '\0')
            return texts[i];
    return NULL;
}

static enum sidestep_status set_endpoint(struct client *client, const char *bucket,
                                         const struct object_config *config,
                                         const struct profile *profile, struct sidestep_error *err)
{
    const char *const urls[] = {config->endpoint, profile_variable("AWS_ENDPOINT_URL_S3"),
                                profile_variable("AWS_ENDPOINT_URL"), profile->endpoint_url};
    const char *const regions[] = {config->region, profile_variable("AWS_REGION"),
                                   profile_variable("AWS_DEFAULT_REGION"), profile->region,
                                   "us-east-1"};
    struct endpoint *endpoint = &client->shared.endpoint;

    lock_alone(&client->shared.lock);
    TRY(endpoint_init(endpoint, first_set(urls, ARRAY_LENGTH(urls)), bucket,
                      first_set(regions, ARRAY_LENGTH(regions)), err));
    snprintf(client->description, sizeof(client->description), "%s://%s (region %s)",
             endpoint->is_tls ? "https" : "http", endpoint->host, endpoint->region);
    return SIDESTEP_OK;
}

static enum sidestep_status start_transport(struct client *client,
                                            const struct object_config *config,
                                            const struct profile *profile,
                                            struct sidestep_error *err)
{
    const char *const bundles[] = {profile_variable("AWS_CA_BUNDLE"), profile->ca_bundle,
                                   profile_variable("SSL_CERT_FILE"),
                                   profile_variable("CURL_CA_BUNDLE")};
    struct transport_config transport = {
        .ca_bundle = first_set(bundles, ARRAY_LENGTH(bundles)),
        .connections = client->max_requests,
        .stall_seconds = config->stall_seconds != 0 ? config->stall_seconds : DEFAULT_STALL_SECONDS,
        .bytes_per_second = client->bytes_per_second,
        .cancelled = client->cancelled,
    };

    return transport_new(&transport, &client->transport, err);
}

static void free_client(struct object_client *base)
{
    struct client *client = client_of(base);

    credentials_free(client->credentials);
    transport_free(client->transport);
    if (client->owner == getpid()) {
        lock_alone(&client->shared.lock);
        assert(client->shared.in_flight == 0);
        lock_condition_destroy(&client->shared.freed);
        lock_destroy(&client->shared.lock);
    }
    free(client);
}

static const char *describe(const struct object_client *base)
{
    return ((const struct client *)base)->description;
}

static uint64_t request_count(const struct object_client *base)
{
    return atomic_load(&((const struct client *)base)->request_count);
}

static uint64_t retry_count(const struct object_client *base)
{
    return atomic_load(&((const struct client *)base)->retry_count);
}

static unsigned count_reads(const struct object_client *base)
{
    const struct client *client = (const struct client *)base;

    return atomic_load(&client->latency_ns) < FAR_NS ? client->near_reads : client->max_requests;
}

static const struct object_ops client_ops = {
    .head = client_head,
    .get = client_get,
    .get_all = client_get_all,
    .put = client_put,
    .delete_keys = client_delete_keys,
    .delete_version = client_delete_version,
    .list = client_list,
    .upload_begin = client_upload_begin,
    .upload_part = client_upload_part,
    .upload_complete = client_upload_complete,
    .upload_abort = client_upload_abort,
    .upload_list = client_upload_list,
    .reads = count_reads,
    .describe = describe,
    .request_count = request_count,
    .retry_count = retry_count,
    .free = free_client,
};

static void free_owned(struct client **client)
{
    if (*client != NULL)
        free_client(&(*client)->base);
}

enum sidestep_status object_client_new(const char *bucket, const struct object_config *config,
                                       struct object_client **out, struct sidestep_error *err)
{
    static const struct object_config defaults = {0};
    OWNED_BY(free_owned) struct client *client = memory_new(1, sizeof(*client));
    OWNED_PROFILE profile = {0};

    *out = NULL;
    if (client == NULL)
        return FAIL_NOMEM(err, sizeof(*client));
    if (config == NULL)
        config = &defaults;
    client->base.ops = &client_ops;
    client->owner = getpid();
    lock_init(&client->shared.lock, LOCK_CLIENT);
    lock_condition_init(&client->shared.freed);
    TRY(set_limits(client, config, err));
    TRY(profile_read(config->profile, &profile, err));
    TRY(set_endpoint(client, bucket, config, &profile, err));
    client->leaves_bodies_unsigned =
        profile.payload_signing != NULL && strcasecmp(profile.payload_signing, "false") == 0;
    TRY(start_transport(client, config, &profile, err));
    lock_alone(&client->shared.lock);
    struct credentials_config credentials = {
        .profile = &profile,
        .profile_first = config->profile != NULL,
        .region = client->shared.endpoint.region,
        .transport = client->transport,
    };
    TRY(credentials_new(&credentials, &client->credentials, err));
    *out = &TAKE(client)->base;
    return SIDESTEP_OK;
}
