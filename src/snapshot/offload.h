/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offload.h -- takes a snapshot of tensors in device memory: the device's copy engines copy them to
 * the windows, on sidestep's streams, beside the program's.
 *
 * The call waits for no copy.  Only the program's streams wait, on the device, before they write to
 * a tensor that is not copied yet.
 *
 *      the program's stream   ... step N |E      forward, backward of N+1 |wait L| optimizer
 *      sidestep's                    wait E| early |record| late ......... |record L
 *                                               '-> |wait early| on the program's stream, at once
 *
 * Rules:
 *  1. Sidestep's stream begins after what was submitted to the program's streams before the
 *     call (E).
 *  2. *Early* tensors may be written without a call of offload_fence().  They are copied first, and
 *     from the end of the call on, the program's streams wait for them on the device.  *Late*
 *     tensors are those that the program promised to write only behind a fence
 *     (SIDESTEP_TENSOR_FENCED).
 *  3. A stream can wait only for an event that was recorded.  So a fence can be set only when its
 *     copies have been submitted, and its caller waits for that.  Early tensors are submitted in
 *     the call, late ones by the first thread that stages a window: a driver's queue is short, and
 *     who submits gigabytes waits until most of them are copied.
 *     Late tensors have turns.  Those with lower turns are copied first, so a fence may cover only
 *     a part of them.  If windows share the pool, late tensors are submitted in file order, as
 *     windows get their slots, and a fence covers all of them.
 *  4. A window is staged when its copies are done.  An event is recorded after each segment of
 *     copies.
 *  5. If windows share the pool, everything but late tensors is copied eagerly, because it cannot
 *     wait for the turn of its window.  So are tensors in host memory.
 *  6. Before the pool or the tensors are freed, no copy may be in flight: offload_drain().
 */
#ifndef SNAPSHOT_OFFLOAD_H
#define SNAPSHOT_OFFLOAD_H

#include <stdatomic.h>

#include "snapshot/devices.h"
#include "snapshot/image.h"

#define OFFLOAD_MAX_STREAMS 64u

/* A late (fenced) tensor.  The array is in the order of copying. */
struct offload_fenced_tensor {
    uint32_t turn;    /* as in struct sidestep_tensor */
    uint32_t item;    /* index in the image */
    uint32_t segment; /* segment of its lane that has its last byte */
};

/* A lane: one device in a save. */
struct offload_device {
    int32_t device;
    uint64_t bytes;
    uint32_t *window_segments; /* per window: number (from 1) of the last segment with its bytes */
    uint32_t first_event;      /* index of the device's event for segment 1 */
    uint32_t event_count;      /* number of events, used in rotation: see offload_segment_event() */
    uint32_t segment_count;    /* segments so far, of those who plan and of those who submit */
    uint32_t early_count;      /* segments with early tensors */
    uint64_t segment_bytes;    /* bytes in the segment after those */
    atomic_uint recorded;      /* segments that were submitted, and whose event was recorded */
    atomic_uint segments_done; /* segments known to be done */
};

struct offload {
    struct devices *devices;
    struct image *image;
    struct arena arena; /* for this save */
    uint64_t bytes;     /* of tensors on devices; 0: the fields below are not set */
    uint64_t late_bytes;
    int16_t *item_lanes; /* per item: index of its lane; -1: host memory */
    struct offload_device *lanes;
    size_t lane_count;
    struct offload_fenced_tensor *late;
    size_t late_count;
    struct sidestep_stream streams[OFFLOAD_MAX_STREAMS]; /* the program's streams */
    size_t stream_count;
    uint32_t *stream_events; /* per stream: index of its event on its lane */
    uint8_t *pool;           /* set if every window has a slot; NULL: windows share the pool */
    atomic_bool eager_ready;
    atomic_size_t next_late; /* the next lane whose late tensors somebody has to submit */
    unsigned fence_check_ms; /* 0: fences are not checked; see offload_fence_check_end() */
    uint64_t *digests;       /* per late tensor: hash of its data in the call */
    struct {
        struct lock lock LOCK_KIND(OFFLOAD);
        struct lock_condition changed;
        size_t submitted GUARDED_BY(&lock);   /* windows submitted, if they share the pool */
        bool all_submitted GUARDED_BY(&lock); /* the same: all copies were submitted */
        bool failed GUARDED_BY(&lock);        /* a late tensor could not be submitted: ${why} */
        struct sidestep_error why GUARDED_BY(&lock);
        bool fenced GUARDED_BY(&lock); /* offload_fence_check_trigger() was called */
    } shared;
};

void offload_init(struct offload *offload, struct devices *devices);
void offload_close(struct offload *offload);

/* Find the tensors of ${image}, just bound, that are on devices, and the streams that produced them
 * (none given: the default streams).  EINVAL: memory of a tensor is not allocated, or a stream is
 * being captured. */
enum sidestep_status offload_prepare(struct offload *offload, struct image *image,
                                     const struct sidestep_stream *streams, size_t stream_count,
                                     struct sidestep_error *err);
/* Size of the eager copy: everything but late tensors. */
uint64_t offload_eager_bytes(const struct offload *offload);

/* Submit the copies of early tensors to ${pool}, which has a slot for every byte of the file.
 * offload_stage() submits the others. */
enum sidestep_status offload_begin(struct offload *offload, uint8_t *pool,
                                   struct sidestep_error *err);
/* For a pool that windows share: offload_stage() submits the copies.  ${eager}: everything but late
 * tensors is copied there now; NULL: no eager copy, because the caller waits for all windows. */
enum sidestep_status offload_begin_shared_pool(struct offload *offload, uint8_t *eager,
                                               struct sidestep_error *err);
/* Wait until the eager copy may be read. */
enum sidestep_status offload_wait_eager(struct offload *offload, struct sidestep_error *err);
/* Copy the bytes of window ${i} that are on devices to ${buffer}, and wait for that.  Any thread,
 * once per window. */
enum sidestep_status offload_stage(struct offload *offload, size_t i, uint8_t *buffer,
                                   struct sidestep_error *err);
/* Wait for at most ${ms} milliseconds until the copies of all tensors up to ${turn} are submitted.
 * False: a copy is not. */
bool offload_wait_submitted(struct offload *offload, uint32_t turn, unsigned ms);
/* Make later work of ${stream} wait for the copies of all tensors up to ${turn}, which must be
 * submitted.  If the stream cannot wait, the caller waits. */
enum sidestep_status offload_fence(struct offload *offload, const struct sidestep_stream *stream,
                                   uint32_t turn, struct sidestep_error *err);
/* Only if SIDESTEP_FENCE_DEBUG is set (fence_check_ms), before offload_begin...(): hash the late
 * tensors.  The caller waits for that, and for the program's streams. */
enum sidestep_status offload_fence_check_begin(struct offload *offload, struct sidestep_error *err);
/* When everything is staged: wait until offload_fence_check_trigger() is called, or for
 * fence_check_ms, and hash the late tensors again.  EINVAL: a tensor has changed. */
enum sidestep_status offload_fence_check_end(struct offload *offload, struct sidestep_error *err);
void offload_fence_check_trigger(struct offload *offload);
/* Wait for all work of ${stream}, unless it is being captured. */
enum sidestep_status offload_synchronize_stream(struct offload *offload,
                                                const struct sidestep_stream *stream,
                                                struct sidestep_error *err);

/* Wait for copies in flight; errors are ignored. */
void offload_drain(struct offload *offload);

#endif
