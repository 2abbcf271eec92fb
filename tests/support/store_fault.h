/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_fault.h -- a store that fails on command: it wraps any other, and asks fault_hit() first.
 *
 * The points are "store.<operation>": "store.file_write_at", "store.rename" ... A call that fails
 * does nothing, except that half the bytes of a write arrive. Calls that change names have a
 * second point, "store.<operation>.reply": the call takes effect, and fails nevertheless, as when
 * a server's reply is lost. Handles never leak: a close that fails has closed.
 */
#ifndef SUPPORT_STORE_FAULT_H
#define SUPPORT_STORE_FAULT_H

#include "store/store.h"

/* ${inner} must outlive it.  NULL when memory is short. */
struct store *store_fault_new(struct store *inner);
void store_fault_free(struct store **store);
/* Report ${bytes} of free space from now on; any thread. */
void store_fault_set_free_bytes(struct store *store, uint64_t bytes);

#endif
