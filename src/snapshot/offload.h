/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offload.h -- the third way to hold still, for tensors in the memory of devices: their own copy
 * engines bring them into the windows, on streams of ours beside the program's, and nobody waits
 * but, on the device, who would write to them too early.
 *
 *      the program's stream   ... step N |E      forward, backward of N+1 |wait L| optimizer
 *      ours                          wait E| early |record| late ......... |record L
 *                                               '-> |wait early| on the program's stream, at once
 *
 * Rules:
 *  1. Our stream begins after what was submitted to the program's streams before the call (E).
 *  2. What is written next before anybody calls offload_fence() is *early*: it is copied first, and
 *     the program's streams wait for it, on the device, from the end of the call on.  *Late* are
 *     tensors that the program promised to write only behind a fence (SIDESTEP_TENSOR_FENCED).
 *  3. A stream can wait only for an event that was recorded: so a fence is set when the last copy
 *     has been submitted, for which its caller waits.  With a place for every window that was in
 *     the call; else copies are submitted as windows get their places.
 *     Late tensors have turns, and those of earlier ones are copied first: so a fence may be one
 * for a part of them.  Where windows share the pool, they are copied as the file has them, and a
 *     fence is for all.
 *  4. A window is staged when its copies are done, which events behind every CHUNK tell.
 *  5. What is not late is put aside where windows share the pool, since it could not wait for its
 *     window's turn: tensors in host memory, too.
 *  6. Before the pool or the tensors go away, nothing is in flight: offload_drain().
 */
#ifndef SNAPSHOT_OFFLOAD_H
#define SNAPSHOT_OFFLOAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "snapshot/devices.h"
#include "snapshot/image.h"

#define OFFLOAD_MAX_STREAMS 64u

/* A tensor that is late, in the order in which they are copied. */
struct offload_fenced_tensor {
    uint32_t turn;  /* as the program said (struct sidestep_tensor) */
    uint32_t item;  /* of the image */
    uint32_t chunk; /* of its lane: with its last byte */
};

/* One device in a save. */
struct offload_device {
    int32_t device;
    uint64_t bytes;
    uint32_t *chunks;     /* per window: the last chunk, from 1, that brings bytes of it */
    uint32_t first_event; /* of the device's: that of chunk 1 ... */
    uint32_t event_count; /* ... of so many, which are used in turn: see offload_segment_event() */
    uint32_t chunk_count; /* recorded */
    uint32_t early_count; /* ... of which with early ones */
    uint64_t since;       /* bytes submitted behind the last event */
    atomic_uint awaited;  /* chunks known to be done */
};

struct offload {
    struct devices *devices;
    struct image *image;
    struct arena arena; /* of this save */
    uint64_t bytes;     /* of tensors on devices; 0: no more of this is set */
    uint64_t late_bytes;
    int16_t *item_lanes; /* per item: its lane; -1: host memory */
    struct offload_device *lanes;
    size_t lane_count;
    struct offload_fenced_tensor *late;
    size_t late_count;
    struct sidestep_stream streams[OFFLOAD_MAX_STREAMS]; /* the program's */
    size_t stream_count;
    uint32_t *stream_events; /* per stream: its event on its lane */
    uint8_t *pool;           /* every window has its place; NULL: they share */
    atomic_bool aside_ready;
    unsigned promise_ms; /* 0: promises are believed; see offload_fence_check_end() */
    uint64_t *digests;   /* per tensor that is late: of what it was in the call */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        size_t submitted; /* windows, where they share the pool */
        bool all;         /* every copy was submitted */
        bool fenced;      /* offload_fence_check_trigger() was called */
    } shared;
};

void offload_init(struct offload *offload, struct devices *devices);
void offload_close(struct offload *offload);

/* Which tensors of ${image}, just bound, lie on devices, and which streams made them (none: the
 * default ones).  EINVAL: a tensor whose memory is not there, or a stream that is being captured.
 */
enum sidestep_status offload_prepare(struct offload *offload, struct image *image,
                                     const struct sidestep_stream *streams, size_t stream_count,
                                     struct sidestep_error *err);
/* Room for all that is not late. */
uint64_t offload_eager_bytes(const struct offload *offload);

/* Submit all copies to ${pool}, which has a place for every byte of the file. */
enum sidestep_status offload_begin(struct offload *offload, uint8_t *pool,
                                   struct sidestep_error *err);
/* Instead, where windows share the pool: copies are submitted by offload_stage().  ${aside}: what
 * is not late is put there now; NULL: the caller waits for all windows anyway. */
enum sidestep_status offload_begin_shared_pool(struct offload *offload, uint8_t *aside,
                                               struct sidestep_error *err);
/* What was put aside may be read. */
enum sidestep_status offload_wait_eager(struct offload *offload, struct sidestep_error *err);
/* The device's part of window ${i} is in ${buffer}.  Any thread, once per window. */
enum sidestep_status offload_stage(struct offload *offload, size_t i, uint8_t *buffer,
                                   struct sidestep_error *err);
/* Has every copy been submitted by now?  Waits for at most ${ms}. */
bool offload_wait_submitted(struct offload *offload, unsigned ms);
/* What is submitted to ${stream} from now on waits for the copies of all tensors up to ${turn},
 * which have been submitted; or the caller does, where a stream cannot. */
enum sidestep_status offload_fence(struct offload *offload, const struct sidestep_stream *stream,
                                   uint32_t turn, struct sidestep_error *err);
/* Only where SIDESTEP_FENCE_DEBUG says so (promise_ms): before offload_begin...(), what is late is
 * read; the caller waits for that, and for the program's streams. */
enum sidestep_status offload_fence_check_begin(struct offload *offload, struct sidestep_error *err);
/* Once all is staged: wait until offload_fence_check_trigger() is called, or for promise_ms, and
 * read it again.  EINVAL: a tensor has changed. */
enum sidestep_status offload_fence_check_end(struct offload *offload, struct sidestep_error *err);
void offload_fence_check_trigger(struct offload *offload);
/* The caller waits for what was submitted to ${stream}, unless it is being captured. */
enum sidestep_status offload_synchronize_stream(struct offload *offload,
                                                const struct sidestep_stream *stream,
                                                struct sidestep_error *err);

/* Wait for what is in flight; errors do not matter any more. */
void offload_drain(struct offload *offload);

#endif
