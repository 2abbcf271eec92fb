/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket_root.c -- see root.h: lists the operations of a root in a bucket, and deletes there. */
#include "root/bucket.h"

#include "base/base.h"

/* One sweep covers all prefixes of the root. */
static enum sidestep_status sweep_below(struct sweep *sweep UNUSED,
                                        struct sidestep_error *err UNUSED)
{
    return SIDESTEP_OK;
}

/* Keys cannot be renamed. */
static enum sidestep_status set_aside(struct lease *lease UNUSED, const char *name UNUSED,
                                      const char *save_id UNUSED, struct sidestep_error *err UNUSED)
{
    return SIDESTEP_OK;
}

/* ---- deletion (commit/object_delete.h): look() finds all objections. A save that replaces a
 * checkpoint whose .metadata is gone has a condition that notices it. */

static const char *find_objection(struct store_dir *root UNUSED, const char *name UNUSED,
                                  const char *save_id UNUSED)
{
    return NULL;
}

static enum sidestep_status look(struct deletion *d, struct sidestep_error *err)
{
    return object_delete_look(d->root, d->name, d->save_id, &d->doomed, err);
}

static uint64_t bytes_of(const struct deletion *d)
{
    return object_delete_bytes(&d->doomed);
}

static enum sidestep_status hide(struct deletion *d, struct sidestep_error *err)
{
    return object_delete_hide(&d->doomed, err);
}

static bool was_replaced(const struct deletion *d UNUSED)
{
    return false;
}

static enum sidestep_status restore(struct deletion *d, struct sidestep_error *err)
{
    return object_delete_restore(&d->doomed, err);
}

static enum sidestep_status finish(struct deletion *d, uint64_t *bytes, struct sidestep_error *err)
{
    if (bytes != NULL)
        *bytes += object_delete_bytes(&d->doomed);
    return object_delete_rest(&d->doomed, bytes, err);
}

const struct root_ops root_bucket = {.find_saves = bucket_find_saves,
                                     .read_owner = bucket_read_owner,
                                     .find_writers = bucket_find_writers,
                                     .sweep = object_sweep_root,
                                     .sweep_below = sweep_below,
                                     .take_lease = bucket_take_lease,
                                     .set_aside = set_aside,
                                     .read_index = bucket_read_index,
                                     .deletion = {.find_objection = find_objection,
                                                  .look = look,
                                                  .bytes = bytes_of,
                                                  .hide = hide,
                                                  .was_replaced = was_replaced,
                                                  .restore = restore,
                                                  .finish = finish},
                                     .probe = bucket_probe};
