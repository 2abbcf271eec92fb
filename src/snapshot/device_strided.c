/* SPDX-License-Identifier: BSD-3-Clause */
/* device_strided.c -- turns parts of a strided tensor into device copies; see device_strided.h. */
#include "snapshot/device_strided.h"

#include "base/base.h"

/* The context of visit_rows(). */
struct copy_adder {
    struct device_batch *batch;
    uint8_t *host;
    enum sidestep_status status;
    struct sidestep_error *err;
};

static void add_copy(struct copy_adder *adder, const struct device_copy *copy)
{
    if (adder->status == SIDESTEP_OK)
        adder->status = device_batch_add(adder->batch, copy, adder->err);
}

/* Add contiguous bytes, split where pinned host memory consists of several registrations. */
static void add_bytes(struct copy_adder *adder, uint8_t *host, uint64_t address, uint64_t bytes)
{
    while (bytes != 0) {
        struct device_copy copy = {
            .host = host,
            .address = address,
            .bytes = min_u64(bytes, devices_max_copy_bytes(adder->batch->devices, host)),
            .rows = 1,
            .to_device = adder->batch->to_device};
        add_copy(adder, &copy);
        host += copy.bytes;
        address += copy.bytes;
        bytes -= copy.bytes;
    }
}

/* Add rows as one copy, if the driver supports it. */
static bool add_rows(struct copy_adder *adder, const struct box_rows *rows)
{
    uint8_t *host = adder->host + rows->at;
    int64_t bytes = (int64_t)rows->bytes;

    if (rows->count == 1 || rows->at_step < bytes || rows->memory_step < bytes ||
        rows->at_step > DEVICE_MAX_PITCH || rows->memory_step > DEVICE_MAX_PITCH ||
        (rows->count - 1) * (uint64_t)rows->at_step + rows->bytes >
            devices_max_copy_bytes(adder->batch->devices, host))
        return false;
    struct device_copy copy = {.host = host,
                               .address = (uint64_t)(uintptr_t)rows->memory,
                               .bytes = rows->bytes,
                               .rows = rows->count,
                               .host_pitch = (uint64_t)rows->at_step,
                               .device_pitch = (uint64_t)rows->memory_step,
                               .to_device = adder->batch->to_device};
    add_copy(adder, &copy);
    return true;
}

static void visit_rows(void *context, const struct box_rows *rows)
{
    struct copy_adder *adder = context;

    if (add_rows(adder, rows))
        return;
    for (uint64_t i = 0; i < rows->count; i++)
        add_bytes(adder, adder->host + rows->at + (int64_t)i * rows->at_step,
                  (uint64_t)(uintptr_t)rows->memory + (uint64_t)((int64_t)i * rows->memory_step),
                  rows->bytes);
}

enum sidestep_status device_strided_add(struct device_batch *batch, const struct box *stored,
                                        uint64_t begin, uint64_t bytes,
                                        const struct box_memory *memory, uint8_t *host,
                                        struct sidestep_error *err)
{
    struct copy_adder adder = {.batch = batch, .host = host, .err = err};

    (void)box_visit_rows(stored, begin, bytes, memory, visit_rows, &adder);
    return adder.status;
}
