/* SPDX-License-Identifier: BSD-3-Clause */
/* object_sim.c -- carries out the requests to a simulated bucket. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "object/retry.h"
#include "support/object_sim_bucket.h"

struct sim_client {
    struct object_client base;
    struct object_bucket *bucket;
    int number;
    enum sidestep_status answer; /* of the running request, unless it is done; guarded by the
                                  * bucket's lock */
};

static struct sim_client *of(struct object_client *client)
{
    return (struct sim_client *)(void *)client;
}

/* ---- fates */

static bool is_read(const char *request)
{
    return strcmp(request, "head") == 0 || strcmp(request, "get") == 0 ||
           strcmp(request, "list") == 0 || strcmp(request, "upload_list") == 0;
}

/* What the client reports; ${*fate} becomes what happens in the bucket. */
static enum sidestep_status answer_to(const char *request, enum object_fate *fate)
{
    enum object_fate was = *fate;

    switch (was) {
    case OBJECT_RESET:
        *fate = OBJECT_LATE;
        return SIDESTEP_EIO;
    case OBJECT_LOST_THEN_REFUSED:
    case OBJECT_LATE_THEN_REFUSED:
        *fate = was == OBJECT_LOST_THEN_REFUSED ? OBJECT_LOST : OBJECT_LATE;
        return retry_status(SIDESTEP_EPERM, !is_read(request), false);
    case OBJECT_FORBIDDEN:
        *fate = OBJECT_REFUSED;
        return SIDESTEP_EPERM;
    default:
        return was == OBJECT_REFUSED ? SIDESTEP_EIO : SIDESTEP_ETIMEDOUT;
    }
}

/* Takes the lock, unless it fails. */
static enum sidestep_status enter(struct object_client *client, const char *request,
                                  const char *key, enum object_fate *fate,
                                  struct sidestep_error *err)
{
    struct sim_client *c = of(client);
    struct object_bucket *b = c->bucket;

    /* A client that dies at this request may have sent it. */
    pthread_mutex_lock(&b->lock);
    bool was_dead = b->dead[c->number];
    pthread_mutex_unlock(&b->lock);
    *fate = b->hook != NULL ? b->hook(b->context, c->number, request, key) : OBJECT_DONE;
    pthread_mutex_lock(&b->lock);
    b->requests++;
    if (was_dead)
        *fate = OBJECT_REFUSED;
    c->answer = answer_to(request, fate);
    if (*fate != OBJECT_REFUSED)
        return SIDESTEP_OK;
    enum sidestep_status answer = c->answer;
    pthread_mutex_unlock(&b->lock);
    return FAIL(err, answer, "%s '%s': the bucket does not answer", request, key);
}

static enum sidestep_status leave(struct object_client *client, const char *request,
                                  const char *key, enum object_fate fate,
                                  enum sidestep_status status, struct sidestep_error *err)
{
    enum sidestep_status answer = of(client)->answer;

    pthread_mutex_unlock(&of(client)->bucket->lock);
    if (fate == OBJECT_DONE || fate == OBJECT_SKIPPED)
        return status;
    return FAIL(err, answer, "%s '%s': no answer", request, key);
}

/* ---- requests */

static struct object *look_up(struct object_bucket *b, const char *key, enum object_fate fate)
{
    return fate != OBJECT_SKIPPED ? bucket_get(b, key) : NULL;
}

static enum sidestep_status sim_head(struct object_client *client, const char *key,
                                     struct object_info *info, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;
    enum object_fate fate;

    TRY(enter(client, "head", key, &fate, err));
    struct object *o = look_up(of(client)->bucket, key, fate);
    if (o == NULL)
        status = FAIL(err, SIDESTEP_ENOTFOUND, "head '%s': 404", key);
    else
        bucket_fill_info(of(client)->bucket, o, info);
    return leave(client, "head", key, fate, status, err);
}

static enum sidestep_status sim_get(struct object_client *client, const char *key, uint64_t offset,
                                    const struct store_places *to, const char *tag,
                                    struct object_info *info, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;
    struct store_places_cursor cursor = {0};
    uint64_t length = store_places_bytes(to);
    char now[OBJECT_TAG_BYTES] = "";
    enum object_fate fate;

    TRY(enter(client, "get", key, &fate, err));
    struct object *o = look_up(of(client)->bucket, key, fate);
    if (o != NULL)
        bucket_tag_of(o->version, now);
    if (o == NULL)
        status = FAIL(err, SIDESTEP_ENOTFOUND, "get '%s': 404", key);
    else if (tag != NULL && strcmp(tag, now) != 0)
        status = FAIL(err, SIDESTEP_EEXISTS, "get '%s': 412", key);
    else if (offset > o->length || length > o->length - offset)
        status = FAIL(err, SIDESTEP_ECORRUPT, "get '%s': it is shorter", key);
    else
        store_places_put(to, &cursor, o->bytes + offset, length);
    if (status == SIDESTEP_OK)
        bucket_fill_info(of(client)->bucket, o, info);
    return leave(client, "get", key, fate, status, err);
}

static enum sidestep_status sim_get_all(struct object_client *client, const char *key, size_t most,
                                        struct buffer *out, struct object_info *info,
                                        struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;
    enum object_fate fate;

    TRY(enter(client, "get", key, &fate, err));
    struct object *o = look_up(of(client)->bucket, key, fate);
    if (o == NULL) {
        status = FAIL(err, SIDESTEP_ENOTFOUND, "get '%s': 404", key);
    } else if (o->length > most) {
        status = FAIL(err, SIDESTEP_ECORRUPT, "get '%s': more than %zu bytes", key, most);
    } else if (fate == OBJECT_DONE) {
        buffer_put(out, o->bytes, o->length);
        status = buffer_check(out, err);
        bucket_fill_info(of(client)->bucket, o, info);
    }
    return leave(client, "get", key, fate, status, err);
}

static enum sidestep_status sim_put(struct object_client *client, const char *key,
                                    const void *bytes, size_t length,
                                    const struct object_condition *condition,
                                    char tag[OBJECT_TAG_BYTES], struct sidestep_error *err)
{
    struct object_bucket *b = of(client)->bucket;
    struct late late = {.kind = KIND_PUT, .length = length};
    enum sidestep_status status;
    enum object_fate fate;

    TRY(enter(client, "put", key, &fate, err));
    uint8_t *copy = bucket_copy_of(bytes, length);
    if (copy == NULL) {
        status = FAIL_NOMEM(err, length);
    } else if (fate == OBJECT_LATE) {
        snprintf(late.key, sizeof(late.key), "%s", key);
        late.bytes = copy;
        bucket_note_condition(&late, condition);
        bucket_add_late(b, late);
        status = SIDESTEP_OK;
    } else if (fate == OBJECT_SKIPPED) {
        free(copy);
        b->versions++; /* for the tag in the response */
        status = SIDESTEP_OK;
    } else {
        status = bucket_check_condition(b, key, condition != NULL && condition->if_absent,
                                        condition != NULL ? condition->if_tag : NULL, err);
        if (status == SIDESTEP_OK)
            status = bucket_store_object(b, key, copy, length,
                                         condition != NULL ? condition->maker : NULL, err);
        else
            free(copy);
    }
    if (status == SIDESTEP_OK && tag != NULL)
        bucket_tag_of(b->versions, tag);
    return leave(client, "put", key, fate, status, err);
}

static enum sidestep_status sim_delete(struct object_client *client, const char *const *keys,
                                       size_t count, struct sidestep_error *err)
{
    struct object_bucket *b = of(client)->bucket;
    enum object_fate fate;

    TRY(enter(client, "delete", keys[0], &fate, err));
    for (size_t i = 0; i < count; i++) {
        struct late late = {.kind = KIND_DELETE};
        snprintf(late.key, sizeof(late.key), "%s", keys[i]);
        if (fate == OBJECT_LATE)
            bucket_add_late(b, late);
        else if (fate != OBJECT_SKIPPED)
            bucket_remove_object(b, keys[i]);
    }
    return leave(client, "delete", keys[0], fate, SIDESTEP_OK, err);
}

static enum sidestep_status sim_delete_version(struct object_client *client, const char *key,
                                               const char *tag, struct sidestep_error *err)
{
    struct object_bucket *b = of(client)->bucket;
    struct late late = {.kind = KIND_DELETE};
    enum sidestep_status status = SIDESTEP_OK;
    enum object_fate fate;

    TRY(enter(client, "delete", key, &fate, err));
    snprintf(late.key, sizeof(late.key), "%s", key);
    snprintf(late.if_tag, sizeof(late.if_tag), "%s", tag);
    if (fate == OBJECT_LATE) {
        bucket_add_late(b, late);
    } else if (look_up(b, key, fate) != NULL) {
        status = bucket_check_condition(b, key, false, tag, err);
        if (status == SIDESTEP_OK)
            bucket_remove_object(b, key);
    }
    return leave(client, "delete", key, fate, status, err);
}

static enum sidestep_status sim_list(struct object_client *client, const char *prefix,
                                     char delimiter, const char *after, unsigned most,
                                     object_each *each, void *context, struct sidestep_error *err)
{
    struct object_bucket *b = of(client)->bucket;
    size_t length = strlen(prefix), found = 0;
    struct object_info *infos = NULL;
    enum sidestep_status status = SIDESTEP_OK;
    enum object_fate fate;

    TRY(enter(client, "list", prefix, &fate, err));
    infos = calloc(b->count + 1, sizeof(*infos));
    if (infos == NULL)
        status = FAIL_NOMEM(err, (b->count + 1) * sizeof(*infos));
    for (size_t i = 0; status == SIDESTEP_OK && fate != OBJECT_SKIPPED && i < b->count; i++) {
        const struct object *o = &b->objects[i];
        struct object_info *info = &infos[found];
        if (strncmp(o->key, prefix, length) != 0 || (after != NULL && strcmp(o->key, after) <= 0))
            continue;
        const char *cut = delimiter != 0 ? strchr(o->key + length, delimiter) : NULL;
        bucket_fill_info(b, o, info);
        if (cut != NULL)
            *info = (struct object_info){.now = b->now};
        snprintf(info->key, sizeof(info->key), "%.*s",
                 (int)(cut != NULL ? (size_t)(cut - o->key) + 1 : strlen(o->key)), o->key);
        if (found == 0 || strcmp(infos[found - 1].key, info->key) != 0)
            found++;
    }
    status = leave(client, "list", prefix, fate, status, err);
    for (size_t i = 0; status == SIDESTEP_OK && i < found && (most == 0 || i < most); i++)
        if (!each(context, &infos[i]))
            break;
    free(infos);
    return status;
}

static enum sidestep_status sim_upload_begin(struct object_client *client, const char *key,
                                             const char *maker,
                                             char upload_id[OBJECT_UPLOAD_ID_BYTES],
                                             struct sidestep_error *err)
{
    struct object_bucket *b = of(client)->bucket;
    enum sidestep_status status = SIDESTEP_OK;
    enum object_fate fate;

    TRY(enter(client, "upload_begin", key, &fate, err));
    void *more = realloc(b->uploads, (b->upload_count + 1) * sizeof(*b->uploads));
    if (more == NULL) {
        status = FAIL_NOMEM(err, (b->upload_count + 1) * sizeof(*b->uploads));
    } else {
        b->uploads = more;
        struct upload *u = &b->uploads[b->upload_count++];
        *u = (struct upload){.id = ++b->versions, .began = b->now};
        snprintf(u->key, sizeof(u->key), "%s", key);
        snprintf(u->maker, sizeof(u->maker), "%s", maker != NULL ? maker : "");
        if (fate == OBJECT_DONE)
            snprintf(upload_id, OBJECT_UPLOAD_ID_BYTES, "%llu", (unsigned long long)u->id);
    }
    return leave(client, "upload_begin", key, fate, status, err);
}

static enum sidestep_status put_part(struct object_bucket *b, const char *upload_id,
                                     unsigned number, const void *bytes, size_t length,
                                     struct object_part *part, struct sidestep_error *err)
{
    struct upload *u = bucket_find_upload(b, upload_id);

    if (u == NULL)
        return FAIL(err, SIDESTEP_EIO, "part %u: NoSuchUpload", number);
    if (number > u->count) {
        void *more = realloc(u->parts, number * sizeof(*u->parts));
        if (more == NULL)
            return FAIL_NOMEM(err, number * sizeof(*u->parts));
        u->parts = more;
        memset(u->parts + u->count, 0, (number - u->count) * sizeof(*u->parts));
        u->count = number;
    }
    uint8_t *copy = bucket_copy_of(bytes, length);
    if (copy == NULL)
        return FAIL_NOMEM(err, length);
    free(u->parts[number - 1].bytes);
    u->parts[number - 1] = (struct sim_part){copy, length, ++b->versions};
    bucket_tag_of(b->versions, part->tag);
    return SIDESTEP_OK;
}

static enum sidestep_status sim_upload_part(struct object_client *client, const char *key,
                                            const char *upload_id, unsigned number,
                                            const void *bytes, size_t length,
                                            struct object_part *part, struct sidestep_error *err)
{
    enum object_fate fate;

    TRY(enter(client, "upload_part", key, &fate, err));
    enum sidestep_status status =
        put_part(of(client)->bucket, upload_id, number, bytes, length, part, err);
    return leave(client, "upload_part", key, fate, status, err);
}

static enum sidestep_status
sim_upload_complete(struct object_client *client, const char *key, const char *upload_id,
                    const struct object_part *parts, unsigned count, uint64_t length,
                    const struct object_condition *condition, struct object_info *info,
                    struct sidestep_error *err)
{
    struct object_bucket *b = of(client)->bucket;
    struct late late = {.kind = KIND_COMPLETE, .length = count};
    enum sidestep_status status = SIDESTEP_OK;
    char tag[OBJECT_TAG_BYTES];
    enum object_fate fate;

    TRY(enter(client, "upload_complete", key, &fate, err));
    struct upload *u = bucket_find_upload(b, upload_id);
    for (unsigned i = 0; u != NULL && i < count && status == SIDESTEP_OK; i++) {
        if (i < u->count)
            bucket_tag_of(u->parts[i].version, tag);
        if (i >= u->count || strcmp(tag, parts[i].tag) != 0)
            status = FAIL(err, SIDESTEP_EIO, "complete '%s': InvalidPart %u", key, i + 1);
    }
    if (u == NULL) {
        status = FAIL(err, SIDESTEP_EIO, "complete '%s': NoSuchUpload", key);
    } else if (status == SIDESTEP_OK && fate == OBJECT_LATE) {
        late.upload = u->id;
        bucket_note_condition(&late, condition);
        snprintf(late.key, sizeof(late.key), "%s", key);
        bucket_add_late(b, late);
    } else if (status == SIDESTEP_OK) {
        status = bucket_check_condition(b, key, condition != NULL && condition->if_absent,
                                        condition != NULL ? condition->if_tag : NULL, err);
        if (status == SIDESTEP_OK)
            status = bucket_complete(b, u, count, err);
    }
    struct object *o = bucket_get(b, key);
    if (status == SIDESTEP_OK && fate == OBJECT_DONE && (o == NULL || o->length != length))
        status = FAIL(err, SIDESTEP_ECORRUPT, "complete '%s': its size is wrong", key);
    if (status == SIDESTEP_OK && fate == OBJECT_DONE)
        bucket_fill_info(b, o, info);
    return leave(client, "upload_complete", key, fate, status, err);
}

static enum sidestep_status sim_upload_abort(struct object_client *client, const char *key,
                                             const char *upload_id, struct sidestep_error *err)
{
    enum object_fate fate;

    TRY(enter(client, "upload_abort", key, &fate, err));
    struct upload *u = bucket_find_upload(of(client)->bucket, upload_id);
    if (u != NULL && fate != OBJECT_SKIPPED)
        bucket_drop_upload(u);
    return leave(client, "upload_abort", key, fate, SIDESTEP_OK, err);
}

static enum sidestep_status sim_upload_list(struct object_client *client, const char *prefix,
                                            object_each_upload *each, void *context,
                                            struct sidestep_error *err)
{
    struct object_bucket *b = of(client)->bucket;
    enum sidestep_status status = SIDESTEP_OK;
    enum object_fate fate;
    struct upload *copies;
    size_t count = 0;

    TRY(enter(client, "upload_list", prefix, &fate, err));
    copies = calloc(b->upload_count + 1, sizeof(*copies));
    for (size_t i = 0; copies != NULL && fate != OBJECT_SKIPPED && i < b->upload_count; i++)
        if (b->uploads[i].id != 0 && strncmp(b->uploads[i].key, prefix, strlen(prefix)) == 0)
            copies[count++] = b->uploads[i];
    if (copies == NULL)
        status = FAIL_NOMEM(err, sizeof(*copies));
    int64_t now = b->now;
    status = leave(client, "upload_list", prefix, fate, status, err);
    for (size_t i = 0; status == SIDESTEP_OK && i < count; i++) {
        struct object_info info = {.modified = copies[i].began, .now = now};
        char id[24];
        snprintf(info.key, sizeof(info.key), "%s", copies[i].key);
        snprintf(id, sizeof(id), "%llu", (unsigned long long)copies[i].id);
        if (!each(context, &info, id))
            break;
    }
    free(copies);
    return status;
}

static const char *sim_describe(const struct object_client *client UNUSED)
{
    return "a simulated bucket";
}

/* One request at a time, so that all runs of a test are alike. */
static unsigned sim_reads(const struct object_client *client UNUSED)
{
    return 1;
}

static uint64_t sim_retry_count(const struct object_client *client)
{
    (void)client;
    return 0;
}

static uint64_t sim_request_count(const struct object_client *client)
{
    return ((const struct sim_client *)(const void *)client)->bucket->requests;
}

static void sim_client_free(struct object_client *client)
{
    free(client);
}

static const struct object_ops ops = {.head = sim_head,
                                      .get = sim_get,
                                      .get_all = sim_get_all,
                                      .put = sim_put,
                                      .delete_keys = sim_delete,
                                      .delete_version = sim_delete_version,
                                      .list = sim_list,
                                      .upload_begin = sim_upload_begin,
                                      .upload_part = sim_upload_part,
                                      .upload_complete = sim_upload_complete,
                                      .upload_abort = sim_upload_abort,
                                      .upload_list = sim_upload_list,
                                      .describe = sim_describe,
                                      .reads = sim_reads,
                                      .request_count = sim_request_count,
                                      .retry_count = sim_retry_count,
                                      .free = sim_client_free};

/* ---- for tests */

struct object_bucket *object_sim_new(unsigned flags, size_t min_part_bytes)
{
    struct object_bucket *b = calloc(1, sizeof(*b));

    if (b == NULL)
        return NULL;
    pthread_mutex_init(&b->lock, NULL);
    b->flags = flags;
    b->min_part_bytes = min_part_bytes;
    b->now = BEGIN_OF_TIME;
    return b;
}

void object_sim_free(struct object_bucket **bucket)
{
    struct object_bucket *b = *bucket;

    if (b == NULL)
        return;
    for (size_t i = 0; i < b->count; i++)
        free(b->objects[i].bytes);
    for (size_t i = 0; i < b->upload_count; i++)
        bucket_drop_upload(&b->uploads[i]);
    for (size_t i = 0; i < b->late_count; i++)
        free(b->late[i].bytes);
    free(b->objects);
    free(b->uploads);
    free(b->late);
    pthread_mutex_destroy(&b->lock);
    free(b);
    *bucket = NULL;
}

enum object_fate object_sim_meet(void *context, int client UNUSED, const char *request UNUSED,
                                 const char *key UNUSED)
{
    struct object_meeting *meeting = context;

    return __atomic_add_fetch(&meeting->seen, 1, __ATOMIC_SEQ_CST) == meeting->at ? meeting->fate
                                                                                  : OBJECT_DONE;
}

void object_sim_set_hook(struct object_bucket *bucket, object_hook *hook, void *context)
{
    bucket->hook = hook;
    bucket->context = context;
}

struct object_client *object_sim_client(struct object_bucket *bucket, int number)
{
    struct sim_client *client = calloc(1, sizeof(*client));

    if (client == NULL)
        return NULL;
    *client = (struct sim_client){.base = {&ops}, .bucket = bucket, .number = number};
    return &client->base;
}
