/* SPDX-License-Identifier: BSD-3-Clause */
/* prune.c -- see prune.h: deletes the checkpoints that retention does not keep. */
#include "selection/prune.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "catalog/catalog.h"
#include "object/object.h"
#include "root/root.h"
#include "selection/candidates.h"
#include "verify/verify.h"

static bool is_pinned(struct store_dir *annotations_dir, const char *name)
{
    return annotations_dir != NULL &&
           !fault_hit("prune.pin") && /* a fault that tests must notice */
           annotations_may_exist(annotations_dir, ANNOTATION_PIN, name);
}

static void remove_annotations(struct store_dir *annotations_dir, const char *name)
{
    OWNED_ANNOTATIONS about = {0};

    if (annotations_dir != NULL && annotations_read(annotations_dir, &about, NULL) == SIDESTEP_OK)
        annotations_remove_checkpoint(annotations_dir, &about, name);
}

/* Delete what look() has seen.  *is_gone: the checkpoint does not exist any more, although some of
 * its files may be left.
 * A command that pins checks afterwards that the checkpoint exists.  So a pin is seen here, or the
 * command fails. */
static enum sidestep_status delete_seen(struct deletion *d, struct store_dir *annotations_dir,
                                        uint64_t *bytes, bool *is_gone, struct sidestep_error *err)
{
    const struct deletion_ops *ops = &root_of(d->root->store)->deletion;

    *is_gone = false;
    TRY(ops->hide(d, err));
    const char *objection = ops->was_replaced(d)                  ? DELETION_WAS_REPLACED
                            : is_pinned(annotations_dir, d->name) ? RETENTION_PINNED.text
                                                                  : NULL;
    if (objection != NULL) {
        TRY(ops->restore(d, err));
        return FAIL(err, SIDESTEP_ELOCKED, "%s", objection);
    }
    *is_gone = true;
    enum sidestep_status status = ops->finish(d, bytes, err);
    remove_annotations(annotations_dir, d->name);
    return WRAP(status, err,
                "it is deleted, but not all of its files, which 'sidestep gc' removes");
}

static enum sidestep_status delete_one(struct deletion *d, struct store_dir *annotations_dir,
                                       uint64_t *bytes, struct sidestep_error *err)
{
    bool is_gone;

    TRY(root_of(d->root->store)->deletion.look(d, err));
    return delete_seen(d, annotations_dir, bytes, &is_gone, err);
}

enum sidestep_status prune_delete(struct store_dir *root, struct store_dir *annotations_dir,
                                  const char *name, const char *save_id, uint64_t *bytes,
                                  struct sidestep_error *err)
{
    OWNED_DELETION d = {.root = root, .name = name, .save_id = save_id};

    return delete_one(&d, annotations_dir, bytes, err);
}

enum sidestep_status prune_make_way(struct store_dir *root, struct store_dir *annotations_dir,
                                    const char *name, struct sidestep_error *err)
{
    OWNED_DELETION d = {.root = root, .name = name, .makes_way = true};

    return delete_one(&d, annotations_dir, NULL, err);
}

static void report_kept(const struct prune *p, const struct sidestep_listed *entry, const char *why)
{
    if (p->report != NULL)
        gc_report_add_kept(p->report, entry->name, why);
}

/* A prune by hand covers the whole root, so it also reports what retention does not decide about.
 */
static void report_others(const struct prune *p, const struct candidates *c)
{
    for (size_t i = 0; p->naming == NULL && i < c->other_count; i++) {
        const struct retention_reason *why = candidates_why_other(p, c->others[i]);
        if (why != NULL)
            report_kept(p, c->others[i], why->text);
    }
}

static bool has_deletable(const struct candidates *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->items[i].keep == NULL)
            return true;
    return false;
}

static enum sidestep_status check_one(struct prune *p, struct candidates *l, size_t i,
                                      struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    enum sidestep_status status =
        verify_path(p->store, l->entries[i].path, SIDESTEP_VERIFY_STRUCTURE, STORE_DROP_CACHE, NULL,
                    NULL, &why);

    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, sizeof(*l));
    if (status != SIDESTEP_OK)
        l->items[i].flaw =
            reader_status_is_damage(status) ? &RETENTION_DAMAGED : &RETENTION_UNREADABLE;
    return SIDESTEP_OK;
}

/* An in-place commit may not be durable yet, if its process was killed right after it: sync it. */
static enum sidestep_status sync_one(const struct prune *p, const char *name,
                                     struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;

    if (p->dry_run)
        return SIDESTEP_OK;
    TRY(store_dir_open(p->root->store, p->root, name, &dir, err));
    return store_dir_sync(dir, err);
}

/*
 * If something is to be deleted, verify first.  As many of the newest kept checkpoints as the
 * policy counts must be valid and durable.  One that is to be deleted may be damaged: it stays,
 * because somebody may want to recover what is left of it.
 */
static enum sidestep_status check(struct prune *p, struct candidates *l, struct sidestep_error *err)
{
    uint32_t wanted = p->retention->keep_last != 0 ? p->retention->keep_last : 1, valid = 0;

    if (!p->dry_run)
        TRY(store_dir_sync(p->root, err));
    for (size_t i = l->count; i-- > 0;) {
        struct retention_item *item = &l->items[i];
        bool is_counted = item->not_ours == NULL && !item->is_abandoned && valid < wanted;
        if (!is_counted && item->keep != NULL && !item->is_apart)
            continue;
        TRY(check_one(p, l, i, err));
        if (!is_counted || item->flaw != NULL)
            continue;
        TRY(sync_one(p, l->entries[i].name, err));
        valid++;
    }
    return SIDESTEP_OK;
}

/* Find out for a dry run what would be reported.  Changes nothing. */
static enum sidestep_status try_delete(const struct prune *p, struct deletion *d, uint64_t *bytes,
                                       struct sidestep_error *err)
{
    if (p->annotations_dir != NULL && deletion_is_read_only(p->annotations_dir))
        return FAIL(err, SIDESTEP_EPERM, "%s of its series may not be written to",
                    FILE_NAME_SERIES_DIR);
    *bytes = root_of(p->root->store)->deletion.bytes(d);
    return SIDESTEP_OK;
}

/* Why it cannot be deleted; NULL: it can, and is claimed. */
static const char *find_objection(const struct prune *p, const struct sidestep_listed *entry)
{
    const char *objection =
        root_of(p->root->store)->deletion.find_objection(p->root, entry->name, entry->save_id);

    if (objection != NULL)
        return objection;
    if (p->annotations_dir != NULL &&
        annotations_may_exist(p->annotations_dir, ANNOTATION_PIN, entry->name))
        return RETENTION_PINNED.text;
    const char *need = p->needs != NULL ? p->needs(p->context, entry) : NULL;
    if (need != NULL)
        return need;
    if (p->claim != NULL && !p->claim(p->context, entry))
        return "a save is about to replace it";
    return NULL;
}

/* Storage refused what was begun: the prune goes on, and fails in the end. */
static void note_failure(struct prune *p, const struct sidestep_listed *entry,
                         const struct sidestep_error *why)
{
    if (p->failure.status != SIDESTEP_OK)
        return;
    p->failure = *why;
    error_wrap(&p->failure, "delete '%s'", entry->name);
}

/* Delete it, or find out whether it could be.  False: it stays, ${why} says why. */
static bool delete_claimed(struct prune *p, const struct sidestep_listed *entry, uint64_t *bytes,
                           struct sidestep_error *why)
{
    OWNED_DELETION d = {.root = p->root, .name = entry->name, .save_id = entry->save_id};
    bool is_gone = false;

    if (root_of(p->root->store)->deletion.look(&d, why) != SIDESTEP_OK)
        return false;
    if (p->dry_run)
        return try_delete(p, &d, bytes, why) == SIDESTEP_OK;
    enum sidestep_status status = delete_seen(&d, p->annotations_dir, bytes, &is_gone, why);
    if (status != SIDESTEP_OK && status != SIDESTEP_ELOCKED && status != SIDESTEP_ENOTFOUND)
        note_failure(p, entry, why);
    return is_gone;
}

static enum sidestep_status remove_one(struct prune *p, const struct sidestep_listed *entry,
                                       struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    uint64_t bytes = 0;

    if (p->may_delete != NULL)
        TRY(p->may_delete(p->context, err));
    const char *objection = find_objection(p, entry);
    if (objection != NULL) {
        report_kept(p, entry, objection);
        return SIDESTEP_OK;
    }
    bool is_gone = delete_claimed(p, entry, &bytes, &why);
    if (p->unclaim != NULL)
        p->unclaim(p->context);
    if (!is_gone) {
        report_kept(p, entry, why.message);
        return SIDESTEP_OK;
    }
    if (p->report != NULL)
        gc_report_add_removed(p->report, entry->name, bytes);
    if (p->deleted != NULL)
        p->deleted(p->context, entry, bytes);
    return SIDESTEP_OK;
}

enum sidestep_status prune_run(struct prune *p, struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    OWNED_BY(candidates_release) struct candidates l = {0};

    TRY(list_root(p->store, p->path, p->dry_run ? 0 : LIST_KEEPS_INDEX, &list, err));
    TRY(candidates_find(p, &list, &l, err));
    report_others(p, &l);
    retention_plan(p->retention, l.items, l.count);
    if (has_deletable(&l)) {
        TRY(check(p, &l, err));
        retention_plan(p->retention, l.items, l.count);
    }
    for (int abandoned = 1; abandoned >= 0; abandoned--)
        for (size_t i = 0; i < l.count; i++) {
            if (l.items[i].is_abandoned != (abandoned == 1))
                continue;
            if (l.items[i].keep != NULL)
                report_kept(p, &l.entries[i], l.items[i].keep->text);
            else
                TRY(remove_one(p, &l.entries[i], err));
        }
    return SIDESTEP_OK;
}

/* ---- by hand ---- */

/* If the root is a series, take its lease, so that no run is disturbed. */
static enum sidestep_status prune_locked(struct prune *p, struct lease *lease,
                                         struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    OWNED_DIR *dir = NULL;
    enum sidestep_status status =
        store_dir_open(p->store, p->root, FILE_NAME_SERIES_DIR, &dir, &why);

    if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND)
        return error_copy(err, &why);
    p->annotations_dir = dir;
    if (dir != NULL && !p->dry_run)
        TRY(lease_acquire_to_delete(lease, p->store, p->path, err));
    return prune_run(p, err);
}

enum sidestep_status sidestep_prune(const char *root, const struct sidestep_retention *theirs,
                                    uint32_t flags, struct sidestep_gc_report *report,
                                    struct sidestep_error *err)
{
    struct retention retention;
    struct lease lease = {0};
    OWNED_STORE *store = NULL; /* closed after ${dir} */
    OWNED_DIR *dir = NULL;

    if (root == NULL || theirs == NULL || report == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "root, retention or report is NULL");
    *report = (struct sidestep_gc_report){0};
    if ((flags & ~SIDESTEP_GC_DRY_RUN) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "prune: unknown flags 0x%x", flags);
    TRY(retention_copy(&retention, theirs, err));
    TRY(object_path_open(root, &store, err));
    TRY(named_dir_open(store, root, &dir, err));
    struct prune prune = {.store = store,
                          .path = root,
                          .root = dir,
                          .retention = &retention,
                          .dry_run = (flags & SIDESTEP_GC_DRY_RUN) != 0,
                          .report = gc_report_new(root)};
    if (prune.report == NULL)
        return FAIL_NOMEM(err, sizeof(*prune.report));
    enum sidestep_status status = prune_locked(&prune, &lease, err);
    lease_release(&lease);
    if (status != SIDESTEP_OK)
        gc_report_free(prune.report);
    else
        status = gc_report_finish(prune.report, report, err);
    if (status == SIDESTEP_OK && prune.failure.status != SIDESTEP_OK) {
        error_copy(err, &prune.failure);
        status = (enum sidestep_status)prune.failure.status;
    }
    return WRAP(status, err, "prune '%s'", root);
}
