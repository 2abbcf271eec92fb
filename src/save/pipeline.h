/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pipeline.h -- a shard file on its way from the trainer's memory to storage.
 *
 *      stage (copy)  ->  hash  ->  finish (tails) and write
 *
 * Windows pass in order through three cursors.  With a pool as large as the file each window has a
 * place of its own, and staging never waits; else windows share the pool (pool_slots.h), and
 * staging waits for the write that frees a place.
 *
 * Staging is done in the call, or (pipeline_protect()) the tensors' memory is write-protected in
 * the call, and windows are staged behind the trainer's back: by copiers, who run as far ahead of
 * the writers as there is room; or, as long as the trainer lets the state be, by the writers
 * themselves, who take no more of the pool than they need to keep the disk busy, and none for
 * windows that the file can take from where they lie in memory.
 *
 * Tensors on devices (pipeline_set_offload()) come into the windows on the devices' own streams, in
 * either case; and if the call has nothing else to wait for, it does not wait for them
 * (pipeline_defer_staging()).
 */
#ifndef SAVE_PIPELINE_H
#define SAVE_PIPELINE_H

#include <pthread.h>

#include "base/base.h"
#include "engine/engine.h"
#include "snapshot/snapshot.h"
#include "store/store.h"

/* The smallest cap: two windows. */
#define PIPELINE_MIN_POOL_BYTES (2 * IMAGE_WINDOW_MAX_BYTES)
/* Threads that stage behind the trainer's back: they take its memory's bandwidth. */
#define PIPELINE_COPIERS 2u

struct pipeline {
    struct image *image;
    const struct pool *pool;
    uint64_t pool_bytes; /* from its beginning on, that this save uses */
    bool pool_stays;     /* a device's driver knows its pages: none is given back */
    struct pool_slots *places;
    bool streamed;              /* by copy, which uses less of the pool than the file takes */
    struct offload *offload;    /* tensors are on devices ... */
    bool host_copied;           /* ... and those in host memory are in their windows already */
    struct cow *cow;            /* pipeline_protect() was called ... */
    struct workers *stagers;    /* ... or _stage_later(), and these stage, ... */
    struct workers_job staging; /* ... until pipeline_finish_staging() */
    uint64_t patience;          /* copiers begin after so many faults */
    bool trims;         /* gives back what is not needed of the pool: see pipeline_trim_pool() */
    bool writers_stage; /* where copiers wait, or there are none */
    atomic_bool copiers_run;
    _Atomic uint64_t ahead_bytes; /* they have staged */
    void (*released)(void *context);
    void *context;
    /* May be set before pipeline_write(): to whom the writers give way (NULL: nobody), and how fast
     * they write unless somebody waits (0: as it goes). */
    struct throttle *neighbour;
    uint64_t bytes_per_second;
    size_t until;     /* windows before this one are written now */
    atomic_bool stop; /* as shared.failed, for those that wait elsewhere */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        uint8_t *states; /* per window: enum window_state */
        uint8_t *live;   /* per window: it is written from where it lies */
        size_t stage_next;
        size_t staged;
        size_t hash_next;
        size_t hashed;      /* all windows before it are hashed */
        size_t write_first; /* all windows before it are written; maybe some behind it, too */
        size_t write_next;
        size_t written;
        uint64_t staged_bytes;
        uint64_t written_bytes;
        uint64_t live_bytes;
        uint64_t held_ns;          /* of all writers, by the neighbour */
        uint64_t backed_off_ns;    /* because others read from the disk, until ... */
        uint64_t backed_off_at_ns; /* ... then, if still so; else 0 */
        bool used_ring;            /* a window went through io_uring */
        bool failed;
        struct sidestep_error err; /* the first */
    } shared;
};

/* Bytes of pool that the image would like. */
uint64_t pipeline_full_pool_bytes(const struct image *image);
enum sidestep_status pipeline_init(struct pipeline *p, struct image *image, struct pool *pool,
                                   uint64_t pool_bytes, struct sidestep_error *err);
void pipeline_release(struct pipeline *p);

/* Copy all windows, on the caller and ${workers}.  Returns early if the write has failed. */
void pipeline_stage(struct pipeline *p, struct workers *workers);
/* Instead: write-protect what ${cow} was prepared for, copy what it cannot hold, and return ...
 * False: it cannot be after all, nothing has changed, and pipeline_stage() is to be called. */
bool pipeline_protect(struct pipeline *p, struct cow *cow, struct workers *workers,
                      void (*released)(void *context), void *context);
/* Tensors on devices are brought by ${offload}, which has begun: before pipeline_stage(), _hold()
 * or _stage_later(). */
void pipeline_set_offload(struct pipeline *p, struct offload *offload);
/* Where windows share the pool: ${bytes} of it that none of them gets; NULL: too few would be left.
 */
uint8_t *pipeline_reserve_eager(struct pipeline *p, uint64_t bytes);
/* Nothing but devices is left to wait for, or nobody changes the state before ${released}.  Instead
 * of pipeline_stage(), or after pipeline_protect() for what lies in host memory, or
 * pipeline_reserve_eager() for what would change.  Beside devices, and with a place for each window
 * and nothing held, what lies in host memory is copied first. */
void pipeline_defer_staging(struct pipeline *p, struct workers *workers,
                            void (*released)(void *context), void *context);
/* ... and then let the workers stage the rest in the background, after ${patience} faults (0: at
 * once, as it must be where nothing is held); until then, or without any, pipeline_write() does.
 * ${released} is called, on whatever thread, when all is staged. */
void pipeline_start_staging(struct pipeline *p, uint64_t patience);
/* End what pipeline_protect() or _stage_later() began: all is staged, or the write has failed.
 * Before the pool or the image is used again, and before the caller is told the end.  Else a no-op.
 */
void pipeline_finish_staging(struct pipeline *p);
/* Who writes: the caller and ${workers}, ${threads} of them at most and together. */
struct pipeline_writers {
    const struct store_queue_config *kind;
    struct workers *workers;
    unsigned threads;
};
/* Hash the windows of the image's kept file, as they are staged, and write them to where ${choose}
 * says, which is asked for each of them once it is hashed, by any thread: NULL, and it need not be
 * written.  Before pipeline_write(); the image has such a file. */
struct pipeline_target {
    enum sidestep_status (*choose)(void *context, size_t window, struct store_file **file,
                                   struct sidestep_error *err);
    void *context;
};
enum sidestep_status pipeline_write_unchanged(struct pipeline *p,
                                              const struct pipeline_target *choice,
                                              const struct pipeline_writers *crew,
                                              struct sidestep_error *err);
/* Hash and write all other windows to ${file}, as they are staged. */
enum sidestep_status pipeline_write(struct pipeline *p, struct store_file *file,
                                    const struct pipeline_writers *crew,
                                    struct sidestep_error *err);
/* Once that is done: what was not needed of the pool goes back to the system, if it was set to. */
void pipeline_trim_pool(struct pipeline *p);
/* Make both of the above return soon, because of ${why}. */
void pipeline_fail(struct pipeline *p, const struct sidestep_error *why);
void pipeline_get_progress(struct pipeline *p, uint64_t *staged_bytes, uint64_t *written_bytes);

#endif
