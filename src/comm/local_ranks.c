/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * local_ranks.c -- see local_ranks.h.
 *
 * In a collective, each rank puts the address of its bytes into a table and waits for all ranks.
 * Then it copies what it needs from the other ranks' memory, and waits for all ranks again, because
 * they copy from its memory.
 */
#include "comm/local_ranks.h"

#include <pthread.h>
#include <string.h>

#include "base/base.h"

struct hub {
    int32_t size;
    const void **table; /* per rank: the address of its bytes */
    size_t *sizes;      /* per rank: the number of its bytes; in a scatter, of those it receives */
    struct {
        struct lock lock LOCK_KIND(RANKS);
        struct lock_condition changed;
        int32_t arrived GUARDED_BY(&lock);
        uint64_t round GUARDED_BY(&lock);
        bool broken GUARDED_BY(&lock); /* a rank has failed, and calls no more collectives */
    } shared;
};

struct rank {
    struct hub *hub;
    struct sidestep_comm comm;
    pthread_t thread;
    bool started;
    enum sidestep_status (*main)(const struct sidestep_comm *comm, void *context,
                                 struct sidestep_error *err);
    void *context;
    enum sidestep_status status;
    struct sidestep_error err;
};

/* Wait for all ranks.  Not 0: a rank has failed. */
static int meet(struct hub *hub)
{
    lock_acquire(&hub->shared.lock);
    uint64_t round = hub->shared.round;
    if (++hub->shared.arrived == hub->size) {
        hub->shared.arrived = 0;
        hub->shared.round++;
        lock_wake_all(&hub->shared.changed);
    }
    while (hub->shared.round == round && !hub->shared.broken)
        lock_wait(&hub->shared.lock, &hub->shared.changed);
    int failed = hub->shared.round == round;
    lock_release(&hub->shared.lock);
    return failed;
}

static void set_broken(struct hub *hub)
{
    lock_acquire(&hub->shared.lock);
    hub->shared.broken = true;
    lock_wake_all(&hub->shared.changed);
    lock_release(&hub->shared.lock);
}

/* Put this rank's bytes into the table, and wait for all ranks. */
static int put(struct rank *r, const void *bytes, size_t size)
{
    r->hub->table[r->comm.rank] = bytes;
    r->hub->sizes[r->comm.rank] = size;
    return meet(r->hub);
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes != 0)
        memcpy(to, from, bytes);
}

static int all_reduce_max(void *context, uint64_t *values, size_t count)
{
    struct rank *r = context;
    OWNED uint64_t *maxima = memory_new(count, sizeof(*maxima));

    if (put(r, maxima != NULL ? values : NULL, count) != 0)
        return 1;
    int failed = 0;
    for (int32_t i = 0; i < r->hub->size; i++) {
        const uint64_t *theirs = r->hub->table[i];
        failed |= theirs == NULL || maxima == NULL;
        for (size_t k = 0; !failed && k < count; k++)
            maxima[k] = max_u64(theirs[k], maxima[k]);
    }
    if (meet(r->hub) != 0 || failed)
        return 1;
    copy(values, maxima, count * sizeof(*values));
    return 0;
}

static int broadcast(void *context, void *buffer, size_t bytes, int32_t root)
{
    struct rank *r = context;

    if (put(r, buffer, bytes) != 0)
        return 1;
    if (r->comm.rank != root)
        copy(buffer, r->hub->table[root], bytes);
    return meet(r->hub);
}

static int gather(void *context, const void *send, size_t send_bytes, void *recv,
                  const size_t *recv_bytes)
{
    struct rank *r = context;

    (void)recv_bytes;
    if (put(r, send, send_bytes) != 0)
        return 1;
    for (int32_t i = 0; r->comm.rank == 0 && i < r->hub->size; i++) {
        copy(recv, r->hub->table[i], r->hub->sizes[i]);
        recv = (char *)recv + r->hub->sizes[i];
    }
    return meet(r->hub);
}

static int scatter(void *context, const void *send, const size_t *send_bytes, void *recv,
                   size_t recv_bytes)
{
    struct rank *r = context;
    const char *at;

    (void)send_bytes;
    if (put(r, send, recv_bytes) != 0)
        return 1;
    at = r->hub->table[0];
    for (int32_t i = 0; i < r->comm.rank; i++)
        at += r->hub->sizes[i];
    copy(recv, at, recv_bytes);
    return meet(r->hub);
}

static void *run(void *argument)
{
    struct rank *r = argument;

    r->status = r->main(&r->comm, r->context, &r->err);
    if (r->status != SIDESTEP_OK) /* others may wait for it in a collective */
        set_broken(r->hub);
    return NULL;
}

/* Start the threads, run rank 0, and join.  Fails if a thread does not start. */
static enum sidestep_status run_threads(struct rank *ranks, struct hub *hub,
                                        struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    for (int32_t i = 1; i < hub->size && status == SIDESTEP_OK; i++) {
        status = thread_start(&ranks[i].thread, "sidestep-rank", run, &ranks[i], err);
        ranks[i].started = status == SIDESTEP_OK;
    }
    if (status == SIDESTEP_OK)
        (void)run(&ranks[0]);
    else
        set_broken(hub);
    for (int32_t i = 1; i < hub->size; i++)
        if (ranks[i].started)
            (void)pthread_join(ranks[i].thread, NULL);
    return status;
}

static enum sidestep_status run_all(struct hub *hub, struct rank *ranks, struct sidestep_error *err)
{
    lock_init(&hub->shared.lock, LOCK_RANKS);
    lock_condition_init(&hub->shared.changed);
    enum sidestep_status status = run_threads(ranks, hub, err);
    lock_condition_destroy(&hub->shared.changed);
    lock_destroy(&hub->shared.lock);
    for (int32_t i = 0; i < hub->size; i++) {
        enum sidestep_status own = ranks[i].status;
        bool says_more = status == SIDESTEP_EPEER && own != SIDESTEP_EPEER;
        if (own == SIDESTEP_OK || (status != SIDESTEP_OK && !says_more))
            continue;
        status = own;
        error_copy(err, &ranks[i].err);
    }
    return status;
}

enum sidestep_status local_ranks_run(int32_t size,
                                     enum sidestep_status (*main)(const struct sidestep_comm *comm,
                                                                  void *context,
                                                                  struct sidestep_error *err),
                                     void *context, struct sidestep_error *err)
{
    OWNED struct rank *ranks = memory_new((size_t)size, sizeof(*ranks));
    OWNED const void **table = memory_new((size_t)size, sizeof(*table));
    OWNED size_t *sizes = memory_new((size_t)size, sizeof(*sizes));
    struct hub hub = {.size = size, .table = table, .sizes = sizes};

    if (ranks == NULL || table == NULL || sizes == NULL)
        return FAIL_NOMEM(err, (size_t)size * sizeof(*ranks));
    for (int32_t i = 0; i < size; i++)
        ranks[i] = (struct rank){.hub = &hub,
                                 .comm = {.struct_size = sizeof(struct sidestep_comm),
                                          .context = &ranks[i],
                                          .rank = i,
                                          .size = size,
                                          .all_reduce_max = all_reduce_max,
                                          .broadcast = broadcast,
                                          .gather = gather,
                                          .scatter = scatter},
                                 .main = main,
                                 .context = context};
    return run_all(&hub, ranks, err);
}
