/* SPDX-License-Identifier: BSD-3-Clause */
/* sweep_in_place.c -- removes files of dead and replaced saves from inside a checkpoint
 * directory. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit_marker.h"
#include "commit/extra_files.h"
#include "commit/lock_file.h"
#include "commit/name_list.h"
#include "commit/referenced_files.h"
#include "commit/small_file.h"
#include "commit/sweep.h"

/* Is the file damaged, so that trying again cannot help? */
static bool is_damage(enum sidestep_status status)
{
    return status == SIDESTEP_ECORRUPT || status == SIDESTEP_EUNSAFE ||
           status == SIDESTEP_EUNSUPPORTED;
}

/* Removes files from a directory, and reports them to ${sweep}, unless NULL. */
struct remover {
    struct store_dir *dir;
    struct sweep *sweep;
    const char *child;          /* the directory's name in the parent, for ${sweep} */
    struct hash_table reported; /* in a dry run, where a file stays: names */
};

static bool is_dry(const struct remover *remover)
{
    return remover->sweep != NULL && remover->sweep->dry_run;
}

static void report_removed(struct remover *remover, const char *name, uint64_t bytes)
{
    struct sweep *sweep = remover->sweep;
    char path[2 * FILE_NAME_BYTES];
    size_t existing;

    assert(sweep != NULL && sweep->removed != NULL);
    if (is_dry(remover) &&
        (hash_table_find(&remover->reported, name) != SIZE_MAX ||
         hash_table_insert(&remover->reported, name, 0, &existing, NULL) != SIDESTEP_OK))
        return;
    snprintf(path, sizeof(path), "%s/%s", remover->child, name);
    sweep->removed(sweep->context, path, bytes);
}

static void report_kept(struct remover *remover, const char *name, const char *reason)
{
    struct sweep *sweep = remover->sweep;
    char path[2 * FILE_NAME_BYTES];

    if (sweep == NULL || sweep->kept == NULL)
        return;
    snprintf(path, sizeof(path), "%s/%s", remover->child, name);
    sweep->kept(sweep->context, path, reason);
}

/* Remove ${name}. True also if there is no such file; what is no file is not ours, and stays. */
static bool is_unlinked(struct remover *remover, const char *name)
{
    struct store_stat stat = {0};
    enum sidestep_status status = store_stat(remover->dir, name, &stat, NULL);

    if (status == SIDESTEP_OK && stat.kind != STORE_FILE) {
        report_kept(remover, name, SWEEP_NOT_A_FILE);
        return true;
    }
    if (status == SIDESTEP_OK && !is_dry(remover))
        status = store_unlink(remover->dir, name, NULL);
    if (status == SIDESTEP_OK && remover->sweep != NULL && remover->sweep->removed != NULL)
        report_removed(remover, name, stat.size);
    return status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND;
}

/* Remove ${file}, unless ${keep} contains it. False: it could not be removed. */
static bool unlink_unless(struct remover *remover, const char *file, const struct hash_table *keep)
{
    return file == NULL || strchr(file, '/') != NULL || hash_table_find(keep, file) != SIZE_MAX ||
           is_unlinked(remover, file);
}

/* Unlink the extra files that a manifest lists. */
static bool unlink_extras(struct remover *remover, const struct manifest *manifest,
                          const struct hash_table *keep)
{
    size_t unlinked = 0;
    bool done = true;

    if (!is_dry(remover) && extra_files_unlink(remover->dir, manifest, keep, NULL, &unlinked) !=
                                SIDESTEP_OK) /* those under their own names */
        return false;
    for (size_t i = 0; i < manifest->extra_count; i++)
        done &= unlink_unless(remover, manifest->extras[i].stored, keep);
    return done;
}

static enum sidestep_status read_manifest(struct store_dir *dir, const char *save_id,
                                          struct arena *arena, struct manifest *manifest)
{
    OWNED_BUFFER bytes = {0};
    char name[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_MANIFEST, save_id, 0, 0, name);
    TRY(small_file_read(dir, name, 0, MANIFEST_MAX_BYTES, &bytes, NULL));
    return manifest_decode(bytes.bytes, bytes.length, arena, manifest, NULL);
}

/* Unlink the files that a manifest of sidestep lists, and the manifest. It lists files that
 * .metadata does not reference: shards without items, and extra files. */
static bool unlink_listed(struct remover *remover, const char *save_id,
                          const struct hash_table *keep)
{
    OWNED_ARENA arena = {0};
    struct manifest manifest;
    char name[FILE_NAME_BYTES], index[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_MANIFEST, save_id, 0, 0, name);
    enum sidestep_status status = read_manifest(remover->dir, save_id, &arena, &manifest);
    bool done = status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND || is_damage(status);
    for (size_t i = 0; status == SIDESTEP_OK && i < manifest.file_count; i++)
        done &= unlink_unless(remover, manifest.files[i].name, keep);
    if (status == SIDESTEP_OK)
        done &= unlink_extras(remover, &manifest, keep);
    if (status == SIDESTEP_OK && manifest.index.bytes != 0) {
        file_name_format(FILE_NAME_INDEX, save_id, 0, 0, index);
        done &= is_unlinked(remover, index);
    }
    return done && is_unlinked(remover, name);
}

/* Unlink the files that ${old} references and ${keep} does not contain. False: some are still
 * there. */
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
    if (done && file_name_is_save_id(old->save_id))
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
        return; /* nothing was replaced, or another .metadata is current: nothing is garbage */
    enum sidestep_status status = referenced_files_read(dir, tmp, &old);
    if (status != SIDESTEP_OK && !is_damage(status))
        return; /* only this file knows what to remove: keep it for the next sweep */
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

/* Remove the votes of a save that was killed between its commit and the end of its clean-up. */
static void unlink_votes_of(struct store_dir *dir, const struct name_list *names,
                            const char *save_id)
{
    for (size_t i = 0; i < names->count; i++) {
        struct file_name parsed = file_name_parse(names->names[i]);
        if (parsed.kind == FILE_NAME_VOTE && strcmp(parsed.save_id, save_id) == 0)
            (void)sweep_unlink_file(dir, names->names[i], NULL);
    }
}

void sweep_save_files(struct store_dir *dir, const char *save_id)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_REFERENCED_FILES current = {0};
    char marker[FILE_NAME_BYTES];
    struct store_stat stat;
    bool found = store_stat(dir, FILE_NAME_METADATA, &stat, NULL) == SIDESTEP_OK;

    if (found && referenced_files_read(dir, FILE_NAME_METADATA, &current) != SIDESTEP_OK)
        return; /* it may be the checkpoint */
    if (name_list_read(dir, &names, NULL) != SIDESTEP_OK)
        return;
    if (found && has_id(&current, save_id)) {
        unlink_votes_of(dir, &names, save_id); /* the save is committed */
        return;
    }
    for (size_t i = 0; i < names.count; i++) {
        struct file_name parsed = file_name_parse(names.names[i]);
        if (strcmp(parsed.save_id, save_id) == 0 && parsed.kind != FILE_NAME_PENDING &&
            parsed.kind != FILE_NAME_OUTCOME && parsed.kind != FILE_NAME_SAVING &&
            parsed.kind != FILE_NAME_TRASH && parsed.kind != FILE_NAME_BAD)
            (void)sweep_unlink_file(dir, names.names[i], NULL);
    }
    file_name_format(FILE_NAME_PENDING, save_id, 0, 0, marker);
    (void)store_unlink(dir, marker, NULL);
}

/* Acquire the lock of a marker in NAME. True: its owner is dead. */
static bool owner_is_dead(struct store_dir *dir, const char *marker_name,
                          struct store_file **marker)
{
    struct commit_marker text;

    return store_file_open(dir, marker_name, STORE_WRITE, marker, NULL) == SIDESTEP_OK &&
           commit_marker_read(*marker, &text, NULL) == SIDESTEP_OK &&
           !commit_marker_is_elsewhere(dir, &text) &&
           lock_file_acquire(dir, marker_name, *marker, NULL) == SIDESTEP_OK;
}

/*
 * The state of a sweep of NAME. Other saves may be running there, so the order matters: 1. find the
 * saves whose marker is gone or free, which can no longer commit; 2. read which files .metadata
 * references; 3. sync, so that this .metadata is durable; 4. only then remove files that it does
 * not reference.
 */
struct swept_dir {
    struct store_dir *parent;
    struct store_dir *dir;
    struct remover remover;
    struct name_list names;
    struct store_file **markers; /* per name: the marker, if this process holds its lock */
    bool *ended;                 /* per name: it belongs to a save that can no longer commit */
    bool is_network;             /* a marker may exist that is not visible here */
    bool has_metadata, can_read;
    bool is_part; /* the manifest of a part takes the place of .metadata */
    struct referenced_files current;
    bool is_durable;
};

static bool lock_markers(struct swept_dir *swept)
{
    struct store_traits traits;

    assert(swept->markers == NULL && swept->ended == NULL);
    swept->markers = memory_new(swept->names.count, sizeof(struct store_file *));
    swept->ended = memory_new(swept->names.count, sizeof(bool));
    if (swept->markers == NULL || swept->ended == NULL ||
        store_dir_traits(swept->dir, &traits, NULL) != SIDESTEP_OK)
        return false;
    swept->is_network = traits.is_network;
    for (size_t i = 0; i < swept->names.count; i++)
        if (file_name_parse(swept->names.names[i]).kind == FILE_NAME_PENDING &&
            !owner_is_dead(swept->dir, swept->names.names[i], &swept->markers[i])) {
            store_file_discard(swept->markers[i]);
            swept->markers[i] = NULL;
        }
    return true;
}

/* Has the save ended? Its marker is made before any other file, and is removed after the commit, or
 * as the last file. */
static bool has_ended(const struct swept_dir *swept, const char *save_id)
{
    char marker[FILE_NAME_BYTES];
    struct store_stat stat;

    file_name_format(FILE_NAME_PENDING, save_id, 0, 0, marker);
    for (size_t i = 0; i < swept->names.count; i++)
        if (strcmp(swept->names.names[i], marker) == 0)
            return swept->markers[i] != NULL;
    return !swept->is_network && store_stat(swept->dir, marker, &stat, NULL) == SIDESTEP_ENOTFOUND;
}

static bool find_ended(struct swept_dir *swept)
{
    char last_id[SAVE_ID_HEX] = "";
    bool ended = false, any = false;

    for (size_t i = 0; i < swept->names.count; i++) {
        struct file_name parsed = file_name_parse(swept->names.names[i]);
        if (parsed.save_id[0] == '\0')
            continue;
        if (strcmp(parsed.save_id, last_id) != 0) /* names are sorted, so ids repeat */
            ended = has_ended(swept, parsed.save_id);
        memcpy(last_id, parsed.save_id, sizeof(last_id));
        swept->ended[i] = ended;
        any |= ended;
    }
    return any;
}

static bool may_be_part(const struct name_list *names)
{
    bool has_manifest = false;

    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->names[i], FILE_NAME_METADATA) == 0)
            return false;
        has_manifest |= file_name_parse(names->names[i]).kind == FILE_NAME_MANIFEST;
    }
    return has_manifest;
}

static bool read_current(struct swept_dir *swept)
{
    bool may = may_be_part(&swept->names);
    enum sidestep_status status =
        may ? referenced_files_read_any(swept->dir, &swept->current)
            : referenced_files_read(swept->dir, FILE_NAME_METADATA, &swept->current);

    swept->is_part = may && status == SIDESTEP_OK;

    swept->has_metadata = status != SIDESTEP_ENOTFOUND;
    swept->can_read = status == SIDESTEP_OK;
    return status != SIDESTEP_ENOMEM;
}

/* Sync. Until the visible .metadata is durable, the one that it replaced may be needed again. */
static bool make_durable(struct swept_dir *swept)
{
    if (!swept->is_durable && !is_dry(&swept->remover))
        swept->is_durable = store_dir_sync(swept->dir, NULL) == SIDESTEP_OK &&
                            store_dir_sync(swept->parent, NULL) == SIDESTEP_OK;
    return swept->is_durable || is_dry(&swept->remover);
}

/*
 * Is a file of an ended save garbage? The marker can be missing: a power loss took it, or the save
 * was replaced where storage cannot exchange names. Then a sealed file is garbage only beside a
 * checkpoint of sidestep. Otherwise it may belong to a checkpoint whose .metadata was lost, and
 * which can be rebuilt.
 */
static bool is_garbage(const struct swept_dir *swept, const struct file_name *parsed,
                       bool had_marker)
{
    if (parsed->kind == FILE_NAME_VOTE || parsed->kind == FILE_NAME_FAILED)
        return true;
    /* A process that was late may have sent a small file that others had sent: it is not listed. */
    if (swept->can_read && has_id(&swept->current, parsed->save_id))
        return swept->current.is_listed &&
               (parsed->kind == FILE_NAME_EXTRA || parsed->kind == FILE_NAME_PART);
    if (had_marker)
        return swept->can_read || !swept->has_metadata;
    return parsed->kind == FILE_NAME_PART || parsed->kind == FILE_NAME_OUTCOME ||
           (swept->can_read && file_name_is_save_id(swept->current.save_id));
}

static bool had_marker(const struct swept_dir *swept, const char *save_id)
{
    char marker[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_PENDING, save_id, 0, 0, marker);
    for (size_t i = 0; i < swept->names.count; i++)
        if (swept->markers[i] != NULL && strcmp(swept->names.names[i], marker) == 0)
            return true;
    return false;
}

static void sweep_name(struct swept_dir *swept, const char *name)
{
    struct file_name parsed = file_name_parse(name);

    switch (parsed.kind) {
    case FILE_NAME_METADATA_TMP:
        if (swept->can_read && has_id(&swept->current, parsed.save_id)) {
            if (make_durable(swept))
                remove_replaced(&swept->remover, parsed.save_id);
            return;
        }
        break;
    case FILE_NAME_MANIFEST:
    case FILE_NAME_INDEX:
    case FILE_NAME_VOTE:
    case FILE_NAME_FAILED:
    case FILE_NAME_SHARD:
    case FILE_NAME_EXTRA:
    case FILE_NAME_PART:
        break;
    case FILE_NAME_OUTCOME:
        if (swept->remover.sweep == NULL) /* a rank of the last save may still read it */
            return;
        break;
    default:
        return;
    }
    if (!is_garbage(swept, &parsed, had_marker(swept, parsed.save_id)) || !make_durable(swept))
        return;
    if (parsed.kind == FILE_NAME_MANIFEST)
        (void)unlink_listed(&swept->remover, parsed.save_id, &swept->current.files);
    else
        (void)unlink_unless(&swept->remover, name, &swept->current.files);
}

static void sweep_ended(struct swept_dir *swept)
{
    assert(swept->markers != NULL && swept->ended != NULL);
    for (size_t i = 0; i < swept->names.count; i++)
        if (swept->ended[i])
            sweep_name(swept, swept->names.names[i]);
}

/* Last, because one may be of a save that was killed after its commit, before it removed the
 * marker: until it is gone, whoever sweeps does the rest. */
static void remove_markers(struct swept_dir *swept)
{
    for (size_t i = 0; i < swept->names.count; i++)
        if (swept->markers[i] != NULL && make_durable(swept))
            (void)is_unlinked(&swept->remover, swept->names.names[i]);
}

/* Has the checkpoint extra files under names with the save id, or was its save perhaps killed, and
 * is no save under way? */
static bool may_lack_links(const struct swept_dir *swept)
{
    bool may = false;

    for (size_t i = 0; i < swept->names.count; i++) {
        enum file_name_kind kind = file_name_parse(swept->names.names[i]).kind;
        may |= kind == FILE_NAME_EXTRA || kind == FILE_NAME_PENDING;
        if (kind == FILE_NAME_PENDING && (swept->markers == NULL || swept->markers[i] == NULL))
            return false; /* it may be about to remove the links */
    }
    return may && !is_dry(&swept->remover);
}

/* Give extra files their own names, if their save was killed before it did. */
static void link_extras(struct swept_dir *swept)
{
    OWNED_REFERENCED_FILES current = {0};
    OWNED_ARENA arena = {0};
    struct manifest manifest;

    if (may_lack_links(swept) &&
        referenced_files_read(swept->dir, FILE_NAME_METADATA, &current) == SIDESTEP_OK &&
        file_name_is_save_id(current.save_id) &&
        read_manifest(swept->dir, current.save_id, &arena, &manifest) == SIDESTEP_OK)
        extra_files_link(swept->dir, &manifest);
}

/* Remove the lock by which saves take turns (exchange_in_place.c), if its holder was killed. */
static void sweep_lock(struct swept_dir *swept)
{
    OWNED_FILE *lock = NULL;

    if (store_file_open(swept->dir, FILE_NAME_COMMIT_LOCK, STORE_WRITE, &lock, NULL) ==
            SIDESTEP_OK &&
        lock_file_acquire(swept->dir, FILE_NAME_COMMIT_LOCK, lock, NULL) == SIDESTEP_OK)
        (void)is_unlinked(&swept->remover, FILE_NAME_COMMIT_LOCK);
}

/* True: it is a part of a checkpoint. */
static bool sweep_dir(struct store_dir *parent, struct store_dir *dir, struct sweep *sweep,
                      const char *child)
{
    struct swept_dir swept = {
        .parent = parent, .dir = dir, .remover = {.dir = dir, .sweep = sweep, .child = child}};

    if (name_list_read(dir, &swept.names, NULL) == SIDESTEP_OK) {
        sweep_lock(&swept);
        bool is_known = lock_markers(&swept) && find_ended(&swept) && read_current(&swept);
        if (is_known)
            sweep_ended(&swept);
        link_extras(&swept);
        if (is_known)
            remove_markers(&swept);
    }
    for (size_t i = 0; swept.markers != NULL && i < swept.names.count; i++)
        store_file_discard(swept.markers[i]);
    free(swept.markers);
    free(swept.ended);
    hash_table_release(&swept.remover.reported);
    referenced_files_release(&swept.current);
    name_list_release(&swept.names);
    return swept.is_part;
}

bool sweep_in_place(struct store_dir *parent, struct store_dir *dir)
{
    return sweep_dir(parent, dir, NULL, NULL);
}

/* Sweep one directory. One that cannot be opened is reported, because it may hold leftovers, except
 * for lost+found, which file systems make for themselves. */
static void sweep_child(struct sweep *sweep, const char *name)
{
    OWNED_DIR *dir = NULL;
    struct sidestep_error why = {0};
    enum sidestep_status status = store_dir_open(sweep->store, sweep->parent, name, &dir, &why);

    if (status == SIDESTEP_OK)
        (void)sweep_dir(sweep->parent, dir, sweep, name);
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
