/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_strided.h -- copies parts of a tensor between host memory, which has the order of the
 * file, and a device, where the tensor has strides, with as few copies as the strides allow.
 */
#ifndef SNAPSHOT_DEVICE_STRIDED_H
#define SNAPSHOT_DEVICE_STRIDED_H

#include "model/model.h"
#include "snapshot/device_batch.h"

/* Add the copies of bytes [begin, begin + bytes) of chunk ${stored} between ${host}, where they
 * begin at host[0], and ${memory} on the device of the batch. */
enum sidestep_status device_strided_add(struct device_batch *batch, const struct box *stored,
                                        uint64_t begin, uint64_t bytes,
                                        const struct box_memory *memory, uint8_t *host,
                                        struct sidestep_error *err);

#endif
