/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bypass.h -- what may change memory of this process although it is write-protected: devices that
 * have it pinned, and the merging of equal pages (KSM).
 *
 * A device writes to the pages themselves, not through the page tables, so it meets no protection.
 * Drivers that pin memory for long count it in VmPin: registered buffers of io_uring, RDMA (so MPI,
 * UCX, gloo over ibverbs and GPUDirect), vDPA, iommufd.  sidestep itself pins nothing that VmPin
 * counts.  The kernel does not say which memory is pinned, so one pinned page is enough to copy
 * everything, but for tensors of which the program says that only the CPU writes to them
 * (SIDESTEP_TENSOR_CPU_WRITES).
 *
 * A pin that begins after the memory was protected is harmless.  The kernel lets a driver pin a
 * page for writing only through a page table entry that permits writing (mm/gup.c:
 * can_follow_write_pte()); a protected page has none, whether it is there, was never touched, is
 * the zero page or part of a huge page.  So the driver's call faults, as a write of the CPU does,
 * and the page is copied before it is pinned.  A page whose protection was lifted has been copied
 * before.  A pin for reading permits no writes.  So VmPin may rise while a state is held.
 *
 * For the same reason it is enough to look at VmPin before protection, and once more behind it,
 * while the caller still stands still.  One gap is left: RDMA counts first and pins then, but
 * io_uring, iommufd and hfi1 count a buffer when all of it is pinned.  A thread that is registering
 * memory of the state during the call of a save is not seen if it ends behind the second look.  So
 * a registration counts as a write: none may be under way in the call.
 *
 * Not counted in VmPin, and left to the caller (SIDESTEP_TENSOR_PINNED):
 *      VFIO                         in VmLck, with all that mlock(2) has locked
 *      AF_XDP, V4L2 (user pointers) no process's count
 *      NVIDIA's driver              no process's count; asked instead, see pinned.h
 *      a ring of io_uring that the process has from its parent: the parent's count
 *      direct reads (O_DIRECT) that were submitted before the call and end behind it: not counted,
 *                                   since they are short; the state was not still
 *      old drivers out of the kernel's tree
 * Devices that use page tables (HMM, AMD's user pointers, SVA, KVM) meet the protection and wait.
 */
#ifndef SNAPSHOT_BYPASS_H
#define SNAPSHOT_BYPASS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct bypass {
    uint64_t pinned_bytes; /* VmPin */
    bool merges;           /* KSM may merge pages: some memory was given to it */
};

/* Look at this process, now; about 50 us.  Fails if the kernel does not say. */
enum sidestep_status bypass_read(struct bypass *bypass, struct sidestep_error *err);

#endif
