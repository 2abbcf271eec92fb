/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * saves_in_progress.c -- sidestep_list_saving(): lists running saves, as another process sees them.
 *
 * It takes no lock (root/owner.h).
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "catalog/list.h"
#include "object/object.h"
#include "root/root.h"

static const char *const writer_states[] = {[WRITER_WRITING] = "writing",
                                            [WRITER_SEALED] = "sealed",
                                            [WRITER_DONE] = "done",
                                            [WRITER_FAILED] = "failed"};

struct scan {
    struct arena arena;
    const char *root;
    struct store *store;
    struct sidestep_saving *entries;
    size_t count;
    size_t capacity;
    const char **unread; /* at most as many as names in the root */
    size_t unread_count;
    enum sidestep_status unread_status;
};

/* The directory of the root that is read now. */
struct probed_dir {
    const char *name;
    const char *path;
    struct store_dir *dir;
    struct name_list names;
};

static void probed_dir_release(struct probed_dir *probed)
{
    name_list_release(&probed->names);
    store_dir_close(probed->dir);
}

/* Set the target of a save. ${in_place}: the target is the directory itself, whatever the marker
 * says, because the directory may have been renamed or copied. */
static enum sidestep_status set_target(struct scan *l, const struct probed_dir *probed,
                                       bool in_place, const struct commit_marker *marker,
                                       struct sidestep_saving *entry, struct sidestep_error *err)
{
    const char *target = in_place ? probed->name : marker->target;

    entry->step = in_place ? step_name_parse(target) : marker->step;
    if (entry->step < 0)
        entry->step = in_place ? marker->step : step_name_parse(target);
    return arena_copy_text(&l->arena, target, &entry->name, err);
}

/* Read the pending marker of the save. If that fails, the fields stay unknown. */
static enum sidestep_status set_owner(struct scan *l, const struct probed_dir *probed,
                                      bool in_place, struct sidestep_saving *entry,
                                      struct sidestep_error *err)
{
    struct owner owner;
    enum sidestep_status status = root_read_owner(probed->dir, entry->save_id, &owner, err);

    if (status != SIDESTEP_OK)
        return status == SIDESTEP_ENOMEM ? status : SIDESTEP_OK;
    const struct commit_marker *marker = &owner.marker;
    entry->is_dead = owner.is_dead;
    TRY(set_target(l, probed, in_place, marker, entry, err));
    if (marker->owner[0] != '\0' &&
        (entry->owner = arena_printf(&l->arena, "process %s on %s", marker->owner, marker->host)) ==
            NULL)
        return FAIL_NOMEM(err, strlen(marker->owner));
    return SIDESTEP_OK;
}

/* ---- one save */

static int compare_ranks(const void *a, const void *b)
{
    const struct writer *x = a, *y = b;

    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static enum sidestep_status set_ranks(struct scan *l, struct writers *seen,
                                      struct sidestep_saving *entry, struct sidestep_error *err)
{
    struct sidestep_writer *writers = arena_new(&l->arena, seen->count, sizeof(*writers));

    if (writers == NULL)
        return FAIL_NOMEM(err, seen->count * sizeof(*writers));
    if (seen->count != 0)
        qsort(seen->seen, seen->count, sizeof(*seen->seen), compare_ranks);
    for (size_t i = 0; i < seen->count; i++) {
        const struct writer *rank = &seen->seen[i];
        writers[i] = (struct sidestep_writer){.rank = rank->rank,
                                              .state_name = writer_states[rank->state],
                                              .bytes = rank->bytes,
                                              .written_bytes = rank->written};
        entry->done_count += rank->state == WRITER_DONE;
        entry->failed_count += rank->state == WRITER_FAILED;
        entry->bytes += rank->bytes;
        entry->written_bytes += rank->written;
    }
    entry->writers = writers;
    entry->rank_count = (uint32_t)seen->count;
    return SIDESTEP_OK;
}

/* Fill ${entry} for save ${id} in ${probed}. */
static enum sidestep_status fill_entry(struct scan *l, const struct probed_dir *probed,
                                       const char *id, bool in_place, struct sidestep_saving *entry,
                                       struct sidestep_error *err)
{
    OWNED_BY(writers_release) struct writers seen = {0};
    const struct writers_save save = {.dir = probed->dir,
                                      .path = probed->path,
                                      .names = &probed->names,
                                      .save_id = id,
                                      .in_place = in_place};

    entry->path = probed->path;
    entry->save_id = arena_strndup(&l->arena, id, strlen(id));
    if (entry->save_id == NULL)
        return FAIL_NOMEM(err, strlen(id));
    TRY(set_owner(l, probed, in_place, entry, err));
    TRY(root_find_writers(&seen, &save, err));
    return set_ranks(l, &seen, entry, err);
}

static enum sidestep_status add_save(struct scan *l, const struct probed_dir *probed,
                                     const char *id, bool in_place, struct sidestep_error *err)
{
    struct sidestep_saving entry = {.step = -1};

    TRY(fill_entry(l, probed, id, in_place, &entry, err));
    TRY_GROW(l->entries, l->capacity, l->count, err);
    l->entries[l->count++] = entry;
    return SIDESTEP_OK;
}

static enum sidestep_status add_saves(struct scan *l, struct store_dir *root,
                                      const struct file_name *own, struct probed_dir *probed,
                                      struct sidestep_error *err)
{
    OWNED_NAMES struct name_list saves = {0};

    TRY(store_dir_open(root->store, root, probed->name, &probed->dir, err));
    TRY(name_list_read(probed->dir, &probed->names, err));
    if (own->kind == FILE_NAME_SAVING)
        return add_save(l, probed, own->save_id, false, err);
    TRY(root_find_saves(probed->dir, &probed->names, &saves, err));
    for (size_t i = 0; i < saves.count; i++)
        TRY(add_save(l, probed, saves.names[i], true, err));
    return SIDESTEP_OK;
}

/* ---- the root */

/* Record a directory that could not be read. ${why} is the reason. */
static enum sidestep_status note_unread(struct scan *l, const char *path, const char *name,
                                        const struct sidestep_error *why,
                                        struct sidestep_error *err)
{
    if (why->status == SIDESTEP_ENOMEM) {
        error_copy(err, why);
        return SIDESTEP_ENOMEM;
    }
    if (why->status == SIDESTEP_ENOTFOUND || strcmp(name, "lost+found") == 0)
        return SIDESTEP_OK; /* the save has ended; or the file system made the directory */
    if (l->unread_count == 0)
        l->unread_status = (enum sidestep_status)why->status;
    l->unread[l->unread_count] = arena_printf(&l->arena, "%s: %s", path, why->message);
    return l->unread[l->unread_count++] != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(path));
}

static enum sidestep_status scan_dir(struct scan *l, struct store_dir *root, const char *name,
                                     struct sidestep_error *err)
{
    OWNED_BY(probed_dir_release) struct probed_dir probed = {.name = name};
    struct file_name own = file_name_parse(name);
    struct sidestep_error why = {0};
    struct store_stat stat;

    if (strcmp(name, FILE_NAME_SERIES_DIR) == 0 ||
        (own.kind != FILE_NAME_SAVING && own.kind != FILE_NAME_NONE) ||
        store_stat(root, name, &stat, NULL) != SIDESTEP_OK || stat.kind != STORE_DIRECTORY)
        return SIDESTEP_OK;
    probed.path = arena_printf(&l->arena, "%s/%s", l->root, name);
    if (probed.path == NULL)
        return FAIL_NOMEM(err, strlen(name));
    if (add_saves(l, root, &own, &probed, &why) != SIDESTEP_OK)
        return note_unread(l, probed.path, name, &why, err);
    return SIDESTEP_OK;
}

/* Set the expected size of each save: that of the newest committed checkpoint. */
static enum sidestep_status set_expected(struct scan *l, struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    if (l->count == 0)
        return SIDESTEP_OK;
    TRY(list_root(l->store, l->root, 0, &list, err));
    for (size_t i = list.count; i-- > 0;) {
        if (sidestep_list_entry(&list, i)->state != SIDESTEP_COMMITTED ||
            list_is_skipped(sidestep_list_entry(&list, i)))
            continue;
        for (size_t k = 0; k < l->count; k++) {
            l->entries[k].expected_bytes = sidestep_list_entry(&list, i)->bytes;
            l->entries[k].expected_ranks = sidestep_list_entry(&list, i)->ranks;
        }
        break;
    }
    return SIDESTEP_OK;
}

static int compare_saves(const void *a, const void *b)
{
    const struct sidestep_saving *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return strcmp(x->path, y->path);
}

static enum sidestep_status scan_root(struct scan *l, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *root = NULL;

    TRY(named_dir_open(l->store, l->root, &root, err));
    TRY(store_dir_remember(root, err));
    TRY(name_list_read(root, &names, err));
    l->unread = arena_new(&l->arena, names.count, sizeof(*l->unread));
    if (l->unread == NULL)
        return FAIL_NOMEM(err, names.count * sizeof(*l->unread));
    for (size_t i = 0; i < names.count; i++)
        TRY(scan_dir(l, root, names.names[i], err));
    TRY(set_expected(l, err));
    if (l->count != 0)
        qsort(l->entries, l->count, sizeof(*l->entries), compare_saves);
    return SIDESTEP_OK;
}

static void free_scan(struct scan *l)
{
    arena_release(&l->arena);
    free(l->entries);
    free(l);
}

const struct sidestep_saving *sidestep_saving_list_entry(const struct sidestep_saving_list *list,
                                                         size_t i)
{
    const struct sidestep_saving *entries = list->entries;

    return i < list->count ? &entries[i] : NULL;
}

const struct sidestep_writer *sidestep_saving_writer(const struct sidestep_saving *saving, size_t i)
{
    const struct sidestep_writer *entries = saving->writers;

    return i < saving->rank_count ? &entries[i] : NULL;
}

void sidestep_saving_list_release(struct sidestep_saving_list *list)
{
    if (list->owner != NULL)
        free_scan(list->owner);
    *list = (struct sidestep_saving_list){0};
}

enum sidestep_status sidestep_list_saving(const char *root, struct sidestep_saving_list *list,
                                          struct sidestep_error *err)
{
    if (root == NULL || list == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "root or list is NULL");
    *list = (struct sidestep_saving_list){0};
    struct scan *l = memory_new(1, sizeof(*l));
    if (l == NULL)
        return FAIL_NOMEM(err, sizeof(*l));
    l->root = root;
    enum sidestep_status status = object_path_open(root, &l->store, err);
    if (status == SIDESTEP_OK)
        status = scan_root(l, err);
    object_path_close(&l->store);
    if (status != SIDESTEP_OK) {
        free_scan(l);
        error_wrap(err, "look for saves under '%s'", root);
        return status;
    }
    *list = (struct sidestep_saving_list){.count = l->count,
                                          .entries = l->entries,
                                          .owner = l,
                                          .unread_count = l->unread_count,
                                          .unread = l->unread,
                                          .unread_status = l->unread_status};
    return SIDESTEP_OK;
}
