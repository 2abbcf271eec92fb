/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cow.h -- hold still without copying first: the caller's pages are write-protected, the call
 * returns, and each granule of them is copied into the pool before anybody writes to it.
 *
 *      protected  ->  being copied  ->  copied and given back
 *
 * Two kinds of threads take granules: whoever stages a window (cow_stage(), in the order of the
 * file, ahead of the trainer if it can), and the fault handlers, for a trainer that writes to a
 * granule which nobody has copied yet.  Each granule is copied once, by who claimed it under the
 * lock; the lock is not held while copying.
 *
 * Rules:
 *  1. A granule is given back only after its bytes are in the pool, so what is written to storage
 * is the state at the time of cow_arm(), whoever writes to it when.
 *  2. Handlers, and who holds the lock, write to nothing but their stacks, the pool and mappings
 *     of our own: any other page may be a protected one (see cow_plan.h), and they would wait for
 *     themselves.  They allocate nothing, and wait for no other lock and no storage.
 *  3. Bytes are read by process_vm_readv(2): memory that was unmapped is an error then, no signal.
 *  4. Events are read and acted on under the lock.  The kernel lets munmap(2), mremap(2) and
 *     madvise(2) discard pages only once the event is read, so a copy that was made before its
 *     granule is marked (under the lock) as copied, with no event in between, is good.
 *  5. What a handler has read belongs to the plan of that time: a new plan waits until no handler
 * is busy.
 *  6. If lifting protection fails, all of it is given up: unregistering and closing the descriptor
 *     lets everybody go on.  The save then fails.
 */
#ifndef SNAPSHOT_COW_H
#define SNAPSHOT_COW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/workers.h"
#include "snapshot/image.h"

struct cow;

struct cow_stats {
    uint64_t held_bytes;    /* protected */
    uint64_t copied_bytes;  /* at once, because they could not be */
    uint64_t faults;        /* writes of the trainer that had to wait */
    uint64_t faults_waited; /* ... for a copy that was under way */
    uint64_t fault_bytes;   /* copied because of them */
    uint64_t fault_ns;      /* that they waited, all together */
    uint64_t fault_max_ns;  /* the longest */
};

/* The descriptor and ${handlers} threads.  EPERM or EUNSUPPORTED: this machine does not let us. */
enum sidestep_status cow_open(struct cow **cow, bool user_mode_only, unsigned handlers,
                              struct sidestep_error *err);
/* Nothing is armed. */
void cow_close(struct cow **cow);

/* Find out what of ${image} can be protected, and have that registered.  *held_bytes == 0: nothing.
 * On an error nothing has changed. */
enum sidestep_status cow_prepare(struct cow *cow, const struct image *image, uint64_t *held_bytes,
                                 struct sidestep_error *err);
/* Protect it, and copy the rest into ${pool}, which has a place for every byte of the file, on the
 * caller and ${workers}.  After that the caller may modify the tensors.  What cannot be protected
 * after all is copied. */
void cow_arm(struct cow *cow, const struct image *image, uint8_t *pool, struct workers *workers);
/* Complete window ${i} of the image that is armed.  Any thread, each window once.  Fails if its
 * memory is gone. */
enum sidestep_status cow_stage(struct cow *cow, const struct image *image, size_t i,
                               struct sidestep_error *err);
/* Lift what is still protected: nobody will stage it.  Waits for copies that are under way. */
void cow_release(struct cow *cow);

/* Of all tensors in host memory. */
uint64_t cow_tensor_bytes(const struct image *image);
void cow_get_stats(struct cow *cow, struct cow_stats *stats);
/* Why a tensor that is large enough was copied: "" if none was.  Until the next cow_prepare(). */
const char *cow_reason(const struct cow *cow);

#endif
