/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cow.h -- hold still without copying first: the caller's pages are write-protected, the call
 * returns, and each granule of them is copied into the pool before anybody writes to it.
 *
 *      protected  <->  taken: some of it is being copied  ->  copied and given back
 *
 * Two kinds of threads take granules: whoever stages a window (cow_stage(), in the order of the
 * file, ahead of the trainer if it can), and the fault handlers, for a trainer that writes to a
 * granule which nobody has copied yet.  A piece of a granule is copied once its window has a place
 * in the pool (pool_slots.h), by who took the granule under the lock; the lock is not held while
 * copying.  Handlers also ask for the places that are missing.  Where there is none, the writer
 * waits, but no handler does: the granule stays protected until its window is staged in its turn,
 * or cow_retry_waiters() has handlers look again.
 *
 * Where nobody writes, nothing needs to be copied: a window that is all memory of one tensor may be
 * hashed, and written, where it lies (cow_begin_zero_copy()).  Its pieces are done when the write
 * has ended, and not before: only then does nobody read them any more.  Who writes to them
 * meanwhile waits for that.
 *
 * Rules:
 *  1. A granule is given back only after its bytes are in the pool, or written, so what is written
 *     to storage is the state at the time of cow_begin_snapshot(), whoever writes to it when; and
 * what is hashed is what is written.
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
 *  7. What was read counts only if its pages are still protected afterwards (cow_check.c).  The
 *     kernel takes protection away without an event, but never gives it back: so a page that is
 *     protected was so since the call.  What was read before cow_begin_snapshot() had protected
 * everything counts in any case, as the caller stood still.
 *  8. What is written from where it lies is hashed once more before it is given back: a device that
 *     writes there leaves the pages as they are.
 *
 * What can happen to memory that is held, and what becomes of the save:
 *      held    it has the bytes of the call: whoever writes waits, or the bytes stay as they are
 *      event   userfaultfd tells of it, and the save fails
 *      page    rule 7: the save fails
 *      bytes   rule 8: the save fails
 *      copied  such memory is not held at all
 * Tests: A cow_attack_test, O cow_others_test, D cow_device_test, L cow_life_test, R cow_room_test,
 * T cow_torture_test; - not tested.
 *
 *      stores; read(2) and io_uring, past the page cache, too            held    T L D R
 *      MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE                    event   A L
 *      MADV_COLD, _PAGEOUT, _POPULATE_READ, _POPULATE_WRITE, _COLLAPSE   held    A
 *      MADV_HUGEPAGE, _NOHUGEPAGE, _WIPEONFORK, _DONTFORK; mlock(2)      held    A
 *      MADV_GUARD_INSTALL, MADV_GUARD_REMOVE                             page    A
 *      MADV_MERGEABLE and PR_SET_MEMORY_MERGE (KSM): before the call     copied  O
 *      ... later                                                         page    O
 *      MADV_HWPOISON, memory that fails: it cannot be read               error   -
 *      migration: compaction, move_pages(2)                              held    O
 *      ... MADV_SOFT_OFFLINE, hotplug, NUMA balancing                    held    -
 *      munmap(2), brk(2), mmap(2) and mremap(2) over it                  event   A L O
 *      mremap(2) away, with MREMAP_DONTUNMAP, too                        event   A L
 *      mprotect(2), pkey_mprotect(2), mseal(2)                           held    A
 *      ... where reading is forbidden when it is read                    error   A
 *      process_vm_writev(2), /proc/PID/mem, so ptrace(2)                 held    O
 *      process_madvise(2)                                                held    O
 *      fork(2) and writes of the child; clone(2) with CLONE_VM           held    L O
 *      another userfaultfd of the process: WRITEPROTECT, UNREGISTER,
 *      COPY, ZEROPAGE                                                    page    A
 *      ... COPY that protects, over pages that were never touched        unseen  -
 *      /proc/self/clear_refs, PAGEMAP_SCAN with PM_SCAN_WP_MATCHING      held    O
 *      swap, reclaim by a memory cgroup                                  held    O
 *      huge pages, mostly zero, that are split (Linux 6.12 to 6.17)      page    -
 *      memory that a device has pinned: before the call, and in it       copied  D
 *      ... later                                                         held    D
 *      ... whose pins nobody counts, where it is written as it lies      bytes   D
 *      ... the same, where it is copied                                  unseen  -
 *      devices that use page tables (HMM, SVA, KVM)                      held    -
 * CRIU cannot dump a process that has a userfaultfd.  bypass.h says more of devices.
 */
#ifndef SNAPSHOT_COW_H
#define SNAPSHOT_COW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "snapshot/image.h"
#include "snapshot/pool_slots.h"
#include "snapshot/pool.h"

/* Of a pool that windows share, this much is in reserve (pool_slots.h), or half: what is being
 * hashed and written at once. */
#define COW_RESERVE_BYTES ((uint64_t)48 << 20)

struct cow;

struct cow_stats {
    uint64_t held_bytes;    /* protected */
    uint64_t copied_bytes;  /* at once, because they could not be */
    uint64_t faults;        /* writes of the trainer that had to wait */
    uint64_t faults_waited; /* ... for a copy that was under way */
    uint64_t faults_disk;   /* ... for room in the pool, or a write from where it lies */
    uint64_t fault_bytes;   /* copied because of them */
    uint64_t fault_ns;      /* that they waited, all together */
    uint64_t fault_max_ns;  /* the longest */
};

/* The descriptor and ${handlers} threads.  EPERM or EUNSUPPORTED: this machine does not let us. */
enum sidestep_status cow_open(struct cow **cow, bool user_mode_only, unsigned handlers,
                              struct sidestep_error *err);
/* Nothing is armed. */
void cow_close(struct cow **cow);

/* Find out what of ${image} can be protected, and have that registered, for a pool of
 * ${pool_bytes}. *held_bytes == 0: nothing.  ENOMEM where the pool could not even take what has to
 * be copied at once.  On an error nothing has changed. */
enum sidestep_status cow_prepare(struct cow *cow, const struct image *image, uint64_t pool_bytes,
                                 uint64_t *held_bytes, struct sidestep_error *err);
/* Protect it, and copy the rest into ${pool}, on the caller and ${workers}.  After that the caller
 * may modify the tensors.  ${places} are set for the save, and stay until cow_end_snapshot(), as
 * ${image} must.  What cannot be protected after all is copied.  False: there was no room for that,
 * or protection does not hold everybody (cow_failure_reason() says which); nothing is protected. */
bool cow_begin_snapshot(struct cow *cow, const struct image *image, struct pool_slots *places,
                        const struct pool *pool, struct workers *workers);
/* Complete window ${i} of the image that is armed, which has a place.  Any thread, each window
 * once.  Fails if its memory is gone. */
enum sidestep_status cow_stage(struct cow *cow, const struct image *image, size_t i,
                               struct sidestep_error *err);
/* Window ${i} is about to be written from where it lies, in memory of a tensor that is held; *live
 * == false: some of it was copied, and it has a place.  It must be an inner one (image.h), all of
 * it held.  Its blocks are hashed then.  Any thread, instead of cow_stage(). */
enum sidestep_status cow_begin_zero_copy(struct cow *cow, struct image *image, size_t i, bool *live,
                                         struct sidestep_error *err);
/* Where it lies; NULL: it is no inner window, or not all held. */
uint8_t *cow_zero_copy_address(const struct cow *cow, const struct image *image, size_t i);
/* It is written: nobody will read it there any more.  Fails if it was not protected all the time,
 * or is not what was hashed. */
enum sidestep_status cow_end_zero_copy(struct cow *cow, struct image *image, size_t i,
                                       struct sidestep_error *err);
/* Places have become free: whom may they serve? */
void cow_retry_waiters(struct cow *cow);
/* The calling thread begins, and ends, to do what writers may have to wait for, at a priority that
 * ${rights} allow to be raised (NULL: it is not lowered).  Handlers raise it when somebody waits;
 * cow_should_lower_priority() tells the thread, once nobody waits any more, that it may lower
 * itself again. */
void cow_attach_thread(struct cow *cow, const struct priority_rights *rights);
void cow_detach_thread(struct cow *cow);
bool cow_should_lower_priority(struct cow *cow);
/* True while somebody waits for a place in the pool.  Lasts as long as ${cow}. */
const atomic_bool *cow_pool_full_flag(const struct cow *cow);
/* Wait until ${faults} writes of the trainer have had to wait; false: cow_cancel_fault_wait() was
 * called first, in this save. */
bool cow_wait_for_faults(struct cow *cow, uint64_t faults);
void cow_cancel_fault_wait(struct cow *cow);
/* Lift what is still protected: nobody will stage it.  Waits for copies that are under way. */
void cow_end_snapshot(struct cow *cow);

/* Stretch ${i} of the memory that was held, by address; false: there are fewer.  While nobody
 * prepares, or arms. */
bool cow_get_range(const struct cow *cow, size_t i, uint64_t *begin, uint64_t *end);
/* Of all tensors in host memory. */
uint64_t cow_host_tensor_bytes(const struct image *image);
void cow_get_stats(struct cow *cow, struct cow_stats *stats);
/* Why a tensor that is large enough was copied: "" if none was.  Until the next cow_prepare(). */
const char *cow_eager_copy_reason(const struct cow *cow);
/* Why cow_begin_snapshot() has returned false. */
const char *cow_failure_reason(const struct cow *cow);

#endif
