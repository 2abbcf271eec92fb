/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pipeline.h -- a shard file on its way from the trainer's memory to storage.
 *
 *      stage (copy)  ->  hash  ->  finish (tails) and write
 *
 * Windows pass in order through three cursors.  With a pool as large as the file each window has a
 * place of its own, and staging never waits; under a smaller cap the windows share slots, and
 * staging waits for the write that frees one.
 *
 * Staging is done in the call, or (pipeline_hold()) the tensors' memory is write-protected in the
 * call, and windows are staged behind the trainer's back.  Tensors on devices (pipeline_offload())
 * come into the windows on the devices' own streams, in either case.
 */
#ifndef ENGINE_PIPELINE_H
#define ENGINE_PIPELINE_H

#include <pthread.h>

#include "base/workers.h"
#include "engine/neighbour.h"
#include "snapshot/cow.h"
#include "snapshot/image.h"
#include "snapshot/offload.h"
#include "snapshot/pool.h"
#include "store/store_queue.h"

/* The smallest cap: two slots. */
#define PIPELINE_MIN_POOL_BYTES (2 * IMAGE_WINDOW_MAX_BYTES)
/* Threads that stage behind the trainer's back: they take its memory's bandwidth. */
#define PIPELINE_COPIERS 2u

struct pipeline {
    struct image *image;
    uint8_t *pool;
    uint64_t pool_bytes;
    size_t slots;               /* 0: every window has its own place */
    struct cow *cow;            /* pipeline_hold() was called ... */
    struct workers *stagers;    /* ... and these stage, ... */
    struct workers_job staging; /* ... until pipeline_settle() */
    struct offload *offload;    /* tensors are on devices */
    bool host_copied;           /* those in host memory are in their windows already */
    void (*released)(void *context);
    void *context;
    /* May be set before pipeline_write(): to whom the writers give way (NULL: nobody), and how fast
     * they write unless somebody waits (0: as it goes). */
    struct neighbour *neighbour;
    uint64_t bytes_per_second;
    atomic_bool stop; /* as shared.failed, for those that wait elsewhere */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        uint8_t *states; /* per window: enum window_state */
        size_t stage_next;
        size_t staged;
        size_t hash_next;
        size_t hashed; /* all windows before it are hashed */
        size_t write_next;
        size_t written;
        uint64_t staged_bytes;
        uint64_t written_bytes;
        uint64_t held_ns; /* of all writers, by the neighbour */
        bool used_ring;   /* a window went through io_uring */
        bool failed;
        struct sidestep_error err; /* the first */
    } shared;
};

/* Bytes of pool that the image would like. */
uint64_t pipeline_wanted_bytes(const struct image *image);
enum sidestep_status pipeline_init(struct pipeline *p, struct image *image, struct pool *pool,
                                   struct sidestep_error *err);
void pipeline_release(struct pipeline *p);

/* Copy all windows, on the caller and ${workers}.  Returns early if the write has failed. */
void pipeline_stage(struct pipeline *p, struct workers *workers);
/* Instead: write-protect what ${cow} was prepared for, copy what it cannot hold, and return ... */
void pipeline_hold(struct pipeline *p, struct cow *cow, struct workers *workers,
                   void (*released)(void *context), void *context);
/* Tensors on devices are brought by ${offload}, which has begun: before any of these functions ...
 */
void pipeline_offload(struct pipeline *p, struct offload *offload);
/* ... and instead of them, if no call is to wait for it.  With a place for each window (and no
 * pipeline_hold()) the tensors in host memory are copied first; else they were put aside. */
void pipeline_leave(struct pipeline *p, struct workers *workers, void (*released)(void *context),
                    void *context);
/* Give up ${bytes} at the beginning of the pool, which windows share; NULL: too few would be left.
 */
uint8_t *pipeline_put_aside(struct pipeline *p, uint64_t bytes);
/* ... and then let ${workers} stage the rest in the background; without any, pipeline_write() does.
 * ${released} is called, on whatever thread, when all is staged.  Only with a place for each
 * window. */
void pipeline_start_staging(struct pipeline *p);
/* End what pipeline_hold() or _leave() began: all is staged, or the write has failed.  Before the
 * pool or the image is used again, and before the caller is told the end.  Else a no-op. */
void pipeline_settle(struct pipeline *p);
/* Hash and write all windows to ${file}, on the caller and ${workers}, as they are staged. */
enum sidestep_status pipeline_write(struct pipeline *p, struct store_file *file,
                                    const struct store_queue_kind *kind, struct workers *workers,
                                    struct sidestep_error *err);
/* Make both of the above return soon, because of ${why}. */
void pipeline_fail(struct pipeline *p, const struct sidestep_error *why);
void pipeline_progress(struct pipeline *p, uint64_t *staged_bytes, uint64_t *written_bytes);

#endif
