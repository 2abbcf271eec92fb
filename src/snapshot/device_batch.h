/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_batch.h -- submits many copies between host memory and one device with few driver calls.
 *
 * A state has thousands of small tensors, and a call takes microseconds.  Copies are submitted when
 * the batch is full, and by device_batch_submit(), in any order.  Copies of the same size at
 * regular distances in both memories are merged into one copy of rows.  If a driver refuses the
 * merged copies, they are submitted one by one, which also shows which one fails.
 */
#ifndef SNAPSHOT_DEVICE_BATCH_H
#define SNAPSHOT_DEVICE_BATCH_H

#include "snapshot/devices.h"

struct device_batch {
    struct devices *devices;
    int32_t device; /* must be entered while the batch has copies */
    bool to_device;
    size_t tag;    /* the caller's tag for the copies added next */
    size_t failed; /* tag of the copy that was refused */
    size_t count;
    struct device_copy copies[DEVICE_MAX_COPIES];
    size_t tags[DEVICE_MAX_COPIES];
    struct device_copy merged[DEVICE_MAX_COPIES]; /* the copies after merging */
};

/* Begin a batch of copies to or from ${device}, on sidestep's stream for that direction. */
void device_batch_begin(struct device_batch *batch, struct devices *devices, int32_t device,
                        bool to_device);
enum sidestep_status device_batch_add(struct device_batch *batch, const struct device_copy *copy,
                                      struct sidestep_error *err);
/* Submit all copies of the batch. */
enum sidestep_status device_batch_submit(struct device_batch *batch, struct sidestep_error *err);

#endif
