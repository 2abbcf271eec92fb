/* SPDX-License-Identifier: BSD-3-Clause */
/* object_path.c -- opens the store of a path. */
#include "object/object_path.h"

#include "object/object_store.h"
#include "object/object_url.h"
#include "object/transport.h"

enum sidestep_status object_path_open(const char *path, struct store **out,
                                      struct sidestep_error *err)
{
    struct object_client *client;
    struct object_url url;

    if (!object_url_is_one(path)) {
        TRY(location_check(path, err));
        *out = store_posix();
        return SIDESTEP_OK;
    }
    TRY(object_url_parse(path, &url, err));
    TRY(object_client_new(url.bucket, NULL, &client, err));
    return object_store_new(url.bucket, client, out, err);
}

enum sidestep_status object_stores_probe(struct sidestep_error *err)
{
    return transport_probe(err);
}

void object_path_close(struct store **store)
{
    if (*store != NULL && (*store)->ops->free != NULL)
        (*store)->ops->free(*store);
    *store = NULL;
}

enum sidestep_status sidestep_check_path(const char *path, struct sidestep_error *err)
{
    struct object_url url;

    if (path == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "the path is NULL");
    return object_url_is_one(path) ? object_url_parse(path, &url, err) : location_check(path, err);
}
