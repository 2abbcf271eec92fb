/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * incremental.h -- incremental saves: share the file of tensors that did not change.
 *
 * Tensors that do not change (snapshot/unchanged.h) are written once, into a second shard of their
 * rank, the unchanged shard.  As long as all of them stay the same, later checkpoints of the series
 * have the same file under a second name, by a hard link.
 *
 * Whether a window has changed is known only once it is hashed, and by then the trainer may have
 * changed the memory.  So the link is made first, and windows that match it are skipped.  If a
 * window differs, a new file is written, and the skipped windows are copied from the linked file.
 */
#ifndef SAVE_INCREMENTAL_H
#define SAVE_INCREMENTAL_H

#include "commit/commit.h"
#include "snapshot/snapshot.h"

/* The number of the unchanged shard. */
#define INCREMENTAL_UNCHANGED_SHARD 1u
/* Fewer bytes do not get a file of their own. */
#define INCREMENTAL_MIN_BYTES ((uint64_t)1 << 20)
/* How many later checkpoints may share a file: a bad block damages all of them. */
#define INCREMENTAL_MAX_LINKS 16u

/* The unchanged shard of this rank in one checkpoint. */
struct incremental_shard {
    bool exists;
    char dir[COMMIT_PATH_BYTES];
    char name[FILE_NAME_BYTES];
    char run_id[SAVE_ID_HEX];
    struct store_stat stat;
    uint32_t links; /* later checkpoints that share it */
};

/* What an engine knows of its incremental saves.  Zero, except for ${min_bytes}: nothing. */
struct incremental_state {
    uint64_t min_bytes;            /* INCREMENTAL_MIN_BYTES, less in tests of small states */
    bool pending;                  /* the last save that started was incremental */
    struct incremental_shard next; /* the shard of that save */
    struct incremental_shard last; /* the last committed one; unchanged.h has its hashes */
    struct commit_shared shared;   /* rank 0: the shared files of the last committed save */
};

struct sidestep_save;
struct save_shard;

/* Forget everything, because the layout has changed. */
void incremental_reset(struct incremental_state *state);
/* Decide which tensors of ${image} go to the unchanged shard.  Call before image_bind(). */
enum sidestep_status incremental_plan(struct incremental_state *state, struct image *image,
                                      struct sidestep_error *err);
/* Record that a save starts, whether it is ${incremental}, and whether the save before it was
 * ${committed}. */
void incremental_begin_save(struct incremental_state *state, bool committed, bool incremental);

/* In the background: link or write the unchanged shard.  If ${*linked}, ${*file} is the file of the
 * previous checkpoint.  Otherwise it is a new file that lacks only its footer. */
enum sidestep_status incremental_write_unchanged(struct sidestep_save *save,
                                                 const struct save_shard *shard,
                                                 struct store_file **file, bool *linked,
                                                 struct sidestep_error *err);
/* Record ${file} as the unchanged shard of this save.  Call just before it is sealed. */
enum sidestep_status incremental_record_unchanged(struct sidestep_save *save,
                                                  struct store_file *file, bool linked,
                                                  struct sidestep_error *err);

#endif
