/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_ring.h -- io_uring: requests that are in flight while their thread does something else.  A
 * ring belongs to one thread; store_queue.c is the only user.
 *
 * Neither buffers nor files are registered.  It was tried: with requests of 4 MiB from huge pages
 * it saves nothing that can be measured (6 to 9 ms of processor time a GiB with and without), costs
 * 3 to 8 ms for each ring and GiB, and counts against RLIMIT_MEMLOCK.
 */
#ifndef STORE_STORE_RING_H
#define STORE_STORE_RING_H

#include <stdbool.h>

struct store_request;
struct store_ring;

/* Does the kernel let this process read and write through io_uring?  0, or the errno that says
 * why not: EPERM where it is switched off or filtered, ENOSYS where it is not known. */
int store_ring_probe(void);

/* For ${depth} requests in flight; NULL with errno if it is refused. */
struct store_ring *store_ring_new(unsigned depth);
/* Nothing may be in flight. */
void store_ring_free(struct store_ring **ring);
/* Hand ${request} to the kernel, to be done on ${fd}; false: it does not take it. */
bool store_ring_submit(struct store_ring *ring, int fd, struct store_request *request);
/* One that has come back, and its result as the kernel says it: bytes, or a negative errno.  False:
 * none, or, with ${wait}, none is in flight. */
bool store_ring_reap(struct store_ring *ring, bool wait, struct store_request **request,
                     int *result);

#endif
