/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pipeline.h -- moves a shard file, window by window, from the trainer's memory to storage.
 *
 *      stage (copy)  ->  hash  ->  finish (tails) and write
 *
 * Three cursors move over the windows, in order: staged, hashed, written.  If the pool is as large
 * as the file, each window has a slot of its own, and staging never waits.  Otherwise windows share
 * slots (pool_slots.h), and staging waits for a write that returns a slot.
 *
 * By copy, windows are staged in the call.  With pipeline_protect(), the call only write-protects
 * the memory of the tensors, and windows are staged in the background.  As long as the trainer does
 * not write to the tensors, the writers stage them, and use only as much of the pool as keeps the
 * disk busy.  Otherwise copiers stage them, as far ahead of the writers as the pool has capacity.
 *
 * In either case, the copy engines of devices copy tensors on devices into the windows
 * (${offload}).  If the call has nothing else to wait for, it does not wait for them
 * (pipeline_defer_staging()).
 */
#ifndef SAVE_PIPELINE_H
#define SAVE_PIPELINE_H

#include "base/base.h"
#include "engine/engine.h"
#include "snapshot/snapshot.h"
#include "store/store.h"

/* The smallest pool: two windows. */
#define PIPELINE_MIN_POOL_BYTES (2 * IMAGE_WINDOW_MAX_BYTES)
/* Threads that stage in the background.  Few, because they take memory bandwidth from the
 * trainer. */
#define PIPELINE_COPIERS 2u

struct pipeline {
    struct image *image;
    const struct pool *pool;
    uint64_t pool_bytes; /* the first bytes of ${pool} that this save uses */
    bool pool_is_pinned; /* a device driver has pinned it: do not return pages */
    struct pool_slots *slots;
    bool shares_pool;           /* staged by copy, and the pool is smaller than the file */
    struct offload *offload;    /* set if tensors are on devices */
    bool host_copied;           /* tensors in host memory were staged in the call */
    struct cow *cow;            /* set by pipeline_protect() */
    struct workers *stagers;    /* run ${staging}; NULL: nothing to finish */
    struct workers_job staging; /* ended by pipeline_finish_staging() */
    uint64_t fault_threshold;   /* copiers begin after this many page faults */
    bool trims_pool;            /* see pipeline_trim_pool() */
    bool writers_stage;         /* writers stage until copiers begin, or if there are none */
    atomic_bool copiers_started;
    _Atomic uint64_t ahead_bytes; /* staged by the copiers */
    /* Of the threads that copied in the background, hashed and wrote: see struct thread_time. */
    _Atomic uint64_t ran_ns;
    _Atomic uint64_t waited_ns;
    void (*released)(void *context);
    void *context;
    struct throttle *throttle; /* of the writers; NULL: none; set before pipeline_write() */
    uint64_t bytes_per_second; /* bandwidth limit while nobody waits; 0: none */
    size_t end_window;         /* only windows before this one are written now */
    atomic_bool stop;          /* copy of shared.failed, for waits outside the lock */
    struct {
        struct lock lock LOCK_KIND(PIPELINE);
        struct lock_condition changed;
        uint8_t *states GUARDED_BY(&lock); /* per window: enum window_state */
        size_t stage_next GUARDED_BY(&lock);
        size_t staged GUARDED_BY(&lock);
        size_t hash_next GUARDED_BY(&lock);
        size_t hashed GUARDED_BY(&lock);      /* all windows before it are hashed */
        size_t write_first GUARDED_BY(&lock); /* all windows before it are written */
        size_t write_next GUARDED_BY(&lock);
        size_t written GUARDED_BY(&lock);
        uint64_t staged_bytes GUARDED_BY(&lock);
        uint64_t written_bytes GUARDED_BY(&lock);
        uint64_t held_ns GUARDED_BY(&lock); /* waits for the throttle, summed over the writers */
        /* Back-off because others read from the disk, counted up to ${backed_off_at_ns}, which is 0
         * while there is none. */
        uint64_t backed_off_ns GUARDED_BY(&lock);
        uint64_t backed_off_at_ns GUARDED_BY(&lock);
        bool used_ring GUARDED_BY(&lock); /* a window was written through io_uring */
        bool failed GUARDED_BY(&lock);
        struct sidestep_error err GUARDED_BY(&lock); /* the first error */
    } shared;
};

/* Bytes of a pool with a slot for each window. */
uint64_t pipeline_full_pool_bytes(const struct image *image);
enum sidestep_status pipeline_init(struct pipeline *p, struct image *image, struct pool *pool,
                                   uint64_t pool_bytes, struct sidestep_error *err);
void pipeline_release(struct pipeline *p);

/* Copy all windows, on the caller and ${workers}.  Returns early if the write has failed. */
void pipeline_stage(struct pipeline *p, struct workers *workers);
/* Call instead of pipeline_stage(): write-protect what ${cow} was prepared for, and copy the rest
 * eagerly.  False: protecting has failed, and nothing has changed; call pipeline_stage(). */
bool pipeline_protect(struct pipeline *p, struct cow *cow, struct workers *workers,
                      void (*released)(void *context), void *context) ON_THREAD(CALLER);
/* Reserve ${bytes} of a shared pool for eager copies.  NULL: too few would be left for windows. */
uint8_t *pipeline_reserve_eager(struct pipeline *p, uint64_t bytes);
/*
 * Leave staging to the background.  Call it instead of pipeline_stage(), if only devices are left
 * to wait for, or if nobody changes the state before ${released}.  Or call it after
 * pipeline_protect(), which protects what is in host memory, or after pipeline_reserve_eager(), for
 * what may change. With an offload, a slot for each window and nothing protected, it first copies
 * the tensors in host memory.
 */
void pipeline_defer_staging(struct pipeline *p, struct workers *workers,
                            void (*released)(void *context), void *context);
/* Start the copiers, on the workers of pipeline_protect() or pipeline_defer_staging().  They begin
 * after ${fault_threshold} page faults (0: at once; required if nothing is protected).  Until then,
 * or without workers, pipeline_write() stages.  The last thread that stages calls ${released}. */
void pipeline_start_staging(struct pipeline *p, uint64_t fault_threshold);
/* Wait until what pipeline_protect() or pipeline_defer_staging() began has ended: all is staged, or
 * the write has failed.  Call before the pool or the image is used again, and before the end of the
 * save is reported.  A no-op if neither was called. */
void pipeline_finish_staging(struct pipeline *p);
/* The threads that write: the caller and ${workers}, at most ${threads} in all. */
struct pipeline_writers {
    const struct store_queue_config *config;
    struct workers *workers;
    unsigned threads;
};
/* Hash the windows of the unchanged file as they are staged, and write each to the file that
 * ${choose} returns (NULL: do not write it).  ${choose} is called once per hashed window, by any
 * thread.  Call before pipeline_write(), and only if the image has such a file. */
struct pipeline_target {
    enum sidestep_status (*choose)(void *context, size_t window, struct store_file **file,
                                   struct sidestep_error *err);
    void *context;
};
enum sidestep_status pipeline_write_unchanged(struct pipeline *p,
                                              const struct pipeline_target *target,
                                              const struct pipeline_writers *writers,
                                              struct sidestep_error *err);
/* Hash and write all other windows to ${file}, as they are staged. */
enum sidestep_status pipeline_write(struct pipeline *p, struct store_file *file,
                                    const struct pipeline_writers *writers,
                                    struct sidestep_error *err);
/* Call after writing: return unused pool memory to the system, if ->trims_pool is set. */
void pipeline_trim_pool(struct pipeline *p);
/* Make staging and writing return soon, with the error ${why}. */
void pipeline_fail(struct pipeline *p, const struct sidestep_error *why);
void pipeline_get_progress(struct pipeline *p, uint64_t *staged_bytes, uint64_t *written_bytes);

#endif
