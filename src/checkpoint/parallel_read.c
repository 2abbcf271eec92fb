/* SPDX-License-Identifier: BSD-3-Clause */
/* parallel_read.c -- keeps a queue of read requests per thread; see parallel_read.h. */
#include "checkpoint/parallel_read.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"
#include "snapshot/snapshot.h"

/* How much larger a buffer is than the longest range, in bytes: for the rest of the first and last
 * page, whatever the page size. */
#define HEADROOM_BYTES ((uint64_t)128 << 10)
/* Buffers of a thread, beside those of its requests, from which a device may still copy. */
#define COPYING_SLOTS 2u

/* What the threads of one parallel_read_run() share. */
struct shared_run {
    const struct parallel_read *many;
    unsigned threads;
    struct pool pool;
    uint64_t slot_bytes;
    unsigned slots; /* per thread */
    _Atomic size_t next;
    _Atomic unsigned next_thread;
};

/* A read request and its buffer. */
struct slot {
    struct store_request request; /* must be first: the queue returns its address */
    struct slot *next;
    uint8_t *buffer;
    uint8_t *bytes; /* where the range begins */
    struct store_places places;
    int32_t device; /* that copies from the buffer, until ${event} */
    void *event;    /* of that device; NULL: none was needed yet */
};

/* One thread that reads. */
struct read_thread {
    struct shared_run *run;
    struct store_queue queue;
    struct slot *free;                   /* a list */
    struct slot *copying, *last_copying; /* a queue of slots from which devices copy */
};

static void release_slot(struct read_thread *r, struct slot *slot)
{
    slot->next = r->free;
    r->free = slot;
}

/* Wait until the device no longer reads the oldest buffer from which one copies. */
static void finish_oldest_copy(struct read_thread *r)
{
    const struct parallel_read *many = r->run->many;
    struct slot *slot = r->copying;
    struct sidestep_error why = {0};

    assert(slot != NULL);
    r->copying = slot->next;
    enum sidestep_status status =
        devices_wait_copies(many->devices, slot->device, slot->event, &why);
    if (status != SIDESTEP_OK)
        (void)many->use(many->context, slot->request.tag, NULL, status, &why);
    release_slot(r, slot);
}

/* Put a slot aside until ${device} has copied what was submitted. */
static void begin_copy(struct read_thread *r, struct slot *slot, int32_t device)
{
    struct devices *devices = r->run->many->devices;

    if (slot->device != device)
        devices_free_event(devices, slot->device, &slot->event);
    slot->device = device;
    /* Without a mark, devices_wait_copies() waits for all that was submitted. */
    devices_mark_copies(devices, device, &slot->event);
    slot->next = NULL;
    *(r->copying == NULL ? &r->copying : &r->last_copying->next) = slot;
    r->last_copying = slot;
}

/* Let the caller use what was read to ${slot}. */
static void use(struct read_thread *r, struct slot *slot, enum sidestep_status status,
                const struct sidestep_error *why)
{
    const struct parallel_read *many = r->run->many;
    int32_t device = many->use(many->context, slot->request.tag, slot->bytes, status, why);

    if (device >= 0)
        begin_copy(r, slot, device);
    else
        release_slot(r, slot);
}

/* Can the range be read straight to its target? With O_DIRECT (${page} is not 0), only if it is
 * whole pages. */
static bool can_read_to_target(const struct parallel_read_range *s, uint64_t page)
{
    return s->target != NULL &&
           (page == 0 || ((uintptr_t)s->target | s->begin | s->end) % page == 0);
}

static uint64_t required_page(const struct parallel_read *many, const struct parallel_read_range *s)
{
    return many->direct && s->file->file != NULL ? store_file_alignment(s->file->file) : 0;
}

/* Choose where to read range ${*s} to, and widen ${*s} to whole pages if needed. */
static uint8_t *choose_target(const struct parallel_read *many, struct slot *slot,
                              struct parallel_read_range *s)
{
    uint64_t page = required_page(many, s), begin = s->begin;

    if (s->places != NULL) {
        slot->bytes = slot->buffer;
        return slot->buffer;
    }
    if (can_read_to_target(s, page)) {
        slot->bytes = s->target;
        return s->target;
    }
    if (page != 0 && page <= HEADROOM_BYTES / 2) {
        s->begin = round_down(begin, page);
        s->end = max_u64(s->end, min_u64(round_up(s->end, page), s->file->source.length));
    }
    slot->bytes = slot->buffer + (begin - s->begin);
    return slot->buffer;
}

static void start(struct read_thread *r, size_t i)
{
    const struct parallel_read *many = r->run->many;
    struct parallel_read_range s = many->describe(many->context, i);
    struct sidestep_error why = {0};

    if (s.file == NULL) {
        (void)many->use(many->context, i, NULL, SIDESTEP_OK, NULL);
        return;
    }
    if (r->free == NULL)
        finish_oldest_copy(r);
    struct slot *slot = r->free;
    assert(slot != NULL); /* there are more slots than the queue accepts requests, or as many */
    r->free = slot->next;
    slot->request = (struct store_request){.tag = i};
    uint8_t *to = choose_target(many, slot, &s);
    slot->places = (struct store_places){s.places, s.place_count, slot->buffer};
    if (s.file->file == NULL || s.end > s.file->source.length || s.begin > s.end) {
        assert(s.places == NULL || s.file->file != NULL);
        enum sidestep_status status =
            source_read(&s.file->source, to, s.end - s.begin, s.begin, &why);
        use(r, slot, status, &why);
        return;
    }
    slot->request = (struct store_request){.file = s.file->file,
                                           .memory = to,
                                           .places = s.places != NULL ? &slot->places : NULL,
                                           .bytes = s.end - s.begin,
                                           .offset = s.begin,
                                           .tag = i};
    store_queue_submit(&r->queue, &slot->request);
}

static void finish(struct read_thread *r, struct store_request *request)
{
    use(r, (struct slot *)(void *)request, request->status, &request->err);
}

/* Take the next range, if there is one and the queue has space. */
static bool take_range(struct read_thread *r, size_t *i)
{
    const struct parallel_read *many = r->run->many;

    if (!store_queue_has_room(&r->queue) || many->stopped(many->context))
        return false;
    *i = atomic_fetch_add(&r->run->next, 1);
    return *i < many->count;
}

static void read_ranges(void *context)
{
    struct shared_run *run = context;
    struct slot slots[STORE_QUEUE_MAX_DEPTH + COPYING_SLOTS];
    struct read_thread r = {.run = run};
    uint8_t *buffers =
        run->pool.bytes + atomic_fetch_add(&run->next_thread, 1u) * run->slots * run->slot_bytes;
    size_t i;

    store_queue_open(&r.queue, run->many->kind, run->threads);
    for (unsigned k = 0; k < run->slots; k++) {
        slots[k] = (struct slot){.buffer = buffers + k * run->slot_bytes, .device = -1};
        release_slot(&r, &slots[k]);
    }
    for (;;) {
        struct store_request *done = store_queue_poll(&r.queue);
        if (done == NULL && take_range(&r, &i)) {
            start(&r, i);
            continue;
        }
        if (done == NULL)
            done = store_queue_wait(&r.queue);
        if (done == NULL)
            break;
        finish(&r, done);
    }
    while (r.copying != NULL)
        finish_oldest_copy(&r);
    for (unsigned k = 0; k < run->slots; k++)
        devices_free_event(run->many->devices, slots[k].device, &slots[k].event);
    store_queue_close(&r.queue);
}

/* Bytes for the longest range that needs a buffer. */
static uint64_t slot_bytes(const struct parallel_read *many)
{
    uint64_t longest = 0;

    for (size_t i = 0; i < many->count; i++) {
        struct parallel_read_range s = many->describe(many->context, i);
        if (s.places != NULL)
            longest = max_u64(longest, s.rest_bytes);
        else if (s.file != NULL && !can_read_to_target(&s, required_page(many, &s)))
            longest = max_u64(longest, s.end - s.begin);
    }
    return round_up(longest + HEADROOM_BYTES, HEADROOM_BYTES);
}

static enum sidestep_status read_with(const struct parallel_read *many, struct workers *workers,
                                      struct sidestep_error *err)
{
    struct shared_run shared = {
        .many = many,
        .threads = (unsigned)min_u64(workers_count(workers) + 1, many->count + 1),
        .slot_bytes = slot_bytes(many),
    };

    shared.slots = (unsigned)min_u64(store_queue_depth_per_thread(many->kind, shared.threads),
                                     many->count + 1) +
                   (many->devices != NULL ? COPYING_SLOTS : 0);
    enum sidestep_status status =
        pool_reserve(&shared.pool, shared.threads * shared.slots * shared.slot_bytes, workers, err);
    if (status != SIDESTEP_OK)
        return status;
    bool pinned = many->devices != NULL && devices_pin_buffer(many->devices, &shared.pool);
    struct workers_job job = {.run = read_ranges, .context = &shared};
    workers_start(workers, &job, shared.threads - 1);
    read_ranges(&shared);
    workers_wait(workers, &job);
    if (pinned)
        devices_unpin_buffer(many->devices, &shared.pool);
    pool_release(&shared.pool);
    return SIDESTEP_OK;
}

enum sidestep_status parallel_read_run(const struct parallel_read *many, struct workers *workers,
                                       struct sidestep_error *err)
{
    OWNED_BY(workers_free) struct workers *own = NULL;
    unsigned readers = (unsigned)min_u64(store_reads(many->store), many->count);

    if (readers > workers_count(workers) + 1)
        readers = (unsigned)min_u64(readers, PARALLEL_READ_FAR_BYTES / slot_bytes(many));
    if (readers <= workers_count(workers) + 1)
        return read_with(many, workers, err);
    TRY(workers_new(readers - 1, "sidestep-read", &own, err));
    return read_with(many, own, err);
}
