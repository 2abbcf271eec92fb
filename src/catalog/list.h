/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h -- the checkpoints under a root, and choosing the newest valid one. */
#ifndef CATALOG_LIST_H
#define CATALOG_LIST_H

#include "base/memory.h"
#include "base/workers.h"
#include "verify/verify.h"
#include "store/store.h"

/* What lies under ${root}, by names and manifests.  What is committed may be damaged: this is for
 * those who open what they choose.  Where names go while they are looked at, it is done again. */
enum sidestep_status list_root(struct store *store, const char *root, struct sidestep_list *list,
                               struct sidestep_error *err);
/* sidestep_list_root() on any store: the same, and what is committed is whole, as far as names and
 * sizes tell. */
enum sidestep_status list_checked(struct store *store, const char *root, struct sidestep_list *list,
                                  struct sidestep_error *err);
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
bool list_is_doubtful(const struct sidestep_listed *entry);

/* Is it a symbolic link?  They are listed as FOREIGN, and not followed. */
bool list_is_link(const struct sidestep_listed *entry);
/* Is it a checkpoint that a resume would try, whether it turns out to be whole or not? */
bool list_is_candidate(const struct sidestep_listed *entry);
/* Is it one that no resume takes by itself, although it may be whole?  Its reason says why. */
bool list_is_left(const struct sidestep_listed *entry);

/* The earlier saves whose files the checkpoint of this save shares; it may be NULL. */
const char *const *list_origins(const struct sidestep_list *list, const char *save_id,
                                size_t *count);

/* Step in a checkpoint's name, if it is one of the forms that trainers use ("step-42",
 * "iter_0000042", "epoch_1_step_42"); -1: none. */
int64_t list_step_of(const char *name);
/* The number that any name ends with; -1: none. */
int64_t list_number_of(const char *name);
/* Is the name of a series' checkpoint the one that it was saved under? */
bool list_has_own_name(const struct sidestep_listed *entry);
/* Which step ${name} would be of, by the names of other checkpoints of series; -1: of none. */
int64_t list_step_beside(const struct sidestep_listed *entries, size_t count, const char *name);
/* By step, oldest first, then by name. */
void list_sort(struct sidestep_listed *entries, size_t count);

/* So often a root is listed anew that is being changed: a run that deletes what it has replaced. */
#define LIST_TRIES 32u

/* How one is chosen from a listing. */
struct list_choice {
    struct store *store;
    enum sidestep_verify_mode mode;
    bool with_others;        /* also what other programs wrote, where it is complete */
    struct workers *workers; /* these two are for modes that read; both may be NULL */
    const struct verify_options *options;
    /* Called for each that is rejected, with the reason; a failure ends the choice.  May be NULL.
     */
    enum sidestep_status (*reject)(void *context, const struct sidestep_listed *entry,
                                   const struct sidestep_error *why, struct sidestep_error *err);
    void *context;
};

/*
 * Try the candidates of ${list}, newest first, and return the index of the first that is valid.
 * ENOTFOUND: there is no candidate.  ECORRUPT: none is valid; ${err} lists them.  EMISMATCH: there
 * are links to checkpoints, and nothing else.  A checkpoint that cannot be read now, which says
 * nothing of whether it is valid, ends the search: list_fail_unreadable().  ${*gone}: one was
 * deleted since it was listed, and ${list} is to be made anew; how often the caller does that is
 * his to limit (LIST_TRIES).
 */
enum sidestep_status list_choose(const struct list_choice *how, const struct sidestep_list *list,
                                 size_t *chosen, bool *gone, struct sidestep_error *err);
/* ${why} a checkpoint, which it names, could not be read, with the ways out of it. */
enum sidestep_status list_fail_unreadable(const struct sidestep_error *why,
                                          struct sidestep_error *err);

#endif
