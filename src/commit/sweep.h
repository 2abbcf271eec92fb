/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sweep.h -- removes what killed saves and interrupted deletes left behind, and has the steps by
 * which a checkpoint in a directory is deleted (root/deletion.h).
 *
 * Nothing is removed on a guess. A saving directory is removed if the lock on its marker can be
 * acquired (and, on network storage, the host of its owner is this host); if it belongs to a series
 * whose lock this process holds; or if it never had a marker. Removal goes through the
 * trash: rename, fsync(PARENT), remove .metadata, fsync(trash), remove the rest, rmdir. So a crash
 * at any point leaves nothing half-visible.
 */
#ifndef COMMIT_SWEEP_H
#define COMMIT_SWEEP_H

#include "store/store.h"

enum sweep_mode {
    SWEEP_ONE_OFF, /* leftovers of one-off saves and of deletions, whatever their names; of copies
                      only those to ${target} */
    SWEEP_SERIES,  /* this process holds the lock of the series; fence all other incarnations */
    SWEEP_ALL,     /* everything whose owner is dead */
};

struct sweep {
    struct store *store;
    struct store_dir *parent;
    enum sweep_mode mode;
    const char *target; /* SWEEP_ONE_OFF */
    bool dry_run;       /* report the same, and change nothing */
    /* Reports what was removed and what was kept. May be NULL. Names are relative to the parent, as
     * they were before the sweep. */
    void (*removed)(void *context, const char *name, uint64_t bytes);
    void (*kept)(void *context, const char *name, const char *reason);
    void *context;
};

/* Fence dead saves in the parent, and empty their directories. Best effort within a directory.
 * Fails if the parent cannot be listed or synced. */
enum sidestep_status sweep_parent(struct sweep *sweep, struct sidestep_error *err);

/* Sweep before a one-off save of ${target}. Ignores errors; the next sweep tries again. */
void sweep_one_off(struct store *store, struct store_dir *parent, const char *target);

/* Sweep ${dir}, a checkpoint directory in ${parent}: files of in-place saves whose owner is dead,
 * and what an interrupted clean-up left. True: it is a part of a checkpoint (commit.h). */
bool sweep_in_place(struct store_dir *parent, struct store_dir *dir);
/* The same in every directory of the parent, as ${sweep} says. Fails only if the parent cannot be
 * listed. */
enum sidestep_status sweep_child_dirs(struct sweep *sweep, struct sidestep_error *err);
/* Remove all files whose names contain ${save_id}, except those that .metadata references; the
 * marker last. If .metadata is of this save, remove only its votes. */
void sweep_save_files(struct store_dir *dir, const char *save_id);
/* Call it after the exchange has made .metadata that of ${save_id}. The old one is now
 * ".metadata.<save id>". Remove the files that only the old one references, its manifest, and
 * itself; then sync. */
void sweep_replaced_files(struct store_dir *dir, const char *save_id);

/* Move ${name} to the trash of ${save_id}. The move is durable on return with OK. */
enum sidestep_status sweep_move_to_trash(struct store_dir *parent, const char *name,
                                         const char *save_id, struct sidestep_error *err);
/* Move ${from} back to ${name}, because it is not what was to be deleted. EEXISTS: ${name} exists
 * again. */
enum sidestep_status sweep_restore(struct store_dir *parent, const char *from, const char *name,
                                   struct sidestep_error *err);
/* Does the directory ${name} hold only files of sidestep, and no save under way? Only then
 * may it be deleted as a whole. */
bool sweep_has_only_own_files(struct store_dir *parent, const char *name);
/* Is one of the names in directory ${name} a symbolic link? A checkpoint with links is not deleted:
 * somebody moved its files to another place, and keeps them there. */
bool sweep_has_links(struct store_dir *parent, const char *name);
/* Empty and remove a trash directory. Adds the freed bytes to ${*bytes}, unless NULL. ENOTFOUND
 * counts as success. EEXISTS: it holds files that sidestep did not make; they stay. */
enum sidestep_status sweep_empty_trash(struct store_dir *parent, const char *trash, uint64_t *bytes,
                                       struct sidestep_error *err);
/* Is it the name of a file that sidestep puts into a checkpoint or saving directory? */
bool sweep_is_own_name(const char *name);
/* Unlink a file, and add the bytes that this frees to ${*bytes}, unless NULL. True: this call
 * removed it. A link, a FIFO or a directory is not ours, whatever its name: it stays. */
bool sweep_unlink_file(struct store_dir *dir, const char *name, uint64_t *bytes);
#define SWEEP_NOT_A_FILE "it is not a file, so sidestep did not make it"
/* How many bytes the removal of directory ${name} would free. */
uint64_t sweep_reclaimable_bytes(struct store_dir *parent, const char *name);

#endif
