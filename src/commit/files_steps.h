/* SPDX-License-Identifier: BSD-3-Clause */
/* files_steps.h -- the steps of the protocol that the swap and in-place forms share. */
#ifndef COMMIT_FILES_STEPS_H
#define COMMIT_FILES_STEPS_H

#include "commit/form.h"

/* ---- files_target.c */

enum sidestep_status files_open(struct commit *commit, const char *path,
                                struct sidestep_error *err);
/* Does NAME exist? Opens it if it is a directory, or a link to one: then the save is in place. */
enum sidestep_status files_look(struct commit *commit, struct sidestep_error *err);

/* ---- files_seal.c */

enum sidestep_status files_seal(struct commit *commit, const char *written, const char *final,
                                struct store_file *file, struct sidestep_error *err);
enum sidestep_status files_vote_yes(struct commit *commit, struct sidestep_error *err);
enum sidestep_status files_vote_for(struct commit *commit, uint32_t rank, uint32_t shards,
                                    struct sidestep_error *err);
/* Write the reason ${why} to ${name} in ${dir} in one step, so that nobody reads a part of it. If
 * the text cannot be written, make the name a link to the marker. */
enum sidestep_status files_write_reason(struct commit *commit, struct store_dir *dir,
                                        const char *name, const struct sidestep_error *why);
void files_vote_no(struct commit *commit, const struct sidestep_error *why);
enum sidestep_status files_count_votes(struct tally *tally, struct sidestep_error *err);
void files_read_failure(struct commit *commit, uint32_t rank, struct sidestep_error *why);

/* ---- records.c */

/* Write the index of chunks, the manifest and .metadata.<id>, and sync their contents. The caller
 * syncs the names. */
enum sidestep_status files_write_records(struct commit *commit, struct commit_contents *contents,
                                         struct sidestep_error *err);
void files_unlink_votes(struct commit *commit);
/* When the checkpoint has its name: make the name in PARENT durable, and check the path, before
 * COMMITTED is reported (I4). */
enum sidestep_status files_confirm(struct commit *commit, enum commit_outcome *outcome,
                                   struct sidestep_error *err);
/* Remove the marker, when the name is durable. That tells the other ranks (I4). */
void files_remove_marker(struct commit *commit);

/* ---- finish_in_name.c */

/* NAME appeared while the swap form was under way: finish in it, in place. */
enum sidestep_status files_finish_in_name(struct commit *commit, struct commit_contents *contents,
                                          enum commit_outcome *outcome, struct sidestep_error *err);

/* ---- learn.c. ${dir}: where the outcome file of this form is; NULL: not open yet */

/* Call before the files are moved or removed, so that a rank that misses them finds the reason. */
void files_write_outcome(struct commit *commit, struct store_dir *dir,
                         const struct sidestep_error *why);
/* EABORTED, with the reason: rank 0 has left one. */
enum sidestep_status files_read_outcome(const struct commit *commit, struct store_dir *dir,
                                        struct sidestep_error *err);
void files_unlink_outcome(const struct commit *commit, struct store_dir *dir);
/* ${dir} is NAME: what does its .metadata say about this save? */
enum commit_outcome files_learn(struct commit *commit, struct store_dir *dir,
                                struct sidestep_error *err);
bool files_has_marker(const struct commit *commit);
void files_close(struct commit *commit);

#endif
