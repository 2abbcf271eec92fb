/* SPDX-License-Identifier: BSD-3-Clause */
/* object_sim_copy.c -- clones and hashes a simulated bucket. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "support/object_sim_bucket.h"

/* A copy of an array; NULL: out of memory. */
static void *copy_array(const void *from, size_t count, size_t each)
{
    void *copy = calloc(count + 1, each);

    if (copy != NULL && count != 0)
        memcpy(copy, from, count * each);
    return copy;
}

static bool copy_upload(struct upload *u)
{
    const struct sim_part *parts = u->parts;

    u->parts = copy_array(parts, u->count, sizeof(*parts));
    for (unsigned i = 0; u->parts != NULL && i < u->count; i++)
        if (parts[i].bytes != NULL)
            u->parts[i].bytes = bucket_copy_of(parts[i].bytes, parts[i].length);
    return u->parts != NULL;
}

struct object_bucket *object_sim_clone(const struct object_bucket *bucket)
{
    struct object_bucket *b = malloc(sizeof(*b));
    bool good = b != NULL;

    if (!good)
        return NULL;
    *b = *bucket;
    pthread_mutex_init(&b->lock, NULL);
    b->hook = NULL;
    b->objects = copy_array(bucket->objects, b->count, sizeof(*b->objects));
    b->capacity = b->count + 1;
    b->uploads = copy_array(bucket->uploads, b->upload_count, sizeof(*b->uploads));
    b->late = copy_array(bucket->late, b->late_count, sizeof(*b->late));
    good = b->objects != NULL && b->uploads != NULL && b->late != NULL;
    for (size_t i = 0; good && i < b->count; i++)
        b->objects[i].bytes = bucket_copy_of(b->objects[i].bytes, b->objects[i].length);
    for (size_t i = 0; good && i < b->late_count; i++)
        if (b->late[i].bytes != NULL)
            b->late[i].bytes = bucket_copy_of(b->late[i].bytes, b->late[i].length);
    for (size_t i = 0; good && i < b->upload_count; i++)
        good = copy_upload(&b->uploads[i]);
    return good ? b : NULL; /* without memory, the test ends */
}

static uint64_t add(uint64_t hash, const void *bytes, size_t length)
{
    return XXH3_64bits_withSeed(bytes, length, hash);
}

static uint64_t add_number(uint64_t hash, int64_t number)
{
    return add(hash, &number, sizeof(number));
}

uint64_t object_sim_hash(const struct object_bucket *b)
{
    uint64_t hash = b->flags;

    for (size_t i = 0; i < b->count; i++) {
        const struct object *o = &b->objects[i];
        hash = add(hash, o->key, strlen(o->key));
        hash = add(hash, o->bytes, o->length);
        hash = add_number(hash, b->now - o->modified);
    }
    for (size_t i = 0; i < b->upload_count; i++)
        if (b->uploads[i].id != 0)
            hash = add(hash, b->uploads[i].key, strlen(b->uploads[i].key));
    for (size_t i = 0; i < b->late_count; i++) {
        const struct late *l = &b->late[i];
        hash = add(hash, l->key, strlen(l->key));
        hash = add(hash, l->bytes, l->bytes != NULL ? l->length : 0);
        hash = add(hash, l->if_tag, strlen(l->if_tag));
        hash = add_number(hash, (b->now - l->signed_at) * 8 + l->kind * 2 + l->if_absent);
    }
    return hash;
}
