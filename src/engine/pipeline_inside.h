/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_inside.h -- what pipeline.c and press.c, the two ways of writing windows, share, and
 * nobody else includes. */
#ifndef ENGINE_PIPELINE_INSIDE_H
#define ENGINE_PIPELINE_INSIDE_H

#include "engine/pipeline.h"

enum window_state { WINDOW_EMPTY, WINDOW_STAGED, WINDOW_HASHED, WINDOW_WRITTEN };

/* Around what the writers do: where nobody else stages, it is done now; and all is staged, or the
 * first failure is returned. */
void pipeline_begin(struct pipeline *p);
enum sidestep_status pipeline_end(struct pipeline *p, struct sidestep_error *err);
uint8_t *pipeline_window(const struct pipeline *p, size_t i);
/* Those below: p->shared.lock is held. */
void pipeline_fail_locked(struct pipeline *p, const struct sidestep_error *why);
/* Is there a window to hash? */
bool pipeline_may_hash(const struct pipeline *p);
/* Take the next window, and hash it; the lock is released meanwhile. */
void pipeline_hash_next(struct pipeline *p);

#endif
