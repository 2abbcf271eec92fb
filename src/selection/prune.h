/* SPDX-License-Identifier: BSD-3-Clause */
/* prune.h -- deleting what the retention lets go: looks, decides (retention.h), checks, deletes. */
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
    struct store_dir *marks; /* ROOT/.sidestep; NULL: there is none */
    const struct retention *retention;
    const struct name_template *naming; /* of those that are meant; NULL: all that have a step */
    const char *run_id;                 /* whose; NULL: of any run */
    bool dry_run;
    /* Asked of what was seen, after it was: is it there for good?  Else nothing goes because of it,
     * nor does it.  NULL: all is. */
    bool (*is_settled)(void *context, const struct sidestep_listed *entry);
    /* Asked before each deletion; may be NULL.  A failure ends the whole. */
    enum sidestep_status (*may_delete)(void *context, struct sidestep_error *err);
    /* Around each deletion: false if a save is about to replace it; may be NULL. */
    bool (*claim)(void *context, const struct sidestep_listed *entry);
    void (*unclaim)(void *context);
    /* After each; may be NULL. */
    void (*deleted)(void *context, const struct sidestep_listed *entry, uint64_t bytes);
    void *context;
    struct gc_report *report; /* may be NULL */
};

/* A checkpoint that cannot be deleted stays, and is reported.  Run again, it does the rest. */
enum sidestep_status prune_run(struct prune *prune, struct sidestep_error *err);

/* Delete one, without asking whether it may go: durable when it returns OK.  ELOCKED: somebody is
 * reading it, or it is not that of ${save_id} (NULL: whatever it is) any more. */
enum sidestep_status prune_delete(struct store_dir *root, struct store_dir *marks, const char *name,
                                  const char *save_id, uint64_t *bytes, struct sidestep_error *err);

#endif
