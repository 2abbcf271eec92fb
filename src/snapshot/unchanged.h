/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unchanged.h -- tracks from save to save which tensors of a layout do not change, by the hashes of
 * their blocks.  Unchanged tensors are stored in a file of their own, the unchanged file, so that
 * later checkpoints can share it.
 */
#ifndef SNAPSHOT_UNCHANGED_H
#define SNAPSHOT_UNCHANGED_H

#include "snapshot/image.h"

/* Allocate the hashes for all tensors of ${image}.  Once per layout; no hash is known yet. */
enum sidestep_status unchanged_prepare(struct image *image, struct sidestep_error *err);
/* Before image_bind(): put the tensors that the last two saves found equal into the unchanged file,
 * if they have at least ${min_bytes} bytes.  From now on they come first in ${image}. */
void unchanged_choose(struct image *image, uint64_t min_bytes);
/* Is the choice still as good as one that unchanged_choose() would make now?  It is not if a tensor
 * of the unchanged file has changed, or if many other tensors have stayed unchanged. */
bool unchanged_is_current(const struct image *image, uint64_t min_bytes);
/* Is all data of window ${i} of the unchanged file, which is hashed, equal to the last save's? */
bool unchanged_matches_previous(const struct image *image, size_t i);
/* Does ${buffer} have the hashes of window ${i}? */
bool unchanged_matches_hashes(const struct image *image, size_t i, const uint8_t *buffer);
/* After a save that has hashed everything: record its hashes. */
void unchanged_record(struct image *image);

#endif
