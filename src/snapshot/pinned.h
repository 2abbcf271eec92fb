/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pinned.h -- asks a GPU driver whether memory is registered with it, so that the GPU may write to
 * it past the page tables.  Only the driver knows.  The driver is asked if the program has loaded
 * it; sidestep never loads or starts it here.
 */
#ifndef SNAPSHOT_PINNED_H
#define SNAPSHOT_PINNED_H

#include <stdbool.h>
#include <stdint.h>

/* CUDA's cuPointerGetAttribute(); NULL: the program has not loaded the driver. */
typedef int pinned_query_function(void *data, int attribute, uint64_t pointer);

pinned_query_function *pinned_find_query(void);
bool pinned_is_registered(pinned_query_function *ask, uint64_t address);

#endif
