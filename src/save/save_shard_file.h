/* SPDX-License-Identifier: BSD-3-Clause */
/* save_shard_file.h -- describes one shard of a rank, and creates its file. */
#ifndef SAVE_SAVE_SHARD_FILE_H
#define SAVE_SAVE_SHARD_FILE_H

#include "base/base.h"
#include "store/store.h"

struct sidestep_save;

/* The part of the image that goes to one file. */
struct save_shard {
    uint32_t number;           /* 0, or INCREMENTAL_UNCHANGED_SHARD */
    size_t first, count;       /* items of the image */
    uint64_t begin;            /* offset in the image */
    uint64_t body_bytes;       /* without compression */
    uint64_t total_bytes;      /* with the footer */
    struct footer_item *items; /* capacity for their footer entries */
};

/* Is ${shard} compressed?  The unchanged shard never is. */
bool save_shard_file_is_compressed(const struct sidestep_save *save,
                                   const struct save_shard *shard);
/* Create the file of ${shard}, and reserve space for it without compression. */
enum sidestep_status save_shard_file_create(struct sidestep_save *save,
                                            const struct save_shard *shard,
                                            struct store_file **file, struct sidestep_error *err);

#endif
