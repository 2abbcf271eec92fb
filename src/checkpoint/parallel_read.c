/* SPDX-License-Identifier: BSD-3-Clause */
/* parallel_read.c -- see parallel_read.h. */
#include "checkpoint/parallel_read.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"
#include "snapshot/snapshot.h"

/* A buffer is that much larger than the longest stretch: for the pages that stick out, whatever
 * their size. */
#define SLACK_BYTES ((uint64_t)128 << 10)

struct gang {
    const struct parallel_read *many;
    unsigned threads;
    struct pool pool;
    uint64_t slot_bytes;
    unsigned slots; /* per thread */
    _Atomic size_t next;
    _Atomic unsigned next_thread;
};

/* A request and what it is for. */
struct slot {
    struct store_request request; /* first: the queue gives its address back */
    struct slot *next;
    uint8_t *buffer;
    uint8_t *bytes; /* where the stretch begins */
};

struct reading {
    struct gang *gang;
    struct store_queue queue;
    struct slot *slots;
    struct slot *free; /* a list */
};

static void use(struct reading *r, size_t i, uint8_t *bytes, enum sidestep_status status,
                const struct sidestep_error *why)
{
    const struct parallel_read *many = r->gang->many;

    many->use(many->context, i, bytes, status, why);
}

/* May the stretch be read to where it is wanted?  Past the cache only pages go. */
static bool is_straight(const struct parallel_read_range *s, uint64_t page)
{
    return s->target != NULL &&
           (page == 0 || ((uintptr_t)s->target | s->begin | s->end) % page == 0);
}

static uint64_t page_of(const struct parallel_read *many, const struct parallel_read_range *s)
{
    return many->direct && s->file->file != NULL ? store_file_alignment(s->file->file) : 0;
}

/* The place for stretch ${*s}, and ${*s} widened to what is to be read there. */
static uint8_t *place(const struct parallel_read *many, struct slot *slot,
                      struct parallel_read_range *s)
{
    uint64_t page = page_of(many, s), begin = s->begin;

    if (is_straight(s, page)) {
        slot->bytes = s->target;
        return s->target;
    }
    if (page != 0 && page <= SLACK_BYTES / 2) {
        s->begin = round_down(begin, page);
        s->end = max_u64(s->end, min_u64(round_up(s->end, page), s->file->source.length));
    }
    slot->bytes = slot->buffer + (begin - s->begin);
    return slot->buffer;
}

static void start(struct reading *r, size_t i)
{
    const struct parallel_read *many = r->gang->many;
    struct parallel_read_range s = many->describe(many->context, i);
    struct slot *slot = r->free;
    struct sidestep_error why = {0};

    if (s.file == NULL) {
        use(r, i, NULL, SIDESTEP_OK, NULL);
        return;
    }
    assert(slot != NULL); /* as many as the queue has room for, or there are stretches */
    uint8_t *to = place(many, slot, &s);
    if (s.file->file == NULL || s.end > s.file->source.length || s.begin > s.end) {
        enum sidestep_status status =
            source_read(&s.file->source, to, s.end - s.begin, s.begin, &why);
        use(r, i, slot->bytes, status, &why);
        return;
    }
    r->free = slot->next;
    slot->request = (struct store_request){
        .file = s.file->file, .memory = to, .bytes = s.end - s.begin, .offset = s.begin, .tag = i};
    store_queue_submit(&r->queue, &slot->request);
}

static void finish(struct reading *r, struct store_request *request)
{
    struct slot *slot = (struct slot *)(void *)request;

    use(r, request->tag, slot->bytes, request->status, &request->err);
    slot->next = r->free;
    r->free = slot;
}

/* Take the next stretch, if there is one, and room for it. */
static bool take(struct reading *r, size_t *i)
{
    const struct parallel_read *many = r->gang->many;

    if (!store_queue_has_room(&r->queue) || many->stopped(many->context))
        return false;
    *i = atomic_fetch_add(&r->gang->next, 1);
    return *i < many->count;
}

static void run(void *context)
{
    struct gang *gang = context;
    struct slot slots[STORE_QUEUE_MAX_DEPTH];
    struct reading r = {.gang = gang};
    uint8_t *buffers = gang->pool.bytes +
                       atomic_fetch_add(&gang->next_thread, 1u) * gang->slots * gang->slot_bytes;
    size_t i;

    store_queue_open(&r.queue, gang->many->kind, gang->threads);
    for (unsigned k = 0; k < gang->slots; k++) {
        slots[k].buffer = buffers + k * gang->slot_bytes;
        slots[k].next = r.free;
        r.free = &slots[k];
    }
    for (;;) {
        struct store_request *done = store_queue_poll(&r.queue);
        if (done == NULL && take(&r, &i)) {
            start(&r, i);
            continue;
        }
        if (done == NULL)
            done = store_queue_wait(&r.queue);
        if (done == NULL)
            break;
        finish(&r, done);
    }
    store_queue_close(&r.queue);
}

/* Room for the longest stretch that needs a buffer: what is small, or goes straight to where it is
 * wanted, is read without touching much memory. */
static uint64_t slot_bytes(const struct parallel_read *many)
{
    uint64_t longest = 0;

    for (size_t i = 0; i < many->count; i++) {
        struct parallel_read_range s = many->describe(many->context, i);
        if (s.file != NULL && !is_straight(&s, page_of(many, &s)))
            longest = max_u64(longest, s.end - s.begin);
    }
    return round_up(longest + SLACK_BYTES, SLACK_BYTES);
}

enum sidestep_status parallel_read_run(const struct parallel_read *many, struct workers *workers,
                                       struct sidestep_error *err)
{
    struct gang gang = {
        .many = many,
        .threads = (unsigned)min_u64(workers_count(workers) + 1, many->count + 1),
        .slot_bytes = slot_bytes(many),
    };

    gang.slots =
        (unsigned)min_u64(store_queue_depth_per_thread(many->kind, gang.threads), many->count + 1);
    enum sidestep_status status =
        pool_reserve(&gang.pool, gang.threads * gang.slots * gang.slot_bytes, workers, err);
    if (status != SIDESTEP_OK)
        return status;
    bool pinned = many->devices != NULL && devices_pin_buffer(many->devices, &gang.pool);
    struct workers_job job = {.run = run, .context = &gang};
    workers_start(workers, &job, gang.threads - 1);
    run(&gang);
    workers_wait(workers, &job);
    if (pinned)
        devices_unpin_buffer(many->devices, &gang.pool);
    pool_release(&gang.pool);
    return SIDESTEP_OK;
}
