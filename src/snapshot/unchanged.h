/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unchanged.h -- what earlier saves of the same layout have found of each tensor: the hashes of its
 * blocks, and since when they are the same.  Tensors that do not change are put into a file of
 * their own, the kept one, so that later checkpoints can share it.
 */
#ifndef SNAPSHOT_UNCHANGED_H
#define SNAPSHOT_UNCHANGED_H

#include "snapshot/image.h"

/* Room for the hashes of all tensors of ${image}, once per layout; nothing is known yet. */
enum sidestep_status unchanged_prepare(struct image *image, struct sidestep_error *err);
/* Before image_bind(): the kept file is to have the tensors that the last two saves found equal,
 * if they are ${worth} bytes.  They come first in ${image} from now on. */
void unchanged_choose(struct image *image, uint64_t worth);
/* Is the choice as good as one that unchanged_choose() would make now?  Not if a kept tensor has
 * changed, nor if many others have not. */
bool unchanged_is_current(const struct image *image, uint64_t worth);
/* Is all data in kept window ${i}, which is hashed, what it was in the last save? */
bool unchanged_matches_previous(const struct image *image, size_t i);
/* Is what ${buffer} holds as window ${i}, which is hashed, what was hashed then? */
bool unchanged_matches_hashes(const struct image *image, size_t i, const uint8_t *buffer);
/* After a save that has hashed all: its hashes are known. */
void unchanged_record(struct image *image);

#endif
