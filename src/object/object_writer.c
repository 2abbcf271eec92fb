/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_writer.c -- writes one object: collects parts, sends them while the caller writes, and
 * makes the object appear at the end.
 *
 * All parts but the last have the same size, as some stores require (R2). Callers write any ranges,
 * from many threads. A part is sent when all of its bytes are written. Its memory is kept until the
 * store has acknowledged it, so that it can be sent again. An object of one part is sent by a put.
 */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object/object_ranges.h"
#include "object/object_store_internal.h"

#define WRITER_UNKNOWN_PART_BYTES ((uint64_t)32 << 20) /* minimum if the size is unknown */
#define WRITER_USED_PARTS 9000u /* of OBJECT_MAX_PARTS, as the size may exceed the estimate */
#define WRITER_BUFFERS 7u       /* parts in memory; if all are used, callers wait */
#define WRITER_UPLOADERS WRITER_BUFFERS
#define QUEUED_TAG "queued" /* until the store returns a tag */

/* A part that is being written or sent. Once it is queued, it does not change. */
struct part {
    struct part *next;
    unsigned number;             /* from 1 on */
    size_t length;               /* set when it is queued */
    struct object_ranges ranges; /* that were written */
    uint8_t bytes[];
};

struct object_writer {
    struct object_client *client;
    char key[OBJECT_KEY_BYTES];
    uint64_t min_part_bytes;
    uint64_t part_bytes;                                   /* larger if the object is */
    struct object_condition condition;                     /* constant after the first write */
    char tag[OBJECT_TAG_BYTES], maker[OBJECT_MAKER_BYTES]; /* strings of ${condition} */
    struct {
        struct lock lock LOCK_KIND(OBJECT_WRITER);
        struct lock_condition changed;
        char upload_id[OBJECT_UPLOAD_ID_BYTES]; /* "": not begun */
        bool is_beginning;                      /* a thread has sent the request */
        struct part *open;                      /* being written */
        struct part *idle;                      /* memory for other parts */
        struct part *queue, **queue_end;        /* to be sent, in order */
        unsigned buffers;                       /* parts in memory that are not idle */
        unsigned sending;                       /* parts that are queued or being sent */
        struct object_part *sent;
        unsigned sent_capacity;
        unsigned part_count; /* highest number of a queued part */
        uint64_t length;
        bool is_complete;
        bool ends; /* uploaders end when the queue is empty */
        bool failed;
        struct sidestep_error err;
        pthread_t uploaders[WRITER_UPLOADERS];
        unsigned uploader_count;
    } shared;
};

enum sidestep_status object_writer_new(struct object_client *client, const char *key,
                                       uint64_t part_bytes, struct object_writer **out,
                                       struct sidestep_error *err)
{
    struct object_writer *writer = memory_new(1, sizeof(*writer));

    if (writer == NULL)
        return FAIL_NOMEM(err, sizeof(*writer));
    writer->client = client;
    snprintf(writer->key, sizeof(writer->key), "%s", key);
    writer->min_part_bytes = part_bytes;
    writer->part_bytes = max_u64(part_bytes, WRITER_UNKNOWN_PART_BYTES);
    writer->shared.queue_end = &writer->shared.queue;
    lock_init(&writer->shared.lock, LOCK_OBJECT_WRITER);
    lock_condition_init(&writer->shared.changed);
    *out = writer;
    return SIDESTEP_OK;
}

enum sidestep_status object_writer_expect(struct object_writer *writer, uint64_t bytes,
                                          struct sidestep_error *err)
{
    uint64_t least = bytes / WRITER_USED_PARTS + 1;

    assert(writer->shared.length == 0 && writer->shared.open == NULL);
    if (bytes > (uint64_t)INT64_MAX)
        return error_set(err, SIDESTEP_ENOSPC, EFBIG, HERE, "'%s'", writer->key);
    least = (least + (1u << 20) - 1) & ~(((uint64_t)1 << 20) - 1);
    writer->part_bytes = max_u64(writer->min_part_bytes, least);
    return SIDESTEP_OK;
}

void object_writer_set_condition(struct object_writer *writer,
                                 const struct object_condition *condition)
{
    assert(writer->shared.part_count == 0);
    writer->condition = *condition;
    if (condition->if_tag != NULL)
        snprintf(writer->tag, sizeof(writer->tag), "%s", condition->if_tag);
    if (condition->maker != NULL)
        snprintf(writer->maker, sizeof(writer->maker), "%s", condition->maker);
    writer->condition.if_tag = condition->if_tag != NULL ? writer->tag : NULL;
    writer->condition.maker = condition->maker != NULL ? writer->maker : NULL;
}

uint64_t object_writer_length(struct object_writer *writer)
{
    lock_acquire(&writer->shared.lock);
    uint64_t length = writer->shared.length;
    lock_release(&writer->shared.lock);
    return length;
}

/* ---- sending ---- */

/* Record the first error, and wake all that wait. */
static void fail_locked(struct object_writer *writer, const struct sidestep_error *why)
    REQUIRES(&writer->shared.lock)
{
    if (!writer->shared.failed)
        writer->shared.err = *why;
    writer->shared.failed = true;
    lock_wake_all(&writer->shared.changed);
}

static enum sidestep_status recorded_error(const struct object_writer *writer,
                                           struct sidestep_error *err)
    REQUIRES(&writer->shared.lock)
{
    return writer->shared.failed ? error_copy(err, &writer->shared.err) : SIDESTEP_OK;
}

/* Wait for a part to send. NULL: there are no more. */
static struct part *take_queued(struct object_writer *writer) REQUIRES(&writer->shared.lock)
{
    while (writer->shared.queue == NULL && !writer->shared.ends)
        lock_wait(&writer->shared.lock, &writer->shared.changed);
    struct part *part = writer->shared.queue;
    if (part != NULL)
        writer->shared.queue = part->next;
    if (writer->shared.queue == NULL)
        writer->shared.queue_end = &writer->shared.queue;
    return part;
}

static void recycle_part(struct object_writer *writer, struct part *part)
    REQUIRES(&writer->shared.lock)
{
    part->next = writer->shared.idle;
    writer->shared.idle = part;
    writer->shared.buffers--;
}

static void *upload_parts(void *argument)
{
    struct object_writer *writer = argument;
    struct object_client *client = writer->client;
    struct part *part;

    lock_acquire(&writer->shared.lock);
    while ((part = take_queued(writer)) != NULL) {
        struct sidestep_error why = {.rank = -1};
        struct object_part sent = {0};
        enum sidestep_status status = SIDESTEP_OK;
        bool failed = writer->shared.failed;
        lock_release(&writer->shared.lock);
        if (!failed) /* otherwise the object is abandoned */
            status = client->ops->upload_part(client, writer->key, writer->shared.upload_id,
                                              part->number, part->bytes, part->length, &sent, &why);
        lock_acquire(&writer->shared.lock);
        writer->shared.sent[part->number - 1] = sent;
        writer->shared.sending--;
        recycle_part(writer, part);
        if (status != SIDESTEP_OK)
            fail_locked(writer, &why);
        lock_wake_all(&writer->shared.changed);
    }
    lock_release(&writer->shared.lock);
    return NULL;
}

/* Begin the upload, unless it has begun. Releases the lock in the meantime. */
static enum sidestep_status begin_upload(struct object_writer *writer, struct sidestep_error *err)
    REQUIRES(&writer->shared.lock)
{
    char upload_id[OBJECT_UPLOAD_ID_BYTES] = "";

    while (writer->shared.is_beginning)
        lock_wait(&writer->shared.lock, &writer->shared.changed);
    TRY(recorded_error(writer, err));
    if (writer->shared.upload_id[0] != '\0')
        return SIDESTEP_OK;
    writer->shared.is_beginning = true;
    lock_release(&writer->shared.lock);
    enum sidestep_status status = writer->client->ops->upload_begin(
        writer->client, writer->key, writer->condition.maker, upload_id, err);
    lock_acquire(&writer->shared.lock);
    memcpy(writer->shared.upload_id, upload_id, sizeof(upload_id));
    writer->shared.is_beginning = false;
    lock_wake_all(&writer->shared.changed);
    return status;
}

/* Mark part ${number} as queued. */
static enum sidestep_status mark_queued(struct object_writer *writer, unsigned number,
                                        struct sidestep_error *err) REQUIRES(&writer->shared.lock)
{
    if (number > writer->shared.sent_capacity) {
        unsigned capacity = (unsigned)max_u64(2 * (uint64_t)number, 64);
        void *more = memory_resize(writer->shared.sent, capacity, sizeof(*writer->shared.sent));
        if (more == NULL)
            return FAIL_NOMEM(err, capacity * sizeof(*writer->shared.sent));
        writer->shared.sent = more;
        memset(writer->shared.sent + writer->shared.sent_capacity, 0,
               (capacity - writer->shared.sent_capacity) * sizeof(*writer->shared.sent));
        writer->shared.sent_capacity = capacity;
    }
    writer->shared.part_count = (unsigned)max_u64(writer->shared.part_count, number);
    memcpy(writer->shared.sent[number - 1].tag, QUEUED_TAG, sizeof(QUEUED_TAG));
    return SIDESTEP_OK;
}

static enum sidestep_status start_uploader(struct object_writer *writer, struct sidestep_error *err)
    REQUIRES(&writer->shared.lock)
{
    if (writer->shared.uploader_count == WRITER_UPLOADERS ||
        writer->shared.uploader_count > writer->shared.sending)
        return SIDESTEP_OK;
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status =
        thread_start(&writer->shared.uploaders[writer->shared.uploader_count], "sidestep-put",
                     upload_parts, writer, &why);
    if (status == SIDESTEP_OK)
        writer->shared.uploader_count++;
    else if (writer->shared.uploader_count == 0) /* one thread is enough */
        error_copy(err, &why);
    return writer->shared.uploader_count != 0 ? SIDESTEP_OK : status;
}

/* Send the first ${length} bytes of ${part}. Takes ownership of ${part}, also on failure. Releases
 * the lock in the meantime. */
static enum sidestep_status send_part(struct object_writer *writer, struct part *part,
                                      size_t length, struct sidestep_error *err)
    REQUIRES(&writer->shared.lock)
{
    /* First, so that no thread opens this part again while the lock is released. */
    enum sidestep_status status = mark_queued(writer, part->number, err);

    if (status == SIDESTEP_OK)
        status = begin_upload(writer, err);
    if (status == SIDESTEP_OK)
        status = start_uploader(writer, err);
    if (status != SIDESTEP_OK) {
        recycle_part(writer, part);
        return status;
    }
    object_ranges_clear_gaps(&part->ranges, part->bytes, length);
    part->length = length;
    part->next = NULL;
    writer->shared.sending++;
    *writer->shared.queue_end = part;
    writer->shared.queue_end = &part->next;
    lock_wake_all(&writer->shared.changed);
    return SIDESTEP_OK;
}

/* ---- writing ---- */

/* Is part ${number} sent or queued? */
static bool is_sent(const struct object_writer *writer, unsigned number)
    REQUIRES(&writer->shared.lock)
{
    return number <= writer->shared.sent_capacity && writer->shared.sent[number - 1].tag[0] != '\0';
}

/* The pointer to part ${number} in the list of open parts; NULL: it is not open. */
static struct part **find_open(struct object_writer *writer, unsigned number)
    REQUIRES(&writer->shared.lock)
{
    for (struct part **at = &writer->shared.open; *at != NULL; at = &(*at)->next)
        if ((*at)->number == number)
            return at;
    return NULL;
}

/* Open part ${number} when a buffer is free. Releases the lock in the meantime. */
static enum sidestep_status open_part(struct object_writer *writer, unsigned number,
                                      struct part ***at, struct sidestep_error *err)
    REQUIRES(&writer->shared.lock)
{
    while ((*at = find_open(writer, number)) == NULL && !writer->shared.failed &&
           writer->shared.buffers >= WRITER_BUFFERS && writer->shared.sending != 0)
        lock_wait(&writer->shared.lock, &writer->shared.changed);
    TRY(recorded_error(writer, err));
    if (*at != NULL)
        return SIDESTEP_OK;
    if (is_sent(writer, number))
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s': part %u has been sent and cannot be changed",
                    writer->key, number);
    struct part *part = writer->shared.idle;
    if (part != NULL)
        writer->shared.idle = part->next;
    else
        part = memory_resize(NULL, 1, sizeof(*part) + writer->part_bytes);
    if (part == NULL)
        return FAIL_NOMEM(err, sizeof(*part) + writer->part_bytes);
    part->number = number;
    part->ranges.count = 0;
    part->next = writer->shared.open;
    writer->shared.open = part;
    writer->shared.buffers++;
    *at = &writer->shared.open;
    return SIDESTEP_OK;
}

/* Copy bytes to one part, and send the part if it is full. Releases the lock in the meantime: the
 * part is not full before this range is added, so it stays open. */
static enum sidestep_status write_to_part(struct object_writer *writer, unsigned number,
                                          const void *from, uint64_t begin, size_t bytes,
                                          struct sidestep_error *err) REQUIRES(&writer->shared.lock)
{
    struct part **at;

    TRY(open_part(writer, number, &at, err));
    struct part *part = *at;
    lock_release(&writer->shared.lock);
    memcpy(part->bytes + begin, from, bytes);
    lock_acquire(&writer->shared.lock);
    if (!object_ranges_add(&part->ranges, begin, begin + bytes))
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s': part %u has more than %u gaps", writer->key,
                    number, OBJECT_MAX_RANGES);
    if (!object_ranges_cover(&part->ranges, writer->part_bytes))
        return SIDESTEP_OK;
    at = find_open(writer, number);
    assert(at != NULL && *at == part);
    *at = part->next;
    return send_part(writer, part, writer->part_bytes, err);
}

static enum sidestep_status write_locked(struct object_writer *writer, const uint8_t *from,
                                         size_t bytes, uint64_t offset, struct sidestep_error *err)
    REQUIRES(&writer->shared.lock)
{
    TRY(recorded_error(writer, err));
    if (writer->shared.is_complete)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s' is complete and cannot be changed",
                    writer->key);
    if (offset > (uint64_t)INT64_MAX || bytes > (uint64_t)INT64_MAX - offset ||
        (offset + bytes - 1) / writer->part_bytes >= OBJECT_MAX_PARTS)
        return error_set(err, SIDESTEP_ENOSPC, EFBIG, HERE,
                         "'%s': an object has at most %u parts, here of %llu bytes", writer->key,
                         OBJECT_MAX_PARTS, (unsigned long long)writer->part_bytes);
    writer->shared.length = max_u64(writer->shared.length, offset + bytes);
    while (bytes != 0) {
        uint64_t begin = offset % writer->part_bytes;
        size_t length = (size_t)min_u64(bytes, writer->part_bytes - begin);
        unsigned number = (unsigned)(offset / writer->part_bytes) + 1;
        TRY(write_to_part(writer, number, from, begin, length, err));
        from += length, offset += length, bytes -= length;
    }
    return SIDESTEP_OK;
}

enum sidestep_status object_writer_write(struct object_writer *writer, const void *from,
                                         size_t bytes, uint64_t offset, struct sidestep_error *err)
{
    if (bytes == 0)
        return SIDESTEP_OK;
    lock_acquire(&writer->shared.lock);
    enum sidestep_status status = write_locked(writer, from, bytes, offset, err);
    lock_release(&writer->shared.lock);
    return status;
}

enum sidestep_status object_writer_resize(struct object_writer *writer, uint64_t bytes,
                                          struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    lock_acquire(&writer->shared.lock);
    if (bytes > (uint64_t)INT64_MAX)
        status = error_set(err, SIDESTEP_ENOSPC, EFBIG, HERE, "'%s'", writer->key);
    else if (bytes < writer->shared.part_count * writer->part_bytes)
        status = FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s': parts after byte %llu have been sent",
                      writer->key, (unsigned long long)bytes);
    else
        writer->shared.length = bytes;
    lock_release(&writer->shared.lock);
    return status;
}

/* ---- completing ---- */

/* Remove the condition, for stores without conditions. False: there was none. */
static bool drop_condition(struct object_condition *condition)
{
    bool had_one = condition->if_absent || condition->if_tag != NULL;

    *condition = (struct object_condition){.maker = condition->maker};
    return had_one;
}

/* Put an object of at most one part. Releases the lock in the meantime. */
static enum sidestep_status put_whole(struct object_writer *writer, struct object_info *info,
                                      struct sidestep_error *err) REQUIRES(&writer->shared.lock)
{
    struct object_client *client = writer->client;
    struct part **at = NULL;

    TRY(open_part(writer, 1, &at, err));
    struct part *part = *at;
    size_t length = (size_t)writer->shared.length;
    object_ranges_clear_gaps(&part->ranges, part->bytes, length);
    lock_release(&writer->shared.lock);
    struct object_condition condition = writer->condition;
    enum sidestep_status status =
        client->ops->put(client, writer->key, part->bytes, length, &condition, info->tag, err);
    if (status == SIDESTEP_EUNSUPPORTED && drop_condition(&condition))
        status =
            client->ops->put(client, writer->key, part->bytes, length, &condition, info->tag, err);
    lock_acquire(&writer->shared.lock);
    info->bytes = length;
    return status;
}

static bool is_one_part(const struct object_writer *writer) REQUIRES(&writer->shared.lock)
{
    return writer->shared.part_count == 0 && writer->shared.length <= writer->part_bytes;
}

static uint64_t count_parts(const struct object_writer *writer) REQUIRES(&writer->shared.lock)
{
    return (writer->shared.length + writer->part_bytes - 1) / writer->part_bytes;
}

/* Send the parts that are not sent. Releases the lock in the meantime. */
static enum sidestep_status send_rest(struct object_writer *writer, struct sidestep_error *err)
    REQUIRES(&writer->shared.lock)
{
    uint64_t count = count_parts(writer);

    if (count > OBJECT_MAX_PARTS)
        return error_set(err, SIDESTEP_ENOSPC, EFBIG, HERE, "'%s': more than %u parts", writer->key,
                         OBJECT_MAX_PARTS);
    for (unsigned number = 1; number <= count; number++) {
        uint64_t begin = (number - 1) * writer->part_bytes;
        struct part **at;
        if (is_sent(writer, number))
            continue;
        TRY(open_part(writer, number, &at, err));
        struct part *part = *at;
        *at = part->next;
        TRY(send_part(writer, part,
                      (size_t)min_u64(writer->part_bytes, writer->shared.length - begin), err));
    }
    while (writer->shared.sending != 0 && !writer->shared.failed)
        lock_wait(&writer->shared.lock, &writer->shared.changed);
    return recorded_error(writer, err);
}

/* Releases the lock in the meantime: all parts are sent, so nothing changes. */
static enum sidestep_status complete_upload(struct object_writer *writer, struct object_info *info,
                                            struct sidestep_error *err)
    REQUIRES(&writer->shared.lock)
{
    struct object_client *client = writer->client;
    struct object_condition condition = writer->condition;
    const char *id = writer->shared.upload_id;
    const struct object_part *sent = writer->shared.sent;
    unsigned count = (unsigned)count_parts(writer);
    uint64_t length = writer->shared.length;

    lock_release(&writer->shared.lock);
    enum sidestep_status status = client->ops->upload_complete(client, writer->key, id, sent, count,
                                                               length, &condition, info, err);
    if (status == SIDESTEP_EUNSUPPORTED && drop_condition(&condition))
        status = client->ops->upload_complete(client, writer->key, id, sent, count, length,
                                              &condition, info, err);
    lock_acquire(&writer->shared.lock);
    return status;
}

static enum sidestep_status complete_locked(struct object_writer *writer, struct object_info *info,
                                            struct sidestep_error *err)
    REQUIRES(&writer->shared.lock)
{
    TRY(recorded_error(writer, err));
    if (writer->shared.is_complete)
        return SIDESTEP_OK;
    if (is_one_part(writer)) {
        TRY(put_whole(writer, info, err));
    } else {
        TRY(send_rest(writer, err));
        TRY(complete_upload(writer, info, err));
    }
    writer->shared.is_complete = true;
    return SIDESTEP_OK;
}

enum sidestep_status object_writer_flush(struct object_writer *writer, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    lock_acquire(&writer->shared.lock);
    if (!is_one_part(writer))
        status = send_rest(writer, err);
    lock_release(&writer->shared.lock);
    return status;
}

enum sidestep_status object_writer_complete(struct object_writer *writer, struct object_info *info,
                                            struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};

    lock_acquire(&writer->shared.lock);
    enum sidestep_status status = complete_locked(writer, info, &why);
    if (status != SIDESTEP_OK) {
        fail_locked(writer, &why); /* as after a failed fsync, the file is abandoned */
        error_copy(err, &why);
    }
    lock_release(&writer->shared.lock);
    return status;
}

static void end_uploaders(struct object_writer *writer)
{
    lock_acquire(&writer->shared.lock);
    writer->shared.ends = true;
    writer->shared.failed = writer->shared.failed || !writer->shared.is_complete;
    lock_wake_all(&writer->shared.changed);
    lock_release(&writer->shared.lock);
    for (unsigned i = 0; i < writer->shared.uploader_count; i++)
        (void)pthread_join(writer->shared.uploaders[i], NULL);
}

static void free_parts(struct part *list)
{
    while (list != NULL) {
        struct part *part = list;
        list = part->next;
        free(part);
    }
}

void object_writer_free(struct object_writer *writer)
{
    if (writer == NULL)
        return;
    end_uploaders(writer);
    /* Best effort: a sweep or the bucket's lifecycle rule removes what is left. */
    if (!writer->shared.is_complete && writer->shared.upload_id[0] != '\0')
        (void)writer->client->ops->upload_abort(writer->client, writer->key,
                                                writer->shared.upload_id, NULL);
    free_parts(writer->shared.open);
    free_parts(writer->shared.idle);
    free(writer->shared.sent);
    lock_condition_destroy(&writer->shared.changed);
    lock_destroy(&writer->shared.lock);
    free(writer);
}
