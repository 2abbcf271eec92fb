/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * target.h -- writes loaded bytes to the caller's tensors, in host memory or on a device.
 *
 * Bytes for a device are checked in a buffer first.  It is copied to the device while threads read
 * to other buffers.
 */
#ifndef LOAD_TARGET_H
#define LOAD_TARGET_H

#include "model/model.h"
#include "snapshot/snapshot.h"

/* Find out which tensors of ${state} are on devices, and make sidestep's streams wait for the
 * current work of ${streams} (none given: the default streams).  ${*any_on_device}: a tensor is on
 * a device. */
enum sidestep_status target_prepare(struct devices *devices, struct sidestep_state_dict *state,
                                    const struct sidestep_stream *streams, size_t stream_count,
                                    bool *any_on_device, struct sidestep_error *err);
/* Write those of bytes [begin, begin + length) of chunk ${stored}, which are in ${bytes}, that lie
 * in ${target}.  Any thread.  It returns before copies to a device are done, also if it fails.
 * ${*copying}: the device whose copies may still read ${bytes}, or -1; there is never more than
 * one. */
enum sidestep_status target_submit_bytes(struct devices *devices, const struct box *stored,
                                         uint64_t begin, uint64_t length, uint8_t *bytes,
                                         const struct state_entry *target, int32_t *copying,
                                         struct sidestep_error *err);
/* The same, and wait until the copy is done. */
enum sidestep_status target_write_bytes(struct devices *devices, const struct box *stored,
                                        uint64_t begin, uint64_t length, uint8_t *bytes,
                                        const struct state_entry *target,
                                        struct sidestep_error *err);
/* The same for a chunk that is in memory with strides. */
enum sidestep_status target_write_box(struct devices *devices, const struct box_memory *from,
                                      const struct state_entry *target, struct sidestep_error *err);

#endif
