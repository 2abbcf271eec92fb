/* SPDX-License-Identifier: BSD-3-Clause */
/* device_batch.c -- collects copies and merges them into rows; see device_batch.h. */
#include "snapshot/device_batch.h"

#include <assert.h>

#include "base/base.h"

/* Fewer copies are not merged: the call that checks their allocation would take longer. */
#define MERGE_MIN 4u

void device_batch_begin(struct device_batch *batch, struct devices *devices, int32_t device,
                        bool to_device)
{
    assert(devices->devices[device].context != NULL); /* it is open */
    batch->devices = devices;
    batch->device = device;
    batch->to_device = to_device;
    batch->tag = batch->failed = batch->count = 0;
}

enum sidestep_status device_batch_add(struct device_batch *batch, const struct device_copy *copy,
                                      struct sidestep_error *err)
{
    assert(copy->rows != 0 && copy->to_device == batch->to_device);
    if (batch->count == DEVICE_MAX_COPIES)
        TRY(device_batch_submit(batch, err));
    batch->failed = batch->tag;
    if (fault_hit("device.copy"))
        return FAIL(err, SIDESTEP_EDEVICE, "a fault point");
    batch->tags[batch->count] = batch->tag;
    batch->copies[batch->count] = *copy;
    batch->copies[batch->count].pinned =
        devices_max_copy_bytes(batch->devices, copy->host) != UINT64_MAX;
    batch->count++;
    return SIDESTEP_OK;
}

/* The pitch of two rows at ${a} and ${b}; 0: they cannot be rows of one copy. */
static uint64_t pitch_between(uint64_t a, uint64_t b, uint64_t bytes)
{
    return b >= a && b - a >= bytes && b - a <= DEVICE_MAX_PITCH ? b - a : 0;
}

/* The number of copies from ${first} on that could be rows of one copy. */
static size_t count_rows(const struct device_batch *batch, size_t first, struct device_copy *rows)
{
    const struct device_copy *copies = batch->copies;
    size_t i = first;

    assert(first < batch->count);
    *rows = copies[first];
    for (; i + 1 < batch->count && copies[i].rows == 1; i++) {
        const struct device_copy *a = &copies[i], *b = &copies[i + 1];
        uint64_t host = pitch_between((uintptr_t)a->host, (uintptr_t)b->host, a->bytes);
        uint64_t device = pitch_between(a->address, b->address, a->bytes);
        if (b->rows != 1 || b->bytes != a->bytes || host == 0 || device == 0 ||
            (i != first && (host != rows->host_pitch || device != rows->device_pitch)))
            break;
        rows->host_pitch = host;
        rows->device_pitch = device;
    }
    rows->rows = copies[first].rows == 1 ? i + 1 - first : copies[first].rows;
    return i + 1 - first;
}

/* A driver cannot copy rows across the end of an allocation, or of memory that was pinned in one
 * call. */
static bool are_in_one_allocation(const struct device_batch *batch, const struct device_copy *rows)
{
    struct device_driver *driver = batch->devices->driver;
    struct device_allocation range;
    uint64_t host_bytes = (rows->rows - 1) * rows->host_pitch + rows->bytes;
    uint64_t device_bytes = (rows->rows - 1) * rows->device_pitch + rows->bytes;

    return host_bytes <= devices_max_copy_bytes(batch->devices, rows->host) &&
           driver->ops->find(driver, rows->address, &range, NULL) == SIDESTEP_OK &&
           range.device == batch->device && range.end - rows->address >= device_bytes;
}

/* Merge the copies into as few as possible.  Returns how many. */
static size_t merge_copies(struct device_batch *batch)
{
    size_t merged = 0;

    for (size_t i = 0; i < batch->count;) {
        struct device_copy rows;
        size_t count = count_rows(batch, i, &rows);
        if (count >= MERGE_MIN && are_in_one_allocation(batch, &rows)) {
            batch->merged[merged++] = rows;
            i += count;
        } else {
            batch->merged[merged++] = batch->copies[i++];
        }
    }
    assert(merged <= batch->count);
    return merged;
}

enum sidestep_status device_batch_submit(struct device_batch *batch, struct sidestep_error *err)
{
    struct device_driver *driver = batch->devices->driver;
    const struct device *device = &batch->devices->devices[batch->device];
    void *stream = batch->to_device ? device->in : device->out;
    size_t merged = merge_copies(batch), failed = 0;
    enum sidestep_status status = SIDESTEP_EINVAL;

    if (batch->count == 0)
        return SIDESTEP_OK;
    if (merged < batch->count)
        status = driver->ops->copy(driver, batch->merged, merged, stream, &failed, NULL);
    if (status != SIDESTEP_OK)
        status = driver->ops->copy(driver, batch->copies, batch->count, stream, &failed, err);
    if (status != SIDESTEP_OK)
        batch->failed = batch->tags[failed];
    batch->count = 0;
    return status;
}
