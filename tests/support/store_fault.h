/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_fault.h -- a store that fails on command: wraps any other, and asks fault_hit() first.
 *
 * The points are "store.<operation>": "store.file_write_at", "store.rename" ...  A failing call
 * does nothing, except that half the bytes of a write arrive.  Calls that change names have a
 * second point, "store.<operation>.reply": the call takes effect, and fails nevertheless, as when
 * a server's reply is lost.  Handles are never leaked: a close that fails has closed.
 */
#ifndef SUPPORT_STORE_FAULT_H
#define SUPPORT_STORE_FAULT_H

#include "store/store.h"

/* ${inner} must outlive it.  NULL when memory is short. */
struct store *store_fault_new(struct store *inner);
void store_fault_free(struct store **store);
/* From now on it says that so much may still be written to it; from any thread. */
void store_fault_say_free(struct store *store, uint64_t bytes);

#endif
