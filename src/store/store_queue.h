/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_queue.h -- keeps many reads and writes in flight from one thread.
 *
 * A queue belongs to one thread.  If it has a ring (io_uring), requests that bypass the page cache
 * are in flight while the thread does other work.  All other requests are done when
 * store_queue_submit() returns; without a ring, several threads keep several requests in flight.
 *
 * If the ring refuses a request, or does a part of it, the file's own calls finish it, or report
 * why it failed.  Requests come back in any order.
 */
#ifndef STORE_STORE_QUEUE_H
#define STORE_STORE_QUEUE_H

#include "store/store.h"

#define STORE_QUEUE_MAX_DEPTH 64u

/* How a group of threads reads and writes. */
struct store_queue_config {
    bool ring;
    unsigned depth; /* requests in flight, in all threads together; at least 1 */
};

struct store_request {
    /* Set by the caller.  They and the memory must not change while the request is in flight. */
    struct store_file *file;
    void *memory;                      /* a read writes to it, a write reads it */
    const struct store_places *places; /* of a read: instead of ${memory}; NULL: there are none */
    size_t bytes;
    uint64_t offset;
    bool is_write;
    size_t tag; /* by which the caller recognizes the request */
    /* Set by the queue; valid when the request has come back. */
    enum sidestep_status status;
    struct sidestep_error err;
    struct store_request *next;
};

struct store_ring;
struct store_queue {
    struct store_ring *ring; /* NULL: none */
    unsigned depth;
    unsigned in_flight;                     /* submitted, and not yet returned by poll or wait */
    unsigned ring_count;                    /* requests that went through the ring so far */
    struct store_request *done, **done_end; /* done, but not yet returned */
};

/* The largest number of requests in flight for one of ${threads} threads. */
static inline unsigned store_queue_depth_per_thread(const struct store_queue_config *config,
                                                    unsigned threads)
{
    return config->ring && config->depth > threads ? config->depth / threads : 1;
}
/* Open a queue for one of ${threads} threads.  Never fails: if there is no ring, it uses calls. */
void store_queue_open(struct store_queue *queue, const struct store_queue_config *config,
                      unsigned threads);
/* Waits for the requests in flight, and ignores their results. */
void store_queue_close(struct store_queue *queue);
static inline bool store_queue_has_room(const struct store_queue *queue)
{
    return queue->in_flight < queue->depth;
}
/* Call it only if store_queue_has_room().  The queue uses ${request} until it comes back. */
void store_queue_submit(struct store_queue *queue, struct store_request *request);
/* Return a request that is done.  NULL: none is. */
struct store_request *store_queue_poll(struct store_queue *queue);
/* Wait for a request and return it.  NULL: none is in flight. */
struct store_request *store_queue_wait(struct store_queue *queue);

#endif
