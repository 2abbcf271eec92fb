/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_internal.h -- internal header of pipeline.c (staging), pipeline_write.c and compressor.c
 * (the two ways of writing windows). */
#ifndef SAVE_PIPELINE_INTERNAL_H
#define SAVE_PIPELINE_INTERNAL_H

#include "save/pipeline.h"

enum window_state { WINDOW_EMPTY, WINDOW_STAGED, WINDOW_HASHED, WINDOW_WRITTEN };

/* The calling thread begins, and ends, to write: with low priority unless the trainer waits.
 * ${began}: its time at the beginning. */
void pipeline_writer_begin(struct pipeline *p, struct thread_time *began);
void pipeline_writer_end(struct pipeline *p, const struct thread_time *began);
/* Count the time of the calling thread since ${began}. */
void pipeline_count_time(struct pipeline *p, const struct thread_time *began);
/* Locked: is the next window hashed, and do the writes in flight allow one more? */
bool pipeline_can_start_write(struct pipeline *p) REQUIRES(&p->shared.lock);
/* Locked: may one more write start beside ${in_flight} others?  Not while others read from the
 * disk, unless it is the only one. */
bool pipeline_can_add_request(struct pipeline *p, size_t in_flight) REQUIRES(&p->shared.lock);
/* Wait until the throttle allows to write ${bytes}.  Returns the nanoseconds waited. */
uint64_t pipeline_acquire_bandwidth(struct pipeline *p, uint64_t bytes);
/* The same without waiting; false: not now. */
bool pipeline_try_acquire_bandwidth(struct pipeline *p, uint64_t bytes);
/* Stage window ${i}, which the caller has taken; false: the save has failed. */
bool pipeline_stage_taken(struct pipeline *p, size_t i) EXCLUDES(&p->shared.lock);
/* Count window ${i} as staged.  The last one releases the state. */
void pipeline_count_staged(struct pipeline *p, size_t i) EXCLUDES(&p->shared.lock);
/* Call after the writers: wait until staging has ended.  Returns the first failure. */
enum sidestep_status pipeline_finish(struct pipeline *p, struct sidestep_error *err);
/* Record the failure.  The first one counts. */
void pipeline_fail_locked(struct pipeline *p, const struct sidestep_error *why)
    REQUIRES(&p->shared.lock);
/* Is there a window to hash? */
bool pipeline_can_hash(const struct pipeline *p) REQUIRES(&p->shared.lock);
/* Take the next window and hash it.  Releases the lock in the meantime. */
void pipeline_hash_next(struct pipeline *p) REQUIRES(&p->shared.lock);
/* Stage a window, if writers stage.  Releases the lock in the meantime.  False: it staged none. */
bool pipeline_stage_next(struct pipeline *p) REQUIRES(&p->shared.lock);
/* Window ${i} is no longer needed: return its slot. */
void pipeline_window_done(struct pipeline *p, size_t i) REQUIRES(&p->shared.lock);
/* Lower the priority of this thread again, if it was raised for a trainer that waited. */
void pipeline_restore_priority(struct pipeline *p);

#endif
