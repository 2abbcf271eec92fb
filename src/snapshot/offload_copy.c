/* SPDX-License-Identifier: BSD-3-Clause */
/* offload_copy.c -- see offload.h: which bytes are submitted when, and when windows are staged. */
#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "snapshot/device_strided.h"
#include "snapshot/offload_internal.h"

#define ASIDE_ALIGN ((uint64_t)64)

static void begin_batch(struct offload *o, const struct offload_device *lane,
                        struct device_batch *batch)
{
    device_batch_begin(batch, o->devices, lane->device, false);
}

/* What a batch was refused for. */
static enum sidestep_status tell_tensor(struct offload *o, const struct device_batch *batch,
                                        enum sidestep_status status, struct sidestep_error *err)
{
    if (status != SIDESTEP_OK)
        error_wrap(err, "copy tensor '%s' from device %d",
                   o->image->items[batch->failed].footer.name, batch->device);
    return status;
}

static enum sidestep_status submit_batch(struct offload *o, struct device_batch *batch,
                                         struct sidestep_error *err)
{
    return tell_tensor(o, batch, device_batch_submit(batch, err), err);
}

/* Bytes [begin, end) of the data of item ${k} to ${host}, with others of its lane. */
static enum sidestep_status add_part(struct offload *o, struct device_batch *batch, size_t k,
                                     uint64_t begin, uint64_t end, uint8_t *host,
                                     struct sidestep_error *err)
{
    const struct image_item *item = &o->image->items[k];
    struct box_memory memory = state_entry_memory(item->entry);

    batch->tag = k;
    return tell_tensor(
        o, batch,
        device_strided_add(batch, &item->footer.box, begin, end - begin, &memory, host, err), err);
}

enum sidestep_status offload_submit_part(struct offload *o, size_t k, uint64_t begin, uint64_t end,
                                         uint8_t *host, struct sidestep_error *err)
{
    struct device_batch batch;

    begin_batch(o, &o->lanes[o->item_lanes[k]], &batch);
    TRY(add_part(o, &batch, k, begin, end, host, err));
    return submit_batch(o, &batch, err);
}

/* An event behind all that was added for the lane, which is entered. */
static enum sidestep_status end_chunk(struct offload *o, struct offload_device *lane,
                                      struct device_batch *batch, struct sidestep_error *err)
{
    struct device_driver *driver = o->devices->driver;

    TRY(submit_batch(o, batch, err));
    TRY(driver->ops->event_record(driver, offload_segment_event(o, lane, lane->chunk_count + 1),
                                  o->devices->devices[lane->device].out, err));
    lane->chunk_count++;
    lane->since = 0;
    return SIDESTEP_OK;
}

/* ---- with a place for every window */

static size_t window_at(const struct image *image, uint64_t offset)
{
    size_t low = 0, high = image->window_count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (image->windows[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The windows with bytes [begin, end) of the file need the chunk that is being filled. */
static void note_windows(struct offload *o, struct offload_device *lane, uint64_t begin,
                         uint64_t end)
{
    const struct image *image = o->image;

    for (size_t i = window_at(image, begin);
         i < image->window_count && image->windows[i].offset < end; i++)
        lane->chunks[i] = lane->chunk_count + 1;
}

static enum sidestep_status submit_item(struct offload *o, size_t k, struct device_batch *batch,
                                        struct sidestep_error *err)
{
    const struct footer_item *f = &o->image->items[k].footer;
    struct offload_device *lane = &o->lanes[o->item_lanes[k]];
    uint64_t data = f->offset + f->data_offset;

    for (uint64_t at = 0; at < f->data_bytes;) {
        uint64_t end = min_u64(f->data_bytes, at + OFFLOAD_SEGMENT_BYTES - lane->since);
        TRY(add_part(o, batch, k, at, end, o->pool + data + at, err));
        note_windows(o, lane, data + at, data + end);
        lane->since += end - at;
        at = end;
        if (lane->since == OFFLOAD_SEGMENT_BYTES)
            TRY(end_chunk(o, lane, batch, err));
    }
    return SIDESTEP_OK;
}

/* Its early ones, in the order of the file: that is how they are written. */
static enum sidestep_status submit_early(struct offload *o, size_t l, struct device_batch *batch,
                                         struct sidestep_error *err)
{
    for (size_t k = 0; k < o->image->tensor_count; k++)
        if (o->item_lanes[k] == (int16_t)l && !offload_is_fenced(o, k))
            TRY(submit_item(o, k, batch, err));
    return SIDESTEP_OK;
}

/* Its late ones, by their turns. */
static enum sidestep_status submit_late(struct offload *o, size_t l, struct device_batch *batch,
                                        struct sidestep_error *err)
{
    const struct offload_device *lane = &o->lanes[l];

    for (size_t i = 0; i < o->late_count; i++) {
        struct offload_fenced_tensor *late = &o->late[i];
        if (o->item_lanes[late->item] != (int16_t)l)
            continue;
        TRY(submit_item(o, late->item, batch, err));
        late->chunk = lane->chunk_count + (lane->since != 0);
    }
    return SIDESTEP_OK;
}

/* All that is late, or early, of one lane. */
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
    if (status == SIDESTEP_OK && lane->since != 0)
        status = end_chunk(o, lane, &batch, err);
    if (!late)
        lane->early_count = lane->chunk_count;
    devices_leave(o->devices, before);
    return status;
}

static void reset(struct offload *o)
{
    o->pool = NULL;
    atomic_store(&o->aside_ready, true);
    pthread_mutex_lock(&o->shared.lock);
    o->shared.submitted = 0;
    o->shared.fenced = false;
    o->shared.all = false;
    pthread_mutex_unlock(&o->shared.lock);
}

enum sidestep_status offload_begin(struct offload *o, uint8_t *pool, struct sidestep_error *err)
{
    reset(o);
    o->pool = pool;
    TRY(offload_wait_for_program(o, err));
    for (size_t l = 0; l < o->lane_count; l++)
        TRY(submit_lane(o, l, false, err));
    TRY(offload_make_program_wait(o, err));
    for (size_t l = 0; l < o->lane_count; l++)
        TRY(submit_lane(o, l, true, err));
    offload_set_submitted(o);
    return SIDESTEP_OK;
}

/* ---- where windows share the pool */

static bool goes_aside(const struct offload *o, size_t k)
{
    return !o->image->items[k].footer.is_object &&
           (o->item_lanes[k] < 0 || !offload_is_fenced(o, k));
}

uint64_t offload_eager_bytes(const struct offload *o)
{
    uint64_t bytes = 0;

    for (size_t k = 0; k < o->image->tensor_count; k++)
        if (goes_aside(o, k))
            bytes += round_up(o->image->items[k].footer.data_bytes, ASIDE_ALIGN);
    return bytes;
}

/* Places for what goes aside, from ${aside} on; and what lies in host memory is put there. */
static enum sidestep_status give_places(struct offload *o, uint8_t *aside,
                                        struct sidestep_error *err)
{
    for (size_t k = 0; k < o->image->tensor_count; k++) {
        struct image_item *item = &o->image->items[k];
        if (!goes_aside(o, k))
            continue;
        item->aside = aside;
        if (o->item_lanes[k] < 0)
            TRY(image_copy_item_data(o->image, k, 0, item->footer.data_bytes, aside, err));
        aside += round_up(item->footer.data_bytes, ASIDE_ALIGN);
    }
    return SIDESTEP_OK;
}

/* What goes aside of one lane, which is entered. */
static enum sidestep_status put_aside(struct offload *o, size_t l, struct sidestep_error *err)
{
    struct offload_device *lane = &o->lanes[l];
    struct device_batch batch;

    begin_batch(o, lane, &batch);
    for (size_t k = 0; k < o->image->tensor_count; k++) {
        const struct image_item *item = &o->image->items[k];
        if (o->item_lanes[k] != (int16_t)l || !goes_aside(o, k))
            continue;
        TRY(add_part(o, &batch, k, 0, item->footer.data_bytes, item->aside, err));
        lane->since += item->footer.data_bytes;
    }
    if (lane->since != 0)
        TRY(end_chunk(o, lane, &batch, err));
    lane->early_count = lane->chunk_count;
    return SIDESTEP_OK;
}

enum sidestep_status offload_begin_shared_pool(struct offload *o, uint8_t *aside,
                                               struct sidestep_error *err)
{
    int before;

    reset(o);
    TRY(offload_wait_for_program(o, err));
    if (aside == NULL)
        return SIDESTEP_OK;
    atomic_store(&o->aside_ready, false);
    TRY(give_places(o, aside, err));
    for (size_t l = 0; l < o->lane_count; l++) {
        TRY(devices_enter(o->devices, o->lanes[l].device, &before, err));
        enum sidestep_status status = put_aside(o, l, err);
        devices_leave(o->devices, before);
        TRY(status);
    }
    return offload_make_program_wait(o, err);
}

enum sidestep_status offload_wait_eager(struct offload *o, struct sidestep_error *err)
{
    if (atomic_load(&o->aside_ready))
        return SIDESTEP_OK;
    for (size_t l = 0; l < o->lane_count; l++)
        if (o->lanes[l].early_count != 0)
            TRY(offload_wait_segment(o, &o->lanes[l], o->lanes[l].early_count, err));
    atomic_store(&o->aside_ready, true);
    return SIDESTEP_OK;
}

/* The part of window ${i} that has not been put aside, of one lane, which is entered. */
static enum sidestep_status add_window(struct offload *o, size_t l, size_t i, uint8_t *buffer,
                                       struct device_batch *batch, uint64_t *bytes,
                                       struct sidestep_error *err)
{
    const struct image_window *w = &o->image->windows[i];

    for (size_t k = w->first_item; image_window_reaches_item(o->image, i, k); k++) {
        const struct image_item *item = &o->image->items[k];
        uint64_t begin, end;
        if (o->item_lanes[k] != (int16_t)l || item->aside != NULL)
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

/* Submit the copies of window ${i} of one lane; *chunk, if there are any, tells of their end. */
static enum sidestep_status submit_window_of_lane(struct offload *o, size_t l, size_t i,
                                                  uint8_t *buffer, uint32_t *chunk,
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
        pthread_mutex_lock(&o->shared.lock);
        status = end_chunk(o, lane, &batch, err);
        *chunk = lane->chunk_count;
        pthread_mutex_unlock(&o->shared.lock);
    }
    devices_leave(o->devices, before);
    return status;
}

static void count_submitted(struct offload *o)
{
    pthread_mutex_lock(&o->shared.lock);
    bool last = ++o->shared.submitted == o->image->window_count;
    pthread_mutex_unlock(&o->shared.lock);
    if (last)
        offload_set_submitted(o);
}

/* The tensor that a failure of window ${i} is told by: the first of that lane. */
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
    uint32_t chunks[DEVICE_MAX] = {0};

    for (size_t l = 0; l < o->lane_count; l++) {
        if (o->pool != NULL)
            chunks[l] = o->lanes[l].chunks[i];
        else
            TRY(submit_window_of_lane(o, l, i, buffer, &chunks[l], err));
    }
    if (o->pool == NULL)
        count_submitted(o);
    for (size_t l = 0; l < o->lane_count; l++) {
        if (chunks[l] == 0)
            continue;
        enum sidestep_status status = offload_wait_segment(o, &o->lanes[l], chunks[l], err);
        if (status != SIDESTEP_OK) {
            error_wrap(err, "copy tensor '%s' and others from device %d", name_in_window(o, l, i),
                       o->lanes[l].device);
            return status;
        }
    }
    return SIDESTEP_OK;
}
