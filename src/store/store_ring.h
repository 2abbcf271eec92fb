/* SPDX-License-Identifier: BSD-3-Clause */
/* store_ring.h -- io_uring: requests that are in flight while their thread does something else. */
#ifndef STORE_STORE_RING_H
#define STORE_STORE_RING_H

/* Does the kernel let this process read and write through io_uring?  0, or the errno that says
 * why not: EPERM where it is switched off or filtered, ENOSYS where it is not known. */
int store_ring_check(void);

#endif
