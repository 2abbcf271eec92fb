/* SPDX-License-Identifier: BSD-3-Clause */
/* nontemporal_copy.h -- copies bytes that nobody reads soon, past the processor's caches. */
#ifndef BASE_NONTEMPORAL_COPY_H
#define BASE_NONTEMPORAL_COPY_H

#include <stddef.h>

/* As memcpy(), but faster for large copies: it causes two thirds of the memory traffic. */
void nontemporal_copy(void *to, const void *from, size_t bytes);

#endif
