/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bypass.h -- detects what can change write-protected memory of this process: devices that have it
 * pinned, and the merging of equal pages (KSM).
 *
 * A device writes to physical pages, not through the page tables, so write protection does not stop
 * it.  Drivers that pin memory for a long time count it in VmPin: registered buffers of io_uring,
 * RDMA (so MPI, UCX, gloo over ibverbs and GPUDirect), vDPA, iommufd.  sidestep itself pins nothing
 * that VmPin counts.  The kernel does not say which memory is pinned.  So one pinned page is enough
 * to copy everything, except tensors that only the CPU writes to, as the program has declared with
 * SIDESTEP_TENSOR_CPU_WRITES.
 *
 * A pin that begins after the memory was protected is harmless.  The kernel lets a driver pin a
 * page for writing only through a page table entry that permits writing (mm/gup.c:
 * can_follow_write_pte()).  A protected page has no such entry, whether it is present, was never
 * touched, is the zero page or is part of a huge page.  So the driver's call faults like a write of
 * the CPU, and the page is copied before it is pinned.  A page whose protection was lifted has been
 * copied already.  A pin for reading permits no writes.  So VmPin may rise during a snapshot.
 *
 * For the same reason it is enough to read VmPin before protection, and once more after it, while
 * the caller is still in the call.  One gap is left: RDMA counts first and then pins, but io_uring,
 * iommufd and hfi1 count a buffer only when all of it is pinned.  A thread that registers memory of
 * the state during the call of a save is missed if it ends after the second read.  So a
 * registration counts as a write: none may be in progress during the call.
 *
 * VmPin is too low in two cases of io_uring.  The kernel counts buffers of an instance that was
 * inherited for the parent process.  And it counts a huge page only for the first buffer in it, and
 * no longer when that buffer is gone (until Linux 6.19).  So if VmPin is zero, the buffers are
 * read from /proc/self/fdinfo of each instance.  A ring that is always locked counts as pinned.
 *
 * The following is not detected.  The caller must mark such tensors (SIDESTEP_TENSOR_PINNED):
 *      VFIO                         counted in VmLck, with everything that mlock(2) has locked
 *      AF_XDP, V4L2 (user pointers) counted for no process
 *      NVIDIA's driver              counted for no process; pinned.h asks the driver instead
 *      habanalabs, VMCI, etnaviv    counted for no process
 *      zcrx areas of io_uring       counted for no process before Linux 6.17
 *      the two cases above          if no descriptor of the io_uring instance is open
 *                                   (IORING_REGISTER_RING_FDS)
 *      direct reads (O_DIRECT) that were submitted before the call and end after it: not counted,
 *                                   since they are short; the state was changing during the call
 *      old out-of-tree drivers
 * Devices that use page tables (HMM, AMD's user pointers, SVA, KVM) fault on the protection and
 * wait.
 */
#ifndef SNAPSHOT_BYPASS_H
#define SNAPSHOT_BYPASS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct bypass {
    uint64_t pinned_bytes; /* VmPin; or, if it is zero, buffers of io_uring */
    bool merges;           /* KSM may merge pages: the program has made some memory mergeable */
};

/* Read the current values; takes about 50 us, and 1 us for each descriptor.  Fails if the
 * kernel does not provide VmPin. */
enum sidestep_status bypass_read(struct bypass *bypass, struct sidestep_error *err);

#endif
