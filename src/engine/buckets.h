/* SPDX-License-Identifier: BSD-3-Clause */
/* buckets.h -- the object stores that one engine has used, so that its saves and loads share
 * connections. */
#ifndef ENGINE_BUCKETS_H
#define ENGINE_BUCKETS_H

#include <pthread.h>

#include "object/object.h"

struct buckets {
    struct {
        struct lock lock LOCK_KIND(BUCKETS);
        struct store **stores;
        size_t count;
    } shared;
};

void buckets_init(struct buckets *buckets);
/* Call it after all handles of all stores are closed. */
void buckets_release(struct buckets *buckets);
/* The store of the bucket that ${url} names, made at its first use. It lives as long as
 * ${buckets}. Any thread. */
enum sidestep_status buckets_find(struct buckets *buckets, const char *url, struct store **out,
                                  struct sidestep_error *err);
/* Add ${store}, an object store, and take ownership of it, also on failure. */
enum sidestep_status buckets_add(struct buckets *buckets, struct store *store,
                                 struct sidestep_error *err);

/* How many requests to all of them were repeated so far. */
uint64_t buckets_count_retries(struct buckets *buckets);

#endif
