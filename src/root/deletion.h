/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * deletion.h -- deletes a checkpoint as a whole.
 *
 * In order: look whether it may go; hide it, so that nobody begins to read it; look once more, and
 * restore it if it must stay; then remove its files. What a kill leaves is no checkpoint, and a
 * sweep removes it.
 */
#ifndef ROOT_DELETION_H
#define ROOT_DELETION_H

#include "commit/commit.h"

#define DELETION_WAS_REPLACED "another save has replaced it meanwhile"

struct deletion {
    /* Set by the caller. */
    struct store_dir *root;
    const char *name;
    const char *save_id; /* delete it only if it is this save; NULL: any */

    /* In a directory. */
    struct store_file *lock; /* on .metadata, keeps readers out */
    char trash[FILE_NAME_BYTES];
    /* In a bucket. */
    struct object_doomed doomed;
};

struct deletion_ops {
    /* A quick look, without a lock: why it must stay; NULL: nothing so far. */
    const char *(*find_objection)(struct store_dir *root, const char *name, const char *save_id);
    /* ELOCKED, EPERM: why it must stay. ENOTFOUND: it is gone. */
    enum sidestep_status (*look)(struct deletion *deletion, struct sidestep_error *err);
    /* How many bytes its deletion frees. */
    uint64_t (*bytes)(const struct deletion *deletion);
    /* The checkpoint exists no more. */
    enum sidestep_status (*hide)(struct deletion *deletion, struct sidestep_error *err);
    /* Is what was hidden another checkpoint than the one that was looked at? */
    bool (*was_replaced)(const struct deletion *deletion);
    /* EEXISTS: another one has its name by now. */
    enum sidestep_status (*restore)(struct deletion *deletion, struct sidestep_error *err);
    /* Remove the files, and add their bytes to ${*bytes}, unless NULL. */
    enum sidestep_status (*finish)(struct deletion *deletion, uint64_t *bytes,
                                   struct sidestep_error *err);
};

/* Accepts a deletion that was never looked at. */
void deletion_release(struct deletion *deletion);
#define OWNED_DELETION __attribute__((cleanup(deletion_release))) struct deletion
/* May no names be made or removed in ${dir}? */
bool deletion_is_read_only(struct store_dir *dir);

#endif
