/* SPDX-License-Identifier: BSD-3-Clause */
/* device_rows.c -- see device_rows.h. */
#include "snapshot/device_rows.h"

#include "base/checked.h"
#include "base/fault.h"

/* CU_DEVICE_ATTRIBUTE_MAX_PITCH of all devices so far. */
#define MAX_PITCH ((int64_t)INT32_MAX)

struct submitting {
    struct devices *devices;
    void *stream;
    uint8_t *host;
    bool to_device;
    enum sidestep_status status;
    struct sidestep_error *err;
};

static void submit(struct submitting *s, const struct device_copy *copy)
{
    struct device_driver *driver = s->devices->driver;

    if (s->status == SIDESTEP_OK)
        s->status = fault_hit("device.copy") ? FAIL(s->err, SIDESTEP_EDEVICE, "a fault point")
                                             : driver->ops->copy(driver, copy, s->stream, s->err);
}

/* One stretch, in as many parts as the host memory has pieces. */
static void submit_stretch(struct submitting *s, uint8_t *host, uint64_t address, uint64_t bytes)
{
    while (bytes != 0) {
        struct device_copy copy = {.host = host,
                                   .address = address,
                                   .bytes = min_u64(bytes, devices_reach(s->devices, host)),
                                   .rows = 1,
                                   .to_device = s->to_device};
        submit(s, &copy);
        host += copy.bytes;
        address += copy.bytes;
        bytes -= copy.bytes;
    }
}

/* As one copy, if the driver can do it so. */
static bool submit_rows(struct submitting *s, const struct box_rows *rows)
{
    uint8_t *host = s->host + rows->at;
    int64_t bytes = (int64_t)rows->bytes;

    if (rows->count == 1 || rows->at_step < bytes || rows->memory_step < bytes ||
        rows->at_step > MAX_PITCH || rows->memory_step > MAX_PITCH ||
        (rows->count - 1) * (uint64_t)rows->at_step + rows->bytes > devices_reach(s->devices, host))
        return false;
    struct device_copy copy = {.host = host,
                               .address = (uint64_t)(uintptr_t)rows->memory,
                               .bytes = rows->bytes,
                               .rows = rows->count,
                               .host_pitch = (uint64_t)rows->at_step,
                               .device_pitch = (uint64_t)rows->memory_step,
                               .to_device = s->to_device};
    submit(s, &copy);
    return true;
}

static void take_rows(void *context, const struct box_rows *rows)
{
    struct submitting *s = context;

    if (submit_rows(s, rows))
        return;
    for (uint64_t i = 0; i < rows->count; i++)
        submit_stretch(s, s->host + rows->at + (int64_t)i * rows->at_step,
                       (uint64_t)(uintptr_t)rows->memory +
                           (uint64_t)((int64_t)i * rows->memory_step),
                       rows->bytes);
}

enum sidestep_status device_rows_copy(struct devices *devices, int32_t device,
                                      const struct box *stored, uint64_t begin, uint64_t bytes,
                                      const struct box_memory *memory, uint8_t *host,
                                      bool to_device, struct sidestep_error *err)
{
    const struct device *ours = &devices->devices[device];
    struct submitting s = {.devices = devices,
                           .stream = to_device ? ours->in : ours->out,
                           .host = host,
                           .to_device = to_device,
                           .err = err};

    (void)box_visit(stored, begin, bytes, memory, take_rows, &s);
    return s.status;
}
