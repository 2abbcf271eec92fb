/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_internal.h -- what pipeline.c (staging), pipeline_write.c and compressor.c (the two ways
 * of writing windows) share, and nobody else includes. */
#ifndef SAVE_PIPELINE_INTERNAL_H
#define SAVE_PIPELINE_INTERNAL_H

#include "save/pipeline.h"

enum window_state { WINDOW_EMPTY, WINDOW_STAGED, WINDOW_HASHED, WINDOW_WRITTEN };

/* The calling thread begins to write, behind the trainer's back unless it waits; and ends. */
void pipeline_writer_begin(struct pipeline *p);
void pipeline_writer_end(struct pipeline *p);
/* Locked: may the next window's write start, as far as other windows are concerned? */
bool pipeline_can_start_write(struct pipeline *p);
/* Locked: may one more write start beside those in flight, as far as others need the disk? */
bool pipeline_can_add_request(struct pipeline *p, size_t in_flight);
/* Before a write of so many bytes: wait for whom the writers give way to; nanoseconds. */
uint64_t pipeline_acquire_bandwidth(struct pipeline *p, uint64_t bytes);
/* The same without waiting; false: not now. */
bool pipeline_try_acquire_bandwidth(struct pipeline *p, uint64_t bytes);
/* Stage window ${i}, which was taken; false: the save has failed. */
bool pipeline_stage_taken(struct pipeline *p, size_t i);
/* Window ${i} is staged; the last one releases the state. */
void pipeline_count_staged(struct pipeline *p, size_t i);
/* After the writers: all is staged, or the first failure is returned. */
enum sidestep_status pipeline_finish(struct pipeline *p, struct sidestep_error *err);
/* Those below: p->shared.lock is held. */
void pipeline_fail_locked(struct pipeline *p, const struct sidestep_error *why);
/* Is there a window to hash? */
bool pipeline_can_hash(const struct pipeline *p);
/* Take the next window, and hash it; the lock is released meanwhile. */
void pipeline_hash_next(struct pipeline *p);
/* Stage a window, if this is the writers' business; the lock is released meanwhile. */
bool pipeline_stage_next(struct pipeline *p);
/* Nobody needs window ${i} any more: its place is free. */
void pipeline_window_done(struct pipeline *p, size_t i);
/* Whoever was hurried on by a trainer that waited goes on as before. */
void pipeline_restore_priority(struct pipeline *p);

#endif
