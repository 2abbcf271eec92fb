/* SPDX-License-Identifier: BSD-3-Clause */
/* list.c -- lists a root from names, sizes and manifests, without reading data; see list.h. */
#include "catalog/list.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "catalog/listing.h"
#include "format/format.h"
#include "object/object.h"
#include "root/root.h"

static const char *const presence_names[SIDESTEP_PRESENCE_END] = {
    [SIDESTEP_COMMITTED] = "committed", [SIDESTEP_SAVING] = "saving",
    [SIDESTEP_TRASH] = "trash",         [SIDESTEP_BAD] = "bad",
    [SIDESTEP_FOREIGN] = "foreign",     [SIDESTEP_UNREADABLE] = "unreadable",
    [SIDESTEP_COMPLETE] = "complete",   [SIDESTEP_INCOMPLETE] = "incomplete",
    [SIDESTEP_DEAD] = "dead",           [SIDESTEP_DAMAGED] = "damaged",
    [SIDESTEP_PART] = "part",
};

const char *sidestep_presence_name(enum sidestep_presence state)
{
    return (unsigned)state < SIDESTEP_PRESENCE_END ? presence_names[state] : NULL;
}

void listing_set_state(struct sidestep_listed *entry, enum sidestep_presence state)
{
    entry->state = state;
    entry->state_name = presence_names[state];
}

const char *const *list_origins(const struct sidestep_list *list, const char *save_id,
                                size_t *count)
{
    const struct listing *l = list->owner;

    *count = 0;
    for (size_t i = 0; save_id != NULL && i < l->sharing_count; i++)
        if (strcmp(l->sharing[i].save_id, save_id) == 0) {
            *count = l->sharing[i].count;
            return l->sharing[i].origins;
        }
    return NULL;
}

struct sidestep_listed *list_entries(struct sidestep_list *list)
{
    struct listing *l = list->owner;

    return l->entries;
}

const struct annotations *list_annotations(const struct sidestep_list *list)
{
    const struct listing *l = list->owner;

    return &l->annotations;
}

const char *list_run_id(const struct sidestep_list *list)
{
    const struct listing *l = list->owner;

    return l->run_id;
}

const char *list_record(const struct sidestep_list *list)
{
    const struct listing *l = list->owner;

    return l->record;
}

/* May it be the name of a step? The series decides where in the name the number is. */
static bool has_digit(const char *name)
{
    return strpbrk(name, "0123456789") != NULL;
}

static enum sidestep_status add_entry(struct listing *l, const char *name,
                                      struct sidestep_error *err)
{
    struct sidestep_listed *entry = &l->entries[l->count];
    bool is_ours = file_name_parse(name).kind != FILE_NAME_NONE;
    struct sidestep_error why = {0};

    if (strcmp(name, FILE_NAME_SERIES_DIR) == 0 ||
        strncmp(name, FILE_NAME_UNPUBLISHED, strlen(FILE_NAME_UNPUBLISHED)) == 0)
        return SIDESTEP_OK;
    *entry = (struct sidestep_listed){.step = is_ours ? -1 : step_name_parse(name)};
    enum sidestep_status status = listing_read_entry(l, name, entry, &why);
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, strlen(name));
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK) {
        entry->state = SIDESTEP_UNREADABLE;
        entry->status = status;
    }
    listing_set_state(entry, entry->state);
    if (status != SIDESTEP_OK && (l->flags & LIST_WITH_UNREADABLE) != 0 && !is_ours &&
        has_digit(name))
        entry->state = SIDESTEP_COMMITTED; /* list_is_unreadable() looks at its state_name */
    else if (status != SIDESTEP_OK)
        TRY(arena_copy_text(&l->arena, why.message, &entry->reason, err));
    entry->name = arena_strndup(&l->arena, name, strlen(name));
    entry->path = arena_printf(&l->arena, "%.*s/%s", l->root_bytes, l->root, name);
    if (entry->name == NULL || entry->path == NULL)
        return FAIL_NOMEM(err, strlen(name));
    entry->is_renamed =
        !is_ours && entry->run_id != NULL && entry->step >= 0 && !step_name_is_original(entry);
    l->count++;
    return listing_add_annotations(l, entry, err);
}

static int compare_listed(const void *a, const void *b)
{
    const struct sidestep_listed *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->step < 0 && x->saved_at != y->saved_at)
        return x->saved_at < y->saved_at ? -1 : 1;
    return strcmp(x->name, y->name);
}

void list_sort(struct sidestep_listed *entries, size_t count)
{
    if (count != 0)
        qsort(entries, count, sizeof(*entries), compare_listed);
}

/* Infer the steps of unreadable entries, so that one that is newer than all others does not count
 * as the oldest. */
static void infer_unreadable_steps(struct listing *l)
{
    for (size_t i = 0; i < l->count; i++) {
        struct sidestep_listed *entry = &l->entries[i];
        if (list_is_unreadable(entry) && entry->step < 0)
            entry->step = step_name_infer(l->entries, l->count, entry->name);
    }
}

static void clear_listing(struct listing *l)
{
    arena_release(&l->arena);
    annotations_release(&l->annotations);
    l->count = l->sharing_count = 0;
    l->has_changed = false;
}

static enum sidestep_status fill_once(struct listing *l, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};

    clear_listing(l);
    TRY(store_dir_remember(l->root_dir, err));
    TRY(root_read_index(l->root_dir, annotations_is_file, (l->flags & LIST_KEEPS_INDEX) != 0, err));
    TRY(name_list_read(l->root_dir, &names, err));
    l->entries = arena_new(&l->arena, names.count, sizeof(*l->entries));
    l->sharing = arena_new(&l->arena, names.count, sizeof(*l->sharing));
    if (l->entries == NULL || l->sharing == NULL)
        return FAIL_NOMEM(err, names.count * sizeof(*l->entries));
    TRY(listing_read_annotations(l, err));
    for (size_t i = 0; i < names.count; i++)
        TRY(add_entry(l, names.names[i], err));
    infer_unreadable_steps(l);
    list_sort(l->entries, l->count);
    TRY(listing_mark_skipped(l, err));
    return (l->flags & LIST_CHECKED) != 0 ? listing_check(l, err) : SIDESTEP_OK;
}

/* Make the listing, and start over if names disappeared meanwhile: then names that replaced them
 * may be missing from it. */
static enum sidestep_status fill_listing(struct listing *l, struct sidestep_error *err)
{
    for (unsigned attempt = 1;; attempt++) {
        TRY(fill_once(l, err));
        if (!l->has_changed || attempt == LIST_MAX_ATTEMPTS)
            return SIDESTEP_OK;
    }
}

enum sidestep_status list_root(struct store *store, const char *root, uint32_t flags,
                               struct sidestep_list *list, struct sidestep_error *err)
{
    struct listing *l = memory_new(1, sizeof(*l));

    *list = (struct sidestep_list){0};
    if (l == NULL)
        return FAIL_NOMEM(err, sizeof(*l));
    *l = (struct listing){
        .store = store, .root = root, .root_bytes = (int)object_url_trimmed(root), .flags = flags};
    enum sidestep_status status = named_dir_open(store, root, &l->root_dir, err);
    if (status == SIDESTEP_OK)
        status = fill_listing(l, err);
    if ((flags & LIST_STAYS_OPEN) == 0)
        store_dir_close(TAKE(l->root_dir));
    *list = (struct sidestep_list){.count = l->count, .entries = l->entries, .owner = l};
    if (status != SIDESTEP_OK)
        sidestep_list_release(list);
    return status;
}

struct store_dir *list_root_dir(const struct sidestep_list *list)
{
    const struct listing *l = list->owner;

    return l->root_dir;
}

enum sidestep_status list_check(struct sidestep_list *list, bool *gone, struct sidestep_error *err)
{
    struct listing *l = list->owner;

    l->has_changed = false;
    TRY(listing_check(l, err));
    store_dir_close(TAKE(l->root_dir));
    for (size_t i = 0; i < l->count; i++)
        if (list_is_unreadable(&l->entries[i])) { /* and has been opened now */
            listing_set_state(&l->entries[i], SIDESTEP_UNREADABLE);
            l->entries[i].reason = "it could not be read when it was listed";
        }
    *gone = l->has_changed;
    return SIDESTEP_OK;
}

enum sidestep_status list_check_readable(const struct sidestep_listed *entry,
                                         struct sidestep_error *err)
{
    if (entry->state != SIDESTEP_UNREADABLE)
        return SIDESTEP_OK;
    return FAIL(err, entry->status, "'%s' cannot be read now, so its save is not known: %s",
                entry->path, entry->reason);
}

bool list_is_candidate(const struct sidestep_listed *entry)
{
    return entry->state == SIDESTEP_COMMITTED || entry->state == SIDESTEP_DAMAGED;
}

bool list_is_skipped(const struct sidestep_listed *entry)
{
    return entry->state == SIDESTEP_COMMITTED && entry->reason != NULL;
}

bool list_is_unreadable(const struct sidestep_listed *entry)
{
    return entry->state == SIDESTEP_COMMITTED &&
           entry->state_name == presence_names[SIDESTEP_UNREADABLE];
}

const struct sidestep_listed *sidestep_list_entry(const struct sidestep_list *list, size_t i)
{
    const struct sidestep_listed *entries = list->entries;

    return i < list->count ? &entries[i] : NULL;
}

void sidestep_list_release(struct sidestep_list *list)
{
    struct listing *l = list->owner;

    if (l != NULL) {
        clear_listing(l);
        store_dir_close(l->root_dir);
    }
    free(l);
    *list = (struct sidestep_list){0};
}
