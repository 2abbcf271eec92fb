/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_fault.h -- a store that injects faults: it wraps another store, and asks fault_hit() before
 * each call.
 *
 * The fault points are "store.<operation>": "store.file_write_at", "store.rename" ... A call that
 * fails has no effect, except that a write writes half of its bytes. Calls that change names have a
 * second point, "store.<operation>.reply": the call takes effect and fails, as if a server's reply
 * was lost. Handles never leak: a close that fails has closed.
 */
#ifndef SUPPORT_STORE_FAULT_H
#define SUPPORT_STORE_FAULT_H

#include "store/store.h"

/* ${inner} must outlive it.  NULL: out of memory. */
struct store *store_fault_new(struct store *inner);
void store_fault_free(struct store **store);
/* Report ${bytes} of free space from now on. Any thread may call this. */
void store_fault_set_free_bytes(struct store *store, uint64_t bytes);

#endif
