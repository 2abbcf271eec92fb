/* SPDX-License-Identifier: BSD-3-Clause */
/* root.c -- see root.h: chooses the operations of a root, and what all deletions have in common
 * (deletion.h). */
#include "root/root.h"

#include "base/base.h"
#include "root/deletion.h"

const struct root_ops *root_of(const struct store *store)
{
    static const struct root_ops *const roots[STORE_LAYOUTS] = {
        [STORE_OF_DIRECTORIES] = &root_directory, [STORE_OF_KEYS] = &root_bucket};

    return roots[store->ops->layout];
}

void deletion_release(struct deletion *deletion)
{
    store_file_discard(TAKE(deletion->lock));
    object_deletion_release(&deletion->doomed);
}

bool deletion_is_read_only(struct store_dir *dir)
{
    struct store_traits traits = {0};

    return store_dir_traits(dir, &traits, NULL) == SIDESTEP_OK && traits.is_read_only;
}
