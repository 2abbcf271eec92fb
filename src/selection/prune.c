/* SPDX-License-Identifier: BSD-3-Clause */
/* prune.c -- see prune.h. */
#include "selection/prune.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "catalog/catalog.h"
#include "verify/verify.h"

#define WAS_REPLACED "another save has replaced it meanwhile"
#define IS_PINNED "it is pinned"

/* What is there, and what of it is meant: one item per entry. */
struct looking {
    struct sidestep_list list;
    struct sidestep_listed *entries;
    struct retention_item *items;
    size_t count;
    struct annotations marks;
};

static void looking_release(struct looking *l)
{
    sidestep_list_release(&l->list);
    annotations_release(&l->marks);
    free(l->entries);
    free(l->items);
}

static bool is_read_only(struct store_dir *dir)
{
    struct store_traits traits = {0};

    return store_dir_traits(dir, &traits, NULL) == SIDESTEP_OK && traits.is_read_only;
}

/* Keep readers out while it goes: ELOCKED if there are any.  Where there are no locks, what they
 * have open stays readable all the same.  EPERM: it could not be renamed or emptied, or it cannot
 * be told who reads it; whoever took the permission away wants to keep it. */
static enum sidestep_status lock_out(struct store_dir *root, const char *name,
                                     struct store_file **lock, struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;

    if (is_read_only(root))
        return FAIL(err, SIDESTEP_EPERM, "the directory that it is in may not be written to");
    if (store_dir_open(root->store, root, name, &dir, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    if (is_read_only(dir))
        return FAIL(err, SIDESTEP_EPERM, "its directory may not be written to");
    enum sidestep_status status = store_file_open(dir, FILE_NAME_METADATA, STORE_WRITE, lock, NULL);
    if (status == SIDESTEP_EPERM)
        return FAIL(err, SIDESTEP_EPERM, "its %s may not be written to", FILE_NAME_METADATA);
    if (status == SIDESTEP_OK)
        status = lock_file_acquire(dir, FILE_NAME_METADATA, *lock, NULL);
    if (status == SIDESTEP_ELOCKED)
        return FAIL(err, SIDESTEP_ELOCKED, "it is being read");
    if (status == SIDESTEP_ENOTFOUND && *lock != NULL)
        return FAIL(err, SIDESTEP_ELOCKED, WAS_REPLACED);
    return SIDESTEP_OK;
}

/* Why it has to go back after all; NULL: nothing.  What was judged may since have been replaced, in
 * place, by a save that takes no lock of ours, and somebody may have pinned it: in the trash
 * nothing can replace it any more, and who pins looks whether it is still there. */
static const char *find_late_objection(struct store_dir *root, struct store_dir *marks,
                                       const char *trash, const char *name, const char *save_id)
{
    if (save_id != NULL && (referenced_files_was_replaced(root, trash, save_id) ||
                            !sweep_has_only_own_files(root, trash)))
        return WAS_REPLACED;
    return marks != NULL && annotations_may_exist(marks, ANNOTATION_PIN, name) ? IS_PINNED : NULL;
}

enum sidestep_status prune_delete(struct store_dir *root, struct store_dir *marks, const char *name,
                                  const char *save_id, uint64_t *bytes, struct sidestep_error *err)
{
    OWNED_ANNOTATIONS about = {0};
    uint8_t id[SAVE_ID_BYTES];
    char hex[SAVE_ID_HEX], trash[FILE_NAME_BYTES];
    OWNED_FILE *lock = NULL;

    TRY(lock_out(root, name, &lock, err));
    TRY(random_bytes(id, sizeof(id), err));
    hash_to_hex(id, sizeof(id), hex);
    TRY(sweep_move_to_trash(root, name, hex, err));
    file_name_format(FILE_NAME_TRASH, hex, 0, 0, trash);
    const char *objection = find_late_objection(root, marks, trash, name, save_id);
    if (objection != NULL) {
        TRY(sweep_restore(root, trash, name, err));
        return FAIL(err, SIDESTEP_ELOCKED, "%s", objection);
    }
    enum sidestep_status status = sweep_empty_trash(root, trash, bytes, err);
    if (marks != NULL && annotations_read(marks, &about, NULL) == SIDESTEP_OK)
        annotations_remove_checkpoint(marks, &about, name);
    return status;
}

/* Does it count?  A series goes by the step that the name says. */
static bool is_meant(const struct prune *p, struct sidestep_listed *entry)
{
    uint64_t step;

    if (p->naming != NULL)
        entry->step = name_template_parse_name(p->naming, entry->name, &step) ? (int64_t)step : -1;
    return entry->state == SIDESTEP_COMMITTED && entry->step >= 0 &&
           (p->is_settled == NULL || p->is_settled(p->context, entry));
}

/* Why it is nobody's here to delete, and what makes it so; NULL: it is ours. */
static const char *find_stranger(const struct prune *p, const struct annotations *marks,
                                 const struct sidestep_listed *entry)
{
    if (entry->save_id == NULL)
        return "sidestep did not write it, and deletes only what it wrote ('sidestep convert "
               "--to=dcp' makes a checkpoint of sidestep's of it)";
    if (annotations_find(marks, ANNOTATION_ADOPTED, entry->name, entry->save_id) != NULL)
        return NULL;
    if (entry->is_renamed)
        return "it was saved under another name, and copied or renamed (a run that resumes from it "
               "by its step adopts it)";
    if (p->run_id != NULL && (entry->run_id == NULL || strcmp(entry->run_id, p->run_id) != 0))
        return "another run wrote it (a run that resumes from it by its step adopts it)";
    return NULL;
}

static struct retention_item make_item(const struct prune *p, const struct annotations *marks,
                                       const struct sidestep_listed *entry)
{
    struct retention_item item = {.step = entry->step,
                                  .stranger = find_stranger(p, marks, entry),
                                  .is_pinned = entry->is_pinned,
                                  .save_id = entry->save_id};

    item.is_abandoned = entry->is_abandoned;
    for (uint32_t i = 0; i < entry->metric_count; i++)
        if (strcmp(entry->metrics[i].name, p->retention->metric) == 0) {
            item.has_metric = true;
            item.metric = entry->metrics[i].value;
        }
    return item;
}

static void keep(const struct prune *p, const struct sidestep_listed *entry, const char *why)
{
    if (p->report != NULL)
        gc_report_add_kept(p->report, entry->name, why);
}

/* By hand, all of a root is meant: what has no step, or is no whole checkpoint, is named, too. */
static void keep_others(const struct prune *p, const struct sidestep_listed *entry)
{
    if (p->naming != NULL)
        return;
    switch (entry->state) {
    case SIDESTEP_COMMITTED:
        keep(p, entry, "its step is not known");
        break;
    case SIDESTEP_COMPLETE:
    case SIDESTEP_INCOMPLETE:
        keep(p, entry, "another program wrote it");
        break;
    case SIDESTEP_DAMAGED:
    case SIDESTEP_BAD:
        keep(p, entry, "it is damaged");
        break;
    case SIDESTEP_UNREADABLE:
        keep(p, entry, "it cannot be read now");
        break;
    default: /* no checkpoints; gc sees to what is left of them */
        break;
    }
}

static enum sidestep_status look(struct prune *p, struct looking *l, struct sidestep_error *err)
{
    TRY(list_root(p->store, p->path, &l->list, err));
    TRY(annotations_read(p->marks, &l->marks, err));
    l->entries = memory_new(l->list.count + 1, sizeof(*l->entries));
    l->items = memory_new(l->list.count + 1, sizeof(*l->items));
    if (l->entries == NULL || l->items == NULL)
        return FAIL_NOMEM(err, l->list.count * sizeof(*l->entries));
    for (size_t i = 0; i < l->list.count; i++) {
        struct sidestep_listed entry = l->list.entries[i];
        if (is_meant(p, &entry))
            l->entries[l->count++] = entry;
        else
            keep_others(p, &entry);
    }
    list_sort(l->entries, l->count);
    for (size_t i = 0; i < l->count; i++) {
        l->items[i] = make_item(p, &l->marks, &l->entries[i]);
        l->items[i].origins =
            list_origins(&l->list, l->entries[i].save_id, &l->items[i].origin_count);
    }
    return SIDESTEP_OK;
}

static bool lets_go(const struct looking *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->items[i].keep == NULL)
            return true;
    return false;
}

static enum sidestep_status check_one(struct prune *p, struct looking *l, size_t i,
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
            reader_status_is_damage(status) ? "it does not verify" : "it cannot be read now";
    return SIDESTEP_OK;
}

/* What was committed in place, by a save that was killed at once, may not be durable yet. */
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
 * Where something is to go, look closer.  Of those that are kept because of their age, as many as
 * the policy counts must be valid, and durable as they were seen; and what is to go may be damaged,
 * and then somebody may want to see what can be saved of it.
 */
static enum sidestep_status check(struct prune *p, struct looking *l, struct sidestep_error *err)
{
    uint32_t wanted = p->retention->keep_last != 0 ? p->retention->keep_last : 1, valid = 0;

    if (!p->dry_run)
        TRY(store_dir_sync(p->root, err));
    for (size_t i = l->count; i-- > 0;) {
        struct retention_item *item = &l->items[i];
        bool is_counted = item->stranger == NULL && !item->is_abandoned && valid < wanted;
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

/* What prune_delete() of it would say, by hand; but for a lock that is let go at once, nothing is
 * touched. */
static enum sidestep_status try_delete(const struct prune *p, const char *name, uint64_t *bytes,
                                       struct sidestep_error *err)
{
    OWNED_FILE *lock = NULL;

    TRY(lock_out(p->root, name, &lock, err));
    if (p->marks != NULL && is_read_only(p->marks))
        return FAIL(err, SIDESTEP_EPERM, "%s of its series may not be written to",
                    FILE_NAME_SERIES_DIR);
    *bytes = sweep_reclaimable_bytes(p->root, name);
    return SIDESTEP_OK;
}

/* Why it cannot go after all; NULL: it may, and is claimed. */
static const char *find_objection(const struct prune *p, const struct sidestep_listed *entry)
{
    if (!sweep_has_only_own_files(p->root, entry->name))
        return "it holds files that are not ours, or a save";
    if (referenced_files_was_replaced(p->root, entry->name, entry->save_id))
        return WAS_REPLACED;
    if (p->marks != NULL && annotations_may_exist(p->marks, ANNOTATION_PIN, entry->name))
        return IS_PINNED;
    if (p->claim != NULL && !p->claim(p->context, entry))
        return "a save is about to replace it";
    return NULL;
}

static enum sidestep_status remove_one(struct prune *p, const struct sidestep_listed *entry,
                                       struct sidestep_error *err)
{
    struct sidestep_error refusal = {.rank = -1};
    uint64_t bytes = 0;

    if (p->may_delete != NULL)
        TRY(p->may_delete(p->context, err));
    const char *objection = find_objection(p, entry);
    if (objection != NULL) {
        keep(p, entry, objection);
        return SIDESTEP_OK;
    }
    enum sidestep_status status =
        p->dry_run ? try_delete(p, entry->name, &bytes, &refusal)
                   : prune_delete(p->root, p->marks, entry->name, entry->save_id, &bytes, &refusal);
    if (p->unclaim != NULL)
        p->unclaim(p->context);
    if (status != SIDESTEP_OK) {
        keep(p, entry, refusal.message);
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
    OWNED_BY(looking_release) struct looking l = {0};

    TRY(look(p, &l, err));
    retention_plan(p->retention, l.items, l.count);
    if (lets_go(&l)) {
        TRY(check(p, &l, err));
        retention_plan(p->retention, l.items, l.count);
    }
    for (int abandoned = 1; abandoned >= 0; abandoned--)
        for (size_t i = 0; i < l.count; i++) {
            if (l.items[i].is_abandoned != (abandoned == 1))
                continue;
            if (l.items[i].keep != NULL)
                keep(p, &l.entries[i], l.items[i].keep);
            else
                TRY(remove_one(p, &l.entries[i], err));
        }
    return SIDESTEP_OK;
}

/* ---- by hand ---- */

/* The lock of the series, if it is one: no run is to be disturbed. */
static enum sidestep_status prune_locked(struct prune *p, struct lease *lease,
                                         struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    OWNED_DIR *dir = NULL;
    enum sidestep_status status =
        store_dir_open(p->store, p->root, FILE_NAME_SERIES_DIR, &dir, &why);

    if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND) {
        error_copy(err, &why);
        return status;
    }
    p->marks = dir;
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
    OWNED_DIR *dir = NULL;

    if (root == NULL || theirs == NULL || report == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "root, retention or report is NULL");
    *report = (struct sidestep_gc_report){0};
    if ((flags & ~SIDESTEP_GC_DRY_RUN) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "prune: unknown flags 0x%x", flags);
    TRY(retention_copy(&retention, theirs, err));
    TRY(store_dir_open(store_posix(), NULL, root, &dir, err));
    struct prune prune = {.store = store_posix(),
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
    if (status != SIDESTEP_OK)
        error_wrap(err, "prune '%s'", root);
    return status;
}
