/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_ring.h -- reads and writes through io_uring, while the thread does other work.  A ring
 * belongs to one thread.  Only store_queue.c uses it.
 *
 * Buffers and files are not registered.  With requests of 4 MiB from huge pages, this saves nothing
 * that can be measured (6 to 9 ms of processor time per GiB with and without), costs 3 to 8 ms for
 * each ring and GiB, and counts against RLIMIT_MEMLOCK.
 */
#ifndef STORE_STORE_RING_H
#define STORE_STORE_RING_H

#include <stdbool.h>

struct store_request;
struct store_ring;

/* Does the kernel let this process read and write through io_uring?  Returns 0 or an errno: EPERM:
 * it is switched off or filtered; ENOSYS: the kernel does not know it. */
int store_ring_probe(void);

/* Make a ring for ${depth} requests in flight.  NULL, with errno: the kernel refuses. */
struct store_ring *store_ring_new(unsigned depth);
/* No request may be in flight. */
void store_ring_free(struct store_ring **ring);
/* Give ${request} to the kernel, to do it on ${fd}.  False: the kernel does not take it. */
bool store_ring_submit(struct store_ring *ring, int fd, struct store_request *request);
/* Get a request that is done, and its result from the kernel: bytes, or a negative errno.  False:
 * none is done.  If ${wait}, it waits for one, and false means that none is in flight. */
bool store_ring_reap(struct store_ring *ring, bool wait, struct store_request **request,
                     int *result);

#endif
