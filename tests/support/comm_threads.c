/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_threads.c -- collectives of ranks that are threads. In a collective each rank publishes its
 * request, waits for all ranks, copies its part from the memory of the others, and waits for all
 * ranks again.
 */
#include "support/comm_threads.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum call { CALL_NONE, CALL_MAX, CALL_BROADCAST, CALL_GATHER, CALL_SCATTER };

struct request {
    enum call call;
    int32_t root;
    const void *send;
    void *recv;
    size_t bytes;        /* that this rank sends or receives */
    const size_t *sizes; /* the bytes of each rank, as rank 0 expects them; NULL on other ranks */
};

#define BROKEN 1u
#define ROUND 2u

struct hub {
    int size;
    atomic_int arrived;
    /* The others wait for a change of this (futex): ROUND is added when all have arrived, and
     * BROKEN is set when a rank died, or the ranks disagree. */
    atomic_uint state;
    bool match; /* all ranks make the same call */
    int dying_rank;
    unsigned long dying_call;
    struct request *requests; /* per rank */
};

struct rank {
    struct hub *hub;
    struct sidestep_comm comm;
    pthread_t thread;
    unsigned long calls;
    int (*main)(struct sidestep_comm *comm, void *context);
    void *context;
    int result;
};

static void wake_all(struct hub *hub)
{
    (void)syscall(SYS_futex, &hub->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Do all ranks make the same call? */
static bool requests_match(const struct hub *hub)
{
    const struct request *first = &hub->requests[0];

    for (int i = 0; i < hub->size; i++) {
        const struct request *r = &hub->requests[i];
        if (r->call != first->call || r->root != first->root)
            return false;
        if (first->sizes != NULL ? first->sizes[i] != r->bytes : first->bytes != r->bytes)
            return false;
    }
    return true;
}

/* The last rank that arrives does this for all; the others wait. The maxima go to rank 0. */
static void combine(struct hub *hub)
{
    const struct request *all = hub->requests;
    uint64_t *maxima = all[0].recv;

    hub->match = requests_match(hub);
    for (int i = 1; i < hub->size && hub->match && all[0].call == CALL_MAX; i++)
        for (size_t k = 0; k < all[0].bytes / sizeof(*maxima); k++)
            if (((const uint64_t *)all[i].send)[k] > maxima[k])
                maxima[k] = ((const uint64_t *)all[i].send)[k];
}

/* Wait until all ranks have arrived; false: the hub is broken. ${last}: what the last one does
 * first; may be NULL. A mutex and a condition would wake hundreds of ranks only to wait for the
 * mutex. */
static bool meet(struct hub *hub, void (*last)(struct hub *hub))
{
    unsigned now = atomic_load(&hub->state), before = now / ROUND;

    if ((now & BROKEN) == 0 && atomic_fetch_add(&hub->arrived, 1) + 1 == hub->size) {
        if (last != NULL)
            last(hub);
        atomic_store(&hub->arrived, 0);
        atomic_fetch_add(&hub->state, ROUND);
        wake_all(hub);
    }
    for (; now / ROUND == before && (now & BROKEN) == 0; now = atomic_load(&hub->state))
        (void)syscall(SYS_futex, &hub->state, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
    /* A completed round stays completed, even if the hub was broken afterwards. */
    return now / ROUND != before;
}

static void break_hub(struct hub *hub)
{
    atomic_fetch_or(&hub->state, BROKEN);
    wake_all(hub);
}

static size_t offset_of(const struct hub *hub, int32_t rank)
{
    size_t offset = 0;

    for (int32_t i = 0; i < rank; i++)
        offset += hub->requests[0].sizes[i];
    return offset;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes != 0)
        memcpy(to, from, bytes);
}

/* A rank writes only to memory that no other rank uses between the two calls of meet(). */
static void exchange(const struct hub *hub, int32_t rank)
{
    const struct request *all = hub->requests, *mine = &all[rank];

    switch (mine->call) {
    case CALL_MAX:
        if (rank != 0)
            copy(mine->recv, all[0].recv, mine->bytes);
        break;
    case CALL_BROADCAST:
        if (rank != mine->root)
            copy(mine->recv, all[mine->root].send, mine->bytes);
        break;
    case CALL_GATHER:
        copy((char *)all[0].recv + offset_of(hub, rank), mine->send, mine->bytes);
        break;
    case CALL_SCATTER:
        copy(mine->recv, (const char *)all[0].send + offset_of(hub, rank), mine->bytes);
        break;
    case CALL_NONE:
        break;
    }
}

static int collective(struct rank *rank, struct request request)
{
    struct hub *hub = rank->hub;
    int32_t number = rank->comm.rank;

    rank->calls++;
    if (number == hub->dying_rank && rank->calls >= hub->dying_call)
        break_hub(hub);
    hub->requests[number] = request;
    if (!meet(hub, combine))
        return -1;
    bool match = hub->match;
    if (match)
        exchange(hub, number);
    if (!meet(hub, NULL))
        return -1;
    if (!match)
        break_hub(hub);
    return match ? 0 : -1;
}

static int max_callback(void *context, uint64_t *values, size_t count)
{
    return collective(context, (struct request){.call = CALL_MAX,
                                                .send = values,
                                                .recv = values,
                                                .bytes = count * sizeof(*values)});
}

static int broadcast_callback(void *context, void *buffer, size_t bytes, int32_t root)
{
    return collective(
        context,
        (struct request){
            .call = CALL_BROADCAST, .root = root, .send = buffer, .recv = buffer, .bytes = bytes});
}

static int gather_callback(void *context, const void *send, size_t send_bytes, void *recv,
                           const size_t *recv_bytes)
{
    return collective(context, (struct request){.call = CALL_GATHER,
                                                .send = send,
                                                .recv = recv,
                                                .bytes = send_bytes,
                                                .sizes = recv_bytes});
}

static int scatter_callback(void *context, const void *send, const size_t *send_bytes, void *recv,
                            size_t recv_bytes)
{
    return collective(context, (struct request){.call = CALL_SCATTER,
                                                .send = send,
                                                .recv = recv,
                                                .bytes = recv_bytes,
                                                .sizes = send_bytes});
}

unsigned long comm_threads_calls(const struct sidestep_comm *comm)
{
    return ((const struct rank *)comm->context)->calls;
}

static void *rank_main(void *argument)
{
    struct rank *rank = argument;

    rank->result = rank->main(&rank->comm, rank->context);
    return NULL;
}

/* Start all ranks and wait for them; -1 if a thread could not be started. */
static int run_ranks(struct hub *hub, struct rank *ranks,
                     int (*main)(struct sidestep_comm *comm, void *context), void *context)
{
    int started = 0, sum = 0;

    for (; started < hub->size; started++) {
        struct rank *rank = &ranks[started];
        *rank = (struct rank){.hub = hub, .main = main, .context = context};
        rank->comm = (struct sidestep_comm){
            .struct_size = sizeof(rank->comm),
            .context = rank,
            .rank = started,
            .size = hub->size,
            .all_reduce_max = max_callback,
            .broadcast = broadcast_callback,
            .gather = gather_callback,
            .scatter = scatter_callback,
        };
        if (pthread_create(&rank->thread, NULL, rank_main, rank) != 0)
            break;
    }
    if (started < hub->size)
        break_hub(hub);
    for (int i = 0; i < started; i++) {
        pthread_join(ranks[i].thread, NULL);
        sum += ranks[i].result;
    }
    return started == hub->size ? sum : -1;
}

int comm_threads_run_dying(int size, int dying_rank, unsigned long nth,
                           int (*main)(struct sidestep_comm *comm, void *context), void *context)
{
    struct hub hub = {
        .size = size,
        .dying_rank = dying_rank,
        .dying_call = nth,
        .requests = calloc((size_t)size, sizeof(struct request)),
    };
    struct rank *ranks = calloc((size_t)size, sizeof(*ranks));
    int result = -1;

    if (hub.requests != NULL && ranks != NULL)
        result = run_ranks(&hub, ranks, main, context);
    free(hub.requests);
    free(ranks);
    return result;
}

int comm_threads_run(int size, int (*main)(struct sidestep_comm *comm, void *context),
                     void *context)
{
    return comm_threads_run_dying(size, -1, 0, main, context);
}

enum sidestep_status comm_threads_open(const struct sidestep_comm *comm,
                                       struct sidestep_engine **engine, struct sidestep_error *err)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.comm = comm;
    options.threads = 1;
    return sidestep_engine_open(engine, &options, err);
}
