/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * referenced_files.h -- reads which save and which files a .metadata references.
 *
 * The .metadata of a checkpoint written by sidestep is not parsed for this. The manifest that
 * contains its SHA-256 has both, and lists few files, however many tensors there are.
 */
#ifndef COMMIT_REFERENCED_FILES_H
#define COMMIT_REFERENCED_FILES_H

#include "base/base.h"
#include "format/format.h"
#include "model/model.h"
#include "store/store.h"

struct referenced_files {
    const char *save_id;      /* NULL: .metadata has none */
    struct hash_table files;  /* names of the checkpoint's files */
    bool is_listed;           /* a manifest lists the files, and ${metadata} is empty */
    struct metadata metadata; /* empty if ${is_listed} */
    struct arena arena;
};

void referenced_files_release(struct referenced_files *referenced);
#define OWNED_REFERENCED_FILES                                                                     \
    __attribute__((cleanup(referenced_files_release))) struct referenced_files

/* Find the manifest in ${dir} that belongs to a .metadata of ${bytes} bytes with this hash.
 * ${text}: NULL, or empty: it gets the manifest as it is stored. False: there is none, or it cannot
 * be read now. */
bool referenced_files_find_manifest(struct store_dir *dir, const uint8_t sha256[HASH_SHA256_BYTES],
                                    uint64_t bytes, struct arena *arena, struct manifest *manifest,
                                    struct buffer *text);

/* Is ${name} in ${parent} (NULL: ${name} is a path) a directory that has a .metadata? Its content
 * does not matter. */
bool referenced_files_has_metadata(struct store *store, struct store_dir *parent, const char *name);

/* The file of the checkpoint in ${dir} that readers and deletions lock: .metadata, or of a part its
 * manifest. */
void referenced_files_find_lock(struct store_dir *dir, char name[FILE_NAME_BYTES]);
/* Is ${dir} a part of a checkpoint: no .metadata, and the manifest of a part? */
bool referenced_files_find_part(struct store_dir *dir, struct arena *arena,
                                struct manifest *manifest);

/* Read ${name}, a present or former .metadata in ${dir}. Release ${*out} also after a failure. */
enum sidestep_status referenced_files_read(struct store_dir *dir, const char *name,
                                           struct referenced_files *out);
/* The same of .metadata, or, if ${dir} is a part, of its manifest, which takes the place of
 * .metadata. */
enum sidestep_status referenced_files_read_any(struct store_dir *dir, struct referenced_files *out);

/* The same for the content of a .metadata in ${dir}. */
enum sidestep_status referenced_files_parse(struct store_dir *dir, const struct buffer *bytes,
                                            struct referenced_files *out);
/* Take the save id and the names of files from ${metadata}, as copies. Release ${*out} also after a
 * failure. */
enum sidestep_status referenced_files_take(const struct metadata *metadata,
                                           struct referenced_files *out);

/* Checkpoint ${name} in ${parent} was that of ${save_id}. Has another save replaced it? False also
 * if that cannot be decided. */
bool referenced_files_was_replaced(struct store_dir *parent, const char *name, const char *save_id);

#endif
