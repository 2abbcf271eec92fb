/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pinned.h -- asks a GPU driver whether memory is registered with it.
 *
 * The GPU may write to such memory past the page tables, and only the driver knows which memory it
 * is. The driver is asked only if the program has loaded it; this never loads or starts it.
 */
#ifndef SNAPSHOT_PINNED_H
#define SNAPSHOT_PINNED_H

#include <stdbool.h>
#include <stdint.h>

/* CUDA's cuPointerGetAttribute(). */
typedef int pinned_query_function(void *data, int attribute, uint64_t pointer);

/* NULL: the program has not loaded the driver. */
pinned_query_function *pinned_find_query(void);
bool pinned_is_registered(pinned_query_function *query, uint64_t address);

#endif
