/* SPDX-License-Identifier: BSD-3-Clause */
/* deletion.c -- see deletion.h: does what deletions in directories and buckets have in common. */
#include "root/deletion.h"

#include "base/base.h"

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
