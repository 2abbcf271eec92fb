/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h -- the checkpoints under a root: what lies there, in which state. */
#ifndef CATALOG_LIST_H
#define CATALOG_LIST_H

#include "base/base.h"
#include "store/store.h"

/* What lies under ${root}, by names and manifests.  What is committed may be damaged: this is for
 * those who open what they choose.  Where names go while they are looked at, it is done again. */
enum sidestep_status list_root(struct store *store, const char *root, struct sidestep_list *list,
                               struct sidestep_error *err);
/* sidestep_list_root() on any store: the same, and what is committed is whole, as far as names and
 * sizes tell. */
enum sidestep_status list_root_checked(struct store *store, const char *root,
                                       struct sidestep_list *list, struct sidestep_error *err);
/* The same as list_root(), to choose from: a directory that is called like a checkpoint but cannot
 * be looked into now counts as committed, so that it is tried, and its reason is told, not passed
 * over. */
enum sidestep_status list_candidates(struct store *store, const char *root,
                                     struct sidestep_list *list, struct sidestep_error *err);

/* Before something is noted of an entry of list_root(): EPERM, EIO if it could not be looked into.
 */
enum sidestep_status list_check_readable(const struct sidestep_listed *entry,
                                         struct sidestep_error *err);
/* Is an entry of list_candidates() there only because it could not be looked into? */
bool list_is_unreadable(const struct sidestep_listed *entry);

/* Is it a symbolic link?  They are listed as FOREIGN, and not followed. */
bool list_is_link(const struct sidestep_listed *entry);
/* Is it a checkpoint that a resume would try, whether it turns out to be whole or not? */
bool list_is_candidate(const struct sidestep_listed *entry);
/* Is it one that no resume takes by itself, although it may be whole?  Its reason says why. */
bool list_is_skipped(const struct sidestep_listed *entry);

/* The earlier saves whose files the checkpoint of this save shares; it may be NULL. */
const char *const *list_origins(const struct sidestep_list *list, const char *save_id,
                                size_t *count);

/* Step in a checkpoint's name, if it is one of the forms that trainers use ("step-42",
 * "iter_0000042", "epoch_1_step_42"); -1: none. */
int64_t step_name_parse(const char *name);
/* The number that any name ends with; -1: none. */
int64_t step_name_trailing_number(const char *name);
/* Is the name of a series' checkpoint the one that it was saved under? */
bool step_name_is_original(const struct sidestep_listed *entry);
/* Which step ${name} would be of, by the names of other checkpoints of series; -1: of none. */
int64_t step_name_infer(const struct sidestep_listed *entries, size_t count, const char *name);
/* By step, oldest first, then by name. */
void list_sort(struct sidestep_listed *entries, size_t count);

/* So often a root is listed anew that is being changed: a run that deletes what it has replaced. */
#define LIST_MAX_ATTEMPTS 32u

#endif
