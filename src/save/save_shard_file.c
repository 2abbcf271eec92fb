/* SPDX-License-Identifier: BSD-3-Clause */
/* save_shard_file.c -- creates the file of a shard and reserves space; see save_shard_file.h. */
#include "save/save_shard_file.h"

#include "save/save.h"

bool save_shard_file_is_compressed(const struct sidestep_save *save, const struct save_shard *shard)
{
    return save->compressor != NULL && shard->number != INCREMENTAL_UNCHANGED_SHARD;
}

/* Reserve space for the file.  A compressed shard may need less, so too little space is no error
 * for it. */
static enum sidestep_status allocate(struct sidestep_save *save, const struct save_shard *shard,
                                     struct store_file *file, struct sidestep_error *err)
{
    struct sidestep_error why;

    if (!save_shard_file_is_compressed(save, shard))
        TRY(store_file_allocate(file, shard->total_bytes, err));
    else if (store_file_allocate(file, shard->total_bytes, &why) != SIDESTEP_OK &&
             why.status != SIDESTEP_ENOSPC) {
        error_copy(err, &why);
        return (enum sidestep_status)why.status;
    }
    /* Set the size now, because requests that extend a file wait for each other. */
    return store_file_truncate(file, shard->total_bytes, err);
}

enum sidestep_status save_shard_file_create(struct sidestep_save *save,
                                            const struct save_shard *shard,
                                            struct store_file **file, struct sidestep_error *err)
{
    uint32_t flags = save->engine->direct_io ? STORE_DIRECT : 0;

    TRY(commit_shard_create(&save->commit, shard->number, flags, file, err));
    return allocate(save, shard, *file, err);
}
