/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_batch.h -- many copies between host memory and one device, with few calls of its driver:
 * a state has thousands of small tensors, and a call takes microseconds.
 *
 * What is added is submitted when the batch is full, and by device_batch_submit(), in any order.
 * Copies of the same size at even distances in both memories become one copy of rows.  What a
 * driver refuses as a whole is tried one by one, which is correct, and says which one it is.
 */
#ifndef SNAPSHOT_DEVICE_BATCH_H
#define SNAPSHOT_DEVICE_BATCH_H

#include "snapshot/devices.h"

struct device_batch {
    struct devices *devices;
    int32_t device; /* entered while there is anything in the batch */
    bool to_device;
    size_t tag;    /* what is added from now on belongs to, for the caller: ... */
    size_t failed; /* ... that of the copy that was refused */
    size_t count;
    struct device_copy copies[DEVICE_MAX_COPIES];
    size_t tags[DEVICE_MAX_COPIES];
    struct device_copy joined[DEVICE_MAX_COPIES]; /* the same as rows */
};

/* By our stream to or from ${device}. */
void device_batch_begin(struct device_batch *batch, struct devices *devices, int32_t device,
                        bool to_device);
enum sidestep_status device_batch_add(struct device_batch *batch, const struct device_copy *copy,
                                      struct sidestep_error *err);
/* All that was added. */
enum sidestep_status device_batch_submit(struct device_batch *batch, struct sidestep_error *err);

#endif
