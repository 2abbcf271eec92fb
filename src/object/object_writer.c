/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_writer.c -- writes one object: gathers parts, sends them while the caller writes on, and
 * makes the object appear at the end.
 *
 * Parts have one size, all but the last, as some stores demand (R2). Callers write any ranges, from
 * many threads. A part is sent when all of its bytes are there. Its memory is kept until the store
 * has acknowledged it, so it can be sent again. An object of one part is put with one request.
 */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object/object_ranges.h"
#include "object/object_store_internal.h"

#define WRITER_UNKNOWN_PART_BYTES ((uint64_t)32 << 20) /* at least, of a file of unknown size */
#define WRITER_USED_PARTS 9000u /* of OBJECT_MAX_PARTS, so that an estimate may be exceeded */
#define WRITER_BUFFERS 7u       /* parts in memory; callers wait for one of them */
#define WRITER_UPLOADERS WRITER_BUFFERS
#define QUEUED_TAG "queued" /* until the store has given a tag */

/* A part that is being gathered or sent. Once it is queued, nobody writes to it. */
struct part {
    struct part *next;
    unsigned number;             /* from 1 on */
    size_t length;               /* set when it is queued */
    struct object_ranges ranges; /* that are there */
    uint8_t bytes[];
};

struct object_writer {
    struct object_client *client;
    char key[OBJECT_KEY_BYTES];
    uint64_t wanted_part_bytes; /* part_bytes is this, or more if the object is large */
    uint64_t part_bytes;
    /* On which it appears. Its strings are ${tag} and ${maker}. Constant from the first write on.
     */
    struct object_condition condition;
    char tag[OBJECT_TAG_BYTES], maker[OBJECT_MAKER_BYTES];
    struct {
        struct lock lock LOCK_KIND(OBJECT_WRITER);
        struct lock_condition changed;
        char upload_id[OBJECT_UPLOAD_ID_BYTES]; /* "": not begun */
        bool is_beginning;                      /* a thread has asked for it */
        struct part *open;                      /* being gathered */
        struct part *idle;                      /* memory to be used again */
        struct part *queue, **queue_end;        /* to be sent, in order */
        unsigned buffers;                       /* parts in memory, without idle ones */
        unsigned sending;                       /* of them, queued or being sent */
        struct object_part *sent;
        unsigned sent_capacity;
        unsigned part_count; /* highest number that was queued */
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
    writer->wanted_part_bytes = part_bytes;
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
    writer->part_bytes = max_u64(writer->wanted_part_bytes, least);
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

/* Locked: note the first error. Everybody who waits sees it. */
static void fail_locked(struct object_writer *writer, const struct sidestep_error *why)
{
    if (!writer->shared.failed)
        writer->shared.err = *why;
    writer->shared.failed = true;
    lock_wake_all(&writer->shared.changed);
}

/* Locked. */
static enum sidestep_status failure(const struct object_writer *writer, struct sidestep_error *err)
{
    if (!writer->shared.failed)
        return SIDESTEP_OK;
    error_copy(err, &writer->shared.err);
    return (enum sidestep_status)writer->shared.err.status;
}

/* Locked: wait for a part to send. NULL: there will be none. */
static struct part *take_queued(struct object_writer *writer) REQUIRES(writer->shared.lock);
static struct part *take_queued(struct object_writer *writer)
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

/* Locked: the memory of ${part} can be used for another one. */
static void give_back(struct object_writer *writer, struct part *part)
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
        if (!failed) /* else it is of no use any more */
            status = client->ops->upload_part(client, writer->key, writer->shared.upload_id,
                                              part->number, part->bytes, part->length, &sent, &why);
        lock_acquire(&writer->shared.lock);
        writer->shared.sent[part->number - 1] = sent;
        writer->shared.sending--;
        give_back(writer, part);
        if (status != SIDESTEP_OK)
            fail_locked(writer, &why);
        lock_wake_all(&writer->shared.changed);
    }
    lock_release(&writer->shared.lock);
    return NULL;
}

/* Locked, released in the meantime: begin the upload, once. */
static enum sidestep_status begin_upload(struct object_writer *writer, struct sidestep_error *err)
    REQUIRES(writer->shared.lock);
static enum sidestep_status begin_upload(struct object_writer *writer, struct sidestep_error *err)
{
    char upload_id[OBJECT_UPLOAD_ID_BYTES] = "";

    while (writer->shared.is_beginning)
        lock_wait(&writer->shared.lock, &writer->shared.changed);
    TRY(failure(writer, err));
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

/* Locked: part ${number} is queued from now on. */
static enum sidestep_status note_queued(struct object_writer *writer, unsigned number,
                                        struct sidestep_error *err)
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
    else if (writer->shared.uploader_count == 0) /* fewer threads than wanted are enough */
        error_copy(err, &why);
    return writer->shared.uploader_count != 0 ? SIDESTEP_OK : status;
}

/* Locked: send ${part}, of which the first ${length} bytes count. Takes it over, also on
 * failure. */
static enum sidestep_status send_part(struct object_writer *writer, struct part *part,
                                      size_t length, struct sidestep_error *err)
    REQUIRES(writer->shared.lock);
static enum sidestep_status send_part(struct object_writer *writer, struct part *part,
                                      size_t length, struct sidestep_error *err)
{
    /* First, so that nobody else opens this part while the lock is released. */
    enum sidestep_status status = note_queued(writer, part->number, err);

    if (status == SIDESTEP_OK)
        status = begin_upload(writer, err);
    if (status == SIDESTEP_OK)
        status = start_uploader(writer, err);
    if (status != SIDESTEP_OK) {
        give_back(writer, part);
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

/* ---- gathering ---- */

/* Locked: is part ${number} sent, or queued for it? */
static bool is_sent(const struct object_writer *writer, unsigned number)
{
    return number <= writer->shared.sent_capacity && writer->shared.sent[number - 1].tag[0] != '\0';
}

/* Locked: the place in the list of open parts that points to part ${number}; NULL: it is not
 * there. */
static struct part **find_open(struct object_writer *writer, unsigned number)
{
    for (struct part **at = &writer->shared.open; *at != NULL; at = &(*at)->next)
        if ((*at)->number == number)
            return at;
    return NULL;
}

/* Locked, released in the meantime: open part ${number}, when there is memory for it. */
static enum sidestep_status open_part(struct object_writer *writer, unsigned number,
                                      struct part ***at, struct sidestep_error *err)
    REQUIRES(writer->shared.lock);
static enum sidestep_status open_part(struct object_writer *writer, unsigned number,
                                      struct part ***at, struct sidestep_error *err)
{
    while ((*at = find_open(writer, number)) == NULL && !writer->shared.failed &&
           writer->shared.buffers >= WRITER_BUFFERS && writer->shared.sending != 0)
        lock_wait(&writer->shared.lock, &writer->shared.changed);
    TRY(failure(writer, err));
    if (*at != NULL)
        return SIDESTEP_OK;
    if (is_sent(writer, number))
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "'%s': part %u was sent already, and parts cannot be changed", writer->key,
                    number);
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

/* Locked, released in the meantime: copy what lies in one part, and send the part if it is full.
 * Before the range is noted the part is not full, so it stays open while the bytes are copied. */
static enum sidestep_status write_to_part(struct object_writer *writer, unsigned number,
                                          const void *from, uint64_t begin, size_t bytes,
                                          struct sidestep_error *err) REQUIRES(writer->shared.lock);
static enum sidestep_status write_to_part(struct object_writer *writer, unsigned number,
                                          const void *from, uint64_t begin, size_t bytes,
                                          struct sidestep_error *err)
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
    if (!object_ranges_are(&part->ranges, writer->part_bytes))
        return SIDESTEP_OK;
    at = find_open(writer, number);
    assert(at != NULL && *at == part);
    *at = part->next;
    return send_part(writer, part, writer->part_bytes, err);
}

/* Locked, released in the meantime. */
static enum sidestep_status write_locked(struct object_writer *writer, const uint8_t *from,
                                         size_t bytes, uint64_t offset, struct sidestep_error *err)
    REQUIRES(writer->shared.lock);
static enum sidestep_status write_locked(struct object_writer *writer, const uint8_t *from,
                                         size_t bytes, uint64_t offset, struct sidestep_error *err)
{
    TRY(failure(writer, err));
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
        status = FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s': parts behind byte %llu were sent already",
                      writer->key, (unsigned long long)bytes);
    else
        writer->shared.length = bytes;
    lock_release(&writer->shared.lock);
    return status;
}

/* ---- the end ---- */

/* The store does not know conditions. False: there was none. */
static bool drop(struct object_condition *condition)
{
    bool had_one = condition->if_absent || condition->if_tag != NULL;

    *condition = (struct object_condition){.maker = condition->maker};
    return had_one;
}

/* Locked, released in the meantime: put an object of at most one part with one request. */
static enum sidestep_status put_whole(struct object_writer *writer, struct object_info *info,
                                      struct sidestep_error *err) REQUIRES(writer->shared.lock);
static enum sidestep_status put_whole(struct object_writer *writer, struct object_info *info,
                                      struct sidestep_error *err)
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
    if (status == SIDESTEP_EUNSUPPORTED && drop(&condition))
        status =
            client->ops->put(client, writer->key, part->bytes, length, &condition, info->tag, err);
    lock_acquire(&writer->shared.lock);
    info->bytes = length;
    return status;
}

/* Locked. */
static bool is_one_part(const struct object_writer *writer)
{
    return writer->shared.part_count == 0 && writer->shared.length <= writer->part_bytes;
}

/* Locked. */
static uint64_t count_parts(const struct object_writer *writer)
{
    return (writer->shared.length + writer->part_bytes - 1) / writer->part_bytes;
}

/* Locked, released in the meantime: send what is not sent. */
static enum sidestep_status send_rest(struct object_writer *writer, struct sidestep_error *err)
    REQUIRES(writer->shared.lock);
static enum sidestep_status send_rest(struct object_writer *writer, struct sidestep_error *err)
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
    return failure(writer, err);
}

/* Locked, released in the meantime. All parts are sent, so nothing of them changes any more. */
static enum sidestep_status complete_upload(struct object_writer *writer, struct object_info *info,
                                            struct sidestep_error *err)
    REQUIRES(writer->shared.lock);
static enum sidestep_status complete_upload(struct object_writer *writer, struct object_info *info,
                                            struct sidestep_error *err)
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
    if (status == SIDESTEP_EUNSUPPORTED && drop(&condition))
        status = client->ops->upload_complete(client, writer->key, id, sent, count, length,
                                              &condition, info, err);
    lock_acquire(&writer->shared.lock);
    return status;
}

static enum sidestep_status complete_locked(struct object_writer *writer, struct object_info *info,
                                            struct sidestep_error *err)
    REQUIRES(writer->shared.lock);
static enum sidestep_status complete_locked(struct object_writer *writer, struct object_info *info,
                                            struct sidestep_error *err)
{
    TRY(failure(writer, err));
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
        fail_locked(writer, &why); /* as after a failed fsync: the file must be abandoned */
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
    /* Best effort: sweeps and the bucket's lifecycle rule take what is left. */
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
