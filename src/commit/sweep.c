/* SPDX-License-Identifier: BSD-3-Clause */
/* sweep.c -- removes dead saving and trash directories from a parent directory; see sweep.h. */
#include "commit/sweep.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "commit/commit_marker.h"
#include "commit/extra_files.h"
#include "commit/lock_file.h"
#include "commit/name_list.h"

#define OUTCOME_SECONDS (24 * 3600) /* no rank waits for so long, and clocks differ by less */

enum sidestep_status sweep_move_to_trash(struct store_dir *parent, const char *name,
                                         const char *save_id, struct sidestep_error *err)
{
    char trash[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_TRASH, save_id, 0, 0, trash);
    TRY(store_rename_new(parent, name, parent, trash, err));
    return store_dir_sync(parent, err);
}

enum sidestep_status sweep_restore(struct store_dir *parent, const char *from, const char *name,
                                   struct sidestep_error *err)
{
    TRY(store_rename_new(parent, from, parent, name, err));
    return store_dir_sync(parent, err);
}

bool sweep_is_own_name(const char *name)
{
    return strcmp(name, FILE_NAME_METADATA) == 0 || file_name_parse(name).kind != FILE_NAME_NONE;
}

/* Are there names that are not those of sidestep's own files? */
static bool has_other_names(const struct name_list *names)
{
    for (size_t i = 0; i < names->count; i++)
        if (!sweep_is_own_name(names->names[i]))
            return true;
    return false;
}

bool sweep_has_only_own_files(struct store_dir *parent, const char *name)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_EXTRA_LISTED listed = {0};
    OWNED_DIR *dir = NULL;

    if (store_dir_open(parent->store, parent, name, &dir, NULL) != SIDESTEP_OK ||
        name_list_read(dir, &names, NULL) != SIDESTEP_OK ||
        (has_other_names(&names) && extra_listed_read(dir, &names, &listed) != SIDESTEP_OK))
        return false;
    for (size_t i = 0; i < names.count; i++)
        if (file_name_parse(names.names[i]).kind == FILE_NAME_PENDING ||
            (!sweep_is_own_name(names.names[i]) &&
             !extra_listed_owns(dir, &listed, names.names[i])))
            return false;
    return true;
}

bool sweep_has_links(struct store_dir *parent, const char *name)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *dir = NULL;
    struct store_stat stat;

    if (store_dir_open(parent->store, parent, name, &dir, NULL) != SIDESTEP_OK ||
        name_list_read(dir, &names, NULL) != SIDESTEP_OK)
        return false;
    for (size_t i = 0; i < names.count; i++)
        if (store_stat(dir, names.names[i], &stat, NULL) == SIDESTEP_OK && stat.kind == STORE_LINK)
            return true;
    return false;
}

/* These files are removed last, so that after an interruption the owner is still known. */
static bool goes_last(const char *name)
{
    enum file_name_kind kind = file_name_parse(name).kind;

    return kind == FILE_NAME_MANIFEST || kind == FILE_NAME_PENDING || kind == FILE_NAME_EXPORT;
}

/* Is it the directory of an export, which is not a checkpoint (export.h)? Then sidestep made all
 * its files. */
static bool is_export(const struct name_list *names)
{
    for (size_t i = 0; i < names->count; i++)
        if (file_name_parse(names->names[i]).kind == FILE_NAME_EXPORT)
            return true;
    return false;
}

bool sweep_unlink_file(struct store_dir *dir, const char *name, uint64_t *bytes)
{
    struct store_stat stat;

    if (store_stat(dir, name, &stat, NULL) != SIDESTEP_OK || stat.kind != STORE_FILE ||
        store_unlink(dir, name, NULL) != SIDESTEP_OK)
        return false;
    if (bytes != NULL && stat.links <= 1)
        *bytes += stat.size; /* with more links another checkpoint uses it */
    return true;
}

static enum sidestep_status unlink_extras(struct store_dir *dir, const struct name_list *names,
                                          uint64_t *bytes, size_t *unlinked,
                                          struct sidestep_error *err)
{
    OWNED_EXTRA_LISTED listed = {0};
    enum sidestep_status status = extra_listed_read(dir, names, &listed);

    for (size_t i = 0; status == SIDESTEP_OK && i < listed.count; i++)
        status = extra_files_unlink(dir, &listed.manifests[i], NULL, bytes, unlinked);
    return status == SIDESTEP_OK ? SIDESTEP_OK : FAIL(err, status, "remove its small files");
}

/* Unlink the files that sidestep made, and add their number to ${*unlinked}. */
static enum sidestep_status empty_once(struct store_dir *dir, uint64_t *bytes, size_t *unlinked,
                                       struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};

    TRY(name_list_read(dir, &names, err));
    bool all = is_export(&names);
    if (!all && has_other_names(&names)) /* while the manifest is there, which lists them */
        TRY(unlink_extras(dir, &names, bytes, unlinked, err));
    for (int last = 0; last <= 1; last++)
        for (size_t i = 0; i < names.count; i++)
            if ((all || sweep_is_own_name(names.names[i])) &&
                goes_last(names.names[i]) == (last == 1))
                *unlinked += sweep_unlink_file(dir, names.names[i], bytes);
    return SIDESTEP_OK;
}

/* Repeat as long as there was a file to unlink: a rank that does not know yet that its save is
 * aborted may create one meanwhile. */
enum sidestep_status sweep_empty_trash(struct store_dir *parent, const char *trash, uint64_t *bytes,
                                       struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;
    struct sidestep_error why;
    size_t unlinked;
    enum sidestep_status status = store_dir_open(parent->store, parent, trash, &dir, err);

    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    TRY(status);
    (void)sweep_unlink_file(dir, FILE_NAME_METADATA, bytes);
    TRY(store_dir_sync(dir, err));
    do {
        unlinked = 0;
        why = (struct sidestep_error){0};
        TRY(empty_once(dir, bytes, &unlinked, err));
        status = store_dir_remove(parent, trash, &why);
    } while (status == SIDESTEP_EEXISTS && unlinked > 0);
    if (status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    return error_copy(err, &why);
}

/* Bytes of a file that no other checkpoint shares. */
static uint64_t own_bytes(struct store_dir *dir, const char *name)
{
    struct store_stat stat;

    return store_stat(dir, name, &stat, NULL) == SIDESTEP_OK && stat.kind == STORE_FILE &&
                   stat.links <= 1
               ? stat.size
               : 0;
}

uint64_t sweep_reclaimable_bytes(struct store_dir *parent, const char *name)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_EXTRA_LISTED listed = {0};
    OWNED_DIR *dir = NULL;
    uint64_t bytes = 0;

    if (store_dir_open(parent->store, parent, name, &dir, NULL) != SIDESTEP_OK ||
        name_list_read(dir, &names, NULL) != SIDESTEP_OK)
        return 0;
    bool all = is_export(&names);
    for (size_t i = 0; i < names.count; i++)
        if (all || sweep_is_own_name(names.names[i]))
            bytes += own_bytes(dir, names.names[i]);
    if (!all && has_other_names(&names))
        (void)extra_listed_read(dir, &names, &listed);
    for (size_t m = 0; m < listed.count; m++)
        bytes += extra_files_bytes(&listed.manifests[m]);
    return bytes;
}

/* Why a directory with a marker stays. NULL: its owner is dead, and ${*marker} holds the lock (or
 * no lock was needed). */
static const char *check_owner(struct sweep *sweep, struct store_dir *dir, const char *save_id,
                               struct commit_marker *text, struct store_file **marker)
{
    char name[FILE_NAME_BYTES];

    assert(*marker == NULL);
    *text = (struct commit_marker){0};
    file_name_format(FILE_NAME_PENDING, save_id, 0, 0, name);
    enum sidestep_status status = store_file_open(dir, name, STORE_WRITE, marker, NULL);
    if (status == SIDESTEP_ENOTFOUND)
        return "it has no pending marker";
    if (status != SIDESTEP_OK || commit_marker_read(*marker, text, NULL) != SIDESTEP_OK)
        return "its pending marker cannot be read";
    if (sweep->mode == SWEEP_SERIES && text->run_id[0] != '\0')
        return NULL; /* fenced by the lock of the series, even if its owner is alive */
    if (commit_marker_is_elsewhere(dir, text))
        return "its owner is on another host";
    status = lock_file_acquire(dir, name, *marker, NULL);
    if (status == SIDESTEP_EUNSUPPORTED)
        return "this storage has no locks";
    return status == SIDESTEP_OK ? NULL : "its owner is alive";
}

/*
 * The marker is made before any other file. So a directory without one is left from a kill before
 * the marker was made, or from a power loss that removed it. Check again: it may have been made
 * since.
 */
static bool never_had_owner(struct store_dir *dir, const char *save_id)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;
    struct store_traits traits;

    file_name_format(FILE_NAME_PENDING, save_id, 0, 0, name);
    return store_dir_traits(dir, &traits, NULL) == SIDESTEP_OK && !traits.is_network &&
           store_stat(dir, name, &stat, NULL) == SIDESTEP_ENOTFOUND;
}

/* Is another process deleting the directory? The deleter holds the lock on .metadata from before
 * the move to the trash until the directory is gone, because a pin may make it move the checkpoint
 * back. */
static const char *check_deleter(struct sweep *sweep, struct store_dir *dir)
{
    OWNED_FILE *metadata = NULL;
    enum sidestep_status status = store_file_open(dir, FILE_NAME_METADATA, 0, &metadata, NULL);

    if (status == SIDESTEP_ENOTFOUND)
        return NULL;
    if (status != SIDESTEP_OK)
        return "its .metadata cannot be opened";
    status = store_file_lock(metadata, false, NULL);
    if (status == SIDESTEP_ELOCKED)
        return "it is being deleted";
    return status == SIDESTEP_OK || sweep->mode == SWEEP_SERIES ? NULL
                                                                : "this storage has no locks";
}

/* Before a one-off save: why a directory of this owner stays. NULL: it was left by a one-off save,
 * which nobody goes on with. */
static const char *check_one_off(const struct sweep *sweep, const struct commit_marker *owner)
{
    if (owner->run_id[0] != '\0' || owner->target[0] == '\0')
        return "it does not belong to a one-off save";
    return owner->is_resumable && strcmp(owner->target, sweep->target) != 0
               ? "a copy to another name may go on in it"
               : NULL;
}

/* Why a directory stays. NULL: it may be removed. */
static const char *check_removable(struct sweep *sweep, struct store_dir *dir,
                                   const struct file_name *name, struct store_file **marker)
{
    OWNED_NAMES struct name_list content = {0};
    struct commit_marker text;
    const char *reason = check_owner(sweep, dir, name->save_id, &text, marker);

    if (*marker == NULL && name->kind == FILE_NAME_TRASH)
        return check_deleter(sweep, dir);
    if (*marker == NULL && sweep->mode != SWEEP_ONE_OFF) {
        /* Its owner was killed before it made the marker, or when only the directory was left. */
        bool empty = name_list_read(dir, &content, NULL) == SIDESTEP_OK && content.count == 0;
        return empty || sweep->mode == SWEEP_SERIES || never_had_owner(dir, name->save_id) ? NULL
                                                                                           : reason;
    }
    return reason == NULL && sweep->mode == SWEEP_ONE_OFF ? check_one_off(sweep, &text) : reason;
}

/* Is the directory also reachable under another name in the parent? Then it is never emptied. */
static bool has_other_name(struct sweep *sweep, const struct name_list *names, const char *trash)
{
    struct store_stat mine, other;

    if (store_stat(sweep->parent, trash, &mine, NULL) != SIDESTEP_OK)
        return true;
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->names[i], trash) != 0 &&
            store_stat(sweep->parent, names->names[i], &other, NULL) == SIDESTEP_OK &&
            other.inode == mine.inode && other.device == mine.device)
            return true;
    return false;
}

/* Directories to remove: their names when the sweep began, and their names in the trash. */
struct removals {
    struct name_list before;
    struct name_list trash;
};

static void removals_release(struct removals *removals)
{
    name_list_release(&removals->before);
    name_list_release(&removals->trash);
}

static void report_kept(struct sweep *sweep, const char *name, const char *reason)
{
    if (sweep->kept != NULL)
        sweep->kept(sweep->context, name, reason);
}

static void report_removed(struct sweep *sweep, const char *name, uint64_t bytes)
{
    if (sweep->removed != NULL)
        sweep->removed(sweep->context, name, bytes);
}

/* Remove an empty directory with rmdir(2), which refuses if its owner has just put a marker into
 * it. True: it is gone. */
static bool remove_empty(struct sweep *sweep, const char *name)
{
    if (sweep->dry_run || store_dir_remove(sweep->parent, name, NULL) != SIDESTEP_OK)
        return false;
    report_removed(sweep, name, 0);
    return true;
}

/* Rename a directory to the trash. Returns why it stays; NULL: it is in the trash. */
static const char *move_to_trash(struct sweep *sweep, struct store_dir *dir, const char *name,
                                 const char *trash, enum sidestep_status *status)
{
    struct store_stat held, named;

    *status = SIDESTEP_OK;
    if (store_dir_stat(dir, &held, NULL) != SIDESTEP_OK ||
        store_stat(sweep->parent, name, &named, NULL) != SIDESTEP_OK || held.inode != named.inode ||
        held.device != named.device)
        return "it has changed since it was opened";
    *status = store_rename_new(sweep->parent, name, sweep->parent, trash, NULL);
    return *status == SIDESTEP_OK ? NULL : "it cannot be renamed";
}

/* Decide whether ${name} is removed, and fence a saving directory by renaming it. */
static enum sidestep_status fence(struct sweep *sweep, const char *name, struct removals *removals,
                                  struct sidestep_error *err)
{
    struct file_name parsed = file_name_parse(name);
    char trash[FILE_NAME_BYTES];
    OWNED_DIR *dir = NULL;
    OWNED_FILE *marker = NULL; /* keeps the lock during the rename */
    enum sidestep_status status = SIDESTEP_OK;

    assert(parsed.kind == FILE_NAME_SAVING || parsed.kind == FILE_NAME_TRASH); /* I6 */
    if (parsed.kind == FILE_NAME_SAVING && remove_empty(sweep, name))
        return SIDESTEP_OK;
    if (store_dir_open(sweep->store, sweep->parent, name, &dir, NULL) != SIDESTEP_OK) {
        report_kept(sweep, name, "it cannot be opened");
        return SIDESTEP_OK;
    }
    const char *reason = check_removable(sweep, dir, &parsed, &marker);
    if (reason == NULL && sweep->dry_run) {
        report_removed(sweep, name, sweep_reclaimable_bytes(sweep->parent, name));
        return SIDESTEP_OK;
    }
    file_name_format(FILE_NAME_TRASH, parsed.save_id, 0, 0, trash);
    if (reason == NULL && parsed.kind == FILE_NAME_SAVING)
        reason = move_to_trash(sweep, dir, name, trash, &status);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK; /* its owner removed it first */
    if (reason != NULL) {
        report_kept(sweep, name, reason);
        return status != SIDESTEP_OK && sweep->mode == SWEEP_SERIES
                   ? FAIL(err, status, "fence '%s'", name)
                   : SIDESTEP_OK;
    }
    TRY(name_list_add(&removals->before, name, err));
    return name_list_add(&removals->trash, trash, err);
}

/* An outcome file tells the ranks of a save why it ended. No rank of a dead save waits for it. A
 * save of another target may be alive, whose ranks would then not know the outcome: a save that is
 * no part of a series removes only what is older than a day. */
static void remove_outcome(struct sweep *sweep, const char *name)
{
    struct store_stat stat;
    uint64_t bytes = 0;
    enum sidestep_status status = store_stat(sweep->parent, name, &stat, NULL);

    if (status == SIDESTEP_ENOTFOUND)
        return;
    if (status == SIDESTEP_OK && sweep->mode == SWEEP_ONE_OFF &&
        (stat.modified == 0 || time(NULL) - stat.modified < OUTCOME_SECONDS))
        return;
    if (status == SIDESTEP_OK && stat.kind != STORE_FILE)
        report_kept(sweep, name, SWEEP_NOT_A_FILE);
    else if (status == SIDESTEP_OK && sweep->dry_run)
        report_removed(sweep, name, stat.size);
    else if (sweep_unlink_file(sweep->parent, name, &bytes))
        report_removed(sweep, name, bytes);
    else
        report_kept(sweep, name, "it cannot be removed");
}

static void remove_outcomes(struct sweep *sweep, const struct name_list *names)
{
    for (size_t i = 0; i < names->count; i++)
        if (file_name_parse(names->names[i]).kind == FILE_NAME_OUTCOME)
            remove_outcome(sweep, names->names[i]);
}

static enum sidestep_status empty_removals(struct sweep *sweep, const struct name_list *names,
                                           const struct removals *removals,
                                           struct sidestep_error *err)
{
    assert(removals->before.count == removals->trash.count);
    if (removals->trash.count == 0)
        return SIDESTEP_OK;
    TRY(store_dir_sync(sweep->parent, err));
    for (size_t i = 0; i < removals->trash.count; i++) {
        const char *trash = removals->trash.names[i];
        uint64_t bytes = 0;
        if (has_other_name(sweep, names, trash))
            report_kept(sweep, trash, "it has another name, too");
        else if (sweep_empty_trash(sweep->parent, trash, &bytes, NULL) != SIDESTEP_OK)
            report_kept(sweep, trash, "it could not be emptied");
        else
            report_removed(sweep, removals->before.names[i], bytes);
    }
    return SIDESTEP_OK;
}

/* Trash directories are removed first. A save that had to start over may have a saving directory
 * beside its trash, which then gets the same name in the trash. */
enum sidestep_status sweep_parent(struct sweep *sweep, struct sidestep_error *err)
{
    static const enum file_name_kind kinds[] = {FILE_NAME_TRASH, FILE_NAME_SAVING};
    OWNED_NAMES struct name_list names = {0};

    assert((sweep->mode == SWEEP_ONE_OFF) == (sweep->target != NULL));
    TRY(name_list_read(sweep->parent, &names, err));
    for (size_t k = 0; k < ARRAY_LENGTH(kinds); k++) {
        OWNED_BY(removals_release) struct removals removals = {0};
        for (size_t i = 0; i < names.count; i++)
            if (file_name_parse(names.names[i]).kind == kinds[k])
                TRY(fence(sweep, names.names[i], &removals, err));
        TRY(empty_removals(sweep, &names, &removals, err));
    }
    remove_outcomes(sweep, &names);
    return SIDESTEP_OK;
}

void sweep_one_off(struct store *store, struct store_dir *parent, const char *target)
{
    struct sweep sweep = {
        .store = store, .parent = parent, .mode = SWEEP_ONE_OFF, .target = target};

    (void)sweep_parent(&sweep, NULL);
}
