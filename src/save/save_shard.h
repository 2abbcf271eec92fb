/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_shard.h -- the shards of one rank, in the background: each is a part of the image (kept
 * tensors, or all others), its footer, and a file that is made, written and sealed.
 */
#ifndef SAVE_SAVE_SHARD_H
#define SAVE_SAVE_SHARD_H

#include "base/base.h"

struct sidestep_save;

/* Write this rank's shards, and seal them. */
enum sidestep_status save_write_shards(struct sidestep_save *save, struct sidestep_error *err);

#endif
