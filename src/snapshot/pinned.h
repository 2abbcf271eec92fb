/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pinned.h -- may a GPU write into this memory without asking the page tables?  Only the driver
 * knows what was registered with it.  It is asked if the program has loaded it, and never loaded or
 * started by us.
 */
#ifndef SNAPSHOT_PINNED_H
#define SNAPSHOT_PINNED_H

#include <stdbool.h>
#include <stdint.h>

/* Of CUDA: cuPointerGetAttribute(); NULL: the program has no such driver. */
typedef int pinned_query_function(void *data, int attribute, uint64_t pointer);

pinned_query_function *pinned_find_query(void);
bool pinned_is_registered(pinned_query_function *ask, uint64_t address);

#endif
