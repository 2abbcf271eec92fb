/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_shard.h -- the shards of one rank, in the background: each is a part of the image (kept
 * tensors, or all others), its footer, and a file that is made, written and sealed.
 */
#ifndef SAVE_SAVE_SHARD_H
#define SAVE_SAVE_SHARD_H

#include "base/error.h"
#include "store/store.h"

struct sidestep_save;

struct save_shard {
    uint32_t number;
    size_t first, count;       /* items of the image */
    uint64_t begin;            /* in the image */
    uint64_t body_bytes;       /* not encoded */
    uint64_t total_bytes;      /* with the footer */
    struct footer_item *items; /* room for what the footer says of them */
};

/* Make the file of ${shard}, with room for what is not encoded. */
enum sidestep_status save_shard_create(struct sidestep_save *save, const struct save_shard *shard,
                                       struct store_file **file, struct sidestep_error *err);
/* Write this rank's shards, and seal them. */
enum sidestep_status save_write_shards(struct sidestep_save *save, struct sidestep_error *err);

#endif
