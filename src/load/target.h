/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * target.h -- loaded bytes into the caller's tensors, in host memory or on a device.  What is read
 * into a buffer is checked there first, and copied to the device by one thread while others read.
 */
#ifndef LOAD_TARGET_H
#define LOAD_TARGET_H

#include "model/model.h"
#include "snapshot/snapshot.h"

/* Find out where the tensors of ${state} are, and let our streams begin after what was submitted to
 * ${streams} (none: the default ones).  *away: some are on devices. */
enum sidestep_status target_prepare(struct devices *devices, struct sidestep_state_dict *state,
                                    const struct sidestep_stream *streams, size_t stream_count,
                                    bool *away, struct sidestep_error *err);
/* Of the chunk ${stored}, bytes [begin, begin + length), which are in ${bytes}: what belongs to
 * ${target}, into it.  Done when it returns.  Any thread. */
enum sidestep_status target_write_bytes(struct devices *devices, const struct box *stored,
                                        uint64_t begin, uint64_t length, uint8_t *bytes,
                                        const struct state_entry *target,
                                        struct sidestep_error *err);
/* The same for what lies in memory with strides. */
enum sidestep_status target_write_box(struct devices *devices, const struct box_memory *from,
                                      const struct state_entry *target, struct sidestep_error *err);

#endif
