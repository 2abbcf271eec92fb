/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * snapshot.h -- keeps the bytes of a state at the moment of the call, while the trainer goes on.
 *
 * Three parts:
 *  - Pool and image.  image.h lays out a shard file before a byte is copied, and cuts it into
 *    windows of about 4 MiB.  pool.h is the staging memory; pool_slots.h says where in it each
 *    window lies.
 *  - Copy-on-write.  cow.h write-protects the pages of the state (uffd.h) and copies a page before
 *    the trainer writes to it.  bypass.h detects what can write past protection.
 *  - Devices.  offload.h makes the copy engines of GPUs copy tensors to the pool.  device.h is the
 *    interface to a driver.
 *
 * What comes in: a state dict, and the plan of what this rank writes.
 * What goes out: windows in the pool, each hashed.
 *
 * Invariant: what is hashed is what is written.  Memory that can change without a fault is copied
 * before the call returns, or the save fails and names the tensor.
 *
 * Ownership: tensor memory stays the caller's, and must stay mapped until the save is RELEASED.
 * The pool is the engine's, and is reused.
 *
 * Threads: the thread that calls protects; a handler thread answers faults; writers take windows.
 */
#ifndef SNAPSHOT_SNAPSHOT_H
#define SNAPSHOT_SNAPSHOT_H

#include "snapshot/bypass.h"
#include "snapshot/cow.h"
#include "snapshot/cow_plan.h"
#include "snapshot/device.h"
#include "snapshot/device_strided.h"
#include "snapshot/devices.h"
#include "snapshot/file_memory.h"
#include "snapshot/huge_page.h"
#include "snapshot/image.h"
#include "snapshot/memory_map.h"
#include "snapshot/memory_reader.h"
#include "snapshot/offload.h"
#include "snapshot/pool.h"
#include "snapshot/pool_slots.h"
#include "snapshot/uffd.h"
#include "snapshot/unchanged.h"

#endif
