/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_hook.h -- a communicator that calls a function of the test before each collective of another
 * communicator, so that the test can act at a fixed point of a save or load.
 */
#ifndef SUPPORT_COMM_HOOK_H
#define SUPPORT_COMM_HOOK_H

#include "sidestep/sidestep.h"

struct comm_hook {
    struct sidestep_comm inner;
    /* ${bytes}: of a broadcast; 0: it is another collective. */
    void (*before)(void *context, size_t bytes);
    void *context;
};

static int comm_hook_max(void *context, uint64_t *values, size_t count)
{
    struct comm_hook *h = context;

    h->before(h->context, 0);
    return h->inner.all_reduce_max(h->inner.context, values, count);
}

static int comm_hook_broadcast(void *context, void *buffer, size_t bytes, int32_t root)
{
    struct comm_hook *h = context;

    h->before(h->context, bytes);
    return h->inner.broadcast(h->inner.context, buffer, bytes, root);
}

static int comm_hook_gather(void *context, const void *send, size_t send_bytes, void *recv,
                            const size_t *recv_bytes)
{
    struct comm_hook *h = context;

    h->before(h->context, 0);
    return h->inner.gather(h->inner.context, send, send_bytes, recv, recv_bytes);
}

static int comm_hook_scatter(void *context, const void *send, const size_t *send_bytes, void *recv,
                             size_t recv_bytes)
{
    struct comm_hook *h = context;

    h->before(h->context, 0);
    return h->inner.scatter(h->inner.context, send, send_bytes, recv, recv_bytes);
}

static inline struct sidestep_comm comm_hook_over(struct comm_hook *h)
{
    return (struct sidestep_comm){.struct_size = sizeof(h->inner),
                                  .context = h,
                                  .rank = h->inner.rank,
                                  .size = h->inner.size,
                                  .all_reduce_max = comm_hook_max,
                                  .broadcast = comm_hook_broadcast,
                                  .gather = comm_hook_gather,
                                  .scatter = comm_hook_scatter};
}

#endif
