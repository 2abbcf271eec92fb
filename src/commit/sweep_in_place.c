/* SPDX-License-Identifier: BSD-3-Clause */
/* sweep_in_place.c -- see sweep.h: files of dead saves inside a checkpoint's own directory, and
 * what a replaced checkpoint leaves there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit_marker.h"
#include "commit/lock_file.h"
#include "commit/name_list.h"
#include "commit/referenced_files.h"
#include "commit/small_file.h"
#include "commit/sweep.h"

/* It will never be read, however often we try. */
static bool is_damage(enum sidestep_status status)
{
    return status == SIDESTEP_ECORRUPT || status == SIDESTEP_EUNSAFE ||
           status == SIDESTEP_EUNSUPPORTED;
}

/* Takes files out of a directory, and tells ${sweep} if there is one. */
struct remover {
    struct store_dir *dir;
    struct sweep *sweep;
    const char *child;      /* the directory's name in the parent, for ${sweep} */
    struct hash_table told; /* names, in a dry run: what stays would be told again */
};

static bool is_dry(const struct remover *remover)
{
    return remover->sweep != NULL && remover->sweep->dry_run;
}

static void tell(struct remover *remover, const char *name, uint64_t bytes)
{
    struct sweep *sweep = remover->sweep;
    char path[2 * FILE_NAME_BYTES];
    size_t existing;

    if (is_dry(remover) &&
        (hash_table_find(&remover->told, name) != SIZE_MAX ||
         hash_table_insert(&remover->told, name, 0, &existing, NULL) != SIDESTEP_OK))
        return;
    snprintf(path, sizeof(path), "%s/%s", remover->child, name);
    sweep->removed(sweep->context, path, bytes);
}

/* Gone, or it was not there. */
static bool is_unlinked(struct remover *remover, const char *name)
{
    struct store_stat stat = {0};
    bool is_there = remover->sweep != NULL && remover->sweep->removed != NULL &&
                    store_stat(remover->dir, name, &stat, NULL) == SIDESTEP_OK;
    enum sidestep_status status =
        is_dry(remover) ? SIDESTEP_OK : store_unlink(remover->dir, name, NULL);

    if (is_there && status == SIDESTEP_OK)
        tell(remover, name, stat.size);
    return status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND;
}

/* false: it must go, but does not. */
static bool unlink_unless(struct remover *remover, const char *file, const struct hash_table *keep)
{
    return file == NULL || strchr(file, '/') != NULL || hash_table_find(keep, file) != SIZE_MAX ||
           is_unlinked(remover, file);
}

static bool is_our_id(const char *id)
{
    uint8_t bytes[SAVE_ID_BYTES];

    return id != NULL && strlen(id) == SAVE_ID_HEX - 1 && hash_from_hex(id, SAVE_ID_BYTES, bytes);
}

/* Unlink the files that a manifest of ours lists, and itself.  It knows more than the metadata
 * does: shards without items. */
static bool unlink_listed(struct remover *remover, const char *save_id,
                          const struct hash_table *keep)
{
    OWNED_BUFFER bytes = {0};
    OWNED_ARENA arena = {0};
    struct manifest manifest;
    char name[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_MANIFEST, save_id, 0, 0, name);
    enum sidestep_status status =
        small_file_read(remover->dir, name, 0, MANIFEST_MAX_BYTES, &bytes, NULL);
    if (status == SIDESTEP_OK)
        status = manifest_decode(bytes.bytes, bytes.length, &arena, &manifest, NULL);
    bool done = status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND || is_damage(status);
    for (size_t i = 0; status == SIDESTEP_OK && i < manifest.file_count; i++)
        done &= unlink_unless(remover, manifest.files[i].name, keep);
    return done && is_unlinked(remover, name);
}

/* Unlink the files that ${old} names and ${keep} does not; false: some are still there. */
static bool unlink_files(struct remover *remover, const struct referenced_files *old,
                         const struct hash_table *keep)
{
    bool done = true;

    for (size_t i = 0; i < old->metadata.count; i++) {
        const struct metadata_entry *entry = &old->metadata.entries[i];
        done &= unlink_unless(remover, entry->storage.file, keep);
        for (size_t c = 0; c < entry->chunk_count; c++)
            done &= unlink_unless(remover, entry->chunks[c].storage.file, keep);
    }
    if (done && is_our_id(old->save_id))
        done = unlink_listed(remover, old->save_id, keep);
    return done;
}

static bool has_id(const struct referenced_files *named, const char *save_id)
{
    return named->save_id != NULL && strcmp(named->save_id, save_id) == 0;
}

static void remove_replaced(struct remover *remover, const char *save_id)
{
    OWNED_REFERENCED_FILES current = {0};
    OWNED_REFERENCED_FILES old = {0};
    char tmp[FILE_NAME_BYTES];
    struct store_stat stat;
    struct store_dir *dir = remover->dir;

    file_name_format(FILE_NAME_METADATA_TMP, save_id, 0, 0, tmp);
    if (store_stat(dir, tmp, &stat, NULL) != SIDESTEP_OK ||
        referenced_files_read(dir, FILE_NAME_METADATA, &current) != SIDESTEP_OK ||
        !has_id(&current, save_id))
        return; /* nothing came out, or ours is not in: nothing is known to be garbage */
    enum sidestep_status status = referenced_files_read(dir, tmp, &old);
    if (status != SIDESTEP_OK && !is_damage(status))
        return; /* it alone knows what must go: keep it for the next sweep */
    if (status == SIDESTEP_OK && !has_id(&old, save_id) &&
        !unlink_files(remover, &old, &current.files))
        return;
    (void)is_unlinked(remover, tmp);
    if (!is_dry(remover))
        (void)store_dir_sync(dir, NULL);
}

void sweep_replaced_files(struct store_dir *dir, const char *save_id)
{
    struct remover remover = {.dir = dir};

    remove_replaced(&remover, save_id);
}

/* Of a save that was killed between its commit and the end of its clean-up. */
static void unlink_votes_of(struct store_dir *dir, const struct name_list *names,
                            const char *save_id)
{
    for (size_t i = 0; i < names->count; i++) {
        struct file_name parsed = file_name_parse(names->names[i]);
        if (parsed.kind == FILE_NAME_VOTE && strcmp(parsed.save_id, save_id) == 0)
            (void)store_unlink(dir, names->names[i], NULL);
    }
}

void sweep_save_files(struct store_dir *dir, const char *save_id)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_REFERENCED_FILES current = {0};
    char mark[FILE_NAME_BYTES];
    struct store_stat stat;
    bool found = store_stat(dir, FILE_NAME_METADATA, &stat, NULL) == SIDESTEP_OK;

    if (found && referenced_files_read(dir, FILE_NAME_METADATA, &current) != SIDESTEP_OK)
        return; /* we cannot tell that it is not the checkpoint */
    if (name_list_read(dir, &names, NULL) != SIDESTEP_OK)
        return;
    if (found && has_id(&current, save_id)) {
        unlink_votes_of(dir, &names, save_id); /* it is the checkpoint */
        return;
    }
    for (size_t i = 0; i < names.count; i++) {
        struct file_name parsed = file_name_parse(names.names[i]);
        if (strcmp(parsed.save_id, save_id) == 0 && parsed.kind != FILE_NAME_PENDING &&
            parsed.kind != FILE_NAME_OUTCOME && parsed.kind != FILE_NAME_SAVING &&
            parsed.kind != FILE_NAME_TRASH && parsed.kind != FILE_NAME_BAD)
            (void)store_unlink(dir, names.names[i], NULL);
    }
    file_name_format(FILE_NAME_PENDING, save_id, 0, 0, mark);
    (void)store_unlink(dir, mark, NULL);
}

/* Take the lock of a mark in NAME: true if its owner is dead. */
static bool owner_is_dead(struct store_dir *dir, const char *mark_name, struct store_file **mark)
{
    struct commit_marker text;

    return store_file_open(dir, mark_name, STORE_WRITE, mark, NULL) == SIDESTEP_OK &&
           commit_marker_read(*mark, &text, NULL) == SIDESTEP_OK &&
           !commit_marker_is_elsewhere(dir, &text) &&
           lock_file_acquire(dir, mark_name, *mark, NULL) == SIDESTEP_OK;
}

/*
 * NAME while it is swept.  The order matters, beside savers that go on: first, whose mark is gone
 * or free, so that it commits nothing any more; then, what .metadata names; then a sync, so that
 * this is durable; and only then may files go that it does not name.
 */
struct place {
    struct store_dir *parent;
    struct store_dir *dir;
    struct remover remover;
    struct name_list names;
    struct store_file **marks; /* of those names that are marks: ours to remove while it is open */
    bool *ended;               /* of those names that are of a save: it commits nothing any more */
    bool is_network;           /* a mark that is not seen may be there */
    bool has_metadata, can_read;
    struct referenced_files current;
    bool is_durable;
};

static bool take_marks(struct place *place)
{
    struct store_traits traits;

    place->marks = memory_new(place->names.count, sizeof(struct store_file *));
    place->ended = memory_new(place->names.count, sizeof(bool));
    if (place->marks == NULL || place->ended == NULL ||
        store_dir_traits(place->dir, &traits, NULL) != SIDESTEP_OK)
        return false;
    place->is_network = traits.is_network;
    for (size_t i = 0; i < place->names.count; i++)
        if (file_name_parse(place->names.names[i]).kind == FILE_NAME_PENDING &&
            !owner_is_dead(place->dir, place->names.names[i], &place->marks[i])) {
            store_file_discard(place->marks[i]);
            place->marks[i] = NULL;
        }
    return true;
}

/* It comes before any other file of a save, and goes after the commit, or last of all. */
static bool has_ended(const struct place *place, const char *save_id)
{
    char mark[FILE_NAME_BYTES];
    struct store_stat stat;

    file_name_format(FILE_NAME_PENDING, save_id, 0, 0, mark);
    for (size_t i = 0; i < place->names.count; i++)
        if (strcmp(place->names.names[i], mark) == 0)
            return place->marks[i] != NULL;
    return !place->is_network && store_stat(place->dir, mark, &stat, NULL) == SIDESTEP_ENOTFOUND;
}

static bool find_ended(struct place *place)
{
    char last_id[SAVE_ID_HEX] = "";
    bool ended = false, any = false;

    for (size_t i = 0; i < place->names.count; i++) {
        struct file_name parsed = file_name_parse(place->names.names[i]);
        if (parsed.save_id[0] == '\0')
            continue;
        if (strcmp(parsed.save_id, last_id) != 0) /* names are sorted: mostly it is the same */
            ended = has_ended(place, parsed.save_id);
        memcpy(last_id, parsed.save_id, sizeof(last_id));
        place->ended[i] = ended;
        any |= ended;
    }
    return any;
}

static bool read_current(struct place *place)
{
    enum sidestep_status status =
        referenced_files_read(place->dir, FILE_NAME_METADATA, &place->current);

    place->has_metadata = status != SIDESTEP_ENOTFOUND;
    place->can_read = status == SIDESTEP_OK;
    return status != SIDESTEP_ENOMEM;
}

/* What is seen may not be durable yet; until it is, what it replaced may be needed again. */
static bool make_durable(struct place *place)
{
    if (!place->is_durable && !is_dry(&place->remover))
        place->is_durable = store_dir_sync(place->dir, NULL) == SIDESTEP_OK &&
                            store_dir_sync(place->parent, NULL) == SIDESTEP_OK;
    return place->is_durable || is_dry(&place->remover);
}

/*
 * A file of a save that has ended.  Without a mark (a power loss took it, or the save was replaced
 * where storage cannot exchange names) a sealed one goes only beside a checkpoint of ours: else it
 * may be of one whose .metadata was lost, which can be rebuilt.
 */
static bool is_garbage(const struct place *place, const struct file_name *parsed, bool had_mark)
{
    if (parsed->kind == FILE_NAME_VOTE || parsed->kind == FILE_NAME_FAILED)
        return true;
    if (place->can_read && has_id(&place->current, parsed->save_id))
        return false;
    if (had_mark)
        return place->can_read || !place->has_metadata;
    return parsed->kind == FILE_NAME_PART || parsed->kind == FILE_NAME_OUTCOME ||
           (place->can_read && is_our_id(place->current.save_id));
}

static bool had_mark(const struct place *place, const char *save_id)
{
    char mark[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_PENDING, save_id, 0, 0, mark);
    for (size_t i = 0; i < place->names.count; i++)
        if (place->marks[i] != NULL && strcmp(place->names.names[i], mark) == 0)
            return true;
    return false;
}

static void sweep_name(struct place *place, const char *name)
{
    struct file_name parsed = file_name_parse(name);

    switch (parsed.kind) {
    case FILE_NAME_METADATA_TMP:
        if (place->can_read && has_id(&place->current, parsed.save_id)) {
            if (make_durable(place))
                remove_replaced(&place->remover, parsed.save_id);
            return;
        }
        break;
    case FILE_NAME_MANIFEST:
    case FILE_NAME_VOTE:
    case FILE_NAME_FAILED:
    case FILE_NAME_SHARD:
    case FILE_NAME_PART:
        break;
    case FILE_NAME_OUTCOME:
        if (place->remover.sweep == NULL) /* a rank of our last save may still want to read it */
            return;
        break;
    default:
        return;
    }
    if (!is_garbage(place, &parsed, had_mark(place, parsed.save_id)) || !make_durable(place))
        return;
    if (parsed.kind == FILE_NAME_MANIFEST)
        (void)unlink_listed(&place->remover, parsed.save_id, &place->current.files);
    else
        (void)unlink_unless(&place->remover, name, &place->current.files);
}

static void sweep_ended(struct place *place)
{
    for (size_t i = 0; i < place->names.count; i++)
        if (place->ended[i])
            sweep_name(place, place->names.names[i]);
    /* The marks last.  One may be of a save that was killed before it said that it is committed. */
    for (size_t i = 0; i < place->names.count; i++)
        if (place->marks[i] != NULL && make_durable(place))
            (void)is_unlinked(&place->remover, place->names.names[i]);
}

/* The lock by which saves take turns (exchange_in_place.c), if who held it was killed. */
static void sweep_lock(struct place *place)
{
    OWNED_FILE *lock = NULL;

    if (store_file_open(place->dir, NAMES_COMMIT_LOCK, STORE_WRITE, &lock, NULL) == SIDESTEP_OK &&
        lock_file_acquire(place->dir, NAMES_COMMIT_LOCK, lock, NULL) == SIDESTEP_OK)
        (void)is_unlinked(&place->remover, NAMES_COMMIT_LOCK);
}

static void sweep_dir(struct store_dir *parent, struct store_dir *dir, struct sweep *sweep,
                      const char *child)
{
    struct place place = {
        .parent = parent, .dir = dir, .remover = {.dir = dir, .sweep = sweep, .child = child}};

    if (name_list_read(dir, &place.names, NULL) == SIDESTEP_OK) {
        sweep_lock(&place);
        if (take_marks(&place) && find_ended(&place) && read_current(&place))
            sweep_ended(&place);
    }
    for (size_t i = 0; place.marks != NULL && i < place.names.count; i++)
        store_file_discard(place.marks[i]);
    free(place.marks);
    free(place.ended);
    hash_table_release(&place.remover.told);
    referenced_files_release(&place.current);
    name_list_release(&place.names);
}

void sweep_in_place(struct store_dir *parent, struct store_dir *dir)
{
    sweep_dir(parent, dir, NULL, NULL);
}

/* What may not be looked into may hold leftovers, so it is reported; but for what file systems make
 * for themselves. */
static void sweep_child(struct sweep *sweep, const char *name)
{
    OWNED_DIR *dir = NULL;
    struct sidestep_error why = {0};
    enum sidestep_status status = store_dir_open(sweep->store, sweep->parent, name, &dir, &why);

    if (status == SIDESTEP_OK)
        sweep_dir(sweep->parent, dir, sweep, name);
    else if (status != SIDESTEP_ENOTFOUND && sweep->kept != NULL && strcmp(name, "lost+found") != 0)
        sweep->kept(sweep->context, name, why.message);
}

enum sidestep_status sweep_child_dirs(struct sweep *sweep, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};

    TRY(name_list_read(sweep->parent, &names, err));
    for (size_t i = 0; i < names.count; i++) {
        struct store_stat stat;
        if (file_name_parse(names.names[i]).kind == FILE_NAME_NONE &&
            store_stat(sweep->parent, names.names[i], &stat, NULL) == SIDESTEP_OK &&
            stat.kind == STORE_DIRECTORY)
            sweep_child(sweep, names.names[i]);
    }
    return SIDESTEP_OK;
}
