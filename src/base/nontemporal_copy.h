/* SPDX-License-Identifier: BSD-3-Clause */
/* nontemporal_copy.h -- copy what nobody will look at soon, without a trip of the target through
 * the caches.
 */
#ifndef BASE_NONTEMPORAL_COPY_H
#define BASE_NONTEMPORAL_COPY_H

#include <stddef.h>

/* memcpy(), faster for large pieces: two thirds of the traffic to memory. */
void nontemporal_copy(void *to, const void *from, size_t bytes);

#endif
