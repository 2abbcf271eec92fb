/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_shard.h -- writes the shards of one rank, in the background.
 *
 * Each shard is a part of the image (unchanged tensors, or all others) and a footer, in a file that
 * is made, written and sealed.
 */
#ifndef SAVE_SAVE_SHARD_H
#define SAVE_SAVE_SHARD_H

#include "base/base.h"

struct sidestep_save;

/* Write and seal the shards of this rank. */
enum sidestep_status save_write_shards(struct sidestep_save *save, struct sidestep_error *err)
    ON_THREAD(RUNNER);

#endif
