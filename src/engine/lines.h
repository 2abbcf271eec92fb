/* SPDX-License-Identifier: BSD-3-Clause */
/* lines.h -- which checkpoints a run has left behind by going back to an older one. */
#ifndef ENGINE_LINES_H
#define ENGINE_LINES_H

#include "commit/marks.h"

/*
 * Going back marks what is newer as abandoned; but a mark can be lost, and cannot be put on what
 * could not be read at that time.  So, besides: of one run, what an older incarnation
 * made at a step that a later one has passed through is of a line that has ended, unless it was
 * gone on from by name (MARKS_ADOPTED).  ${entries} are sorted by step; sets their is_abandoned.
 */
void lines_find_ended(struct sidestep_listed *entries, size_t count, const struct marks *marks);

#endif
