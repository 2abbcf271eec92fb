/* SPDX-License-Identifier: BSD-3-Clause */
/* offload_internal.h -- what the parts of offload.h share: the copies, and the waiting. */
#ifndef SNAPSHOT_OFFLOAD_INTERNAL_H
#define SNAPSHOT_OFFLOAD_INTERNAL_H

#include "snapshot/device_batch.h"
#include "snapshot/offload.h"

/* So much is submitted before the next event tells how far the device is: small enough for hashing
 * and writing to begin early, large enough for events to cost nothing. */
#define OFFLOAD_SEGMENT_BYTES ((uint64_t)32 << 20)

/* Is item ${k}, on a device, one that waits for a fence? */
static inline bool offload_is_fenced(const struct offload *o, size_t k)
{
    return (o->image->items[k].entry->flags & SIDESTEP_TENSOR_FENCED) != 0;
}

/* The event behind chunk ${chunk}, from 1, of a lane. */
void *offload_segment_event(const struct offload *o, const struct offload_device *lane,
                            uint32_t chunk);
enum sidestep_status offload_wait_for_program(struct offload *o, struct sidestep_error *err);
/* The program's streams wait for what is early. */
enum sidestep_status offload_make_program_wait(struct offload *o, struct sidestep_error *err);
enum sidestep_status offload_wait_segment(struct offload *o, struct offload_device *lane,
                                          uint32_t chunk, struct sidestep_error *err);
/* Submit copies of bytes [begin, end) of the data of item ${k} to ${host}; its device is entered.
 */
enum sidestep_status offload_submit_part(struct offload *o, size_t k, uint64_t begin, uint64_t end,
                                         uint8_t *host, struct sidestep_error *err);
void offload_set_submitted(struct offload *o);

#endif
