/* SPDX-License-Identifier: BSD-3-Clause */
/* target.c -- writes loaded bytes to tensors in host memory and on devices; see target.h. */
#include "load/target.h"

#include "base/base.h"
#include "snapshot/snapshot.h"

/* ---- preparation */

static enum sidestep_status locate_entry(struct devices *devices, struct state_entry *entry,
                                         struct sidestep_error *err)
{
    uint64_t begin, bytes;
    int32_t device = -1;

    entry->on_device = 0;
    if (entry->is_object || entry->reader != NULL || box_volume(&entry->box) == 0)
        return SIDESTEP_OK;
    state_entry_extent(entry, &begin, &bytes);
    enum sidestep_status status = devices_locate(devices, begin, bytes, &device, err);
    if (status == SIDESTEP_OK && device >= 0)
        status = devices_open(devices, device, err);
    if (status != SIDESTEP_OK)
        error_wrap(err, "tensor '%s'", entry->name);
    else
        entry->on_device = (uint32_t)(device + 1);
    return status;
}

/* Make sidestep's stream to ${device} wait for the current work of ${stream}, on any device. */
static enum sidestep_status make_stream_wait(struct devices *devices, int32_t device,
                                             const struct sidestep_stream *stream,
                                             struct sidestep_error *err)
{
    struct device_driver *driver = devices->driver;
    bool capturing = false;
    void *event = NULL;
    int before;

    TRY(devices_is_capturing(devices, stream->device, stream->stream, &capturing, err));
    if (capturing)
        return FAIL(err, SIDESTEP_EINVAL,
                    "a graph is being captured on a stream of device %d that the load would wait "
                    "for; nothing was loaded: load before or after the capture",
                    stream->device);
    TRY(devices_enter(devices, stream->device, &before, err));
    enum sidestep_status status = driver->ops->event_new(driver, &event, err);
    if (status == SIDESTEP_OK)
        status = devices_record(devices, stream->device, event, stream->stream, err);
    if (status == SIDESTEP_OK)
        status = driver->ops->stream_wait(driver, devices->devices[device].in, event, err);
    if (event != NULL)
        driver->ops->event_free(driver, event);
    devices_leave(devices, before);
    return status;
}

static enum sidestep_status make_stream_wait_all(struct devices *devices, int32_t device,
                                                 const struct sidestep_stream *streams,
                                                 size_t count, struct sidestep_error *err)
{
    struct sidestep_stream default_stream = {.device = device, .stream = device_default_stream};

    for (size_t i = 0; i < count; i++)
        if (streams[i].device >= 0 && streams[i].device < DEVICE_MAX &&
            devices->devices[streams[i].device].context != NULL)
            TRY(make_stream_wait(devices, device, &streams[i], err));
    return count == 0 ? make_stream_wait(devices, device, &default_stream, err) : SIDESTEP_OK;
}

enum sidestep_status target_prepare(struct devices *devices, struct sidestep_state_dict *state,
                                    const struct sidestep_stream *streams, size_t stream_count,
                                    bool *any_on_device, struct sidestep_error *err)
{
    bool used[DEVICE_MAX] = {false};

    *any_on_device = false;
    (void)devices_detect_driver(devices);
    for (size_t i = 0; i < state->count; i++) {
        TRY(locate_entry(devices, &state->entries[i], err));
        if (state->entries[i].on_device != 0)
            used[state->entries[i].on_device - 1] = *any_on_device = true;
    }
    for (int32_t device = 0; device < DEVICE_MAX; device++)
        if (used[device])
            TRY(make_stream_wait_all(devices, device, streams, stream_count, err));
    return SIDESTEP_OK;
}

/* ---- writing */

static enum sidestep_status submit_to_device(struct devices *devices, const struct box *stored,
                                             uint64_t begin, uint64_t length, uint8_t *bytes,
                                             const struct state_entry *target,
                                             struct sidestep_error *err)
{
    int32_t device = (int32_t)target->on_device - 1;
    struct box_memory memory = state_entry_memory(target);
    struct device_batch batch;
    int before;

    device_batch_begin(&batch, devices, device, true);
    TRY(devices_enter(devices, device, &before, err));
    enum sidestep_status status =
        device_strided_add(&batch, stored, begin, length, &memory, bytes, err);
    if (status == SIDESTEP_OK)
        status = device_batch_submit(&batch, err);
    devices_leave(devices, before);
    return status;
}

/* Wait for copies that may still read a buffer. */
static enum sidestep_status wait_for_copies(struct devices *devices, int32_t *copying,
                                            struct sidestep_error *err)
{
    int32_t device = *copying;

    *copying = -1;
    return device < 0 ? SIDESTEP_OK : devices_wait_copies(devices, device, NULL, err);
}

enum sidestep_status target_submit_bytes(struct devices *devices, const struct box *stored,
                                         uint64_t begin, uint64_t length, uint8_t *bytes,
                                         const struct state_entry *target, int32_t *copying,
                                         struct sidestep_error *err)
{
    struct box_memory memory = state_entry_memory(target);
    int32_t device = (int32_t)target->on_device - 1;

    if (device < 0) {
        (void)box_transfer(stored, begin, length, bytes, &memory, BOX_SCATTER);
        return SIDESTEP_OK;
    }
    if (*copying != device)
        TRY(wait_for_copies(devices, copying, err));
    *copying = device;
    return WRAP(submit_to_device(devices, stored, begin, length, bytes, target, err), err,
                "copy tensor '%s' to device %d", target->name, device);
}

enum sidestep_status target_write_bytes(struct devices *devices, const struct box *stored,
                                        uint64_t begin, uint64_t length, uint8_t *bytes,
                                        const struct state_entry *target,
                                        struct sidestep_error *err)
{
    int32_t copying = -1;
    enum sidestep_status status =
        target_submit_bytes(devices, stored, begin, length, bytes, target, &copying, err);
    /* Wait after a failure, too: submitted copies still read the buffer. */
    enum sidestep_status waited =
        wait_for_copies(devices, &copying, status == SIDESTEP_OK ? err : NULL);

    if (status != SIDESTEP_OK)
        return status;
    return WRAP(waited, err, "copy tensor '%s' to device %d", target->name,
                (int)target->on_device - 1);
}

enum sidestep_status target_write_box(struct devices *devices, const struct box_memory *from,
                                      const struct state_entry *target, struct sidestep_error *err)
{
    struct box_memory to = state_entry_memory(target);

    if (target->on_device == 0) {
        box_copy(from, &to);
        return SIDESTEP_OK;
    }
    uint64_t bytes = box_volume(&from->box) * from->item_bytes;
    OWNED uint8_t *rows = memory_new(bytes, 1);
    if (rows == NULL)
        return FAIL_NOMEM(err, bytes);
    (void)box_transfer(&from->box, 0, bytes, rows, from, BOX_GATHER);
    return target_write_bytes(devices, &from->box, 0, bytes, rows, target, err);
}
