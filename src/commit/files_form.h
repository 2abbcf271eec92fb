/* SPDX-License-Identifier: BSD-3-Clause */
/* files_form.h -- the steps of the swap and in-place forms, for their table (files_form.c). */
#ifndef COMMIT_FILES_FORM_H
#define COMMIT_FILES_FORM_H

#include "commit/form.h"

/* seal.c */
enum sidestep_status files_seal(struct commit *commit, uint32_t shard, struct store_file *file,
                                struct sidestep_error *err);
enum sidestep_status files_vote_yes(struct commit *commit, struct sidestep_error *err);
void files_vote_no(struct commit *commit, const struct sidestep_error *why);
void files_retract(struct commit *commit);
/* collect.c */
enum sidestep_status files_count_votes(struct tally *tally, struct sidestep_error *err);
void files_read_failure(struct commit *commit, uint32_t rank, struct sidestep_error *why);
/* publish.c */
enum sidestep_status files_publish(struct commit *commit, struct commit_contents *contents,
                                   enum commit_outcome *outcome, struct sidestep_error *err);
void files_abort(struct commit *commit, const struct sidestep_error *why);
/* learn.c */
enum sidestep_status files_check_aborted(struct commit *commit, struct sidestep_error *err);
enum commit_outcome files_poll_outcome(struct commit *commit, struct sidestep_error *err);
void files_remove_outcome(struct commit *commit);

#endif
