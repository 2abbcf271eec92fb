/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fetch.h -- reads the bytes of a load plan from storage into the caller's tensors: large reads in
 * file order by several threads, each byte once, hashes checked on the way.
 */
#ifndef LOAD_FETCH_H
#define LOAD_FETCH_H

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "plan/plan.h"
#include "snapshot/snapshot.h"

/* Bytes of one request: one hash block, so that data is checked while it is in the processor's
 * caches. */
#define FETCH_READ_BYTES ((uint64_t)HASH_BLOCK_BYTES)
/* The same for storage that is far away: few large requests. */
#define FETCH_FAR_READ_BYTES ((uint64_t)8 << 20)
/* A request to such storage reads pieces of at least so many bytes directly to the tensor.  Smaller
 * ones are copied. */
#define FETCH_FAR_DIRECT_BYTES ((uint64_t)128 << 10)
#define FETCH_PAGE_BYTES ((uint64_t)4096)        /* direct reads are whole multiples of this */
#define FETCH_MAX_GAP_BYTES ((uint64_t)64 << 10) /* largest gap between pieces of one request */

enum fetch_kind { FETCH_ALL, FETCH_OBJECTS, FETCH_TENSORS };

/* Fill the targets of ${plan}: all, or those of one kind.  On failure their contents are undefined.
 * ${devices}: for targets on devices, see target_prepare(); NULL: all are in host memory. */
enum sidestep_status fetch_run(struct reader *reader, const struct load_plan *plan,
                               enum fetch_kind kind, struct workers *workers,
                               struct devices *devices, uint64_t *bytes_read,
                               struct sidestep_error *err);

#endif
