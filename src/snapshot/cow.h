/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cow.h -- takes a snapshot without copying first: write-protects the pages of the state, returns
 * from the call, and copies each granule to the pool before the trainer writes to it.
 *
 *      protected  <->  claimed: some of it is being copied  ->  copied and unprotected
 *
 * Two kinds of threads claim granules.  One is the thread that stages a window with cow_stage(), in
 * file order and if possible ahead of the trainer.  The others are the fault handlers, when the
 * trainer writes to a granule that is not copied yet.  A piece of a granule is copied once its
 * window has a slot in the pool (pool_slots.h), by the thread that claimed the granule under the
 * lock.  The lock is released during the copy.  Handlers also acquire missing slots.  If there is
 * no free slot, the trainer's thread waits, but the handler does not: the granule stays protected
 * until its window is staged in turn, or until cow_retry_waiters() makes the handlers try again.
 *
 * Rules:
 *  1. A granule is unprotected only after its bytes are in the pool.  So what is written to storage
 *     is the state at the time of cow_begin_snapshot(), whoever writes to it later; and what is
 *     hashed is what is written.
 *  2. Handlers, and every thread that holds the lock, write only to their stacks, the pool and
 *     sidestep's own mappings.  Any other page may be protected (see cow_plan.h), and they
 *     would wait for themselves.  They allocate nothing, and wait for no other lock and no storage.
 *  3. Bytes are read through memory_reader.h: memory that was unmapped is an error then, not a
 *     signal.
 *  4. Events are read and handled under the lock.  The kernel lets munmap(2), mremap(2) and
 *     madvise(2) discard pages only once the event is read.  So a copy is valid if no event came
 *     between it and the moment when its granule was recorded (under the lock) as copied.
 *  5. What a handler has read belongs to the plan of that time.  A new plan waits until no handler
 *     is busy.
 *  6. If lifting protection fails, all protection is given up: sidestep unregisters the ranges and
 *     closes the descriptor, so no thread stays blocked.  The save fails.
 *  7. Bytes that were read count only if their pages are still protected afterwards (cow_check.c).
 *     The kernel may remove protection without an event, but never restores it.  So a page that is
 *     protected now was protected since the call.  Bytes that were read before cow_begin_snapshot()
 *     had protected everything count in any case, because the caller was still in the call.
 *
 * What can happen to protected memory, and what it means for the save:
 *      held    the bytes stay those of the call, or whoever writes waits
 *      event   userfaultfd reports it, and the save fails
 *      page    rule 7: the save fails
 *      error   the memory cannot be read, and the save fails
 *      copied  such memory is not protected; it is copied in the call
 *      unseen  it is not detected
 * Tests: A cow_attack_test, O cow_others_test, D cow_device_test, L cow_life_test, R cow_room_test,
 * T cow_torture_test; - not tested.
 *
 *      stores; read(2) and io_uring, also with O_DIRECT                  held    T L D R
 *      MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE                    event   A L
 *      MADV_COLD, _PAGEOUT, _POPULATE_READ, _POPULATE_WRITE, _COLLAPSE   held    A
 *      MADV_HUGEPAGE, _NOHUGEPAGE, _WIPEONFORK, _DONTFORK; mlock(2)      held    A
 *      MADV_GUARD_INSTALL, MADV_GUARD_REMOVE                             page    A
 *      MADV_MERGEABLE and PR_SET_MEMORY_MERGE (KSM): before the call     copied  O
 *      ... later                                                         page    O
 *      MADV_HWPOISON, failing memory: it cannot be read                  error   -
 *      migration: compaction, move_pages(2)                              held    O
 *      ... MADV_SOFT_OFFLINE, hotplug, NUMA balancing                    held    -
 *      munmap(2), brk(2), mmap(2) and mremap(2) over it                  event   A L O
 *      mremap(2) of it, also with MREMAP_DONTUNMAP                       event   A L
 *      mprotect(2), pkey_mprotect(2), mseal(2)                           held    A
 *      ... where reading is forbidden when it is read                    error   A
 *      process_vm_writev(2), /proc/PID/mem, so ptrace(2)                 held    O
 *      process_madvise(2)                                                held    O
 *      fork(2) and writes of the child; clone(2) with CLONE_VM           held    L O
 *      another userfaultfd of the process: WRITEPROTECT, UNREGISTER,
 *      COPY, ZEROPAGE, MOVE                                              page    A
 *      ... if it then protects the pages itself                          unseen  -
 *      /proc/self/clear_refs, PAGEMAP_SCAN with PM_SCAN_WP_MATCHING      held    O
 *      swap, reclaim by a memory cgroup                                  held    O
 *      huge pages, mostly zero, that are split (Linux 6.12 to 6.17)      page    -
 *      memory that a device has pinned: before the call, and in it       copied  D
 *      ... later                                                         held    D
 *      ... whose pins the kernel does not count: once it is copied       held    D
 *      ... the same, before it is copied                                 unseen  -
 *      devices that use page tables (HMM, SVA, KVM)                      held    -
 * CRIU cannot dump a process that has a userfaultfd.  bypass.h says more about devices.
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

/* Size of the reserve of a shared pool (pool_slots.h), but at most half of the pool.  It holds what
 * is hashed and written at the same time.  It is so small that a window is still in the processor's
 * caches when it is hashed, and when its slot is filled again. */
#define COW_RESERVE_BYTES ((uint64_t)16 << 20)

struct cow;

struct cow_stats {
    uint64_t held_bytes;    /* protected */
    uint64_t copied_bytes;  /* copied in the call, because they could not be protected */
    uint64_t faults;        /* writes of the trainer that had to wait */
    uint64_t faults_waited; /* faults that waited for a copy in progress */
    uint64_t faults_disk;   /* faults that waited for a slot of the pool */
    uint64_t fault_bytes;   /* copied because of faults */
    uint64_t fault_ns;      /* total wait of all faults */
    uint64_t fault_max_ns;  /* longest wait of a fault */
};

/* Open a userfaultfd and start ${handlers} threads.  EPERM or EUNSUPPORTED: this machine does not
 * allow or support write protection. */
enum sidestep_status cow_open(struct cow **cow, bool user_mode_only, unsigned handlers,
                              struct sidestep_error *err);
/* No snapshot may be in progress. */
void cow_close(struct cow **cow);

/* Plan which memory of ${image} to protect, for a pool of ${pool_bytes}, and register it with the
 * kernel.  *held_bytes == 0: nothing can be protected.  ENOMEM: the pool is too small even for what
 * must be copied in the call.  An error changes nothing. */
enum sidestep_status cow_prepare(struct cow *cow, const struct image *image, uint64_t pool_bytes,
                                 uint64_t *held_bytes, struct sidestep_error *err)
    ON_THREAD(CALLER);
/* Protect the planned memory, and copy the rest to ${pool}, with the caller and ${workers}.  When
 * this returns, the caller may modify the tensors.  Sets up ${slots} for the save; they and
 * ${image} must stay until cow_end_snapshot().  Copies what the kernel refuses to protect.  False:
 * the pool had no space for that, or something can write past the protection; cow_failure_reason()
 * says which, and nothing is protected. */
bool cow_begin_snapshot(struct cow *cow, const struct image *image, struct pool_slots *slots,
                        const struct pool *pool, struct workers *workers) ON_THREAD(CALLER);
/* Complete window ${i} of the current snapshot's image, which must have a slot.  Any thread, each
 * window once.  Fails if memory of the window was unmapped, discarded or moved. */
enum sidestep_status cow_stage(struct cow *cow, const struct image *image, size_t i,
                               struct sidestep_error *err);
/* Slots were freed: let the handlers serve waiting writers. */
void cow_retry_waiters(struct cow *cow);
/* The calling thread begins, or ends, work that writers may have to wait for.  ${rights} allow its
 * priority to be raised; NULL: its priority is not lowered.  Handlers raise the priority while a
 * writer waits.  cow_should_lower_priority() tells the thread when no writer waits any more and it
 * may lower its priority again. */
void cow_attach_thread(struct cow *cow, const struct priority_rights *rights);
void cow_detach_thread(struct cow *cow);
bool cow_should_lower_priority(struct cow *cow);
/* True while a writer waits for a slot of the pool.  The flag lives as long as ${cow}. */
const atomic_bool *cow_pool_full_flag(const struct cow *cow);
/* Wait until the trainer has had ${faults} faults.  Returns false if
 * cow_cancel_fault_wait() was called first, in this save. */
bool cow_wait_for_faults(struct cow *cow, uint64_t faults);
void cow_cancel_fault_wait(struct cow *cow);
/* Wait for copies in progress, and lift the remaining protection.  What is not staged by then is
 * never staged. */
void cow_end_snapshot(struct cow *cow);

/* Range ${i} of the protected memory, by address.  False: there are fewer ranges.  Not during
 * cow_prepare() or cow_begin_snapshot(). */
bool cow_get_range(const struct cow *cow, size_t i, uint64_t *begin, uint64_t *end);
/* Bytes of all tensors in host memory. */
uint64_t cow_host_tensor_bytes(const struct image *image);
void cow_get_stats(struct cow *cow, struct cow_stats *stats);
/* Why a tensor was copied although it is large enough to be protected; "" if none was.  Valid until
 * the next cow_prepare(). */
const char *cow_eager_copy_reason(const struct cow *cow);
/* If cow_begin_snapshot() returned true, but had to copy memory that it could not protect, store
 * why in reason[size], unless it has a reason already.  Call before the snapshot ends. */
void cow_add_protect_failure(struct cow *cow, char *reason, size_t size) ON_THREAD(CALLER);
/* Why cow_begin_snapshot() returned false. */
const char *cow_failure_reason(const struct cow *cow) ON_THREAD(CALLER);

#endif
