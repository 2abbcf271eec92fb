/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * incremental.h -- incremental saves.  Tensors that do not change (snapshot/unchanged.h) are
 * written once, into a second shard of their rank, the kept one; and as long as all of them are
 * what they were, later checkpoints of the series have that same file under a second name, by a
 * hard link.
 *
 * What is to be written is known only once it is hashed, and by then the trainer may have changed
 * it.  So the link is made first, windows that are what they were are let go, and should one
 * differ, those are read back from the file that has them, and a new one is written.
 */
#ifndef SAVE_INCREMENTAL_H
#define SAVE_INCREMENTAL_H

#include "commit/commit.h"
#include "snapshot/snapshot.h"

/* The kept shard's number. */
#define INCREMENTAL_UNCHANGED_SHARD 1u
/* Less than this is not worth a file. */
#define INCREMENTAL_MIN_BYTES ((uint64_t)1 << 20)
/* So many checkpoints may share a file with the one that wrote it: a bad block is in all of them.
 */
#define INCREMENTAL_MAX_LINKS 16u

/* A kept shard of this rank, in a checkpoint. */
struct incremental_shard {
    bool there;
    char dir[COMMIT_PATH_BYTES];
    char name[FILE_NAME_BYTES];
    char run_id[SAVE_ID_HEX];
    struct store_stat stat;
    uint32_t links; /* checkpoints that share it, but for the first */
};

/* What an engine knows of its incremental saves.  Zeroed, but for ${worth}: nothing. */
struct incremental_state {
    uint64_t worth;                /* bytes: INCREMENTAL_MIN_BYTES, less in tests of small states */
    bool pending;                  /* one has started since incremental_begin_save() */
    struct incremental_shard next; /* of that one */
    struct incremental_shard
        last; /* of the one before, which is committed; unchanged.h knows its hashes */
    struct commit_shared shared; /* rank 0: of the one that was committed last */
};

struct sidestep_save;
struct save_shard;

/* The layout has changed: nothing is known of it. */
void incremental_reset(struct incremental_state *keep);
/* Before image_bind(): which tensors of ${image} are kept by an incremental save. */
enum sidestep_status incremental_plan(struct incremental_state *keep, struct image *image,
                                      struct sidestep_error *err);
/* What became of the save before; and an incremental one starts, or another. */
void incremental_begin_save(struct incremental_state *keep, bool committed, bool starts);

/* In the background.  The kept shard, ${*file}: written but for its footer, or, ${*linked}, the one
 * of the checkpoint before. */
enum sidestep_status incremental_write_unchanged(struct sidestep_save *save,
                                                 const struct save_shard *shard,
                                                 struct store_file **file, bool *linked,
                                                 struct sidestep_error *err);
/* It is ${file}, which is about to be sealed. */
enum sidestep_status incremental_record_unchanged(struct sidestep_save *save,
                                                  struct store_file *file, bool linked,
                                                  struct sidestep_error *err);

#endif
