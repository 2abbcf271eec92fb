/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_delete.h -- deletes a checkpoint on an object store, and sweeps a root there.
 *
 * .metadata goes first (O7 of object_form.h): without it the checkpoint does not exist, and nobody
 * begins to read it. Then go the files of its own save, and its manifest last. What is left after a
 * kill belongs to no checkpoint, and a sweep removes it when it is an hour old.
 *
 * The request that deletes .metadata has a condition (O8). It can arrive late, when its sender is
 * dead and another save has been committed. Where a store ignores the condition of a deletion, that
 * save loses its .metadata; its files stay, and `sidestep rebuild` writes it again.
 */
#ifndef COMMIT_OBJECT_DELETE_H
#define COMMIT_OBJECT_DELETE_H

#include "commit/referenced_files.h"
#include "commit/sweep.h"
#include "object/object.h"

/* A key below the prefix of a checkpoint that is to be deleted. */
struct object_deletion_key {
    const char *name; /* without the prefix */
    const char *tag;  /* its version */
    uint64_t bytes;
};

/* The deletion of a checkpoint, as object_delete_look() found it. */
struct object_deletion {
    struct arena arena;
    struct store_dir *dir;
    struct buffer metadata; /* its .metadata, and its version */
    char tag[OBJECT_TAG_BYTES];
    struct referenced_files named;
    struct object_deletion_key *keys; /* all keys below the prefix */
    size_t count, capacity;
    int64_t now;           /* the store's clock; 0: it does not tell */
    const char *objection; /* why it must stay; NULL: nothing so far */
    bool has_others;       /* names without an id */
    bool no_memory;
};

void object_deletion_release(struct object_deletion *deletion);
#define OWNED_OBJECT_DELETION                                                                      \
    __attribute__((cleanup(object_deletion_release))) struct object_deletion

/* List and read ${name} in ${root}. ELOCKED: it holds files that sidestep did not write, a save to
 * it may be under way, or it is no longer the checkpoint of ${save_id} (NULL: any). ENOTFOUND: it
 * is gone. Release ${deletion} also after a failure. */
enum sidestep_status object_delete_look(struct store_dir *root, const char *name,
                                        const char *save_id, struct object_deletion *deletion,
                                        struct sidestep_error *err);
/* How many bytes its deletion frees. */
uint64_t object_delete_bytes(const struct object_deletion *deletion);
/* Delete .metadata, if it is still the version that was read. Then the checkpoint no longer exists.
 * ELOCKED: it was replaced, and stays. After another error it may exist or not. */
enum sidestep_status object_delete_hide(struct object_deletion *deletion,
                                        struct sidestep_error *err);
/* Put .metadata back. EEXISTS: there is another one now. */
enum sidestep_status object_delete_restore(struct object_deletion *deletion,
                                           struct sidestep_error *err);
/* Delete its files, after .metadata, and subtract the bytes of those that stay from ${*bytes}
 * (NULL: no matter). All are tried; a sweep removes what is left. Fails with the first failure. */
enum sidestep_status object_delete_rest(struct object_deletion *deletion, uint64_t *bytes,
                                        struct sidestep_error *err);

/* ---- object_sweep_root.c */

/* What sweep_parent() and sweep_child_dirs() do in a directory: remove what dead saves and
 * deletions left below any prefix of the root. One request lists 1,000 keys; prefixes that need a
 * sweep take more. */
enum sidestep_status object_sweep_root(struct sweep *sweep, struct sidestep_error *err);

#endif
