/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * client_condition.c -- requests on the condition that a key still has a tag.
 *
 * A tag is quoted, also in If-Match. Ceph before 2025 compares the header with the unquoted tag, so
 * it always answers 412. If a store refuses the tag that the key has, the request is sent again in
 * the other form, which the client then keeps. That is safe: the store compares again.
 */
#include <stdio.h>

#include "object/client_internal.h"

static void format_tag(const char *tag, bool is_bare, char text[OBJECT_TAG_BYTES])
{
    size_t length = strlen(tag);
    bool has_quotes = length >= 2 && tag[0] == '"' && tag[length - 1] == '"';

    if (is_bare && has_quotes)
        snprintf(text, OBJECT_TAG_BYTES, "%.*s", (int)length - 2, tag + 1);
    else
        snprintf(text, OBJECT_TAG_BYTES, "%s", tag);
}

static bool has_tag(struct client *client, const char *key, const char *tag)
{
    struct object_info info;

    return client_head(&client->base, key, &info, NULL) == SIDESTEP_OK &&
           strcmp(info.tag, tag) == 0;
}

enum sidestep_status client_send_if(struct client *client, const char *key, const char *tag,
                                    client_send *send, void *context, struct sidestep_error *err)
{
    bool is_bare = atomic_load(&client->has_bare_tags);
    struct sidestep_error why = {.rank = -1};
    char text[OBJECT_TAG_BYTES];

    format_tag(tag, is_bare, text);
    enum sidestep_status status = send(client, key, text, context, &why);
    if (status != SIDESTEP_EEXISTS || !has_tag(client, key, tag))
        return status == SIDESTEP_OK ? status : error_copy(err, &why);
    format_tag(tag, !is_bare, text);
    status = send(client, key, text, context, err);
    if (status == SIDESTEP_OK)
        atomic_store(&client->has_bare_tags, !is_bare);
    return status;
}
