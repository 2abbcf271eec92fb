/* SPDX-License-Identifier: BSD-3-Clause */
/* list_entry.c -- finds out what one name of a root is, from names, sizes and the manifest, without
 * reading data. */
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "root/root.h"
#include "catalog/foreign_layouts.h"
#include "catalog/listing.h"
#include "checkpoint/checkpoint.h"

/* What the names in a directory show. */
struct contents {
    bool has_metadata;
    bool has_rank_metadata; /* __0.metadata, of a save without collectives */
    bool has_marker;
    char save_id[SAVE_ID_HEX]; /* in the name of the last manifest seen */
    size_t manifests;
    bool is_named; /* not a hidden name of a save */
    bool is_gone;  /* the manifest disappeared after its name was listed */
    uint32_t ranks;
};

static void note_name(struct contents *c, const char *name)
{
    struct file_name parsed = file_name_parse(name);

    if (strcmp(name, FILE_NAME_METADATA) == 0)
        c->has_metadata = true;
    else if (strcmp(name, "__0.metadata") == 0)
        c->has_rank_metadata = true;
    else if (parsed.kind == FILE_NAME_MANIFEST) {
        memcpy(c->save_id, parsed.save_id, sizeof(c->save_id));
        c->manifests++;
    } else if (parsed.kind == FILE_NAME_SHARD && parsed.rank >= c->ranks)
        c->ranks = parsed.rank + 1;
}

/* Choose the manifest. There are several if a replacement was interrupted; then .metadata says
 * which one is current. ENOTFOUND: none is. */
static enum sidestep_status resolve_manifest(struct store_dir *dir, struct contents *c)
{
    OWNED_REFERENCED_FILES referenced = {0};
    uint8_t id[SAVE_ID_BYTES];

    if (c->manifests <= 1)
        return c->manifests == 1 ? SIDESTEP_OK : SIDESTEP_ENOTFOUND;
    TRY(referenced_files_read(dir, FILE_NAME_METADATA, &referenced));
    if (referenced.save_id == NULL || strlen(referenced.save_id) != SAVE_ID_HEX - 1 ||
        !hash_from_hex(referenced.save_id, SAVE_ID_BYTES, id))
        return SIDESTEP_ENOTFOUND;
    memcpy(c->save_id, referenced.save_id, SAVE_ID_HEX);
    return SIDESTEP_OK;
}

static enum sidestep_status read_manifest(struct store_dir *dir, struct contents *c,
                                          struct arena *arena, struct manifest *manifest,
                                          struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};
    char name[FILE_NAME_BYTES];

    enum sidestep_status status = resolve_manifest(dir, c);
    if (status != SIDESTEP_OK)
        return FAIL(err, status, "%s cannot be read", FILE_NAME_METADATA);
    file_name_format(FILE_NAME_MANIFEST, c->save_id, 0, 0, name);
    status = small_file_read(dir, name, 0, MANIFEST_MAX_BYTES, &bytes, err);
    c->is_gone = status == SIDESTEP_ENOTFOUND;
    TRY(status);
    return manifest_decode(bytes.bytes, bytes.length, arena, manifest, err);
}

/* Collect the earlier saves whose files this checkpoint shares. */
static enum sidestep_status set_origins(struct listing *l, const struct manifest *manifest,
                                        struct sidestep_listed *entry, struct sidestep_error *err)
{
    struct listing_shared_files *s = &l->sharing[l->sharing_count];

    *s = (struct listing_shared_files){.save_id = entry->save_id};
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

/* Count small files. One in a directory below was not seen with the names; one that has two names
 * was counted twice. */
static void count_extras(struct store_dir *dir, const struct name_list *names,
                         const struct manifest *manifest, struct sidestep_listed *entry)
{
    for (size_t i = 0; i < manifest->extra_count; i++) {
        const struct extra_file *file = &manifest->extras[i];
        bool is_below = strchr(file->name, '/') != NULL;
        if (file->is_alias)
            continue;
        entry->small_files++;
        entry->small_bytes += file->bytes;
        if (file->stored == NULL && is_below) {
            entry->files++;
            entry->bytes += file->bytes;
        } else if (file->stored != NULL && !is_below && name_list_contains(names, file->name) &&
                   extra_files_is_linked(dir, file)) {
            entry->files--;
            entry->bytes -= file->bytes;
        }
    }
}

/* The name of a part is given in one step, when it is whole. So it is one, also with a marker that
 * its save could not remove. */
static enum sidestep_status take_part(struct listing *l, const struct contents *c,
                                      const struct manifest *manifest,
                                      struct sidestep_listed *entry, struct sidestep_error *err)
{
    if (manifest->part.rank_count == 0 || c->has_metadata ||
        (entry->state != SIDESTEP_DAMAGED && !(entry->state == SIDESTEP_SAVING && c->is_named)))
        return SIDESTEP_OK;
    entry->state = SIDESTEP_PART;
    TRY(arena_copy_text(&l->arena, manifest_part_text(manifest).text, &entry->part_ranks, err));
    entry->reason =
        arena_printf(&l->arena, "it is no checkpoint, but one of %u parts: of ranks %s of %u",
                     manifest->part.parts, entry->part_ranks, manifest->world_size);
    return entry->reason != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, sizeof(*manifest));
}

static enum sidestep_status take_manifest(struct listing *l, struct store_dir *dir,
                                          const struct name_list *names, struct contents *c,
                                          struct sidestep_listed *entry, struct sidestep_error *err)
{
    OWNED_ARENA arena = {0};
    struct manifest manifest;

    enum sidestep_status status = read_manifest(dir, c, &arena, &manifest, err);
    l->has_changed |= c->is_gone;
    if (status != SIDESTEP_OK)
        return reader_status_is_damage(status) ? SIDESTEP_OK : status;
    TRY(arena_copy_text(&l->arena, manifest.save_id, &entry->save_id, err));
    TRY(arena_copy_text(&l->arena, manifest.run_id, &entry->run_id, err));
    TRY(arena_copy_text(&l->arena, manifest.naming, &entry->naming, err));
    entry->incarnation = manifest.incarnation;
    entry->ranks = manifest.world_size;
    entry->saved_at = manifest.saved_at;
    if (manifest.step >= 0)
        entry->step = manifest.step;
    TRY(take_part(l, c, &manifest, entry, err));
    count_extras(dir, names, &manifest, entry);
    return set_origins(l, &manifest, entry, err);
}

static enum sidestep_presence classify(const char *name, const struct contents *c)
{
    switch (file_name_parse(name).kind) {
    case FILE_NAME_SAVING:
        return SIDESTEP_SAVING;
    case FILE_NAME_TRASH:
        return SIDESTEP_TRASH;
    case FILE_NAME_BAD:
        return SIDESTEP_BAD;
    default:
        if (c->has_metadata || c->has_rank_metadata)
            return SIDESTEP_COMMITTED;
        if (c->manifests != 0 && !c->has_marker)
            return SIDESTEP_DAMAGED; /* a checkpoint of sidestep that lost its .metadata */
        return c->has_marker ? SIDESTEP_SAVING : SIDESTEP_FOREIGN;
    }
}

/* As store_stat(), but of the file that a symbolic link leads to.  Other links are left as they
 * are. */
static enum sidestep_status stat_name(struct store_dir *dir, const char *name,
                                      struct store_stat *stat, struct sidestep_error *err)
{
    struct store_stat target;

    TRY(store_stat(dir, name, stat, err));
    if (stat->kind == STORE_LINK && store_stat_to_read(dir, name, &target, NULL) == SIDESTEP_OK)
        *stat = target;
    return SIDESTEP_OK;
}

static enum sidestep_status read_contents(struct store_dir *dir, struct name_list *names,
                                          struct contents *c, struct sidestep_listed *entry,
                                          struct sidestep_error *err)
{
    struct store_stat stat;

    TRY(name_list_read(dir, names, err));
    for (size_t i = 0; i < names->count; i++) {
        note_name(c, names->names[i]);
        enum sidestep_status status = stat_name(dir, names->names[i], &stat, err);
        if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND)
            return status; /* otherwise the sum would be too small */
        if (status != SIDESTEP_OK || stat.kind != STORE_FILE)
            continue;
        entry->files++;
        entry->bytes += stat.size;
    }
    return SIDESTEP_OK;
}

/* Read the owner of a save. If a directory has several saves, a running one matters more than a
 * dead one. */
static enum sidestep_status find_owner(struct store_dir *dir, const char *save_id,
                                       struct owner *owner, struct sidestep_error *err)
{
    struct owner other;
    enum sidestep_status status = root_read_owner(dir, save_id, &other, err);

    if (status == SIDESTEP_ENOMEM)
        return status;
    if (status != SIDESTEP_OK)
        other = (struct owner){.marker.step = -1}; /* unknown, so not dead */
    if (owner->is_dead)
        *owner = other;
    return SIDESTEP_OK;
}

/* Describe a save: its target, its owner, and whether that process has ended. */
static enum sidestep_status describe_save(struct listing *l, const struct owner *owner,
                                          const char *target, struct sidestep_listed *entry,
                                          struct sidestep_error *err)
{
    const struct commit_marker *marker = &owner->marker;
    const char *who = marker->owner[0] != '\0' ? arena_printf(&l->arena, " (process %s on %s)",
                                                              marker->owner, marker->host)
                                               : "";

    if (who == NULL)
        return FAIL_NOMEM(err, sizeof(*marker));
    entry->state = owner->is_dead ? SIDESTEP_DEAD : SIDESTEP_SAVING;
    TRY(arena_copy_text(&l->arena, target, &entry->target, err));
    entry->reason = arena_printf(
        &l->arena,
        owner->is_dead ? "the save of %s%s%s was killed%s; 'sidestep gc' removes it"
                       : "the save of %s%s%s is under way%s",
        target[0] != '\0' ? "'" : "a checkpoint", target, target[0] != '\0' ? "'" : "", who);
    if (entry->reason == NULL)
        return FAIL_NOMEM(err, sizeof(*marker));
    if (entry->step < 0)
        entry->step = marker->step >= 0 ? marker->step : step_name_parse(target);
    return SIDESTEP_OK;
}

static enum sidestep_status set_owner(struct listing *l, const char *name, struct store_dir *dir,
                                      const struct name_list *saves, struct sidestep_listed *entry,
                                      struct sidestep_error *err)
{
    struct file_name own = file_name_parse(name);
    struct owner owner = {.is_dead = true, .marker.step = -1};

    if (entry->state != SIDESTEP_SAVING)
        return SIDESTEP_OK;
    if (own.kind == FILE_NAME_SAVING) {
        TRY(find_owner(dir, own.save_id, &owner, err));
        return describe_save(l, &owner, owner.marker.target, entry, err);
    }
    for (size_t i = 0; i < saves->count; i++)
        TRY(find_owner(dir, saves->names[i], &owner, err));
    return describe_save(l, &owner, name, entry, err);
}

#define NESTED_DEPTH 4u /* of nested directories in another program's checkpoint */

/* Add the files in the subdirectories of ${dir}, which contains ${names}. */
static enum sidestep_status count_nested(struct store_dir *dir, const struct name_list *names,
                                         unsigned depth, struct sidestep_listed *entry,
                                         struct sidestep_error *err)
{
    for (size_t i = 0; depth != 0 && i < names->count; i++) {
        OWNED_NAMES struct name_list inner_names = {0};
        OWNED_DIR *inner = NULL;
        struct contents contents = {0};
        struct store_stat stat;
        enum sidestep_status status = store_stat(dir, names->names[i], &stat, err);
        if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND)
            return status;
        if (status != SIDESTEP_OK || stat.kind != STORE_DIRECTORY)
            continue;
        TRY(store_dir_open(dir->store, dir, names->names[i], &inner, err));
        TRY(read_contents(inner, &inner_names, &contents, entry, err));
        TRY(count_nested(inner, &inner_names, depth - 1, entry, err));
    }
    return SIDESTEP_OK;
}

/* Find out whether another program wrote the entry. */
static enum sidestep_status set_layout(struct listing *l, const char *name, struct store_dir *dir,
                                       const struct name_list *names, struct sidestep_listed *entry,
                                       struct sidestep_error *err)
{
    struct foreign_layouts_probe probe = {
        .root = l->root_dir,
        .name = name,
        .path = arena_printf(&l->arena, "%.*s/%s", l->root_bytes, l->root, name),
        .dir = dir,
        .names = names,
        .step = step_name_parse(name),
        .arena = &l->arena};

    if (entry->save_id != NULL ||
        (entry->state != SIDESTEP_COMMITTED && entry->state != SIDESTEP_FOREIGN))
        return SIDESTEP_OK;
    if (probe.path == NULL)
        return FAIL_NOMEM(err, strlen(name));
    TRY(foreign_layouts_probe(&probe, err));
    entry->layout = probe.layout;
    entry->reason = probe.reason;
    if (probe.layout == NULL && entry->state == SIDESTEP_FOREIGN && entry->ranks != 0) {
        entry->layout = "dcp"; /* it has shards, whatever its name */
        entry->reason = "there is no .metadata: the save did not finish, or it was lost";
    }
    if (entry->reason != NULL)
        entry->state = SIDESTEP_INCOMPLETE;
    else if (probe.layout != NULL && entry->state == SIDESTEP_FOREIGN)
        entry->state = SIDESTEP_COMPLETE;
    if (entry->layout == NULL && entry->state == SIDESTEP_FOREIGN)
        entry->layout = foreign_layouts_find_tensors(names);
    return probe.layout != NULL && dir != NULL ? count_nested(dir, names, NESTED_DEPTH, entry, err)
                                               : SIDESTEP_OK;
}

/* Set the reason why a resume does not use the entry, if its state gives it. */
static void set_reason(struct sidestep_listed *entry)
{
    static const char *const reasons[] = {
        [SIDESTEP_TRASH] =
            "it is being deleted, or a deletion was interrupted: 'sidestep gc' removes it",
        [SIDESTEP_BAD] = "a resume found it damaged, and set it aside",
        [SIDESTEP_FOREIGN] = "it is not known to be a checkpoint",
        [SIDESTEP_DAMAGED] = "its .metadata is missing: 'sidestep rebuild' writes it again",
    };

    if (entry->state == SIDESTEP_DAMAGED)
        entry->status = SIDESTEP_EUNCOMMITTED;
    if (entry->reason == NULL && (size_t)entry->state < ARRAY_LENGTH(reasons))
        entry->reason = reasons[entry->state];
}

/* Get the format of a file. If the file cannot be opened, its name decides. */
static enum sidestep_status get_format(struct listing *l, const char *name,
                                       const struct store_stat *stat,
                                       enum file_probe_format *format, struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;

    *format = file_name_has_suffix(name, ".safetensors") ? FILE_PROBE_SAFETENSORS : FILE_PROBE_ZIP;
    TRY(store_file_open_to_read(l->root_dir, name, 0, &file, err));
    return file_probe_format(file, stat->size, format, err);
}

/* Fill an entry for a file that is a checkpoint by itself, or may hold tensors. */
static enum sidestep_status read_file_entry(struct listing *l, const char *name,
                                            const struct store_stat *stat,
                                            struct sidestep_listed *entry,
                                            struct sidestep_error *err)
{
    static const struct name_list none;
    enum file_probe_format format;
    enum sidestep_status status = get_format(l, name, stat, &format, err);

    entry->state = SIDESTEP_FOREIGN;
    entry->saved_at = stat->modified;
    entry->files = 1;
    entry->bytes = stat->size;
    if (foreign_layouts_is_file(name, format))
        return status == SIDESTEP_OK ? set_layout(l, name, NULL, &none, entry, err) : status;
    if (format == FILE_PROBE_SAFETENSORS)
        entry->layout = "safetensors";
    else if (format == FILE_PROBE_ZIP ||
             (format == FILE_PROBE_PICKLE && !file_name_has_suffix(name, ".pkl")))
        entry->layout = "torch"; /* torch before 1.6 wrote a pickle */
    set_reason(entry);
    return SIDESTEP_OK;
}

static void set_time_from(struct store_dir *dir, const char *file, struct sidestep_listed *entry)
{
    struct store_stat stat;

    if (store_stat(dir, file, &stat, NULL) == SIDESTEP_OK && stat.kind == STORE_FILE)
        entry->saved_at = stat.modified;
}

/* A prefix of keys has no time of its own: take that of .metadata, or of another file in it. */
static void set_time(struct store_dir *dir, const struct contents *c, const struct name_list *names,
                     struct sidestep_listed *entry)
{
    if (entry->saved_at == 0 && c->has_metadata)
        set_time_from(dir, FILE_NAME_METADATA, entry);
    for (size_t i = 0; i < names->count && entry->saved_at == 0; i++)
        set_time_from(dir, names->names[i], entry);
    if (entry->saved_at == 0)
        entry->saved_at = -1;
}

static enum sidestep_status read_dir_entry(struct listing *l, const char *name,
                                           struct store_dir *dir, struct sidestep_listed *entry,
                                           struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_NAMES struct name_list saves = {0};
    struct contents contents = {0};

    TRY(read_contents(dir, &names, &contents, entry, err));
    TRY(root_find_saves(dir, &names, &saves, err));
    contents.has_marker = saves.count != 0;
    contents.is_named = file_name_parse(name).kind == FILE_NAME_NONE;
    entry->state = classify(name, &contents);
    entry->ranks = contents.ranks;
    TRY(take_manifest(l, dir, &names, &contents, entry, err));
    set_time(dir, &contents, &names, entry);
    TRY(set_owner(l, name, dir, &saves, entry, err));
    TRY(set_layout(l, name, dir, &names, entry, err));
    set_reason(entry);
    return SIDESTEP_OK;
}

bool list_is_link(const struct sidestep_listed *entry)
{
    return entry->is_link && entry->state == SIDESTEP_FOREIGN;
}

static bool is_root(const struct listing *l, struct store_dir *dir)
{
    struct store_stat root, other;

    return store_dir_stat(l->root_dir, &root, NULL) == SIDESTEP_OK &&
           store_dir_stat(dir, &other, NULL) == SIDESTEP_OK && root.inode == other.inode &&
           root.device == other.device;
}

static enum sidestep_status set_link_reason(struct listing *l, struct sidestep_listed *entry,
                                            const char *where, struct sidestep_error *err)
{
    entry->state = SIDESTEP_FOREIGN;
    entry->reason = arena_printf(&l->arena, "it is a symbolic link %s", where);
    return entry->reason != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(where));
}

/* Fill an entry for what a link leads to. It lies outside of the root, or has an entry of its own.
 */
static enum sidestep_status read_linked(struct listing *l, const char *name, const char *path,
                                        struct sidestep_listed *entry, struct sidestep_error *err)
{
    OWNED_DIR *parent = NULL, *dir = NULL;
    struct store_stat stat;
    const char *target;

    TRY(store_parent_open(l->store, path, &l->arena, &parent, &target, err));
    if (is_root(l, parent))
        return set_link_reason(l, entry, "to another name in the same directory", err);
    TRY(store_stat(parent, target, &stat, err));
    if (stat.kind == STORE_FILE && file_probe_may_hold_tensors(name))
        return read_file_entry(l, name, &stat, entry, err);
    if (stat.kind != STORE_DIRECTORY)
        return set_link_reason(l, entry, "to what is not a directory", err);
    entry->saved_at = stat.modified;
    TRY(store_dir_open(l->store, parent, target, &dir, err));
    return read_dir_entry(l, name, dir, entry, err);
}

static enum sidestep_status read_link_entry(struct listing *l, const char *name,
                                            struct sidestep_listed *entry,
                                            struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    const char *path = arena_printf(&l->arena, "%.*s/%s", l->root_bytes, l->root, name);

    entry->is_link = true;
    if (path == NULL)
        return FAIL_NOMEM(err, strlen(name));
    enum sidestep_status status = read_linked(l, name, path, entry, &why);
    if (status == SIDESTEP_ENOTFOUND || status == SIDESTEP_EUNSAFE)
        return set_link_reason(
            l, entry,
            status == SIDESTEP_EUNSAFE
                ? "in a loop of links"
                : "that leads to nothing; if its storage is not mounted, mount it",
            err);
    return status == SIDESTEP_OK ? status : error_copy(err, &why);
}

enum sidestep_status listing_read_entry(struct listing *l, const char *name,
                                        struct sidestep_listed *entry, struct sidestep_error *err)
{
    struct store_stat stat, now;
    OWNED_DIR *dir = NULL;

    enum sidestep_status status = store_stat(l->root_dir, name, &stat, err);
    l->has_changed |= status == SIDESTEP_ENOTFOUND;
    TRY(status);
    if (stat.kind == STORE_FILE && file_probe_may_hold_tensors(name))
        return read_file_entry(l, name, &stat, entry, err);
    if (stat.kind == STORE_LINK)
        return read_link_entry(l, name, entry, err);
    if (stat.kind != STORE_DIRECTORY)
        return SIDESTEP_ENOTFOUND;
    entry->saved_at = stat.modified;
    status = store_dir_open(l->store, l->root_dir, name, &dir, err);
    if (status == SIDESTEP_OK)
        status = read_dir_entry(l, name, dir, entry, err);
    /* If the name leads elsewhere now, a checkpoint that was being deleted may have been read. */
    enum sidestep_status again = store_stat(l->root_dir, name, &now, NULL);
    l->has_changed |=
        again == SIDESTEP_ENOTFOUND || (again == SIDESTEP_OK && now.inode != stat.inode);
    return status;
}
