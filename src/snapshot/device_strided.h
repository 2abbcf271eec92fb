/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_strided.h -- parts of a tensor between host memory, where they lie as in the file, and a
 * device, where they lie as the tensor does: as few copies as its strides allow.
 */
#ifndef SNAPSHOT_DEVICE_STRIDED_H
#define SNAPSHOT_DEVICE_STRIDED_H

#include "model/model.h"
#include "snapshot/device_batch.h"

/* Add the copies of bytes [begin, begin + bytes) of the chunk ${stored}, of which host[0] is the
 * first, from or to ${memory} on the device of the batch. */
enum sidestep_status device_strided_add(struct device_batch *batch, const struct box *stored,
                                        uint64_t begin, uint64_t bytes,
                                        const struct box_memory *memory, uint8_t *host,
                                        struct sidestep_error *err);

#endif
