/* SPDX-License-Identifier: BSD-3-Clause */
/* object_server_bucket.c -- keeps the objects and the uploads of the bucket in memory. */
#include "object_server.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct upload {
    uint64_t id;
    struct server_piece *parts; /* by number */
    unsigned last;
    struct upload *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct server_object **objects; /* in byte order of their keys */
static size_t count, capacity;
static struct upload *uploads;
static uint64_t last_tag;

static void *check_memory(void *memory)
{
    if (memory == NULL) {
        fputs("object-server: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

void server_bucket_init(void)
{
    /* Keep pages that were touched once: new pages would cost more than the copy. */
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
    (void)mallopt(M_TRIM_THRESHOLD, -1);
}

unsigned char *server_memory(size_t bytes)
{
    return check_memory(malloc(bytes != 0 ? bytes : 1));
}

void server_memory_free(unsigned char *bytes)
{
    free(bytes);
}

void server_print(struct server_text *text, const char *fmt, ...)
{
    va_list values;

    if (text->capacity - text->length < 8192) {
        text->capacity = 2 * text->capacity + 16384;
        text->bytes = check_memory(realloc(text->bytes, text->capacity));
    }
    va_start(values, fmt);
    int used = vsnprintf(text->bytes + text->length, 8192, fmt, values);
    va_end(values);
    text->length += used > 0 && used < 8192 ? (size_t)used : 0;
}

/* The lock is held. The index of the first object whose key is not before ${key}. */
static size_t lower_bound(const char *key)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(objects[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(size_t at, const char *key)
{
    return at < count && strcmp(objects[at]->key, key) == 0;
}

/* The lock is held. */
static void release(struct server_object *object)
{
    if (--object->users != 0)
        return;
    for (size_t i = 0; i < object->piece_count; i++)
        free(object->pieces[i].bytes);
    free(object->pieces);
    free(object->key);
    free(object);
}

struct server_object *server_object_get(const char *key)
{
    struct server_object *object = NULL;

    pthread_mutex_lock(&lock);
    size_t at = lower_bound(key);
    if (is_at(at, key)) {
        object = objects[at];
        object->users++;
    }
    pthread_mutex_unlock(&lock);
    return object;
}

void server_object_release(struct server_object *object)
{
    pthread_mutex_lock(&lock);
    release(object);
    pthread_mutex_unlock(&lock);
}

/* The lock is held. */
static void insert(struct server_object *object)
{
    size_t at = lower_bound(object->key);

    if (is_at(at, object->key)) {
        release(objects[at]);
    } else {
        if (count == capacity) {
            capacity = 2 * capacity + 1024;
            objects = check_memory(realloc(objects, capacity * sizeof(struct server_object *)));
        }
        memmove(&objects[at + 1], &objects[at], (count - at) * sizeof(struct server_object *));
        count++;
    }
    objects[at] = object;
}

uint64_t server_object_put(const char *key, struct server_piece *pieces, size_t piece_count,
                           enum server_condition condition, uint64_t tag)
{
    struct server_object *object = check_memory(calloc(1, sizeof(*object)));

    *object = (struct server_object){.key = check_memory(strdup(key)),
                                     .users = 1,
                                     .modified = time(NULL),
                                     .piece_count = piece_count,
                                     .pieces = pieces};
    for (size_t i = 0; i < piece_count; i++)
        object->length += pieces[i].length;
    pthread_mutex_lock(&lock);
    size_t at = lower_bound(key);
    bool exists = is_at(at, key);
    bool is_met = condition == SERVER_ALWAYS || (condition == SERVER_IF_ABSENT && !exists) ||
                  (condition == SERVER_IF_TAG && exists && objects[at]->tag == tag);
    uint64_t result = is_met ? ++last_tag : 0;
    object->tag = result;
    if (is_met)
        insert(object);
    else
        release(object);
    pthread_mutex_unlock(&lock);
    return result;
}

void server_object_delete(const char *key)
{
    pthread_mutex_lock(&lock);
    size_t at = lower_bound(key);
    if (is_at(at, key)) {
        release(objects[at]);
        count--;
        memmove(&objects[at], &objects[at + 1], (count - at) * sizeof(struct server_object *));
    }
    pthread_mutex_unlock(&lock);
}

static void print_object(struct server_text *xml, const struct server_object *object)
{
    char when[32];

    (void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S.000Z", gmtime(&object->modified));
    server_print(xml,
                 "<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>&quot;%llu&quot;"
                 "</ETag><Size>%llu</Size><StorageClass>STANDARD</StorageClass></Contents>",
                 object->key, when, (unsigned long long)object->tag,
                 (unsigned long long)object->length);
}

void server_list(const char *prefix, const char *after, char delimiter, size_t max_keys,
                 struct server_text *xml)
{
    char seen[SERVER_KEY_BYTES] = "";
    const char *last = "";
    size_t shown = 0, length = strlen(prefix);
    bool is_truncated = false;

    pthread_mutex_lock(&lock);
    for (size_t i = lower_bound(strcmp(after, prefix) > 0 ? after : prefix); i < count; i++) {
        const char *key = objects[i]->key;
        if (strncmp(key, prefix, length) != 0)
            break;
        const char *end = delimiter != 0 ? strchr(key + length, delimiter) : NULL;
        size_t cut = end != NULL ? (size_t)(end - key) + 1 : 0;
        if (strcmp(key, after) <= 0 ||
            (cut != 0 && (strncmp(seen, key, cut) == 0 || strncmp(after, key, cut) == 0)))
            continue;
        is_truncated = shown == max_keys;
        if (is_truncated)
            break;
        shown++;
        if (cut != 0) {
            snprintf(seen, sizeof(seen), "%.*s", (int)cut, key);
            server_print(xml, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", seen);
        } else {
            print_object(xml, objects[i]);
        }
        last = cut != 0 ? seen : key;
    }
    server_print(xml, "<IsTruncated>%s</IsTruncated><KeyCount>%zu</KeyCount>",
                 is_truncated ? "true" : "false", shown);
    if (is_truncated)
        server_print(xml, "<NextContinuationToken>%s</NextContinuationToken>", last);
    pthread_mutex_unlock(&lock);
}

uint64_t server_upload_begin(void)
{
    struct upload *upload = check_memory(calloc(1, sizeof(*upload)));

    upload->parts = check_memory(calloc(SERVER_MAX_PARTS, sizeof(*upload->parts)));
    pthread_mutex_lock(&lock);
    upload->id = ++last_tag;
    upload->next = uploads;
    uploads = upload;
    pthread_mutex_unlock(&lock);
    return upload->id;
}

/* The lock is held. */
static struct upload **find_upload(uint64_t id)
{
    struct upload **at = &uploads;

    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

bool server_upload_part(uint64_t id, unsigned number, struct server_piece piece)
{
    pthread_mutex_lock(&lock);
    struct upload *upload = *find_upload(id);
    if (upload != NULL && number < SERVER_MAX_PARTS) {
        free(upload->parts[number].bytes);
        upload->parts[number] = piece;
        upload->last = number > upload->last ? number : upload->last;
    }
    pthread_mutex_unlock(&lock);
    if (upload == NULL)
        free(piece.bytes);
    return upload != NULL;
}

static struct upload *take_upload(uint64_t id)
{
    pthread_mutex_lock(&lock);
    struct upload **at = find_upload(id);
    struct upload *upload = *at;
    if (upload != NULL)
        *at = upload->next;
    pthread_mutex_unlock(&lock);
    return upload;
}

uint64_t server_upload_complete(uint64_t id, const char *key)
{
    struct upload *upload = take_upload(id);

    if (upload == NULL)
        return 0;
    size_t parts = upload->last;
    struct server_piece *pieces = check_memory(calloc(parts + 1, sizeof(*pieces)));
    memcpy(pieces, upload->parts + 1, parts * sizeof(*pieces));
    free(upload->parts);
    free(upload);
    return server_object_put(key, pieces, parts, SERVER_ALWAYS, 0);
}

void server_upload_abort(uint64_t id)
{
    struct upload *upload = take_upload(id);

    if (upload == NULL)
        return;
    for (unsigned i = 0; i <= upload->last; i++)
        free(upload->parts[i].bytes);
    free(upload->parts);
    free(upload);
}
