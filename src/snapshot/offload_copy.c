/* SPDX-License-Identifier: BSD-3-Clause */
/* offload_copy.c -- submits the device copies, and stages windows from them; see offload.h. */
#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "snapshot/device_strided.h"
#include "snapshot/offload_internal.h"

#define EAGER_ALIGN ((uint64_t)64)

static void begin_batch(struct offload *o, const struct offload_device *lane,
                        struct device_batch *batch)
{
    device_batch_begin(batch, o->devices, lane->device, false);
}

/* If the batch was refused, add the name of the tensor to the error. */
static enum sidestep_status add_tensor_name(struct offload *o, const struct device_batch *batch,
                                            enum sidestep_status status, struct sidestep_error *err)
{
    return WRAP(status, err, "copy tensor '%s' from device %d",
                o->image->items[batch->failed].footer.name, batch->device);
}

static enum sidestep_status submit_batch(struct offload *o, struct device_batch *batch,
                                         struct sidestep_error *err)
{
    return add_tensor_name(o, batch, device_batch_submit(batch, err), err);
}

/* Add copies of bytes [begin, end) of item ${k}'s data to ${host}. */
static enum sidestep_status add_part(struct offload *o, struct device_batch *batch, size_t k,
                                     uint64_t begin, uint64_t end, uint8_t *host,
                                     struct sidestep_error *err)
{
    const struct image_item *item = &o->image->items[k];
    struct box_memory memory = state_entry_memory(item->entry);

    batch->tag = k;
    return add_tensor_name(
        o, batch,
        device_strided_add(batch, &item->footer.box, begin, end - begin, &memory, host, err), err);
}

enum sidestep_status offload_submit_part(struct offload *o, size_t k, uint64_t begin, uint64_t end,
                                         uint8_t *host, struct sidestep_error *err)
{
    struct device_batch batch;

    assert(o->item_lanes[k] >= 0); /* it is on a device */
    begin_batch(o, &o->lanes[o->item_lanes[k]], &batch);
    TRY(add_part(o, &batch, k, begin, end, host, err));
    return submit_batch(o, &batch, err);
}

/* Submit the batch and record an event after it.  The lane's device is entered. */
static enum sidestep_status end_segment(struct offload *o, struct offload_device *lane,
                                        struct device_batch *batch, struct sidestep_error *err)
{
    struct device_driver *driver = o->devices->driver;

    TRY(submit_batch(o, batch, err));
    TRY(driver->ops->event_record(driver, offload_segment_event(o, lane, lane->segment_count + 1),
                                  o->devices->devices[lane->device].out, err));
    atomic_store(&lane->recorded, ++lane->segment_count);
    lane->segment_bytes = 0;
    return SIDESTEP_OK;
}

/* ---- with a slot for every window */

/* Record that windows with bytes [begin, end) of the file need the current segment. */
static void record_windows(struct offload *o, struct offload_device *lane, uint64_t begin,
                           uint64_t end)
{
    const struct image *image = o->image;

    for (size_t i = image_find_window(image, begin);
         i < image->window_count && image->windows[i].offset < end; i++)
        lane->window_segments[i] = lane->segment_count + 1;
}

/* The part of item ${k}'s data from ${at} on that fits into the segment. */
static uint64_t end_of_part(const struct offload *o, size_t k, uint64_t at)
{
    const struct offload_device *lane = &o->lanes[o->item_lanes[k]];

    assert(lane->segment_bytes < OFFLOAD_SEGMENT_BYTES);
    return min_u64(o->image->items[k].footer.data_bytes,
                   at + OFFLOAD_SEGMENT_BYTES - lane->segment_bytes);
}

/* Assign item ${k} to segments, and submit nothing. */
static void plan_item(struct offload *o, size_t k)
{
    const struct footer_item *f = &o->image->items[k].footer;
    struct offload_device *lane = &o->lanes[o->item_lanes[k]];
    uint64_t data = f->offset + f->data_offset;

    for (uint64_t at = 0, end; at < f->data_bytes; at = end) {
        end = end_of_part(o, k, at);
        record_windows(o, lane, data + at, data + end);
        lane->segment_bytes += end - at;
        if (lane->segment_bytes != OFFLOAD_SEGMENT_BYTES)
            continue;
        lane->segment_count++;
        lane->segment_bytes = 0;
    }
}

/* Begin a new segment, unless the current one is empty. */
static void plan_end(struct offload_device *lane)
{
    lane->segment_count += lane->segment_bytes != 0;
    lane->segment_bytes = 0;
}

/* Assign the tensors of all lanes to segments: early ones in file order, in which they are written,
 * then late ones by turn. */
static void plan_segments(struct offload *o)
{
    for (size_t k = 0; k < o->image->tensor_count; k++)
        if (o->item_lanes[k] >= 0 && !offload_is_fenced(o, k))
            plan_item(o, k);
    for (size_t l = 0; l < o->lane_count; l++) {
        plan_end(&o->lanes[l]);
        o->lanes[l].early_count = o->lanes[l].segment_count;
    }
    for (size_t i = 0; i < o->late_count; i++) {
        struct offload_fenced_tensor *late = &o->late[i];
        const struct offload_device *lane = &o->lanes[o->item_lanes[late->item]];
        plan_item(o, late->item);
        late->segment = lane->segment_count + (lane->segment_bytes != 0);
    }
    for (size_t l = 0; l < o->lane_count; l++) {
        o->lanes[l].segment_count = 0;
        o->lanes[l].segment_bytes = 0;
    }
}

/* What is recorded is known to those who wait for it. */
static void wake_waiting(struct offload *o)
{
    lock_acquire(&o->shared.lock);
    lock_wake_all(&o->shared.changed);
    lock_release(&o->shared.lock);
}

/* Submit the copies of item ${k}, as they were planned. */
static enum sidestep_status submit_item(struct offload *o, size_t k, struct device_batch *batch,
                                        struct sidestep_error *err)
{
    const struct footer_item *f = &o->image->items[k].footer;
    struct offload_device *lane = &o->lanes[o->item_lanes[k]];
    uint64_t data = f->offset + f->data_offset;

    assert(o->pool != NULL);
    for (uint64_t at = 0, end; at < f->data_bytes; at = end) {
        end = end_of_part(o, k, at);
        TRY(add_part(o, batch, k, at, end, o->pool + data + at, err));
        lane->segment_bytes += end - at;
        if (lane->segment_bytes != OFFLOAD_SEGMENT_BYTES)
            continue;
        TRY(end_segment(o, lane, batch, err));
        wake_waiting(o);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status submit_early(struct offload *o, size_t l, struct device_batch *batch,
                                         struct sidestep_error *err)
{
    for (size_t k = 0; k < o->image->tensor_count; k++)
        if (o->item_lanes[k] == (int16_t)l && !offload_is_fenced(o, k))
            TRY(submit_item(o, k, batch, err));
    return SIDESTEP_OK;
}

static enum sidestep_status submit_late(struct offload *o, size_t l, struct device_batch *batch,
                                        struct sidestep_error *err)
{
    for (size_t i = 0; i < o->late_count; i++)
        if (o->item_lanes[o->late[i].item] == (int16_t)l)
            TRY(submit_item(o, o->late[i].item, batch, err));
    return SIDESTEP_OK;
}

/* Submit all late, or all early, tensors of one lane. */
static enum sidestep_status submit_lane(struct offload *o, size_t l, bool late,
                                        struct sidestep_error *err)
{
    struct offload_device *lane = &o->lanes[l];
    struct device_batch batch;
    int before;

    begin_batch(o, lane, &batch);
    TRY(devices_enter(o->devices, lane->device, &before, err));
    enum sidestep_status status =
        late ? submit_late(o, l, &batch, err) : submit_early(o, l, &batch, err);
    if (status == SIDESTEP_OK && lane->segment_bytes != 0)
        status = end_segment(o, lane, &batch, err);
    devices_leave(o->devices, before);
    wake_waiting(o);
    return status;
}

static void reset(struct offload *o)
{
    o->pool = NULL;
    atomic_store(&o->eager_ready, true);
    atomic_store(&o->next_late, o->lane_count);
    lock_acquire(&o->shared.lock);
    o->shared.submitted = 0;
    o->shared.fenced = o->shared.failed = false;
    o->shared.all_submitted = false;
    lock_release(&o->shared.lock);
}

enum sidestep_status offload_begin(struct offload *o, uint8_t *pool, struct sidestep_error *err)
{
    assert(o->bytes != 0 && pool != NULL); /* offload_prepare() has found tensors */
    reset(o);
    o->pool = pool;
    plan_segments(o);
    TRY(offload_wait_for_program(o, err));
    for (size_t l = 0; l < o->lane_count; l++)
        TRY(submit_lane(o, l, false, err));
    TRY(offload_make_program_wait(o, err));
    atomic_store(&o->next_late, 0);
    return SIDESTEP_OK;
}

/* Submit the late tensors of lanes whose nobody has submitted yet. */
static enum sidestep_status submit_all_late(struct offload *o, struct sidestep_error *err)
{
    for (size_t l; (l = atomic_fetch_add(&o->next_late, 1)) < o->lane_count;) {
        struct sidestep_error why = {0};
        enum sidestep_status status = submit_lane(o, l, true, &why);
        if (status == SIDESTEP_OK)
            continue;
        lock_acquire(&o->shared.lock);
        o->shared.failed = true;
        o->shared.why = why;
        lock_wake_all(&o->shared.changed);
        lock_release(&o->shared.lock);
        error_copy(err, &why);
        return status;
    }
    return SIDESTEP_OK;
}

/* ---- with a pool that windows share */

static bool is_eager(const struct offload *o, size_t k)
{
    return !o->image->items[k].footer.is_object &&
           (o->item_lanes[k] < 0 || !offload_is_fenced(o, k));
}

uint64_t offload_eager_bytes(const struct offload *o)
{
    uint64_t bytes = 0;

    for (size_t k = 0; k < o->image->tensor_count; k++)
        if (is_eager(o, k))
            bytes += round_up(o->image->items[k].footer.data_bytes, EAGER_ALIGN);
    return bytes;
}

/* Assign each eager tensor its part of ${eager}, and copy those in host memory there. */
static enum sidestep_status assign_eager_buffers(struct offload *o, uint8_t *eager,
                                                 struct sidestep_error *err)
{
    for (size_t k = 0; k < o->image->tensor_count; k++) {
        struct image_item *item = &o->image->items[k];
        if (!is_eager(o, k))
            continue;
        item->eager_copy = eager;
        if (o->item_lanes[k] < 0)
            TRY(image_copy_item_data(o->image, k, 0, item->footer.data_bytes, eager, err));
        eager += round_up(item->footer.data_bytes, EAGER_ALIGN);
    }
    return SIDESTEP_OK;
}

/* Submit the eager copies of one lane, whose device is entered. */
static enum sidestep_status copy_eager(struct offload *o, size_t l, struct sidestep_error *err)
{
    struct offload_device *lane = &o->lanes[l];
    struct device_batch batch;

    begin_batch(o, lane, &batch);
    for (size_t k = 0; k < o->image->tensor_count; k++) {
        const struct image_item *item = &o->image->items[k];
        if (o->item_lanes[k] != (int16_t)l || !is_eager(o, k))
            continue;
        assert(item->eager_copy != NULL);
        TRY(add_part(o, &batch, k, 0, item->footer.data_bytes, item->eager_copy, err));
        lane->segment_bytes += item->footer.data_bytes;
    }
    if (lane->segment_bytes != 0)
        TRY(end_segment(o, lane, &batch, err));
    lane->early_count = lane->segment_count;
    return SIDESTEP_OK;
}

enum sidestep_status offload_begin_shared_pool(struct offload *o, uint8_t *eager,
                                               struct sidestep_error *err)
{
    int before;

    assert(o->bytes != 0); /* offload_prepare() has found tensors */
    reset(o);
    TRY(offload_wait_for_program(o, err));
    if (eager == NULL)
        return SIDESTEP_OK;
    atomic_store(&o->eager_ready, false);
    TRY(assign_eager_buffers(o, eager, err));
    for (size_t l = 0; l < o->lane_count; l++) {
        TRY(devices_enter(o->devices, o->lanes[l].device, &before, err));
        enum sidestep_status status = copy_eager(o, l, err);
        devices_leave(o->devices, before);
        TRY(status);
    }
    return offload_make_program_wait(o, err);
}

enum sidestep_status offload_wait_eager(struct offload *o, struct sidestep_error *err)
{
    if (atomic_load(&o->eager_ready))
        return SIDESTEP_OK;
    for (size_t l = 0; l < o->lane_count; l++)
        if (o->lanes[l].early_count != 0)
            TRY(offload_wait_segment(o, &o->lanes[l], o->lanes[l].early_count, err));
    atomic_store(&o->eager_ready, true);
    return SIDESTEP_OK;
}

/* Add copies of the bytes of window ${i} that are on one lane, except eager tensors.  The device is
 * entered. */
static enum sidestep_status add_window(struct offload *o, size_t l, size_t i, uint8_t *buffer,
                                       struct device_batch *batch, uint64_t *bytes,
                                       struct sidestep_error *err)
{
    const struct image_window *w = &o->image->windows[i];

    for (size_t k = w->first_item; image_window_reaches_item(o->image, i, k); k++) {
        const struct image_item *item = &o->image->items[k];
        uint64_t begin, end;
        if (o->item_lanes[k] != (int16_t)l || item->eager_copy != NULL)
            continue;
        image_data_in_window(o->image, i, k, &begin, &end);
        if (begin == end)
            continue;
        uint64_t at = item->footer.offset + item->footer.data_offset + begin - w->offset;
        TRY(add_part(o, batch, k, begin, end, buffer + at, err));
        *bytes += end - begin;
    }
    return SIDESTEP_OK;
}

/* Submit the copies of window ${i} from one lane.  *segment: the segment that contains them, if
 * any. */
static enum sidestep_status submit_window_of_lane(struct offload *o, size_t l, size_t i,
                                                  uint8_t *buffer, uint32_t *segment,
                                                  struct sidestep_error *err)
{
    struct offload_device *lane = &o->lanes[l];
    struct device_batch batch;
    uint64_t bytes = 0;
    int before;

    begin_batch(o, lane, &batch);
    TRY(devices_enter(o->devices, lane->device, &before, err));
    enum sidestep_status status = add_window(o, l, i, buffer, &batch, &bytes, err);
    if (status == SIDESTEP_OK)
        status = submit_batch(o, &batch, err);
    if (status == SIDESTEP_OK && bytes != 0) {
        lock_acquire(&o->shared.lock);
        status = end_segment(o, lane, &batch, err);
        *segment = lane->segment_count;
        lock_release(&o->shared.lock);
    }
    devices_leave(o->devices, before);
    return status;
}

static void count_submitted(struct offload *o)
{
    lock_acquire(&o->shared.lock);
    assert(o->shared.submitted < o->image->window_count);
    o->shared.all_submitted = ++o->shared.submitted == o->image->window_count;
    if (o->shared.all_submitted)
        lock_wake_all(&o->shared.changed);
    lock_release(&o->shared.lock);
}

/* For an error message about window ${i}: its first tensor of the lane. */
static const char *name_in_window(const struct offload *o, size_t l, size_t i)
{
    for (size_t k = o->image->windows[i].first_item; image_window_reaches_item(o->image, i, k); k++)
        if (o->item_lanes[k] == (int16_t)l)
            return o->image->items[k].footer.name;
    return "";
}

enum sidestep_status offload_stage(struct offload *o, size_t i, uint8_t *buffer,
                                   struct sidestep_error *err)
{
    uint32_t segments[DEVICE_MAX] = {0};

    assert(i < o->image->window_count);
    TRY(submit_all_late(o, err));
    for (size_t l = 0; l < o->lane_count; l++) {
        if (o->pool != NULL)
            segments[l] = o->lanes[l].window_segments[i];
        else
            TRY(submit_window_of_lane(o, l, i, buffer, &segments[l], err));
    }
    if (o->pool == NULL)
        count_submitted(o);
    for (size_t l = 0; l < o->lane_count; l++) {
        if (segments[l] == 0)
            continue;
        TRY(offload_wait_recorded(o, &o->lanes[l], segments[l], err));
        TRY(WRAP(offload_wait_segment(o, &o->lanes[l], segments[l], err), err,
                 "copy tensor '%s' and others from device %d", name_in_window(o, l, i),
                 o->lanes[l].device));
    }
    return SIDESTEP_OK;
}
