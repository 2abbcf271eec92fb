/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sweep.h -- removing what killed saves and interrupted deletes left behind, and deleting.
 *
 * Nothing is removed on a guess: a saving directory belongs to the dead if the lock on its mark
 * can be taken (and, on network storage, if its owner's host is ours), or if it is a series'
 * and we hold the series' lock.  Removal goes through the trash: rename, fsync(PARENT), .metadata
 * first, fsync(trash), the rest, rmdir; so a crash anywhere leaves nothing half-visible.
 */
#ifndef COMMIT_SWEEP_H
#define COMMIT_SWEEP_H

#include "store/store.h"

enum sweep_mode {
    SWEEP_ONE_OFF, /* leftovers of one-off saves of ${target} */
    SWEEP_SERIES,  /* we hold the series' lock: everything of other incarnations is fenced */
    SWEEP_ALL,     /* everything whose owner is dead */
};

struct sweep {
    struct store *store;
    struct store_dir *parent;
    enum sweep_mode mode;
    const char *target; /* SWEEP_ONE_OFF */
    bool dry_run;       /* say the same, and change nothing */
    /* May be NULL.  Names are relative to the parent, and those from before the sweep. */
    void (*removed)(void *context, const char *name, uint64_t bytes);
    void (*kept)(void *context, const char *name, const char *reason);
    void *context;
};

/* Fence and empty.  Best effort within a directory; fails if the parent cannot be listed or synced.
 */
enum sidestep_status sweep_parent(struct sweep *sweep, struct sidestep_error *err);

/* Leftovers of one-off saves of NAME; errors are left for the next time. */
void sweep_one_off(struct store *store, struct store_dir *parent, const char *target);

/* In NAME itself, a directory in ${parent}: files of in-place saves whose owner is dead, and what
 * an interrupted clean-up left. */
void sweep_in_place(struct store_dir *parent, struct store_dir *dir);
/* The same in every directory of the parent, as ${sweep} says; fails only if it cannot be listed.
 */
enum sidestep_status sweep_child_dirs(struct sweep *sweep, struct sidestep_error *err);
/* All files that carry ${save_id}, except those that .metadata names; the mark last.  If .metadata
 * is of this save: only its votes. */
void sweep_save_files(struct store_dir *dir, const char *save_id);
/* After .metadata of ${save_id} was exchanged in: unlink what the one that came out
 * (".metadata.<save id>") names and ours does not, its manifest, and itself; sync. */
void sweep_replaced_files(struct store_dir *dir, const char *save_id);

/* Move ${name} to the trash of ${save_id}: durable when it returns OK. */
enum sidestep_status sweep_move_to_trash(struct store_dir *parent, const char *name,
                                         const char *save_id, struct sidestep_error *err);
/* The way back, for what turns out to be something else than was meant.  EEXISTS: there is
 * something under ${name} again. */
enum sidestep_status sweep_restore(struct store_dir *parent, const char *from, const char *name,
                                   struct sidestep_error *err);
/* Does the checkpoint ${name} hold nothing but what its save put there, and is no save under way in
 * it?  Only then can it go as a whole. */
bool sweep_has_only_own_files(struct store_dir *parent, const char *name);
/* Empty and remove a trash directory.  ENOTFOUND is success.  EEXISTS: it holds files that are
 * not ours, which stay. */
enum sidestep_status sweep_empty_trash(struct store_dir *parent, const char *trash, uint64_t *bytes,
                                       struct sidestep_error *err);
/* What that would free of the directory ${name}. */
uint64_t sweep_reclaimable_bytes(struct store_dir *parent, const char *name);

#endif
