/* SPDX-License-Identifier: BSD-3-Clause */
/* store_ring.c -- see store_ring.h. */
#include "store/store_ring.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

#undef UNUSED /* liburing 2.5 defines it, too */
#include "base/base.h"
#include "store/store_queue.h"

struct store_ring {
    struct io_uring ring;
    unsigned in_flight;
};

/* 0, or a negative errno. */
static int init(struct io_uring *ring, unsigned depth)
{
    if (fault_hit("ring.setup") || !seccomp_survives(SECCOMP_io_uring_setup) ||
        !seccomp_survives(SECCOMP_io_uring_enter) || !seccomp_survives(SECCOMP_io_uring_register))
        return -errno;
    /* Completions do not interrupt the thread, which looks for them.  Since Linux 5.19. */
    int failed =
        io_uring_queue_init(depth, ring, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
    return failed == -EINVAL ? io_uring_queue_init(depth, ring, 0) : failed;
}

int store_ring_probe(void)
{
    struct io_uring ring;
    int failed = init(&ring, 1);

    if (failed != 0)
        return -failed;
    struct io_uring_probe *probe = io_uring_get_probe_ring(&ring);
    bool is_supported = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                        io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    io_uring_queue_exit(&ring);
    return is_supported ? 0 : ENOSYS;
}

struct store_ring *store_ring_new(unsigned depth)
{
    struct store_ring *ring = memory_new(1, sizeof(*ring));

    if (ring == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    int failed = init(&ring->ring, depth);
    if (failed != 0) {
        free(ring);
        errno = -failed;
        return NULL;
    }
    (void)io_uring_ring_dontfork(&ring->ring);
    return ring;
}

void store_ring_free(struct store_ring **out)
{
    struct store_ring *ring = *out;

    if (ring == NULL)
        return;
    *out = NULL;
    assert(ring->in_flight == 0);
    io_uring_queue_exit(&ring->ring);
    free(ring);
}

bool store_ring_submit(struct store_ring *ring, int fd, struct store_request *request)
{
    struct io_uring_sqe *sqe = fault_hit("ring.start") ? NULL : io_uring_get_sqe(&ring->ring);

    if (sqe == NULL)
        return false;
    if (request->is_write)
        io_uring_prep_write(sqe, fd, request->memory, (unsigned)request->bytes, request->offset);
    else
        io_uring_prep_read(sqe, fd, request->memory, (unsigned)request->bytes, request->offset);
    io_uring_sqe_set_data(sqe, request);
    if (io_uring_submit(&ring->ring) >= 1) {
        ring->in_flight++;
        return true;
    }
    /* The kernel did not take the request, but takes it with the next one: turn it into a no-op. */
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, NULL);
    return false;
}

/* In tests, fault points turn the kernel's result into an error or half of it. */
static int inject_fault(int result)
{
    if (fault_hit("ring.result"))
        return -errno;
    return fault_hit("ring.short") && result > 0 ? result / 2 : result;
}

bool store_ring_reap(struct store_ring *ring, bool wait, struct store_request **request,
                     int *result)
{
    struct io_uring_cqe *cqe = NULL;

    for (;;) {
        if (io_uring_peek_cqe(&ring->ring, &cqe) == 0) {
            *request = io_uring_cqe_get_data(cqe);
            *result = cqe->res;
            io_uring_cqe_seen(&ring->ring, cqe);
            if (*request != NULL)
                break;
        } else if (!wait || ring->in_flight == 0) {
            return false;
        } else {
            /* If this fails, requests in flight still complete: look again. */
            (void)io_uring_submit_and_wait(&ring->ring, 1);
        }
    }
    *result = inject_fault(*result);
    ring->in_flight--;
    return true;
}
