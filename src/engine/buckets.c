/* SPDX-License-Identifier: BSD-3-Clause */
/* buckets.c -- opens the object store of each bucket once for an engine; see buckets.h. */
#include "engine/buckets.h"

#include <stdlib.h>
#include <string.h>

#include "object/object.h"

void buckets_init(struct buckets *buckets)
{
    *buckets = (struct buckets){0};
    lock_init(&buckets->shared.lock, LOCK_BUCKETS);
}

void buckets_release(struct buckets *buckets)
{
    for (size_t i = 0; i < buckets->shared.count; i++)
        object_store_free(&buckets->shared.stores[i]);
    free(buckets->shared.stores);
    lock_destroy(&buckets->shared.lock);
}

static enum sidestep_status add_locked(struct buckets *buckets, struct store *store,
                                       struct sidestep_error *err)
{
    size_t count = buckets->shared.count;
    struct store **more =
        memory_resize(buckets->shared.stores, count + 1, sizeof(*buckets->shared.stores));

    if (more == NULL) {
        object_store_free(&store);
        return FAIL_NOMEM(err, (count + 1) * sizeof(*more));
    }
    more[count] = store;
    buckets->shared.stores = more;
    buckets->shared.count = count + 1;
    return SIDESTEP_OK;
}

/* NULL: the bucket was not used yet. */
static struct store *find_locked(const struct buckets *buckets, const char *bucket)
{
    for (size_t i = 0; i < buckets->shared.count; i++)
        if (strcmp(object_store_bucket(buckets->shared.stores[i]), bucket) == 0)
            return buckets->shared.stores[i];
    return NULL;
}

enum sidestep_status buckets_add(struct buckets *buckets, struct store *store,
                                 struct sidestep_error *err)
{
    lock_acquire(&buckets->shared.lock);
    enum sidestep_status status = add_locked(buckets, store, err);
    lock_release(&buckets->shared.lock);
    return status;
}

enum sidestep_status buckets_find(struct buckets *buckets, const char *url, struct store **out,
                                  struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;
    struct object_url parsed;

    TRY(object_url_parse(url, &parsed, err));
    lock_acquire(&buckets->shared.lock);
    *out = find_locked(buckets, parsed.bucket);
    if (*out == NULL) {
        status = object_path_open(url, out, err);
        if (status == SIDESTEP_OK)
            status = add_locked(buckets, *out, err);
    }
    lock_release(&buckets->shared.lock);
    return status;
}

uint64_t buckets_count_retries(struct buckets *buckets)
{
    uint64_t retries = 0;

    lock_acquire(&buckets->shared.lock);
    for (size_t i = 0; i < buckets->shared.count; i++) {
        const struct object_client *client = object_store_client(buckets->shared.stores[i]);
        retries += client->ops->retry_count(client);
    }
    lock_release(&buckets->shared.lock);
    return retries;
}
