/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fetch.h -- the bytes of a load plan, from storage into the caller's tensors: large reads in file
 * order by several threads, each byte once, hashes checked on the way.
 */
#ifndef LOAD_FETCH_H
#define LOAD_FETCH_H

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "plan/plan.h"
#include "snapshot/snapshot.h"

/* One request: one hash block, so that what was read is checked while the processor has it. */
#define FETCH_READ_BYTES ((uint64_t)HASH_BLOCK_BYTES)
#define FETCH_PAGE_BYTES ((uint64_t)4096)        /* what goes straight to its target is made of */
#define FETCH_MAX_GAP_BYTES ((uint64_t)64 << 10) /* neighbours this near are read as one */

/* Fill the targets of ${plan}.  On failure their contents are unspecified.  ${direct}: past the
 * page cache, if the reader was opened with STORE_DIRECT; false where others may want the same
 * bytes.  ${devices}: where targets may lie, see target_prepare(); NULL: none does. */
enum sidestep_status fetch_run(struct reader *reader, const struct load_plan *plan,
                               struct workers *workers, bool direct, struct devices *devices,
                               uint64_t *bytes_read, struct sidestep_error *err);

#endif
