/* SPDX-License-Identifier: BSD-3-Clause */
/* offload.c -- finds tensors on devices, connects streams by events, and sets fences; see
 * offload.h. */
#include "snapshot/offload.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "snapshot/offload_internal.h"

/* If windows share the pool, each uses an event of its own.  There must be more events than threads
 * that wait for them. */
#define OFFLOAD_MIN_EVENTS 72u

/* The value of SIDESTEP_FENCE_DEBUG in ms; 0: not set. */
static unsigned read_fence_check_ms(void)
{
    const char *value = getenv("SIDESTEP_FENCE_DEBUG");
    unsigned long ms = value != NULL ? strtoul(value, NULL, 10) : 0;

    return (unsigned)min_u64(ms, UINT32_MAX);
}

void offload_init(struct offload *offload, struct devices *devices)
{
    offload->devices = devices;
    offload->fence_check_ms = read_fence_check_ms();
    lock_init(&offload->shared.lock, LOCK_OFFLOAD);
    lock_condition_init(&offload->shared.changed);
}

void offload_close(struct offload *offload)
{
    if (offload->devices == NULL)
        return;
    arena_release(&offload->arena);
    lock_condition_destroy(&offload->shared.changed);
    lock_destroy(&offload->shared.lock);
    offload->devices = NULL;
}

static enum sidestep_status offload_memory(struct sidestep_error *err)
{
    return FAIL_NOMEM(err, sizeof(struct offload_device));
}

/* ---- which tensors are on which device */

/* Find the lane of ${device}, or add one. */
static enum sidestep_status get_lane(struct offload *o, int32_t device, int16_t *out,
                                     struct sidestep_error *err)
{
    size_t i = 0;

    while (i < o->lane_count && o->lanes[i].device != device)
        i++;
    *out = (int16_t)i;
    if (i < o->lane_count)
        return SIDESTEP_OK;
    assert(i < DEVICE_MAX);
    TRY(devices_open(o->devices, device, err));
    o->lanes[i] = (struct offload_device){.device = device};
    o->lanes[i].window_segments =
        arena_new(&o->arena, o->image->window_count, sizeof(*o->lanes[i].window_segments));
    if (o->lanes[i].window_segments == NULL)
        return offload_memory(err);
    o->lane_count++;
    return SIDESTEP_OK;
}

/* Copy the entry, because the caller may free the state before the windows are staged. */
static enum sidestep_status copy_entry(struct offload *o, struct image_item *item,
                                       struct sidestep_error *err)
{
    const struct state_entry *entry = item->entry;
    size_t dims = entry->ndim * sizeof(int64_t);
    struct state_entry *copy = arena_copy(&o->arena, entry, sizeof(*entry));

    if (copy == NULL)
        return offload_memory(err);
    copy->strides = arena_copy(&o->arena, entry->strides, dims);
    copy->box.offsets = arena_copy(&o->arena, entry->box.offsets, dims);
    copy->box.lengths = arena_copy(&o->arena, entry->box.lengths, dims);
    if (copy->strides == NULL || copy->box.offsets == NULL || copy->box.lengths == NULL)
        return offload_memory(err);
    item->entry = copy;
    return SIDESTEP_OK;
}

static enum sidestep_status locate_item(struct offload *o, size_t k, struct sidestep_error *err)
{
    struct image_item *item = &o->image->items[k];
    uint64_t begin, bytes;
    int32_t device = -1;

    item->on_device = false;
    item->eager_copy = NULL;
    o->item_lanes[k] = -1;
    if (item->footer.is_object || item->entry->reader != NULL || box_volume(&item->entry->box) == 0)
        return SIDESTEP_OK;
    state_entry_extent(item->entry, &begin, &bytes);
    enum sidestep_status status = devices_locate(o->devices, begin, bytes, &device, err);
    if (status == SIDESTEP_OK && device >= 0) {
        status = get_lane(o, device, &o->item_lanes[k], err);
        if (status == SIDESTEP_OK)
            status = copy_entry(o, item, err);
        item->on_device = status == SIDESTEP_OK;
    }
    if (status != SIDESTEP_OK)
        error_wrap(err, "tensor '%s'", item->footer.name);
    if (!item->on_device)
        return status;
    o->bytes += item->footer.data_bytes;
    o->lanes[o->item_lanes[k]].bytes += item->footer.data_bytes;
    if (!offload_is_fenced(o, k))
        return SIDESTEP_OK;
    o->late_bytes += item->footer.data_bytes;
    o->late[o->late_count++] =
        (struct offload_fenced_tensor){.turn = item->entry->turn, .item = (uint32_t)k};
    return SIDESTEP_OK;
}

/* By turn, and then in file order, in which they are written. */
static int compare_turns(const void *left, const void *right)
{
    const struct offload_fenced_tensor *a = left, *b = right;

    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

/* ---- the program's streams */

static struct offload_device *find_lane(struct offload *o, int32_t device)
{
    for (size_t i = 0; i < o->lane_count; i++)
        if (o->lanes[i].device == device)
            return &o->lanes[i];
    return NULL;
}

static enum sidestep_status check_stream(struct offload *o, const struct sidestep_stream *stream,
                                         struct sidestep_error *err)
{
    bool capturing = false;

    TRY(devices_is_capturing(o->devices, stream->device, stream->stream, &capturing, err));
    if (capturing)
        return FAIL(err, SIDESTEP_EINVAL,
                    "a graph is being captured on its stream: captured work has not run, so there "
                    "is no state to save; save before or after the capture");
    return SIDESTEP_OK;
}

/* Select the streams whose devices are part of this save, each with an event of its own. */
static enum sidestep_status add_streams(struct offload *o, const struct sidestep_stream *streams,
                                        size_t count, struct sidestep_error *err)
{
    if (count > OFFLOAD_MAX_STREAMS)
        return FAIL(err, SIDESTEP_EINVAL, "save options: %zu streams are more than %u", count,
                    OFFLOAD_MAX_STREAMS);
    o->stream_count = 0;
    for (size_t i = 0; i < count; i++)
        if (find_lane(o, streams[i].device) != NULL)
            o->streams[o->stream_count++] = streams[i];
    for (size_t i = 0; i < o->lane_count && count == 0; i++)
        o->streams[o->stream_count++] =
            (struct sidestep_stream){.device = o->lanes[i].device, .stream = device_default_stream};
    o->stream_events = arena_new(&o->arena, o->stream_count, sizeof(*o->stream_events));
    if (o->stream_events == NULL)
        return offload_memory(err);
    for (size_t i = 0; i < o->stream_count; i++) {
        TRY(WRAP(check_stream(o, &o->streams[i], err), err, "device %d", o->streams[i].device));
        struct offload_device *lane = find_lane(o, o->streams[i].device);
        assert(lane != NULL); /* streams of other devices are not selected */
        o->stream_events[i] = lane->first_event++;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status make_events(struct offload *o, struct sidestep_error *err)
{
    for (size_t i = 0; i < o->lane_count; i++) {
        struct offload_device *lane = &o->lanes[i];
        int before;
        /* One per segment; the last early and the last late segment may not be full. */
        lane->event_count =
            (uint32_t)max_u64(lane->bytes / OFFLOAD_SEGMENT_BYTES + 3, OFFLOAD_MIN_EVENTS);
        TRY(devices_enter(o->devices, lane->device, &before, err));
        enum sidestep_status status = devices_reserve_events(
            o->devices, lane->device, lane->first_event + lane->event_count, err);
        devices_leave(o->devices, before);
        TRY(status);
    }
    return SIDESTEP_OK;
}

enum sidestep_status offload_prepare(struct offload *o, struct image *image,
                                     const struct sidestep_stream *streams, size_t stream_count,
                                     struct sidestep_error *err)
{
    arena_release(&o->arena);
    o->image = image;
    o->bytes = o->late_bytes = 0;
    image->has_device_items = false;
    o->lane_count = o->late_count = 0;
    o->item_lanes = arena_new(&o->arena, image->count, sizeof(*o->item_lanes));
    o->lanes = arena_new(&o->arena, DEVICE_MAX, sizeof(*o->lanes));
    o->late = arena_new(&o->arena, image->tensor_count, sizeof(*o->late));
    if (o->item_lanes == NULL || o->lanes == NULL || o->late == NULL)
        return offload_memory(err);
    (void)devices_detect_driver(o->devices);
    for (size_t k = 0; k < image->count; k++)
        TRY(locate_item(o, k, err));
    if (o->bytes == 0)
        return SIDESTEP_OK;
    image->has_device_items = true;
    qsort(o->late, o->late_count, sizeof(*o->late), compare_turns);
    TRY(add_streams(o, streams, stream_count, err));
    return make_events(o, err);
}

/* ---- events */

/* If the event was recorded again in the meantime, waiting for it waits for a later segment, and so
 * for this one, too. */
void *offload_segment_event(const struct offload *o, const struct offload_device *lane,
                            uint32_t segment)
{
    const struct device *device = &o->devices->devices[lane->device];
    assert(segment >= 1 && lane->event_count != 0);
    uint32_t i = lane->first_event + (segment - 1) % lane->event_count;

    assert(i < device->event_count);
    return device->events[i];
}

enum sidestep_status offload_wait_for_program(struct offload *o, struct sidestep_error *err)
{
    struct device_driver *driver = o->devices->driver;
    int before;

    for (size_t i = 0; i < o->stream_count; i++) {
        const struct sidestep_stream *stream = &o->streams[i];
        const struct device *device = &o->devices->devices[stream->device];
        void *event = device->events[o->stream_events[i]];
        TRY(devices_record(o->devices, stream->device, event, stream->stream, err));
        for (size_t k = 0; k < o->lane_count; k++) {
            TRY(devices_enter(o->devices, o->lanes[k].device, &before, err));
            enum sidestep_status status = driver->ops->stream_wait(
                driver, o->devices->devices[o->lanes[k].device].out, event, err);
            devices_leave(o->devices, before);
            TRY(status);
        }
    }
    return SIDESTEP_OK;
}

/* The segment of lane ${l} after which all tensors up to ${turn} are copied; 0: none. */
static uint32_t segment_of_fence(const struct offload *o, size_t l, uint32_t turn)
{
    size_t low = 0, high = o->late_count;

    assert(l < o->lane_count);
    if (o->pool == NULL)
        return atomic_load(&o->lanes[l].recorded);
    while (low < high) { /* find the first tensor with a later turn */
        size_t middle = low + (high - low) / 2;
        if (o->late[middle].turn <= turn)
            low = middle + 1;
        else
            high = middle;
    }
    while (low != 0 && o->item_lanes[o->late[low - 1].item] != (int16_t)l)
        low--;
    return low != 0 ? o->late[low - 1].segment : o->lanes[l].early_count;
}

/* Make ${stream} wait for the tensors of all lanes up to ${turn}; NULL: for early tensors. */
static enum sidestep_status wait_on_stream(struct offload *o, const struct sidestep_stream *stream,
                                           const uint32_t *turn, struct sidestep_error *err)
{
    struct device_driver *driver = o->devices->driver;
    enum sidestep_status status = SIDESTEP_OK;
    int before;

    TRY(devices_enter(o->devices, stream->device, &before, err));
    for (size_t i = 0; i < o->lane_count && status == SIDESTEP_OK; i++) {
        const struct offload_device *lane = &o->lanes[i];
        uint32_t segment = turn == NULL ? lane->early_count : segment_of_fence(o, i, *turn);
        if (segment != 0)
            status = driver->ops->stream_wait(driver, stream->stream,
                                              offload_segment_event(o, lane, segment), err);
    }
    devices_leave(o->devices, before);
    return status;
}

enum sidestep_status offload_make_program_wait(struct offload *o, struct sidestep_error *err)
{
    for (size_t i = 0; i < o->stream_count; i++)
        TRY(wait_on_stream(o, &o->streams[i], NULL, err));
    return SIDESTEP_OK;
}

enum sidestep_status offload_wait_segment(struct offload *o, struct offload_device *lane,
                                          uint32_t segment, struct sidestep_error *err)
{
    struct device_driver *driver = o->devices->driver;
    int before;

    if (segment <= atomic_load(&lane->segments_done))
        return SIDESTEP_OK;
    TRY(devices_enter(o->devices, lane->device, &before, err));
    enum sidestep_status status =
        fault_hit("device.await")
            ? FAIL(err, SIDESTEP_EDEVICE, "a fault point")
            : driver->ops->event_synchronize(driver, offload_segment_event(o, lane, segment), err);
    devices_leave(o->devices, before);
    TRY(status);
    /* A stream is sequential, so earlier segments are done, too.  Another thread may have recorded
     * a later one already. */
    uint32_t known = atomic_load(&lane->segments_done);
    while (known < segment &&
           !atomic_compare_exchange_weak(&lane->segments_done, &known, segment)) {
    }
    return SIDESTEP_OK;
}

/* ---- fences */

/* Are the copies submitted that a fence for ${turn} waits for? */
static bool is_submitted(const struct offload *o, uint32_t turn) REQUIRES(&o->shared.lock)
{
    if (o->pool == NULL)
        return o->shared.all_submitted;
    for (size_t l = 0; l < o->lane_count; l++)
        if (atomic_load(&o->lanes[l].recorded) < segment_of_fence(o, l, turn))
            return false;
    return true;
}

bool offload_wait_submitted(struct offload *o, uint32_t turn, unsigned ms)
{
    uint64_t until_ns = clock_now(clock_system()) + (uint64_t)ms * 1000000;
    bool submitted;

    lock_acquire(&o->shared.lock);
    while (!(submitted = is_submitted(o, turn)) && ms != 0 &&
           lock_wait_until(&o->shared.lock, &o->shared.changed, until_ns)) {
    }
    lock_release(&o->shared.lock);
    return submitted;
}

enum sidestep_status offload_wait_recorded(struct offload *o, const struct offload_device *lane,
                                           uint32_t segment, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    if (segment <= atomic_load(&lane->recorded))
        return SIDESTEP_OK;
    lock_acquire(&o->shared.lock);
    while (segment > atomic_load(&lane->recorded) && !o->shared.failed)
        lock_wait(&o->shared.lock, &o->shared.changed);
    if (segment > atomic_load(&lane->recorded)) {
        error_copy(err, &o->shared.why);
        status = (enum sidestep_status)o->shared.why.status;
    }
    lock_release(&o->shared.lock);
    return status;
}

/* Wait for the copies in this thread, and not in a stream. */
static enum sidestep_status wait_for_fence(struct offload *o, uint32_t turn,
                                           struct sidestep_error *err)
{
    for (size_t i = 0; i < o->lane_count; i++) {
        uint32_t segment = segment_of_fence(o, i, turn);
        if (segment != 0)
            TRY(offload_wait_segment(o, &o->lanes[i], segment, err));
    }
    return SIDESTEP_OK;
}

static bool is_on_open_device(const struct offload *o, const struct sidestep_stream *stream)
{
    return stream->device >= 0 && stream->device < DEVICE_MAX &&
           o->devices->devices[stream->device].context != NULL;
}

enum sidestep_status offload_fence(struct offload *o, const struct sidestep_stream *stream,
                                   uint32_t turn, struct sidestep_error *err)
{
    bool capturing = false;

    if (!is_on_open_device(o, stream))
        return wait_for_fence(o, turn, err);
    TRY(devices_is_capturing(o->devices, stream->device, stream->stream, &capturing, err));
    /* A captured wait would refer to the event at the time of replay. */
    return capturing ? wait_for_fence(o, turn, err) : wait_on_stream(o, stream, &turn, err);
}

enum sidestep_status offload_synchronize_stream(struct offload *o,
                                                const struct sidestep_stream *stream,
                                                struct sidestep_error *err)
{
    struct device_driver *driver = o->devices->driver;
    bool capturing = true;
    int before;

    if (is_on_open_device(o, stream))
        TRY(devices_is_capturing(o->devices, stream->device, stream->stream, &capturing, err));
    if (capturing)
        return SIDESTEP_OK;
    TRY(devices_enter(o->devices, stream->device, &before, err));
    enum sidestep_status status = driver->ops->stream_synchronize(driver, stream->stream, err);
    devices_leave(o->devices, before);
    return status;
}

void offload_drain(struct offload *o)
{
    for (size_t i = 0; i < o->lane_count; i++)
        (void)devices_synchronize(o->devices, o->lanes[i].device,
                                  o->devices->devices[o->lanes[i].device].out, NULL);
}
