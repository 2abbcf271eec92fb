/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm.c -- collective functions on top of the program's callbacks.
 *
 * Ranks exchange sizes before bytes.  A rank that fails on its own (mostly for lack of memory) says
 * so in comm_agree_all(), so that no rank waits in a collective that another one skips.  If a
 * callback fails, the function returns at once: the program promises that the callback fails on all
 * ranks.
 */
#include "comm/comm.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

enum sidestep_status comm_init(struct comm *comm, const struct sidestep_comm *host,
                               struct sidestep_error *err)
{
    *comm = (struct comm){.rank = 0, .size = 1};
    if (host == NULL)
        return SIDESTEP_OK;
    TRY(options_copy(&comm->host, sizeof(comm->host), host, "comm", err));
    host = &comm->host;
    if (host->size < 1 || host->size > SIDESTEP_MAX_RANKS)
        return FAIL(err, SIDESTEP_EINVAL, "comm.size is %d, not 1 to %d", host->size,
                    SIDESTEP_MAX_RANKS);
    if (host->rank < 0 || host->rank >= host->size)
        return FAIL(err, SIDESTEP_EINVAL, "comm.rank is %d, not 0 to %d", host->rank,
                    host->size - 1);
    if (host->size > 1 && (host->all_reduce_max == NULL || host->broadcast == NULL ||
                           host->gather == NULL || host->scatter == NULL))
        return FAIL(err, SIDESTEP_EINVAL, "comm of %d ranks lacks a callback", host->size);
    comm->rank = host->rank;
    comm->size = host->size;
    return SIDESTEP_OK;
}

static enum sidestep_status check_callback(int failed, const char *name, struct sidestep_error *err)
{
    if (failed != 0)
        return FAIL(err, SIDESTEP_EPEER, "collective '%s' failed", name);
    return SIDESTEP_OK;
}

enum sidestep_status comm_reduce_max_all(struct comm *comm, uint64_t *values, size_t count,
                                         struct sidestep_error *err)
{
    if (comm->size == 1 || count == 0)
        return SIDESTEP_OK;
    return check_callback(comm->host.all_reduce_max(comm->host.context, values, count),
                          "all_reduce_max", err);
}

enum sidestep_status comm_broadcast_all(struct comm *comm, void *buffer, size_t bytes, int32_t root,
                                        struct sidestep_error *err)
{
    assert(root >= 0 && root < comm->size);
    if (comm->size == 1 || bytes == 0)
        return SIDESTEP_OK;
    return check_callback(comm->host.broadcast(comm->host.context, buffer, bytes, root),
                          "broadcast", err);
}

enum sidestep_status comm_broadcast_buffer_all(struct comm *comm, struct buffer *buffer,
                                               struct sidestep_error *err)
{
    bool has_failed = buffer_check(buffer, NULL) != SIDESTEP_OK;
    uint64_t length = has_failed ? UINT64_MAX : buffer->length;

    assert(comm->rank == 0 || length == 0);
    TRY(comm_broadcast_all(comm, &length, sizeof(length), 0, err));
    if (length == UINT64_MAX)
        return FAIL(err, SIDESTEP_ENOMEM, "rank 0 has no memory for what it tells the others");
    if (length == 0)
        return SIDESTEP_OK;
    if (comm->rank != 0)
        (void)buffer_extend(buffer, (size_t)length);
    TRY(comm_agree_all(comm, buffer_check(buffer, err), err));
    return comm_broadcast_all(comm, buffer->bytes, buffer->length, 0, err);
}

static enum sidestep_status host_gather_all(struct comm *comm, const void *send, size_t send_bytes,
                                            void *recv, const size_t *recv_bytes,
                                            struct sidestep_error *err)
{
    if (comm->size > 1)
        return check_callback(
            comm->host.gather(comm->host.context, send, send_bytes, recv, recv_bytes), "gather",
            err);
    if (send_bytes != 0)
        memcpy(recv, send, send_bytes);
    return SIDESTEP_OK;
}

static enum sidestep_status host_scatter_all(struct comm *comm, const void *send,
                                             const size_t *send_bytes, void *recv,
                                             size_t recv_bytes, struct sidestep_error *err)
{
    if (comm->size > 1)
        return check_callback(
            comm->host.scatter(comm->host.context, send, send_bytes, recv, recv_bytes), "scatter",
            err);
    if (recv_bytes != 0)
        memcpy(recv, send, recv_bytes);
    return SIDESTEP_OK;
}

/* ---- a size per rank */

/* The sizes that ranks exchange: 64 bits each, so that ranks may differ in size_t. */
struct size_table {
    uint64_t *sizes;
    size_t *bytes; /* of each rank's size, for the callbacks: 8 */
};

static void size_table_release(struct size_table *table)
{
    free(table->sizes);
    free(table->bytes);
}

/* Rank 0 allocates the table.  The others learn whether it succeeded. */
static enum sidestep_status size_table_new_all(struct comm *comm, struct size_table *table,
                                               struct sidestep_error *err)
{
    size_t count = (size_t)comm->size;
    enum sidestep_status mine = SIDESTEP_OK;

    if (comm->rank == 0) {
        table->sizes = memory_new(count, sizeof(*table->sizes));
        table->bytes = memory_new(count, sizeof(*table->bytes));
        if (table->sizes == NULL || table->bytes == NULL)
            mine = FAIL_NOMEM(err, 2 * count * sizeof(*table->sizes));
        for (size_t i = 0; mine == SIDESTEP_OK && i < count; i++)
            table->bytes[i] = sizeof(*table->sizes);
    }
    return comm_agree_all(comm, mine, err);
}

void comm_parts_release(struct comm_parts *parts)
{
    free(parts->bytes);
    free(parts->sizes);
    free(parts->offsets);
    *parts = (struct comm_parts){0};
}

/* Allocate the parts of all ranks. */
static enum sidestep_status parts_new(struct comm_parts *parts, const uint64_t *sizes, size_t count,
                                      struct sidestep_error *err)
{
    uint64_t total = 0;

    parts->sizes = memory_new(count, sizeof(*parts->sizes));
    parts->offsets = memory_new(count, sizeof(*parts->offsets));
    if (parts->sizes == NULL || parts->offsets == NULL)
        return FAIL_NOMEM(err, 2 * count * sizeof(*parts->sizes));
    for (size_t i = 0; i < count; i++) {
        parts->offsets[i] = (size_t)total;
        parts->sizes[i] = (size_t)sizes[i];
        if (!checked_add(total, sizes[i], &total) || total > SIZE_MAX / 2)
            return FAIL(err, SIDESTEP_ENOMEM, "ranks 0 to %zu send more than memory can hold", i);
    }
    parts->bytes = memory_new(1, (size_t)total);
    if (parts->bytes == NULL)
        return FAIL_NOMEM(err, (size_t)total);
    return SIDESTEP_OK;
}

enum sidestep_status comm_gather_all(struct comm *comm, const void *send, size_t bytes,
                                     struct comm_parts *parts, struct sidestep_error *err)
{
    OWNED_BY(size_table_release) struct size_table table = {0};
    OWNED_BY(comm_parts_release) struct comm_parts received = {0};
    enum sidestep_status mine = SIDESTEP_OK;
    uint64_t size = bytes;

    *parts = (struct comm_parts){0};
    TRY(size_table_new_all(comm, &table, err));
    TRY(host_gather_all(comm, &size, sizeof(size), table.sizes, table.bytes, err));
    if (comm->rank == 0)
        mine = parts_new(&received, table.sizes, (size_t)comm->size, err);
    TRY(comm_agree_all(comm, mine, err));
    TRY(host_gather_all(comm, send, bytes, received.bytes, received.sizes, err));
    *parts = received;
    received = (struct comm_parts){0};
    return SIDESTEP_OK;
}

static void fill_sizes(const struct comm *comm, const struct comm_parts *parts, uint64_t *sizes)
{
    size_t end = 0;

    for (int32_t i = 0; i < comm->size; i++) {
        assert(parts->offsets[i] == end);
        end += parts->sizes[i];
        sizes[i] = parts->sizes[i];
    }
}

enum sidestep_status comm_scatter_all(struct comm *comm, const struct comm_parts *parts,
                                      void **received, size_t *bytes, struct sidestep_error *err)
{
    OWNED_BY(size_table_release) struct size_table table = {0};
    enum sidestep_status mine = SIDESTEP_OK;
    OWNED void *buffer = NULL;
    uint64_t size = 0;
    bool is_root = comm->rank == 0;

    TRY(size_table_new_all(comm, &table, err));
    if (is_root)
        fill_sizes(comm, parts, table.sizes);
    TRY(host_scatter_all(comm, table.sizes, table.bytes, &size, sizeof(size), err));
    if (size < SIZE_MAX)
        buffer = memory_new(1, (size_t)size);
    if (buffer == NULL)
        mine = FAIL_NOMEM(err, (size_t)size);
    TRY(comm_agree_all(comm, mine, err));
    TRY(host_scatter_all(comm, is_root ? parts->bytes : NULL, is_root ? parts->sizes : NULL, buffer,
                         (size_t)size, err));
    *received = TAKE(buffer);
    *bytes = (size_t)size;
    return SIDESTEP_OK;
}

/* ---- agreement */

/* Set ${own} to the error to send: ${err}, or one made from ${mine} if that has another status. */
static void own_error(enum sidestep_status mine, const struct sidestep_error *err,
                      struct sidestep_error *own)
{
    if (err != NULL && err->status == (int32_t)mine)
        *own = *err;
    else
        (void)FAIL(own, mine, "%s", sidestep_status_text(mine));
}

/* Report the error that ${rank} sent.  If it names another rank already, that name stays. */
static enum sidestep_status report_peer_error(struct sidestep_error *received, int32_t rank,
                                              struct sidestep_error *err)
{
    received->message[sizeof(received->message) - 1] = '\0';
    received->where[sizeof(received->where) - 1] = '\0';
    if (received->rank < 0) {
        error_wrap(received, "rank %d", rank);
        received->rank = rank;
    }
    if (received->status <= SIDESTEP_OK || received->status >= ERROR_STATUS_COUNT)
        received->status = SIDESTEP_EPEER; /* perhaps the rank has a newer library */
    error_copy(err, received);
    return (enum sidestep_status)received->status;
}

/* ${failed}: 0, or the number of ranks minus the rank.  So the maximum belongs to the lowest rank
 * that failed.  ${own} is this rank's error, and becomes that rank's. */
static enum sidestep_status exchange_errors_all(struct comm *comm, uint64_t failed,
                                                struct sidestep_error *own,
                                                struct sidestep_error *err)
{
    TRY(comm_reduce_max_all(comm, &failed, 1, err));
    if (failed == 0)
        return SIDESTEP_OK;
    if (failed > (uint64_t)comm->size)
        return FAIL(err, SIDESTEP_EPEER,
                    "collective 'all_reduce_max' returned a number that no rank passed");
    int32_t lowest = comm->size - (int32_t)failed;
    TRY(comm_broadcast_all(comm, own, sizeof(*own), lowest, err));
    if (lowest == comm->rank)
        return (enum sidestep_status)own->status; /* the caller has the reason already */
    return report_peer_error(own, lowest, err);
}

enum sidestep_status comm_agree_all(struct comm *comm, enum sidestep_status mine,
                                    struct sidestep_error *err)
{
    struct sidestep_error own = {0};

    if (mine == SIDESTEP_OK)
        return exchange_errors_all(comm, 0, &own, err);
    own_error(mine, err, &own);
    return exchange_errors_all(comm, (uint64_t)(comm->size - comm->rank), &own, err);
}
