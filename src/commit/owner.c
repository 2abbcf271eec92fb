/* SPDX-License-Identifier: BSD-3-Clause */
/* owner.c -- reads the owner of a save; see owner.h. Gives the same answer as sweep.c, which takes
 * the lock. */
#include "commit/owner.h"

#include "base/base.h"

enum sidestep_status owner_read(struct store_dir *dir, const char *save_id, struct owner *owner,
                                struct sidestep_error *err)
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
