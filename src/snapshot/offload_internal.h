/* SPDX-License-Identifier: BSD-3-Clause */
/* offload_internal.h -- declarations shared by the files that implement offload.h. */
#ifndef SNAPSHOT_OFFLOAD_INTERNAL_H
#define SNAPSHOT_OFFLOAD_INTERNAL_H

#include "snapshot/device_batch.h"
#include "snapshot/offload.h"

/* Bytes of copies between two events: few enough that hashing and writing begin early, and enough
 * that the time for events does not matter. */
#define OFFLOAD_SEGMENT_BYTES ((uint64_t)32 << 20)

/* Is item ${k}, which is on a device, a late tensor? */
static inline bool offload_is_fenced(const struct offload *o, size_t k)
{
    return (o->image->items[k].entry->flags & SIDESTEP_TENSOR_FENCED) != 0;
}

/* The event after segment ${segment}, from 1, of a lane. */
void *offload_segment_event(const struct offload *o, const struct offload_device *lane,
                            uint32_t segment);
/* Make sidestep's streams wait for the current work of the program's streams. */
enum sidestep_status offload_wait_for_program(struct offload *o, struct sidestep_error *err);
/* Make the program's streams wait for the early tensors. */
enum sidestep_status offload_make_program_wait(struct offload *o, struct sidestep_error *err);
enum sidestep_status offload_wait_segment(struct offload *o, struct offload_device *lane,
                                          uint32_t segment, struct sidestep_error *err);
/* Submit copies of bytes [begin, end) of item ${k}'s data to ${host}.  Its device is entered. */
enum sidestep_status offload_submit_part(struct offload *o, size_t k, uint64_t begin, uint64_t end,
                                         uint8_t *host, struct sidestep_error *err);
/* Wait until the copies of segment ${segment} are submitted.  An error: they will not be. */
enum sidestep_status offload_wait_recorded(struct offload *o, const struct offload_device *lane,
                                           uint32_t segment, struct sidestep_error *err);

#endif
