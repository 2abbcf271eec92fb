/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * local_ranks.c -- see local_ranks.h.  A collective is: lay what you bring on the table; wait for
 * all; take what is yours from the others' memory; wait for all, since they may take from yours.
 */
#include "comm/local_ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

struct hub {
    int32_t size;
    const void **table; /* per rank: what it brings */
    size_t *sizes;      /* per rank: its bytes, for scatter those that it wants */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        int32_t arrived;
        uint64_t round;
        bool broken; /* a rank is not there, and never will be */
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

/* Until all ranks are here; 0, or not if they never will be. */
static int meet(struct hub *hub)
{
    pthread_mutex_lock(&hub->shared.lock);
    uint64_t round = hub->shared.round;
    if (++hub->shared.arrived == hub->size) {
        hub->shared.arrived = 0;
        hub->shared.round++;
        pthread_cond_broadcast(&hub->shared.changed);
    }
    while (hub->shared.round == round && !hub->shared.broken)
        pthread_cond_wait(&hub->shared.changed, &hub->shared.lock);
    int failed = hub->shared.round == round;
    pthread_mutex_unlock(&hub->shared.lock);
    return failed;
}

static void break_up(struct hub *hub)
{
    pthread_mutex_lock(&hub->shared.lock);
    hub->shared.broken = true;
    pthread_cond_broadcast(&hub->shared.changed);
    pthread_mutex_unlock(&hub->shared.lock);
}

static int lay(struct rank *r, const void *bytes, size_t size)
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
    OWNED uint64_t *most = memory_new(count, sizeof(*most));

    if (lay(r, most != NULL ? values : NULL, count) != 0)
        return 1;
    int failed = 0;
    for (int32_t i = 0; i < r->hub->size; i++) {
        const uint64_t *theirs = r->hub->table[i];
        failed |= theirs == NULL || most == NULL;
        for (size_t k = 0; !failed && k < count; k++)
            most[k] = theirs[k] > most[k] ? theirs[k] : most[k];
    }
    if (meet(r->hub) != 0 || failed)
        return 1;
    copy(values, most, count * sizeof(*values));
    return 0;
}

static int broadcast(void *context, void *buffer, size_t bytes, int32_t root)
{
    struct rank *r = context;

    if (lay(r, buffer, bytes) != 0)
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
    if (lay(r, send, send_bytes) != 0)
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
    if (lay(r, send, recv_bytes) != 0)
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
    if (r->status != SIDESTEP_OK) /* it may have been the only one to leave */
        break_up(r->hub);
    return NULL;
}

static void start(struct rank *ranks, struct hub *hub, struct sidestep_error *err,
                  enum sidestep_status *status)
{
    *status = SIDESTEP_OK;
    for (int32_t i = 1; i < hub->size && *status == SIDESTEP_OK; i++) {
        *status = thread_start(&ranks[i].thread, "sidestep-rank", run, &ranks[i], err);
        ranks[i].started = *status == SIDESTEP_OK;
    }
    if (*status == SIDESTEP_OK)
        (void)run(&ranks[0]);
    else
        break_up(hub);
    for (int32_t i = 1; i < hub->size; i++)
        if (ranks[i].started)
            (void)pthread_join(ranks[i].thread, NULL);
}

static enum sidestep_status run_all(struct hub *hub, struct rank *ranks, struct sidestep_error *err)
{
    enum sidestep_status status;

    pthread_mutex_init(&hub->shared.lock, NULL);
    pthread_cond_init(&hub->shared.changed, NULL);
    start(ranks, hub, err, &status);
    pthread_cond_destroy(&hub->shared.changed);
    pthread_mutex_destroy(&hub->shared.lock);
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
