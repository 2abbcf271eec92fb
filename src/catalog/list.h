/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h -- lists the entries under a root and their states. */
#ifndef CATALOG_LIST_H
#define CATALOG_LIST_H

#include "base/base.h"
#include "catalog/annotations.h"
#include "sidestep/sidestep_tools.h"
#include "store/store.h"

/* Check the names and sizes of all files of committed checkpoints. */
#define LIST_CHECKED 1u
/* A directory that has a checkpoint's name but cannot be read now counts as committed. So a resume
 * tries it, and the reason is reported instead of skipping it silently. */
#define LIST_WITH_UNREADABLE 2u
/* Keep the index of the root (root/index.h) up to date. This is for callers that delete under the
 * root; other listings write nothing. */
#define LIST_KEEPS_INDEX 4u
/* Keep the root open, for list_root_dir() and list_check(). */
#define LIST_STAYS_OPEN 8u
/* List ${root} by names and manifests. Without LIST_CHECKED, a committed checkpoint may turn out to
 * be damaged: this is for callers that open what they choose. Starts over if names disappear
 * meanwhile. */
enum sidestep_status list_root(struct store *store, const char *root, uint32_t flags,
                               struct sidestep_list *list, struct sidestep_error *err);

/* The directory that was listed, which remembers what was read of it, until the list is checked or
 * released. */
struct store_dir *list_root_dir(const struct sidestep_list *list);

/* Check a list with LIST_WITH_UNREADABLE and LIST_STAYS_OPEN as LIST_CHECKED would have: afterwards
 * it is as sidestep_list_root() shows it.  So one look serves a choice, which needs it unchecked,
 * and a report.  Closes the root.  ${*gone}: a checkpoint was deleted since it was listed, so the
 * caller must list again. */
enum sidestep_status list_check(struct sidestep_list *list, bool *gone, struct sidestep_error *err);

/* Call it before an entry of list_root() is annotated. EPERM, EIO: the entry could not be read. */
enum sidestep_status list_check_readable(const struct sidestep_listed *entry,
                                         struct sidestep_error *err);
/* Is an entry of a list with LIST_WITH_UNREADABLE listed as committed only because it could not be
 * read? */
bool list_is_unreadable(const struct sidestep_listed *entry);

/* Is it a symbolic link that is no checkpoint of its own: it leads to nothing, or to another entry
 * of the list? It is listed as FOREIGN. */
bool list_is_link(const struct sidestep_listed *entry);
/* Is it a checkpoint that a resume would try, whether or not it turns out to be whole? */
bool list_is_candidate(const struct sidestep_listed *entry);
/* Does a resume skip it, although it may be whole? Its reason says why. */
bool list_is_skipped(const struct sidestep_listed *entry);

/* The earlier saves whose files the checkpoint of ${save_id} shares. ${save_id} may be NULL. */
const char *const *list_origins(const struct sidestep_list *list, const char *save_id,
                                size_t *count);

/* For selection/kept.h, which marks the entries of a list: those of ${list}, and what was read with
 * them.  list_run_id() and list_record() are "" if the root has no run, or it has recorded nothing.
 */
struct sidestep_listed *list_entries(struct sidestep_list *list);
const struct annotations *list_annotations(const struct sidestep_list *list);
const char *list_run_id(const struct sidestep_list *list);
const char *list_record(const struct sidestep_list *list);

/* The step in a checkpoint's name, if it has one of the forms that trainers use ("step-42",
 * "iter_0000042", "epoch_1_step_42"); -1: none. */
int64_t step_name_parse(const char *name);
/* The number at the end of any name; -1: none. */
int64_t step_name_trailing_number(const char *name);
/* Does the checkpoint of a series still have the name that it was saved under? */
bool step_name_is_original(const struct sidestep_listed *entry);
/* Infer the step of ${name} from the naming of other checkpoints of series; -1: none. */
int64_t step_name_infer(const struct sidestep_listed *entries, size_t count, const char *name);
/* Sort by step, oldest first, then by name. */
void list_sort(struct sidestep_listed *entries, size_t count);

/* Number of attempts to list a root whose names disappear meanwhile, for example because a run
 * deletes what it has replaced. */
#define LIST_MAX_ATTEMPTS 32u

#endif
