/* SPDX-License-Identifier: BSD-3-Clause */
/* directory_root.c -- see root.h: lists the operations of a root in a directory. */
#include "root/directory.h"

#include "base/base.h"

/* Rename a damaged checkpoint to a name that ends in .bad. A link to one stays: it is not ours. */
static enum sidestep_status set_aside(struct lease *lease, const char *name, const char *save_id,
                                      struct sidestep_error *err)
{
    char bad[FILE_NAME_BYTES];
    struct store_stat stat;

    file_name_format(FILE_NAME_BAD, save_id, 0, 0, bad);
    TRY(lease_check(lease, err));
    if (store_stat(lease->root, name, &stat, NULL) != SIDESTEP_OK || stat.kind != STORE_DIRECTORY)
        return SIDESTEP_OK;
    if (referenced_files_was_replaced(lease->root, name, save_id))
        return SIDESTEP_OK; /* it is not known to be damaged */
    if (store_rename(lease->root, name, lease->root, bad, STORE_NOREPLACE, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    /* Replaced between the check and the rename? */
    if (referenced_files_was_replaced(lease->root, bad, save_id))
        return sweep_restore(lease->root, bad, name, err);
    return store_dir_sync(lease->root, err);
}

const struct root_ops root_directory = {.find_saves = directory_find_saves,
                                        .read_owner = directory_read_owner,
                                        .find_writers = directory_find_writers,
                                        .sweep = sweep_parent,
                                        .sweep_below = sweep_child_dirs,
                                        .take_lease = directory_take_lease,
                                        .set_aside = set_aside,
                                        .deletion = {.find_objection = directory_find_objection,
                                                     .look = directory_delete_look,
                                                     .bytes = directory_delete_bytes,
                                                     .hide = directory_delete_hide,
                                                     .was_replaced = directory_delete_was_replaced,
                                                     .restore = directory_delete_restore,
                                                     .finish = directory_delete_finish},
                                        .probe = directory_probe};
