/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * extra_files.h -- the extra files of a save on their way into the checkpoint, and out of it.
 *
 * Each rank writes its files under names with its rank and the save id (FILE_NAME_EXTRA), beside
 * its shards and before its vote. Rank 0 takes the list from the footers. A new directory gets the
 * files under their own names before it gets its name. In a directory that was there before, and
 * on object stores, they keep the names with the save id: `.metadata` is exchanged in one step,
 * and no second name could be. In a directory their own names are then links, where these names are
 * free; on an object store there are none.
 */
#ifndef COMMIT_EXTRA_FILES_H
#define COMMIT_EXTRA_FILES_H

#include "commit/commit.h"
#include "commit/name_list.h"

/* ---- each rank, while it writes */

/* The name with which extra file ${number} of this rank is written. */
void commit_extra_name(struct commit *commit, uint32_t number, char name[FILE_NAME_BYTES]);

/* ---- rank 0, while it collects */

/* Add the files that a rank lists to those of the checkpoint. Call it in the order of the ranks.
 * EDISAGREE: two ranks have different files of one name. */
struct extra_merge {
    struct hash_table exact; /* names, to rows of the manifest */
    struct extra_file_names names;
    size_t capacity;
};
void extra_merge_release(struct extra_merge *merge);
#define OWNED_EXTRA_MERGE __attribute__((cleanup(extra_merge_release))) struct extra_merge
enum sidestep_status extra_merge_add(struct extra_merge *merge, struct commit_contents *contents,
                                     const struct footer *footer, struct sidestep_error *err);
/* Is each file there under the name that it was written with, with its size? */
enum sidestep_status extra_files_check(struct commit *commit, const struct extra_file *files,
                                       size_t count, struct sidestep_error *err);

/* ---- rank 0, while it publishes */

/* The files stay under the names that they were written with: record that in the manifest. */
enum sidestep_status extra_files_keep_names(const char *save_id, struct commit_contents *contents,
                                            struct sidestep_error *err);
/* In a new directory whose manifest is written: give the files their names. Their directories are
 * durable on return, but for ${commit->dir} itself. */
enum sidestep_status extra_files_place(struct commit *commit, struct commit_contents *contents,
                                       struct sidestep_error *err);
/* Move the files, which extra_files_place() placed, to ${into}, under the names with the save
 * id. */
enum sidestep_status extra_files_move(struct commit *commit, struct store_dir *into,
                                      struct commit_contents *contents, struct sidestep_error *err);
/* Before the manifest is written: remove the files that it does not list, because a lower rank had
 * one of the same name. */
enum sidestep_status extra_files_drop(struct commit *commit, const struct commit_contents *contents,
                                      struct sidestep_error *err);
/* Give the files their own names in ${dir}, as links, where these are free. Best effort. */
void extra_files_link(struct store_dir *dir, const struct manifest *manifest);

/* ---- later */

/* Remove the files of ${manifest} from ${dir} under their own names, and directories that are empty
 * then, and sync: without the manifest nobody could tell whose they are. So on an error it must
 * stay: nobody knows what is left. Adds the bytes that this frees to ${*bytes}, unless NULL, and
 * the number of names that went to ${*unlinked}. A file of another owner or with other bytes stays,
 * and so does one whose name ${keep} has, unless NULL. */
enum sidestep_status extra_files_unlink(struct store_dir *dir, const struct manifest *manifest,
                                        const struct hash_table *keep, uint64_t *bytes,
                                        size_t *unlinked);

/* Is the file in ${dir} that has ${file}'s own name the stored one, by a second name? */
bool extra_files_is_linked(struct store_dir *dir, const struct extra_file *file);
/* Bytes of the files that lie under their own names. */
uint64_t extra_files_bytes(const struct manifest *manifest);

/* The extra files that the manifests in a directory list. There are several manifests if a clean-up
 * was interrupted, and they may list one name. */
struct extra_listed {
    struct arena arena;
    struct manifest *manifests;
    size_t count, capacity;
    struct hash_table names; /* of files and of their directories, to rows */
    struct extra_row {
        const struct extra_file *file; /* NULL: the name is a directory of one */
        size_t next;                   /* row of the same name; SIZE_MAX: none */
    } * rows;
    size_t row_count, row_capacity;
};
void extra_listed_release(struct extra_listed *listed);
#define OWNED_EXTRA_LISTED __attribute__((cleanup(extra_listed_release))) struct extra_listed
/* ${names}: of the directory. Damaged manifests count as none. Other errors: nobody knows what the
 * manifests list. */
enum sidestep_status extra_listed_read(struct store_dir *dir, const struct name_list *names,
                                       struct extra_listed *listed);
/* Is ${name} in ${dir} an extra file, or a directory that holds nothing else? */
bool extra_listed_owns(struct store_dir *dir, const struct extra_listed *listed, const char *name);

#endif
