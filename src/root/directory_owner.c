/* SPDX-License-Identifier: BSD-3-Clause */
/* directory_owner.c -- see owner.h: reads the owner of a save in a directory. The answer is that of
 * commit/sweep.c, which takes the lock. */
#include "root/directory.h"

#include "base/base.h"

enum sidestep_status directory_find_saves(struct store_dir *dir UNUSED,
                                          const struct name_list *names, struct name_list *save_ids,
                                          struct sidestep_error *err)
{
    for (size_t i = 0; i < names->count; i++) {
        struct file_name parsed = file_name_parse(names->names[i]);
        if (parsed.kind == FILE_NAME_PENDING)
            TRY(name_list_add(save_ids, parsed.save_id, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status directory_read_owner(struct store_dir *dir, const char *save_id,
                                          struct owner *owner, struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;
    char name[FILE_NAME_BYTES];
    bool is_locked = true;

    *owner = (struct owner){.marker.step = -1};
    file_name_format(FILE_NAME_PENDING, save_id, 0, 0, name);
    enum sidestep_status status = store_file_open(dir, name, 0, &file, err);
    if (status == SIDESTEP_ENOTFOUND) {
        owner->is_dead = !commit_marker_is_elsewhere(dir, &owner->marker);
        return SIDESTEP_OK;
    }
    TRY(status);
    TRY(commit_marker_read(file, &owner->marker, err));
    if (store_file_is_locked(file, &is_locked, NULL) == SIDESTEP_OK && !is_locked)
        owner->is_dead = !commit_marker_is_elsewhere(dir, &owner->marker);
    return SIDESTEP_OK;
}
