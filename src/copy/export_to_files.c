/* SPDX-License-Identifier: BSD-3-Clause */
/* export_to_files.c -- publishes files on a file system; see export.h. */
#include "copy/export.h"

#include <string.h>

#include "base/base.h"
#include "commit/commit.h"

static void format(const struct export *e, enum file_name_kind kind, char name[FILE_NAME_BYTES])
{
    file_name_format(kind, e->commit.save_id, 0, 0, name);
}

/* May an export replace ${name} in ${dir}? Only a file whose name is one that exports make. */
static bool is_replaceable(const struct export *e, struct store_dir *dir, const char *name)
{
    enum file_name_kind kind = file_name_parse(name).kind;
    struct store_stat stat;

    if (!e->is_known(name) && kind != FILE_NAME_EXPORT && kind != FILE_NAME_PENDING)
        return false;
    return store_stat(dir, name, &stat, NULL) == SIDESTEP_OK && stat.kind == STORE_FILE;
}

/* Is the manifest among these names that of this save, and is there one? */
static bool is_of_save(const struct name_list *names, const char *save_id)
{
    bool is_found = false;

    for (size_t i = 0; i < names->count; i++) {
        struct file_name parsed = file_name_parse(names->names[i]);
        if (parsed.kind != FILE_NAME_MANIFEST)
            continue;
        if (strcmp(parsed.save_id, save_id) != 0)
            return false;
        is_found = true;
    }
    return is_found;
}

/* Check that all files in a directory are replaceable, if the export replaces it. ${*count}: their
 * number. */
static enum sidestep_status check_names(const struct export *e, const char *name, size_t *count,
                                        struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *dir = NULL;

    TRY(store_dir_open(e->commit.store, e->commit.parent, name, &dir, err));
    TRY(name_list_read(dir, &names, err));
    *count = names.count;
    for (size_t i = 0; i < names.count && e->replace; i++)
        if (!is_replaceable(e, dir, names.names[i]))
            return FAIL(err, SIDESTEP_EEXISTS,
                        "'%s' is not replaced: it holds '%s', which no conversion makes",
                        e->commit.path, names.names[i]);
    if (names.count != 0 && e->replace && e->replaces != NULL && !is_of_save(&names, e->replaces))
        return FAIL(err, SIDESTEP_EEXISTS,
                    "'%s' is not replaced: it holds another checkpoint than save %s by now",
                    e->commit.path, e->replaces);
    return SIDESTEP_OK;
}

static enum sidestep_status check_directory(struct export *e, struct sidestep_error *err)
{
    size_t count = 0;

    TRY(check_names(e, e->commit.name, &count, err));
    if (count != 0 && !e->replace)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' exists and is not empty", e->commit.path);
    e->exists = count != 0;
    return SIDESTEP_OK;
}

static enum sidestep_status check_destination(struct export *e, struct sidestep_error *err)
{
    struct store_stat stat;
    enum sidestep_status status = store_stat(e->commit.parent, e->commit.name, &stat, err);

    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    TRY(status);
    if (stat.kind != (e->is_file ? STORE_FILE : STORE_DIRECTORY))
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' exists, and is not a %s", e->commit.path,
                    e->is_file ? "file" : "directory");
    if (!e->is_file)
        return check_directory(e, err);
    if (!e->replace)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' exists", e->commit.path);
    e->exists = true;
    return SIDESTEP_OK;
}

static enum sidestep_status make_marker(struct export *e, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];

    format(e, FILE_NAME_EXPORT, name);
    return small_file_write(e->commit.dir, name, "", 0, err);
}

static enum sidestep_status begin(struct export *e, const char *path,
                                  const uint8_t id[SAVE_ID_BYTES], struct sidestep_error *err)
{
    TRY(commit_open(&e->commit, path, err));
    TRY(check_destination(e, err));
    TRY(commit_begin_export(&e->commit, id, err));
    return e->commit.request.resumes ? SIDESTEP_OK : make_marker(e, err);
}

static enum sidestep_status create_file(struct export *e, const char *name, uint32_t flags,
                                        struct store_file **file, struct sidestep_error *err)
{
    return store_file_create(e->commit.dir, name, flags, file, err);
}

static enum sidestep_status seal_file(struct export *e UNUSED, const char *name UNUSED,
                                      struct store_file *file, struct sidestep_error *err)
{
    OWNED_FILE *owned = file;

    TRY(store_file_sync(owned, err));
    return store_file_close(TAKE(owned), err);
}

/* Rename a file from the hidden directory to the parent. A rename that reports an error may have
 * happened (I7): then the file is no longer in the hidden directory, where only this export works.
 */
static enum sidestep_status rename_file(struct export *e, const char *name,
                                        struct sidestep_error *err)
{
    struct store_stat stat;
    enum sidestep_status status =
        e->replace ? store_rename(e->commit.dir, name, e->commit.parent, name, STORE_REPLACE, err)
                   : store_rename_new(e->commit.dir, name, e->commit.parent, name, err);

    return status != SIDESTEP_OK &&
                   store_stat(e->commit.dir, name, &stat, NULL) == SIDESTEP_ENOTFOUND &&
                   store_stat(e->commit.parent, name, &stat, NULL) == SIDESTEP_OK
               ? SIDESTEP_OK
               : status;
}

/* Rename the new directory back, and what it replaced too. */
static void undo_rename(struct export *e)
{
    char saving[FILE_NAME_BYTES];

    format(e, FILE_NAME_SAVING, saving);
    if (commit_owns_name(&e->commit, e->commit.name))
        (void)store_rename(e->commit.parent, e->commit.name, e->commit.parent, saving,
                           e->exists ? STORE_EXCHANGE : STORE_NOREPLACE, NULL);
}

/* Rename the hidden directory. A rename that reports an error may have happened (I7). */
static enum sidestep_status rename_saving(struct export *e, const char *saving,
                                          enum store_rename_mode how, struct sidestep_error *err)
{
    enum sidestep_status status =
        store_rename(e->commit.parent, saving, e->commit.parent, e->commit.name, how, err);

    return status != SIDESTEP_OK && commit_owns_name(&e->commit, e->commit.name) ? SIDESTEP_OK
                                                                                 : status;
}

/* Rename the hidden directory to the destination.  An exchange gives the old directory the hidden
 * name.  Then check it again before it is removed: another process may have put a checkpoint
 * there. */
static enum sidestep_status rename_directory(struct export *e, struct sidestep_error *err)
{
    char saving[FILE_NAME_BYTES];
    size_t count;

    format(e, FILE_NAME_SAVING, saving);
    if (!e->exists) /* or it is empty: then the rename replaces it */
        return rename_saving(e, saving, STORE_REPLACE, err);
    enum sidestep_status status = rename_saving(e, saving, STORE_EXCHANGE, err);
    if (status == SIDESTEP_EUNSUPPORTED)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "this storage cannot exchange two directories: remove '%s' first",
                    e->commit.path);
    TRY(status);
    status = check_names(e, saving, &count, err);
    if (status != SIDESTEP_OK)
        undo_rename(e);
    return status;
}

/* Remove the directory that the exchange took out. */
static void remove_old(struct export *e)
{
    char saving[FILE_NAME_BYTES], marker[FILE_NAME_BYTES];
    OWNED_DIR *old = NULL;

    format(e, FILE_NAME_SAVING, saving);
    format(e, FILE_NAME_EXPORT, marker);
    if (store_dir_open(e->commit.store, e->commit.parent, saving, &old, NULL) == SIDESTEP_OK &&
        small_file_write(old, marker, "", 0, NULL) == SIDESTEP_OK)
        (void)sweep_empty_trash(e->commit.parent, saving, NULL, NULL);
}

/* Remove both markers, which only the hidden directory needs. */
static void remove_markers(struct export *e)
{
    char name[FILE_NAME_BYTES];

    format(e, FILE_NAME_EXPORT, name);
    (void)store_unlink(e->commit.dir, name, NULL);
    format(e, FILE_NAME_PENDING, name);
    (void)store_unlink(e->commit.dir, name, NULL);
}

/* Publish the file.  If the new name may not be durable, remove it. */
static enum sidestep_status publish_file(struct export *e, struct sidestep_error *err)
{
    TRY(rename_file(e, e->commit.name, err));
    enum sidestep_status status = store_dir_sync(e->commit.parent, err);
    if (status != SIDESTEP_OK && !e->replace)
        (void)store_unlink(e->commit.parent, e->commit.name, NULL);
    return status; /* export_end() removes the rest */
}

static enum sidestep_status publish_directory(struct export *e, struct sidestep_error *err)
{
    TRY(rename_directory(e, err));
    enum sidestep_status status = store_dir_sync(e->commit.parent, err);
    if (status != SIDESTEP_OK) {
        undo_rename(e);
        return status;
    }
    remove_markers(e);
    if (e->exists)
        remove_old(e);
    store_dir_close(TAKE(e->commit.dir)); /* published: export_end() must not remove it */
    return status;
}

/* Check that the destination's path still leads to the parent directory that was written to. */
static enum sidestep_status check_path(struct export *e, struct sidestep_error *err)
{
    char parent[COMMIT_PATH_BYTES];
    size_t length = strlen(e->commit.path) - strlen(e->commit.name);

    memcpy(parent, e->commit.path, length);
    parent[length > 1 ? length - 1 : length] = '\0';
    return commit_check_path(&e->commit, e->commit.parent, parent, e->commit.name, err);
}

static enum sidestep_status publish(struct export *e, struct sidestep_error *err)
{
    TRY(store_dir_sync(e->commit.dir, err));
    TRY(e->is_file ? publish_file(e, err) : publish_directory(e, err));
    return check_path(e, err);
}

static void end(struct export *e)
{
    char saving[FILE_NAME_BYTES];

    if (e->commit.dir != NULL) {
        format(e, FILE_NAME_SAVING, saving);
        /* Do not remove what was replaced, if it could not be put back. */
        if (!e->stays && commit_owns_name(&e->commit, saving))
            (void)sweep_empty_trash(e->commit.parent, saving, NULL, NULL);
    }
    commit_close(&e->commit);
}

const struct export_ops export_to_files = {.begin = begin,
                                           .create_file = create_file,
                                           .seal_file = seal_file,
                                           .publish = publish,
                                           .end = end};
