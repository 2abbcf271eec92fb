/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_queue.h -- many reads and writes in flight from one thread.
 *
 * A queue belongs to one thread.  With a ring (io_uring), requests that go past the page cache are
 * in flight while the thread does something else; all others, and all where there is no ring, are
 * done before store_queue_submit() returns: there, threads are what makes many of them.  Whoever
 * uses a queue need not know which it is.
 *
 * A request that the ring refuses, or does only in part, is finished by the file's own calls: they
 * know what to do, and say why it failed.  Requests come back in any order.
 */
#ifndef STORE_STORE_QUEUE_H
#define STORE_STORE_QUEUE_H

#include "store/store.h"

#define STORE_QUEUE_MAX_DEPTH 64u

/* How the threads of a gang read and write. */
struct store_queue_config {
    bool ring;
    unsigned depth; /* requests in flight, all threads together; at least 1 */
};

struct store_request {
    /* The caller's; constant from start to wait, as is the memory. */
    struct store_file *file;
    void *memory; /* written to by a read; read by a write */
    size_t bytes;
    uint64_t offset;
    bool is_write;
    size_t tag; /* for the caller to know it again */
    /* The queue's; valid when it comes back. */
    enum sidestep_status status;
    struct sidestep_error err;
    struct store_request *next;
};

struct store_ring;
struct store_queue {
    struct store_ring *ring; /* NULL: none */
    unsigned depth;
    unsigned in_flight;  /* started, and not come back */
    unsigned ring_count; /* of all requests so far, those that went through the ring */
    struct store_request *done, **done_end;
};

/* How many requests one of ${threads} threads has in flight, at most. */
static inline unsigned store_queue_depth_per_thread(const struct store_queue_config *kind,
                                                    unsigned threads)
{
    return kind->ring && kind->depth > threads ? kind->depth / threads : 1;
}
/* For one of ${threads} threads.  Never fails: without a ring it works, too. */
void store_queue_open(struct store_queue *queue, const struct store_queue_config *kind,
                      unsigned threads);
/* Waits for what is in flight, and forgets how it went. */
void store_queue_close(struct store_queue *queue);
static inline bool store_queue_has_room(const struct store_queue *queue)
{
    return queue->in_flight < queue->depth;
}
/* Needs room.  ${request} is the queue's until it comes back. */
void store_queue_submit(struct store_queue *queue, struct store_request *request);
/* One that is done; NULL: none is. */
struct store_request *store_queue_poll(struct store_queue *queue);
/* Waits for one; NULL: none is in flight. */
struct store_request *store_queue_wait(struct store_queue *queue);

#endif
