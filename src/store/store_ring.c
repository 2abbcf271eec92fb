/* SPDX-License-Identifier: BSD-3-Clause */
/* store_ring.c -- see store_ring.h. */
#include "store/store_ring.h"

#include <errno.h>
#include <liburing.h>

#include "base/fault.h"

int store_ring_check(void)
{
    struct io_uring ring;
    int failed = fault_hit("ring.setup") ? -errno : io_uring_queue_init(1, &ring, 0);

    if (failed != 0)
        return -failed;
    struct io_uring_probe *probe = io_uring_get_probe_ring(&ring);
    bool knows = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                 io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    io_uring_queue_exit(&ring);
    return knows ? 0 : ENOSYS;
}
