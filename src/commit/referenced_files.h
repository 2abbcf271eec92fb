/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * referenced_files.h -- what a .metadata names: a save, and the files of a checkpoint.
 *
 * That of a checkpoint of ours is not parsed for this: the manifest beside it that has its SHA-256
 * says both, and its files are a few, whatever the number of tensors.
 */
#ifndef COMMIT_REFERENCED_FILES_H
#define COMMIT_REFERENCED_FILES_H

#include "base/base.h"
#include "format/format.h"
#include "model/model.h"
#include "store/store.h"

struct referenced_files {
    const char *save_id;      /* NULL: it has none */
    struct hash_table files;  /* of the checkpoint */
    bool is_listed;           /* by a manifest; then ${metadata} is empty */
    struct metadata metadata; /* else */
    struct arena arena;
};

void referenced_files_release(struct referenced_files *named);
#define OWNED_REFERENCED_FILES                                                                     \
    __attribute__((cleanup(referenced_files_release))) struct referenced_files

/* The manifest in ${dir} that lists a .metadata of ${bytes} bytes with this hash as its own; false:
 * there is none, or it cannot be read now. */
bool referenced_files_find_manifest(struct store_dir *dir, const uint8_t sha256[HASH_SHA256_BYTES],
                                    uint64_t bytes, struct arena *arena, struct manifest *manifest);

/* Is ${name} in ${parent} (NULL: a path) a directory that has a .metadata, whatever that says? */
bool referenced_files_has_metadata(struct store *store, struct store_dir *parent, const char *name);

/* By ${name}, a .metadata in ${dir} or one that was.  On failure ${*out} is to be released, too. */
enum sidestep_status referenced_files_read(struct store_dir *dir, const char *name,
                                           struct referenced_files *out);

/* Has a save replaced what checkpoint ${name} in ${parent} held when it was that of ${save_id}?
 * false also where that cannot be told. */
bool referenced_files_was_replaced(struct store_dir *parent, const char *name, const char *save_id);

#endif
