/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * deletion.h -- deletes a checkpoint as a whole.
 *
 * The steps: look whether it may go; hide it, so that nobody begins to read it; look once more, and
 * restore it if it must stay; remove its files. If the process is killed on the way, the rest is no
 * checkpoint, and a sweep removes it.
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
    bool makes_way;      /* for a save of its name: readers do not keep it, and go on with what they
                            have open */

    /* In a directory. */
    struct store_file *lock; /* on .metadata, keeps readers out */
    char trash[FILE_NAME_BYTES];
    /* In a bucket. */
    struct object_deletion doomed;
};

struct deletion_ops {
    /* Look quickly, without a lock. Returns why it must stay; NULL: no reason was found. */
    const char *(*find_objection)(struct store_dir *root, const char *name, const char *save_id);
    /* Look whether it may go. ELOCKED, EPERM: it must stay. ENOTFOUND: it is gone. */
    enum sidestep_status (*look)(struct deletion *deletion, struct sidestep_error *err);
    /* The number of bytes that its deletion frees. */
    uint64_t (*bytes)(const struct deletion *deletion);
    /* Make the checkpoint cease to exist. restore() can undo this. */
    enum sidestep_status (*hide)(struct deletion *deletion, struct sidestep_error *err);
    /* Was another checkpoint hidden than the one that look() saw? */
    bool (*was_replaced)(const struct deletion *deletion);
    /* Undo hide(). EEXISTS: another checkpoint has the name. */
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
