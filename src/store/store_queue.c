/* SPDX-License-Identifier: BSD-3-Clause */
/* store_queue.c -- see store_queue.h. */
#include "store/store_queue.h"

#include <assert.h>

#include "store/store_ring.h"

void store_queue_open(struct store_queue *queue, const struct store_queue_config *config,
                      unsigned threads)
{
    assert(config->depth >= 1 && config->depth <= STORE_QUEUE_MAX_DEPTH && threads >= 1);
    *queue = (struct store_queue){.depth = store_queue_depth_per_thread(config, threads)};
    queue->done_end = &queue->done;
    if (config->ring)
        queue->ring = store_ring_new(queue->depth);
    if (queue->ring == NULL)
        queue->depth = 1; /* a larger one would only delay the return of the first request */
}

void store_queue_close(struct store_queue *queue)
{
    while (store_queue_wait(queue) != NULL) {
    }
    store_ring_free(&queue->ring);
}

static void put_done(struct store_queue *queue, struct store_request *request)
{
    request->next = NULL;
    *queue->done_end = request;
    queue->done_end = &request->next;
}

static struct store_request *take_done(struct store_queue *queue)
{
    struct store_request *request = queue->done;

    if (request == NULL)
        return NULL;
    queue->done = request->next;
    if (queue->done == NULL)
        queue->done_end = &queue->done;
    assert(queue->in_flight != 0);
    queue->in_flight--;
    return request;
}

static enum sidestep_status do_now(struct store_request *r)
{
    if (r->places != NULL)
        return store_file_read_places(r->file, r->places, r->offset, &r->err);
    if (r->is_write)
        return store_file_write_at(r->file, r->memory, r->bytes, r->offset, &r->err);
    return store_file_read_at(r->file, r->memory, r->bytes, r->offset, &r->err);
}

static int ring_fd(struct store_queue *queue, const struct store_request *r)
{
    const struct store_ops *ops = r->file->store->ops;

    if (queue->ring == NULL || ops->file_async_fd == NULL || r->places != NULL)
        return -1;
    return ops->file_async_fd(r->file, r->memory, r->bytes, r->offset, r->is_write);
}

void store_queue_submit(struct store_queue *queue, struct store_request *request)
{
    assert(store_queue_has_room(queue));
    request->err = (struct sidestep_error){0};
    queue->in_flight++;
    int fd = ring_fd(queue, request);
    if (fd >= 0 && store_ring_submit(queue->ring, fd, request)) {
        queue->ring_count++;
        return;
    }
    request->status = do_now(request);
    put_done(queue, request);
}

/* Move requests that the ring has done to the list of done ones.  ${wait}: wait for the first. */
static void collect(struct store_queue *queue, bool wait)
{
    struct store_request *r;
    int result;

    while (queue->ring != NULL && store_ring_reap(queue->ring, wait, &r, &result)) {
        r->status = r->file->store->ops->file_async_end(r->file, r->memory, r->bytes, r->offset,
                                                        r->is_write, result, &r->err);
        put_done(queue, r);
        wait = false;
    }
}

struct store_request *store_queue_poll(struct store_queue *queue)
{
    collect(queue, false);
    return take_done(queue);
}

struct store_request *store_queue_wait(struct store_queue *queue)
{
    collect(queue, queue->in_flight != 0 && queue->done == NULL);
    return take_done(queue);
}
