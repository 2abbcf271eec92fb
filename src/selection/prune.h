/* SPDX-License-Identifier: BSD-3-Clause */
/* prune.h -- deletes the checkpoints that retention does not keep: lists, decides (retention.h),
 * checks, deletes. */
#ifndef SELECTION_PRUNE_H
#define SELECTION_PRUNE_H

#include "catalog/catalog.h"
#include "selection/retention.h"
#include "format/format.h"
#include "store/store.h"

struct prune {
    struct store *store;
    const char *path; /* of the root */
    struct store_dir *root;
    struct store_dir *annotations_dir; /* ROOT/.sidestep; NULL: there is none */
    const struct retention *retention;
    const struct name_template *naming; /* only names of this form; NULL: all that have a step */
    const char *run_id;                 /* only checkpoints of this run; NULL: of any run */
    bool dry_run;
    /* Is the part ${entry} of a save that is whole?  NULL: parts are not decided about, and stay.
     */
    bool (*is_whole)(void *context, const struct sidestep_listed *entry);
    /* Called after the checkpoint was listed: will it stay there?  If not, it is not deleted, and
     * nothing is deleted because of it.  NULL: all will. */
    bool (*is_settled)(void *context, const struct sidestep_listed *entry);
    /* Called before each deletion; may be NULL.  A failure ends the whole prune. */
    enum sidestep_status (*may_delete)(void *context, struct sidestep_error *err);
    /* Called before each deletion; may be NULL.  Returns why it must stay; NULL: it may go. */
    const char *(*needs)(void *context, const struct sidestep_listed *entry);
    /* Called around each deletion; may be NULL.  claim() returns false if a save is about to
     * replace the checkpoint. */
    bool (*claim)(void *context, const struct sidestep_listed *entry);
    void (*unclaim)(void *context);
    /* Called after each deletion; may be NULL. */
    void (*deleted)(void *context, const struct sidestep_listed *entry, uint64_t bytes);
    void *context;
    struct gc_report *report; /* may be NULL */
    /* Set by prune_run(): the first deletion that storage refused, or did in part.  SIDESTEP_OK:
     * none was. */
    struct sidestep_error failure;
};

/* Prune once.  A checkpoint that cannot be deleted now stays, and is reported.  A later call
 * deletes it. */
enum sidestep_status prune_run(struct prune *prune, struct sidestep_error *err);

/* Delete one checkpoint without asking the policy.  Durable when it returns OK.  ELOCKED: somebody
 * is reading it, or it is no longer the save ${save_id} (NULL: delete any save). */
enum sidestep_status prune_delete(struct store_dir *root, struct store_dir *annotations_dir,
                                  const char *name, const char *save_id, uint64_t *bytes,
                                  struct sidestep_error *err);
/* The same of any save, for one that takes its place: also while somebody reads it. */
enum sidestep_status prune_make_way(struct store_dir *root, struct store_dir *annotations_dir,
                                    const char *name, struct sidestep_error *err);

#endif
