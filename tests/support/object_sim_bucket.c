/* SPDX-License-Identifier: BSD-3-Clause */
/* object_sim_bucket.c -- stores objects, uploads and late requests of a simulated bucket. */
#include "support/object_sim_bucket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static size_t bucket_index_of(const struct object_bucket *b, const char *key)
{
    size_t low = 0, high = b->count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(b->objects[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct object *bucket_get(struct object_bucket *b, const char *key)
{
    size_t at = bucket_index_of(b, key);

    return at < b->count && strcmp(b->objects[at].key, key) == 0 ? &b->objects[at] : NULL;
}

void bucket_tag_of(uint64_t version, char tag[OBJECT_TAG_BYTES])
{
    snprintf(tag, OBJECT_TAG_BYTES, "\"%llu\"", (unsigned long long)version);
}

enum sidestep_status bucket_check_condition(struct object_bucket *b, const char *key,
                                            bool if_absent, const char *if_tag,
                                            struct sidestep_error *err)
{
    const struct object *o = bucket_get(b, key);
    char tag[OBJECT_TAG_BYTES] = "";

    if (!if_absent && if_tag == NULL)
        return SIDESTEP_OK;
    if ((b->flags & OBJECT_SIM_IGNORES_CONDITIONS) != 0 ||
        (!if_absent && (b->flags & OBJECT_SIM_IGNORES_IF_MATCH) != 0))
        return SIDESTEP_OK;
    if ((b->flags & OBJECT_SIM_REFUSES_CONDITIONS) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "put '%s': 501", key);
    if (o == NULL && !if_absent)
        return FAIL(err, SIDESTEP_ENOTFOUND, "put '%s': 404", key);
    if (o != NULL)
        bucket_tag_of(o->version, tag);
    bool holds = if_absent ? o == NULL : strcmp(tag, if_tag) == 0;
    return holds ? SIDESTEP_OK : FAIL(err, SIDESTEP_EEXISTS, "put '%s': 412", key);
}

enum sidestep_status bucket_store_object(struct object_bucket *b, const char *key, uint8_t *bytes,
                                         size_t length, const char *maker,
                                         struct sidestep_error *err)
{
    size_t at = bucket_index_of(b, key);
    struct object *o = bucket_get(b, key);

    if (o == NULL) {
        if (b->count == b->capacity) {
            size_t capacity = b->capacity != 0 ? 2 * b->capacity : 64;
            void *more = realloc(b->objects, capacity * sizeof(*b->objects));
            if (more == NULL) {
                free(bytes);
                return FAIL_NOMEM(err, capacity * sizeof(*b->objects));
            }
            b->objects = more;
            b->capacity = capacity;
        }
        memmove(b->objects + at + 1, b->objects + at, (b->count - at) * sizeof(*b->objects));
        b->count++;
        o = &b->objects[at];
        *o = (struct object){0};
        snprintf(o->key, sizeof(o->key), "%s", key);
    }
    free(o->bytes);
    o->bytes = bytes;
    o->length = length;
    o->version = ++b->versions;
    o->modified = b->now;
    snprintf(o->maker, sizeof(o->maker), "%s", maker != NULL ? maker : "");
    return SIDESTEP_OK;
}

void bucket_remove_object(struct object_bucket *b, const char *key)
{
    struct object *o = bucket_get(b, key);
    size_t at = bucket_index_of(b, key);

    if (o == NULL)
        return;
    free(o->bytes);
    b->count--;
    memmove(b->objects + at, b->objects + at + 1, (b->count - at) * sizeof(*b->objects));
}

uint8_t *bucket_copy_of(const void *bytes, size_t length)
{
    uint8_t *copy = malloc(length + 1);

    if (copy != NULL && length != 0)
        memcpy(copy, bytes, length);
    return copy;
}

struct upload *bucket_find_upload(struct object_bucket *b, const char *id)
{
    unsigned long long number = strtoull(id, NULL, 10);

    for (size_t i = 0; i < b->upload_count; i++)
        if (b->uploads[i].id == number && number != 0)
            return &b->uploads[i];
    return NULL;
}

void bucket_drop_upload(struct upload *u)
{
    for (unsigned i = 0; i < u->count; i++)
        free(u->parts[i].bytes);
    free(u->parts);
    *u = (struct upload){0};
}

enum sidestep_status bucket_complete(struct object_bucket *b, struct upload *u, unsigned count,
                                     struct sidestep_error *err)
{
    size_t length = 0, at = 0;

    for (unsigned i = 0; i < count; i++) {
        if (i >= u->count || u->parts[i].bytes == NULL)
            return FAIL(err, SIDESTEP_EIO, "complete '%s': InvalidPart %u", u->key, i + 1);
        if (i + 1 < count && u->parts[i].length < b->min_part_bytes)
            return FAIL(err, SIDESTEP_EIO, "complete '%s': EntityTooSmall", u->key);
        length += u->parts[i].length;
    }
    uint8_t *bytes = malloc(length + 1);
    if (bytes == NULL)
        return FAIL_NOMEM(err, length);
    for (unsigned i = 0; i < count; i++) {
        memcpy(bytes + at, u->parts[i].bytes, u->parts[i].length);
        at += u->parts[i].length;
    }
    TRY(bucket_store_object(b, u->key, bytes, length, u->maker, err));
    bucket_drop_upload(u);
    return SIDESTEP_OK;
}

void bucket_fill_info(const struct object_bucket *b, const struct object *o,
                      struct object_info *info)
{
    if (info == NULL)
        return;
    *info = (struct object_info){.bytes = o->length, .modified = o->modified, .now = b->now};
    bucket_tag_of(o->version, info->tag);
    memcpy(info->maker, o->maker, sizeof(info->maker));
}

void bucket_note_condition(struct late *late, const struct object_condition *condition)
{
    if (condition == NULL)
        return;
    late->if_absent = condition->if_absent;
    if (condition->if_tag != NULL)
        snprintf(late->if_tag, sizeof(late->if_tag), "%s", condition->if_tag);
    if (condition->maker != NULL)
        snprintf(late->maker, sizeof(late->maker), "%s", condition->maker);
}

/* Takes ownership of ${late.bytes}. */
void bucket_add_late(struct object_bucket *b, struct late late)
{
    void *more = realloc(b->late, (b->late_count + 1) * sizeof(*b->late));

    if (more == NULL) {
        free(late.bytes);
        return;
    }
    b->late = more;
    late.signed_at = b->now;
    b->late[b->late_count++] = late;
}

/* ---- for tests */

void object_sim_die(struct object_bucket *bucket, int number)
{
    pthread_mutex_lock(&bucket->lock);
    bucket->dead[number] = true;
    pthread_mutex_unlock(&bucket->lock);
}

void object_sim_advance(struct object_bucket *bucket, int64_t seconds)
{
    pthread_mutex_lock(&bucket->lock);
    bucket->now += seconds;
    pthread_mutex_unlock(&bucket->lock);
}

size_t object_sim_late_count(const struct object_bucket *bucket)
{
    return bucket->late_count;
}

/* The lock is held. */
static void land(struct object_bucket *b, struct late *late)
{
    if (b->now - late->signed_at > OBJECT_SIGNATURE_SECONDS)
        return;
    const char *tag = late->if_tag[0] != '\0' ? late->if_tag : NULL;
    if (late->kind == KIND_DELETE) {
        if (bucket_check_condition(b, late->key, false, tag, NULL) == SIDESTEP_OK)
            bucket_remove_object(b, late->key);
    } else if (late->kind == KIND_PUT) {
        if (bucket_check_condition(b, late->key, late->if_absent, tag, NULL) == SIDESTEP_OK)
            (void)bucket_store_object(b, late->key, TAKE(late->bytes), late->length, late->maker,
                                      NULL);
    } else {
        for (size_t i = 0; i < b->upload_count; i++)
            if (b->uploads[i].id == late->upload &&
                bucket_check_condition(b, late->key, late->if_absent, tag, NULL) == SIDESTEP_OK)
                (void)bucket_complete(b, &b->uploads[i], (unsigned)late->length, NULL);
    }
}

void object_sim_land(struct object_bucket *bucket, size_t index)
{
    pthread_mutex_lock(&bucket->lock);
    struct late late = bucket->late[index];
    bucket->late_count--;
    memmove(bucket->late + index, bucket->late + index + 1,
            (bucket->late_count - index) * sizeof(*bucket->late));
    land(bucket, &late);
    free(late.bytes);
    pthread_mutex_unlock(&bucket->lock);
}

uint64_t object_sim_request_count(const struct object_bucket *bucket)
{
    return bucket->requests;
}

size_t object_sim_count(const struct object_bucket *bucket)
{
    return bucket->count;
}

size_t object_sim_upload_count(const struct object_bucket *bucket)
{
    size_t count = 0;

    for (size_t i = 0; i < bucket->upload_count; i++)
        count += bucket->uploads[i].id != 0;
    return count;
}

const uint8_t *object_sim_bytes(struct object_bucket *bucket, const char *key, size_t *length)
{
    struct object *o = bucket_get(bucket, key);

    if (o == NULL)
        return NULL;
    *length = o->length;
    return o->bytes;
}

bool object_sim_put(struct object_bucket *bucket, const char *key, const void *bytes, size_t length)
{
    pthread_mutex_lock(&bucket->lock);
    uint8_t *copy = bucket_copy_of(bytes, length);
    bool done =
        copy != NULL && bucket_store_object(bucket, key, copy, length, NULL, NULL) == SIDESTEP_OK;
    pthread_mutex_unlock(&bucket->lock);
    return done;
}

void object_sim_flip(struct object_bucket *bucket, const char *key, size_t at)
{
    struct object *o = bucket_get(bucket, key);

    if (o != NULL && at < o->length)
        o->bytes[at] ^= 1;
}

const char *object_sim_key(const struct object_bucket *bucket, size_t index)
{
    return index < bucket->count ? bucket->objects[index].key : NULL;
}
