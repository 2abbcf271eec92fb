/* SPDX-License-Identifier: BSD-3-Clause */
/* list.c -- see list.h.  A listing looks at names, sizes and manifests; it reads no data. */
#include "engine/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/owned.h"
#include "commit/commit.h"
#include "commit/lease.h"
#include "commit/marks.h"
#include "commit/name_list.h"
#include "commit/named.h"
#include "engine/layouts.h"
#include "engine/lines.h"
#include "engine/verify.h"

static const char *const presence_names[] = {
    [SIDESTEP_COMMITTED] = "committed", [SIDESTEP_SAVING] = "saving",
    [SIDESTEP_TRASH] = "trash",         [SIDESTEP_BAD] = "bad",
    [SIDESTEP_FOREIGN] = "foreign",     [SIDESTEP_UNREADABLE] = "unreadable",
    [SIDESTEP_COMPLETE] = "complete",   [SIDESTEP_INCOMPLETE] = "incomplete",
};

/* A checkpoint with files of earlier saves. */
struct sharing {
    const char *save_id;
    const char **origins;
    size_t count;
};

struct listing {
    struct arena arena;
    struct store *store;
    struct store_dir *root_dir;
    const char *root;
    bool with_doubtful;
    bool has_changed; /* what was listed had another name, or none, when it was looked into */
    struct marks marks;
    char run_id[SAVE_ID_HEX]; /* of the series; "": there is none */
    uint64_t incarnation;
    struct sidestep_listed *entries;
    size_t count;
    struct sharing *sharing; /* as much room as for entries */
    size_t sharing_count;
};

/* What the names in a directory tell. */
struct contents {
    bool has_metadata;
    bool has_rank_metadata; /* of a save without collectives */
    bool has_mark;
    char save_id[SAVE_ID_HEX]; /* of the only manifest */
    size_t manifests;
    uint32_t ranks;
};

static void note_name(struct contents *c, const char *name)
{
    struct names_parsed parsed = names_parse(name);

    if (strcmp(name, NAMES_METADATA) == 0)
        c->has_metadata = true;
    else if (strcmp(name, "__0.metadata") == 0)
        c->has_rank_metadata = true;
    else if (parsed.kind == NAMES_PENDING)
        c->has_mark = true;
    else if (parsed.kind == NAMES_MANIFEST) {
        memcpy(c->save_id, parsed.save_id, sizeof(c->save_id));
        c->manifests++;
    } else if (parsed.kind == NAMES_SHARD && parsed.rank >= c->ranks)
        c->ranks = parsed.rank + 1;
}

/* More than one manifest: a replacement was cut short, and .metadata says which one counts.
 * ENOTFOUND: none does. */
static enum sidestep_status resolve_manifest(struct store_dir *dir, struct contents *c)
{
    OWNED_NAMED named = {0};
    uint8_t id[SAVE_ID_BYTES];

    if (c->manifests <= 1)
        return c->manifests == 1 ? SIDESTEP_OK : SIDESTEP_ENOTFOUND;
    TRY(named_read(dir, NAMES_METADATA, &named));
    if (named.save_id == NULL || strlen(named.save_id) != SAVE_ID_HEX - 1 ||
        !hash_from_hex(named.save_id, SAVE_ID_BYTES, id))
        return SIDESTEP_ENOTFOUND;
    memcpy(c->save_id, named.save_id, SAVE_ID_HEX);
    return SIDESTEP_OK;
}

static enum sidestep_status read_manifest(struct store_dir *dir, struct contents *c,
                                          struct arena *arena, struct manifest *manifest)
{
    OWNED_BUFFER bytes = {0};
    char name[NAMES_MAX];

    TRY(resolve_manifest(dir, c));
    names_format(NAMES_MANIFEST, c->save_id, 0, 0, name);
    TRY(commit_read_file(dir, name, 0, MANIFEST_MAX_BYTES, &bytes, NULL));
    return manifest_decode(bytes.bytes, bytes.length, arena, manifest, NULL);
}

/* Which of its files are of which earlier saves. */
static enum sidestep_status take_origins(struct listing *l, const struct manifest *manifest,
                                         struct sidestep_listed *entry, struct sidestep_error *err)
{
    struct sharing *s = &l->sharing[l->sharing_count];

    *s = (struct sharing){.save_id = entry->save_id};
    for (size_t i = 0; i < manifest->file_count; i++) {
        const char *origin = manifest->files[i].origin;
        size_t known = 0;
        if (strcmp(origin, manifest->save_id) == 0)
            continue;
        entry->shared_files++;
        while (known < s->count && strcmp(s->origins[known], origin) != 0)
            known++;
        if (known < s->count)
            continue;
        if (s->origins == NULL)
            s->origins = arena_new(&l->arena, manifest->file_count - i, sizeof(*s->origins));
        if (s->origins == NULL ||
            (s->origins[s->count++] = arena_strndup(&l->arena, origin, strlen(origin))) == NULL)
            return FAIL_NOMEM(err, manifest->file_count * sizeof(*s->origins));
    }
    l->sharing_count += s->count != 0;
    return SIDESTEP_OK;
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

static enum sidestep_status take_manifest(struct listing *l, struct store_dir *dir,
                                          struct contents *c, struct sidestep_listed *entry,
                                          struct sidestep_error *err)
{
    OWNED_ARENA arena = {0};
    struct manifest manifest;

    enum sidestep_status status = read_manifest(dir, c, &arena, &manifest);
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, MANIFEST_MAX_BYTES);
    if (status != SIDESTEP_OK)
        return verify_is_damage(status) ? SIDESTEP_OK : status; /* or it would pass for another's */
    entry->save_id = arena_strndup(&l->arena, manifest.save_id, strlen(manifest.save_id));
    if (manifest.run_id[0] != '\0')
        entry->run_id = arena_strndup(&l->arena, manifest.run_id, strlen(manifest.run_id));
    entry->incarnation = manifest.incarnation;
    entry->ranks = manifest.world_size;
    entry->saved_at = manifest.saved_at;
    if (manifest.step >= 0)
        entry->step = manifest.step;
    if (manifest.naming[0] != '\0')
        entry->naming = arena_strndup(&l->arena, manifest.naming, strlen(manifest.naming));
    if (entry->save_id == NULL)
        return FAIL_NOMEM(err, sizeof(manifest.save_id));
    return take_origins(l, &manifest, entry, err);
}

static enum sidestep_presence classify(const char *name, const struct contents *c)
{
    switch (names_parse(name).kind) {
    case NAMES_SAVING:
        return SIDESTEP_SAVING;
    case NAMES_TRASH:
        return SIDESTEP_TRASH;
    case NAMES_BAD:
        return SIDESTEP_BAD;
    default:
        if (c->has_metadata || c->has_rank_metadata)
            return SIDESTEP_COMMITTED;
        if (c->manifests != 0 && !c->has_mark)
            return SIDESTEP_BAD; /* a checkpoint of ours that has lost its .metadata */
        return c->has_mark ? SIDESTEP_SAVING : SIDESTEP_FOREIGN;
    }
}

static enum sidestep_status read_contents(struct store_dir *dir, struct name_list *names,
                                          struct contents *c, struct sidestep_listed *entry,
                                          struct sidestep_error *err)
{
    struct store_stat stat;

    TRY(name_list_read(dir, names, err));
    for (size_t i = 0; i < names->count; i++) {
        note_name(c, names->names[i]);
        if (store_stat(dir, names->names[i], &stat, NULL) != SIDESTEP_OK || stat.kind != STORE_FILE)
            continue;
        entry->files++;
        entry->bytes += stat.size;
    }
    return SIDESTEP_OK;
}

/* What is not ours may be another program's. */
static enum sidestep_status take_layout(struct listing *l, const char *name, struct store_dir *dir,
                                        const struct name_list *names,
                                        struct sidestep_listed *entry, struct sidestep_error *err)
{
    struct layouts_look look = {.root = l->root_dir,
                                .name = name,
                                .dir = dir,
                                .names = names,
                                .step = list_step_of(name),
                                .arena = &l->arena};

    if (entry->save_id != NULL ||
        (entry->state != SIDESTEP_COMMITTED && entry->state != SIDESTEP_FOREIGN))
        return SIDESTEP_OK;
    TRY(layouts_look(&look, err));
    entry->layout = look.layout;
    entry->reason = look.reason;
    if (look.reason != NULL)
        entry->state = SIDESTEP_INCOMPLETE;
    else if (look.layout != NULL && entry->state == SIDESTEP_FOREIGN)
        entry->state = SIDESTEP_COMPLETE;
    return SIDESTEP_OK;
}

/* A file that is a whole checkpoint by itself. */
static enum sidestep_status look_at_file(struct listing *l, const char *name,
                                         const struct store_stat *stat,
                                         struct sidestep_listed *entry, struct sidestep_error *err)
{
    static const struct name_list none;

    entry->state = SIDESTEP_FOREIGN;
    entry->saved_at = stat->modified;
    entry->files = 1;
    entry->bytes = stat->size;
    return take_layout(l, name, NULL, &none, entry, err);
}

static enum sidestep_status look_into_dir(struct listing *l, const char *name,
                                          struct sidestep_listed *entry, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *dir = NULL;
    struct contents contents = {0};

    TRY(store_dir_open(l->store, l->root_dir, name, &dir, err));
    TRY(read_contents(dir, &names, &contents, entry, err));
    entry->state = classify(name, &contents);
    entry->ranks = contents.ranks;
    TRY(take_manifest(l, dir, &contents, entry, err));
    return take_layout(l, name, dir, &names, entry, err);
}

/* Look at a name.  ENOTFOUND: it is no checkpoint, or is gone. */
static enum sidestep_status look_into(struct listing *l, const char *name,
                                      struct sidestep_listed *entry, struct sidestep_error *err)
{
    struct store_stat stat, now;

    enum sidestep_status status = store_stat(l->root_dir, name, &stat, err);
    l->has_changed |= status == SIDESTEP_ENOTFOUND;
    TRY(status);
    if (stat.kind == STORE_FILE && layouts_is_file(name))
        return look_at_file(l, name, &stat, entry, err);
    if (stat.kind != STORE_DIRECTORY)
        return SIDESTEP_ENOTFOUND;
    entry->saved_at = stat.modified;
    status = look_into_dir(l, name, entry, err);
    /* If it has another name by now, what was seen may be what was left on its way out. */
    enum sidestep_status again = store_stat(l->root_dir, name, &now, NULL);
    l->has_changed |=
        again == SIDESTEP_ENOTFOUND || (again == SIDESTEP_OK && now.inode != stat.inode);
    return status;
}

/* "<name> <bits of the value>" per line (a decimal point is the locale's): how many. */
static uint32_t parse_metrics(struct listing *l, const char *text, struct sidestep_metric *metrics)
{
    char name[MARKS_MAX_WORD + 1];
    uint32_t count = 0;
    unsigned long long bits;
    int used = 0;

    while (sscanf(text, "%64s %16llx\n%n", name, &bits, &used) == 2 && used > 0) {
        uint64_t value = bits;
        metrics[count].name = arena_strndup(&l->arena, name, strlen(name));
        memcpy(&metrics[count].value, &value, sizeof(value));
        count += metrics[count].name != NULL;
        text += used;
        used = 0;
    }
    return count;
}

static enum sidestep_status take_metrics(struct listing *l, const struct mark *mark,
                                         struct sidestep_listed *entry, struct sidestep_error *err)
{
    size_t lines = 0;

    for (const char *at = mark->text; *at != '\0'; at++)
        lines += *at == '\n';
    struct sidestep_metric *metrics = arena_new(&l->arena, lines + 1, sizeof(*metrics));
    if (metrics == NULL)
        return FAIL_NOMEM(err, lines * sizeof(*metrics));
    entry->metric_count = parse_metrics(l, mark->text, metrics);
    entry->metrics = metrics;
    return SIDESTEP_OK;
}

/* Was it left behind when nobody could read which save it is of?  What has been saved under its
 * name since then, or was copied there, is not meant. */
static bool was_left_unread(const struct listing *l, const struct mark *mark,
                            const struct sidestep_listed *entry)
{
    return mark->kind == MARKS_ABANDONED && entry->run_id != NULL &&
           strcmp(entry->run_id, l->run_id) == 0 && entry->incarnation < marks_incarnation_of(mark);
}

/* What lies beside it: pins, tags, metrics. */
static enum sidestep_status take_marks(struct listing *l, struct sidestep_listed *entry,
                                       struct sidestep_error *err)
{
    size_t count;
    const struct mark *marks = marks_of(&l->marks, entry->name, &count);

    if (count == 0)
        return SIDESTEP_OK;
    const char **tags = arena_new(&l->arena, count, sizeof(*tags));
    if (tags == NULL)
        return FAIL_NOMEM(err, count * sizeof(*tags));
    entry->tags = tags;
    for (size_t i = 0; i < count; i++) {
        if (!marks_applies(&marks[i], entry->save_id) && !was_left_unread(l, &marks[i], entry))
            continue;
        if (marks[i].kind == MARKS_TAG)
            tags[entry->tag_count++] = marks[i].tag;
        else if (marks[i].kind == MARKS_METRICS)
            TRY(take_metrics(l, &marks[i], entry, err));
        else if (marks[i].kind == MARKS_ADOPTED && marks_step_of(&marks[i]) >= 0)
            entry->step = marks_step_of(&marks[i]); /* as which it was resumed */
        entry->is_pinned |= marks[i].kind == MARKS_PIN;
        entry->is_abandoned |= marks[i].kind == MARKS_ABANDONED;
    }
    return SIDESTEP_OK;
}

/* The marks, and whose series it is. */
static enum sidestep_status read_marks(struct listing *l, struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;
    enum sidestep_status status =
        store_dir_open(l->store, l->root_dir, NAMES_SERIES_DIR, &dir, NULL);

    if (status == SIDESTEP_OK)
        status = lease_read(dir, l->run_id, &l->incarnation, NULL);
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, sizeof(*l));
    if (status != SIDESTEP_OK) /* no series, or not ours to read */
        l->run_id[0] = '\0';
    return marks_read(dir, &l->marks, err);
}

/* What its series would not resume from.  Under a root without one, names mean less. */
static enum sidestep_status find_passed_over(struct listing *l, struct sidestep_error *err)
{
    struct lines_rule rule = {.run_id = l->incarnation > 1 ? l->run_id : NULL,
                              .any_name = l->run_id[0] == '\0'};
    char why[LINES_WHY_BYTES];

    lines_find_ended(l->entries, l->count, &l->marks);
    for (size_t i = 0; i < l->count; i++) {
        struct sidestep_listed *entry = &l->entries[i];
        if (entry->state != SIDESTEP_COMMITTED || !lines_passes_over(&rule, &l->marks, entry, why))
            continue;
        entry->reason = arena_strndup(&l->arena, why, strlen(why));
        if (entry->reason == NULL)
            return FAIL_NOMEM(err, strlen(why));
    }
    return SIDESTEP_OK;
}

/* May it be the name of a step?  Which stands anywhere in the name, as its series has it. */
static bool has_digit(const char *name)
{
    return strpbrk(name, "0123456789") != NULL;
}

static enum sidestep_status add_entry(struct listing *l, const char *name,
                                      struct sidestep_error *err)
{
    struct sidestep_listed *entry = &l->entries[l->count];
    bool is_ours = names_parse(name).kind != NAMES_NONE;
    struct sidestep_error why = {0};

    if (strcmp(name, NAMES_SERIES_DIR) == 0)
        return SIDESTEP_OK;
    *entry = (struct sidestep_listed){.step = is_ours ? -1 : list_step_of(name)};
    enum sidestep_status status = look_into(l, name, entry, &why);
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, strlen(name));
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK)
        entry->state = SIDESTEP_UNREADABLE;
    entry->state_name = presence_names[entry->state];
    if (status != SIDESTEP_OK && l->with_doubtful && !is_ours && has_digit(name))
        entry->state = SIDESTEP_COMMITTED; /* list_is_doubtful() knows it by its state_name */
    entry->name = arena_strndup(&l->arena, name, strlen(name));
    entry->path = arena_printf(&l->arena, "%s/%s", l->root, name);
    if (entry->name == NULL || entry->path == NULL)
        return FAIL_NOMEM(err, strlen(name));
    entry->is_renamed =
        !is_ours && entry->run_id != NULL && entry->step >= 0 && !list_has_own_name(entry);
    l->count++;
    return take_marks(l, entry, err);
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

/* Where those that could not be looked into belong: what is newer than all others is not to be
 * taken for the oldest. */
static void place_doubtful(struct listing *l)
{
    for (size_t i = 0; i < l->count; i++) {
        struct sidestep_listed *entry = &l->entries[i];
        if (list_is_doubtful(entry) && entry->step < 0)
            entry->step = list_step_beside(l->entries, l->count, entry->name);
    }
}

static void clear_listing(struct listing *l)
{
    arena_release(&l->arena);
    marks_release(&l->marks);
    l->count = l->sharing_count = 0;
    l->has_changed = false;
}

static enum sidestep_status fill_once(struct listing *l, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};

    clear_listing(l);
    TRY(name_list_read(l->root_dir, &names, err));
    l->entries = arena_new(&l->arena, names.count, sizeof(*l->entries));
    l->sharing = arena_new(&l->arena, names.count, sizeof(*l->sharing));
    if (l->entries == NULL || l->sharing == NULL)
        return FAIL_NOMEM(err, names.count * sizeof(*l->entries));
    TRY(read_marks(l, err));
    for (size_t i = 0; i < names.count; i++)
        TRY(add_entry(l, names.names[i], err));
    place_doubtful(l);
    list_sort(l->entries, l->count);
    return find_passed_over(l, err);
}

/* A listing of several names is of no one moment: where some of them went meanwhile, the ones that
 * came for them may be missing. */
static enum sidestep_status fill_listing(struct listing *l, struct sidestep_error *err)
{
    for (unsigned attempt = 1;; attempt++) {
        TRY(fill_once(l, err));
        if (!l->has_changed || attempt == LIST_TRIES)
            return SIDESTEP_OK;
    }
}

static enum sidestep_status list_any(struct store *store, const char *root, bool with_doubtful,
                                     struct sidestep_list *list, struct sidestep_error *err)
{
    struct listing *l = memory_new(1, sizeof(*l));

    *list = (struct sidestep_list){0};
    if (l == NULL)
        return FAIL_NOMEM(err, sizeof(*l));
    l->store = store;
    l->root = root;
    l->with_doubtful = with_doubtful;
    enum sidestep_status status = store_dir_open(store, NULL, root, &l->root_dir, err);
    if (status == SIDESTEP_OK)
        status = fill_listing(l, err);
    store_dir_close(TAKE(l->root_dir));
    *list = (struct sidestep_list){.count = l->count, .entries = l->entries, .owner = l};
    if (status != SIDESTEP_OK)
        sidestep_list_release(list);
    return status;
}

enum sidestep_status list_root(struct store *store, const char *root, struct sidestep_list *list,
                               struct sidestep_error *err)
{
    return list_any(store, root, false, list, err);
}

enum sidestep_status list_candidates(struct store *store, const char *root,
                                     struct sidestep_list *list, struct sidestep_error *err)
{
    return list_any(store, root, true, list, err);
}

enum sidestep_status list_check_readable(const struct sidestep_listed *entry,
                                         struct sidestep_error *err)
{
    if (entry->state != SIDESTEP_UNREADABLE)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EIO, "'%s' cannot be read now, so nobody can tell which save it is",
                entry->path);
}

bool list_is_doubtful(const struct sidestep_listed *entry)
{
    return entry->state == SIDESTEP_COMMITTED &&
           entry->state_name == presence_names[SIDESTEP_UNREADABLE];
}

void sidestep_list_release(struct sidestep_list *list)
{
    struct listing *l = list->owner;

    if (l != NULL)
        clear_listing(l);
    free(l);
    *list = (struct sidestep_list){0};
}

enum sidestep_status sidestep_list_root(const char *root, struct sidestep_list *list,
                                        struct sidestep_error *err)
{
    if (root == NULL || list == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "root or list is NULL");
    enum sidestep_status status = list_root(store_posix(), root, list, err);
    if (status != SIDESTEP_OK)
        error_wrap(err, "list '%s'", root);
    return status;
}
