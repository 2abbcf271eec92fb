/* SPDX-License-Identifier: BSD-3-Clause */
/* devices.c -- opens devices, locates memory and pins the pool; see devices.h. */
#include "snapshot/devices.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base.h"

#define KNOWN_PAGE 4096u /* no page of a processor is smaller */

bool devices_detect_driver(struct devices *devices)
{
    memset(devices->known, 0, sizeof(devices->known));
    if (devices->driver != NULL || devices->refused.status == SIDESTEP_EUNSUPPORTED)
        return devices->driver != NULL;
    devices->refused = (struct sidestep_error){0};
    if (fault_hit("cuda.look"))
        return false;
    (void)device_cuda_open(&devices->driver, &devices->refused);
    return devices->driver != NULL;
}

/* Free sidestep's streams and events of a device, which is entered. */
static void free_handles(struct devices *devices, struct device *device)
{
    const struct device_ops *ops = devices->driver->ops;

    for (size_t k = 0; k < device->event_count; k++)
        ops->event_free(devices->driver, device->events[k]);
    if (device->out != NULL)
        ops->stream_free(devices->driver, device->out);
    if (device->in != NULL)
        ops->stream_free(devices->driver, device->in);
}

static void close_device(struct devices *devices, int32_t i)
{
    struct device *device = &devices->devices[i];
    int before;

    if (device->context == NULL)
        return;
    /* If the driver has shut down already, all of this fails, and is not needed. */
    if (devices_enter(devices, i, &before, NULL) == SIDESTEP_OK) {
        free_handles(devices, device);
        devices_leave(devices, before);
    }
    free(device->events);
    devices->driver->ops->release(devices->driver, i);
    *device = (struct device){0};
}

void devices_close(struct devices *devices)
{
    if (devices->driver == NULL)
        return;
    devices_unpin_pool(devices);
    for (int32_t i = 0; i < DEVICE_MAX; i++)
        close_device(devices, i);
    devices->driver->ops->close(devices->driver);
    *devices = (struct devices){0};
}

/* ---- memory */

/* Check that all ${bytes} are allocated on one device.  ${range} is the first allocation. */
static enum sidestep_status check_extent(struct devices *devices, uint64_t address, uint64_t bytes,
                                         struct device_allocation range, struct sidestep_error *err)
{
    const struct device_ops *ops = devices->driver->ops;
    int32_t device = range.device;

    assert(device >= 0 && bytes != 0);
    for (uint64_t at = address; range.device == device && range.end - address < bytes;) {
        if (range.end <= at)
            break;
        at = range.end;
        TRY(ops->find(devices->driver, at, &range, err));
    }
    /* Address ranges may be reserved without memory. */
    if (range.device == device && range.end - address >= bytes)
        TRY(ops->find(devices->driver, address + bytes - 1, &range, err));
    if (range.device != device || range.end - address < bytes)
        return FAIL(err, SIDESTEP_EINVAL,
                    "its %llu bytes reach beyond the memory of device %d that is allocated there: "
                    "was it freed, or resized?",
                    (unsigned long long)bytes, device);
    return SIDESTEP_OK;
}

/* Can the CPU read this address?  Device memory has addresses that it cannot. */
static bool is_readable(uint64_t address)
{
    char byte;
    struct iovec local = {&byte, 1};
    struct iovec remote = {(void *)(uintptr_t)address, 1}; /* NOLINT(performance-no-int-to-ptr) */

    return seccomp_survives(SECCOMP_process_vm_readv) &&
           process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

/* Decide without the driver, which cannot be called: what the CPU can read is host memory. */
static enum sidestep_status locate_by_reading(uint64_t address, const struct sidestep_error *why,
                                              struct sidestep_error *err)
{
    if (is_readable(address))
        return SIDESTEP_OK;
    error_copy(err, why);
    error_wrap(err, "its memory is not host memory, and the driver cannot be called");
    return (enum sidestep_status)why->status;
}

/* Check an address that the driver does not know.  It is host memory, or freed device memory, for
 * which a copy would crash the program.  Some sandboxes do not allow the check. */
static enum sidestep_status check_host(uint64_t address, struct sidestep_error *err)
{
    if (!is_readable(address) && errno == EFAULT)
        return FAIL(err, SIDESTEP_EINVAL,
                    "its memory is neither the host's nor a device's: was it freed, or the memory "
                    "of another process closed?");
    return SIDESTEP_OK;
}

/* Allocators give memory to devices in parts of some MiB, and to the host in pages. */
static struct device_allocation *known_place(struct devices *devices, uint64_t address,
                                             bool on_device)
{
    return &devices->known[(address >> (on_device ? 21 : 12)) % DEVICES_KNOWN];
}

static bool contains(const struct device_allocation *range, uint64_t address, uint64_t bytes)
{
    return range->begin <= address && address < range->end && bytes <= range->end - address;
}

/* Was this memory found in this call?  Memory of the host: as far as its first page goes, which is
 * all that is ever asked of it. */
static bool is_known(struct devices *devices, uint64_t address, uint64_t bytes, int32_t *device)
{
    const struct device_allocation *range = known_place(devices, address, true);

    if (range->device < 0 || !contains(range, address, bytes))
        range = known_place(devices, address, false);
    if (!contains(range, address, range->device >= 0 ? bytes : 1))
        return false;
    *device = range->device;
    return true;
}

static void remember_host(struct devices *devices, uint64_t address)
{
    uint64_t page = address & ~(uint64_t)(KNOWN_PAGE - 1);

    *known_place(devices, address, false) =
        (struct device_allocation){.device = -1, .begin = page, .end = page + KNOWN_PAGE};
}

enum sidestep_status devices_locate(struct devices *devices, uint64_t address, uint64_t bytes,
                                    int32_t *device, struct sidestep_error *err)
{
    struct device_allocation range;

    *device = -1;
    if (bytes == 0 || is_known(devices, address, bytes, device))
        return SIDESTEP_OK;
    if (devices->driver == NULL)
        return devices->refused.status == SIDESTEP_OK
                   ? SIDESTEP_OK
                   : locate_by_reading(address, &devices->refused, err);
    struct sidestep_error why = {0};
    if (devices->driver->ops->find(devices->driver, address, &range, &why) != SIDESTEP_OK)
        return locate_by_reading(address, &why, err);
    if (range.device < 0) {
        TRY(check_host(address, err));
        remember_host(devices, address);
        return SIDESTEP_OK;
    }
    if (range.device >= DEVICE_MAX)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "device %d is beyond the limit of %d", range.device,
                    DEVICE_MAX);
    if (!range.is_whole || !contains(&range, address, bytes))
        TRY(check_extent(devices, address, bytes, range, err));
    if (range.is_whole)
        *known_place(devices, address, true) = range;
    *device = range.device;
    return SIDESTEP_OK;
}

int devices_numa_node(struct devices *devices)
{
    int node = -1;

    for (int32_t i = 0; i < DEVICE_MAX; i++) {
        if (devices->devices[i].context == NULL)
            continue;
        int nearest = devices->driver->ops->numa_node(devices->driver, i);
        if (nearest < 0 || (node >= 0 && nearest != node))
            return -1;
        node = nearest;
    }
    return node;
}

static void unpin_pieces(struct devices *devices, uint8_t *memory, uint64_t bytes)
{
    assert(devices->driver != NULL);
    for (uint64_t at = 0; at < bytes; at += DEVICES_MAX_PIN_BYTES)
        devices->driver->ops->unpin(devices->driver, memory + at);
}

/* Enter the context of any open device: memory is pinned for all of them. */
static enum sidestep_status enter_any(struct devices *devices, int *before,
                                      struct sidestep_error *err)
{
    for (int32_t i = 0; i < DEVICE_MAX; i++)
        if (devices->devices[i].context != NULL)
            return devices_enter(devices, i, before, err);
    return FAIL(err, SIDESTEP_EDEVICE, "no device is open");
}

/* Unpin memory.  If the context is gone, this does nothing, and the memory is no longer pinned. */
static void unpin_all(struct devices *devices, uint8_t *memory, uint64_t bytes)
{
    int before;
    bool entered = enter_any(devices, &before, NULL) == SIDESTEP_OK;

    unpin_pieces(devices, memory, bytes);
    if (entered)
        devices_leave(devices, before);
}

void devices_unpin_pool(struct devices *devices)
{
    if (devices->pinned == NULL)
        return;
    unpin_all(devices, devices->pinned, devices->pinned_bytes);
    devices->pinned = NULL;
    devices->pinned_bytes = 0;
}

static enum sidestep_status pin(struct devices *devices, const struct pool *pool,
                                struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;
    uint64_t done = 0;
    int before;

    TRY(enter_any(devices, &before, err));
    while (status == SIDESTEP_OK && done < pool->length) {
        uint64_t piece = min_u64(DEVICES_MAX_PIN_BYTES, pool->length - done);
        status = fault_hit("device.pin")
                     ? FAIL(err, SIDESTEP_ENOMEM, "a fault point")
                     : devices->driver->ops->pin(devices->driver, pool->bytes + done, piece, err);
        if (status == SIDESTEP_OK)
            done += piece;
    }
    if (status != SIDESTEP_OK)
        unpin_pieces(devices, pool->bytes, done);
    devices_leave(devices, before);
    return status;
}

bool devices_pin_pool(struct devices *devices, const struct pool *pool)
{
    struct sidestep_error why = {0};

    assert(pool->bytes != NULL);
    if (devices->pinned == pool->bytes && devices->pinned_bytes == pool->length)
        return true;
    if (devices->unpinnable == pool->bytes && devices->unpinnable_bytes == pool->length)
        return false;
    devices_unpin_pool(devices);
    if (pin(devices, pool, &why) == SIDESTEP_OK) {
        devices->pinned = pool->bytes;
        devices->pinned_bytes = pool->length;
        return true;
    }
    devices->unpinnable = pool->bytes;
    devices->unpinnable_bytes = pool->length;
    devices->pin_refused = why;
    return false;
}

bool devices_pin_buffer(struct devices *devices, const struct pool *buffer)
{
    return buffer->length <= DEVICES_MAX_PIN_BYTES && pin(devices, buffer, NULL) == SIDESTEP_OK;
}

void devices_unpin_buffer(struct devices *devices, const struct pool *buffer)
{
    unpin_all(devices, buffer->bytes, buffer->length);
}

uint64_t devices_max_copy_bytes(const struct devices *devices, const uint8_t *memory)
{
    if (devices->pinned == NULL || memory < devices->pinned ||
        memory >= devices->pinned + devices->pinned_bytes)
        return UINT64_MAX;
    return DEVICES_MAX_PIN_BYTES - (uint64_t)(memory - devices->pinned) % DEVICES_MAX_PIN_BYTES;
}

/* ---- contexts */

enum sidestep_status devices_enter(struct devices *devices, int32_t device, int *before,
                                   struct sidestep_error *err)
{
    assert(0 <= device && device < DEVICE_MAX && devices->devices[device].context != NULL);
    return devices->driver->ops->enter(devices->driver, devices->devices[device].context, before,
                                       err);
}

void devices_leave(struct devices *devices, int before)
{
    devices->driver->ops->leave(devices->driver, before);
}

enum sidestep_status devices_is_capturing(struct devices *devices, int32_t device, void *stream,
                                          bool *capturing, struct sidestep_error *err)
{
    int before;

    TRY(devices_enter(devices, device, &before, err));
    enum sidestep_status status =
        devices->driver->ops->stream_is_capturing(devices->driver, stream, capturing, err);
    devices_leave(devices, before);
    return status;
}

/* Streams of green contexts, and of contexts that the program made, refuse sidestep's events.  So
 * wait for the stream, and record the event in sidestep's stream for loads, which is idle. */
static enum sidestep_status record_foreign(struct devices *devices, int32_t device, void *event,
                                           void *stream)
{
    struct device_driver *driver = devices->driver;

    TRY(driver->ops->stream_synchronize(driver, stream, NULL));
    return driver->ops->event_record(driver, event, devices->devices[device].in, NULL);
}

enum sidestep_status devices_record(struct devices *devices, int32_t device, void *event,
                                    void *stream, struct sidestep_error *err)
{
    struct device_driver *driver = devices->driver;
    struct sidestep_error why = {0};
    int before;

    TRY(devices_enter(devices, device, &before, err));
    enum sidestep_status status = driver->ops->event_record(driver, event, stream, &why);
    if (status == SIDESTEP_EINVAL && record_foreign(devices, device, event, stream) == SIDESTEP_OK)
        status = SIDESTEP_OK;
    devices_leave(devices, before);
    if (status != SIDESTEP_OK)
        error_copy(err, &why);
    return status;
}

static enum sidestep_status synchronize(struct devices *devices, int32_t device, void *stream,
                                        struct sidestep_error *err)
{
    int before;

    TRY(devices_enter(devices, device, &before, err));
    enum sidestep_status status =
        devices->driver->ops->stream_synchronize(devices->driver, stream, err);
    devices_leave(devices, before);
    return status;
}

/* Waits twice if the first wait fails, because the caller then frees memory that a copy may still
 * access.  If the device is lost, both waits fail, and nothing is copied any more. */
enum sidestep_status devices_synchronize(struct devices *devices, int32_t device, void *stream,
                                         struct sidestep_error *err)
{
    enum sidestep_status status = synchronize(devices, device, stream, err);

    if (status != SIDESTEP_OK)
        (void)synchronize(devices, device, stream, NULL);
    return status;
}

void devices_mark_copies(struct devices *devices, int32_t device, void **event)
{
    struct device_driver *driver = devices->driver;
    int before;
    enum sidestep_status status = devices_enter(devices, device, &before, NULL);

    if (status == SIDESTEP_OK) {
        if (*event == NULL)
            status = driver->ops->event_new(driver, event, NULL);
        if (status == SIDESTEP_OK)
            status = driver->ops->event_record(driver, *event, devices->devices[device].in, NULL);
        devices_leave(devices, before);
    }
    if (status != SIDESTEP_OK)
        devices_free_event(devices, device, event);
}

enum sidestep_status devices_wait_copies(struct devices *devices, int32_t device, void *event,
                                         struct sidestep_error *err)
{
    struct device_driver *driver = devices->driver;
    enum sidestep_status status = SIDESTEP_EDEVICE;
    int before;

    if (event != NULL && devices_enter(devices, device, &before, NULL) == SIDESTEP_OK) {
        status = driver->ops->event_synchronize(driver, event, NULL);
        devices_leave(devices, before);
    }
    if (status == SIDESTEP_OK)
        return SIDESTEP_OK;
    return devices_synchronize(devices, device, devices->devices[device].in, err);
}

void devices_free_event(struct devices *devices, int32_t device, void **event)
{
    int before;

    if (*event == NULL)
        return;
    bool entered = devices_enter(devices, device, &before, NULL) == SIDESTEP_OK;
    devices->driver->ops->event_free(devices->driver, *event);
    if (entered)
        devices_leave(devices, before);
    *event = NULL;
}

enum sidestep_status devices_open(struct devices *devices, int32_t i, struct sidestep_error *err)
{
    assert(0 <= i && i < DEVICE_MAX && devices->driver != NULL);
    struct device *device = &devices->devices[i];
    const struct device_ops *ops = devices->driver->ops;
    int before;

    if (device->context != NULL)
        return SIDESTEP_OK;
    TRY(ops->retain(devices->driver, i, &device->context, err));
    enum sidestep_status status = devices_enter(devices, i, &before, err);
    if (status == SIDESTEP_OK) {
        status = ops->stream_new(devices->driver, &device->out, err);
        if (status == SIDESTEP_OK)
            status = ops->stream_new(devices->driver, &device->in, err);
        if (status != SIDESTEP_OK)
            free_handles(devices, device);
        devices_leave(devices, before);
    }
    if (status != SIDESTEP_OK) {
        ops->release(devices->driver, i);
        *device = (struct device){0};
    }
    return status;
}

enum sidestep_status devices_reserve_events(struct devices *devices, int32_t i, size_t count,
                                            struct sidestep_error *err)
{
    struct device *device = &devices->devices[i];

    assert(device->context != NULL); /* it is open */
    if (count <= device->event_count)
        return SIDESTEP_OK;
    void **events = memory_resize(device->events, count, sizeof(*events));
    if (events == NULL)
        return FAIL_NOMEM(err, count * sizeof(*events));
    device->events = events;
    while (device->event_count < count) {
        TRY(devices->driver->ops->event_new(devices->driver, &events[device->event_count], err));
        device->event_count++;
    }
    return SIDESTEP_OK;
}
