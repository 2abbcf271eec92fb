/* SPDX-License-Identifier: BSD-3-Clause */
/* directory_delete.c -- see deletion.h: deletes a checkpoint in a directory, through the trash
 * (commit/sweep.h). */
#include "root/directory.h"

#include "base/base.h"
#include "commit/commit.h"

const char *directory_find_objection(struct store_dir *root, const char *name, const char *save_id)
{
    if (!sweep_has_only_own_files(root, name))
        return "it holds files that are not ours, or a save";
    if (sweep_has_links(root, name))
        return "some of its files are symbolic links, which are not ours";
    return referenced_files_was_replaced(root, name, save_id) ? DELETION_WAS_REPLACED : NULL;
}

/* Lock out readers. ELOCKED: somebody is reading. Without locks, open files stay readable. EPERM: a
 * permission is missing to rename it, to empty it, or to see readers: who removed it wants to keep
 * the checkpoint. */
enum sidestep_status directory_delete_look(struct deletion *d, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    OWNED_DIR *dir = NULL;

    if (deletion_is_read_only(d->root))
        return FAIL(err, SIDESTEP_EPERM, "the directory that it is in may not be written to");
    if (store_dir_open(d->root->store, d->root, d->name, &dir, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    if (deletion_is_read_only(dir))
        return FAIL(err, SIDESTEP_EPERM, "its directory may not be written to");
    referenced_files_find_lock(dir, name);
    enum sidestep_status status = store_file_open(dir, name, STORE_WRITE, &d->lock, NULL);
    if (status == SIDESTEP_EPERM)
        return FAIL(err, SIDESTEP_EPERM, "its %s may not be written to", name);
    if (status == SIDESTEP_OK)
        status = lock_file_acquire(dir, name, d->lock, NULL);
    if (status == SIDESTEP_ELOCKED && !d->makes_way)
        return FAIL(err, SIDESTEP_ELOCKED, "it is being read");
    if (status == SIDESTEP_ENOTFOUND && d->lock != NULL)
        return FAIL(err, SIDESTEP_ELOCKED, DELETION_WAS_REPLACED);
    return SIDESTEP_OK;
}

uint64_t directory_delete_bytes(const struct deletion *d)
{
    return sweep_reclaimable_bytes(d->root, d->name);
}

enum sidestep_status directory_delete_hide(struct deletion *d, struct sidestep_error *err)
{
    uint8_t id[SAVE_ID_BYTES];
    char hex[SAVE_ID_HEX];

    TRY(random_bytes(id, sizeof(id), err));
    hash_to_hex(id, sizeof(id), hex);
    file_name_format(FILE_NAME_TRASH, hex, 0, 0, d->trash);
    return sweep_move_to_trash(d->root, d->name, hex, err);
}

/* A save that takes none of these locks may have replaced it in place since look(). In the trash,
 * nothing can replace it. */
bool directory_delete_was_replaced(const struct deletion *d)
{
    return d->save_id != NULL && (referenced_files_was_replaced(d->root, d->trash, d->save_id) ||
                                  !sweep_has_only_own_files(d->root, d->trash));
}

enum sidestep_status directory_delete_restore(struct deletion *d, struct sidestep_error *err)
{
    return sweep_restore(d->root, d->trash, d->name, err);
}

/* Are there files in ${name}, and none of ours? */
static bool has_only_files_of_others(struct store_dir *root, const char *name)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *dir = NULL;

    if (store_dir_open(root->store, root, name, &dir, NULL) != SIDESTEP_OK ||
        name_list_read(dir, &names, NULL) != SIDESTEP_OK)
        return false;
    for (size_t i = 0; i < names.count; i++)
        if (sweep_is_own_name(names.names[i]))
            return false;
    return names.count > 0;
}

/* Who has the directory open can make a file in it after the last look. It gets its place back. */
enum sidestep_status directory_delete_finish(struct deletion *d, uint64_t *bytes,
                                             struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    enum sidestep_status status = sweep_empty_trash(d->root, d->trash, bytes, &why);

    if (status == SIDESTEP_EEXISTS && has_only_files_of_others(d->root, d->trash) &&
        sweep_restore(d->root, d->trash, d->name, NULL) == SIDESTEP_OK)
        return SIDESTEP_OK;
    return status == SIDESTEP_OK ? SIDESTEP_OK : error_copy(err, &why);
}
