/* SPDX-License-Identifier: BSD-3-Clause */
/* delete_checkpoint.c -- sidestep_delete(): deletes one checkpoint by its path. */
#include "selection/prune.h"

#include <string.h>

#include "base/base.h"
#include "catalog/catalog.h"
#include "commit/commit.h"
#include "object/object.h"
#include "root/root.h"

/* The checkpoint to delete, and where it is. */
struct target {
    struct commit path; /* resolves links */
    struct store_dir *dir, *annotations_dir;
};

static void target_release(struct target *t)
{
    store_dir_close(t->annotations_dir);
    store_dir_close(t->dir);
    commit_close(&t->path);
    object_path_close(&t->path.store);
}

/* Check that it is a checkpoint of sidestep, which may be deleted. */
static enum sidestep_status check_ours(struct target *t, struct referenced_files *named,
                                       struct sidestep_error *err)
{
    const char *name = t->path.name;
    struct store_stat stat;

    if (store_stat(t->path.parent, name, &stat, NULL) == SIDESTEP_OK && stat.kind == STORE_LINK)
        return FAIL(err, SIDESTEP_EINVAL,
                    "it is a symbolic link, and nothing is deleted through one: remove the link, "
                    "or name the checkpoint by the path that it leads to");
    enum sidestep_status status = store_dir_open(t->path.store, t->path.parent, name, &t->dir, err);

    if (status == SIDESTEP_OK)
        status = referenced_files_read_any(t->dir, named);
    if (status == SIDESTEP_ENOTFOUND || (status == SIDESTEP_OK && named->save_id == NULL))
        return FAIL(err, SIDESTEP_ENOTFOUND, "there is no checkpoint of sidestep");
    if (status != SIDESTEP_OK)
        return FAIL(err, status, "its %s cannot be read", FILE_NAME_METADATA);
    const char *objection =
        root_of(t->path.store)->deletion.find_objection(t->path.parent, name, named->save_id);
    return objection == NULL ? SIDESTEP_OK : FAIL(err, SIDESTEP_ELOCKED, "%s", objection);
}

static enum sidestep_status delete_at(const char *path, struct sidestep_error *err)
{
    OWNED_BY(target_release) struct target t = {0};
    OWNED_REFERENCED_FILES named = {0};

    TRY(object_path_open(path, &t.path.store, err));
    TRY(commit_open(&t.path, path, err));
    TRY(check_ours(&t, &named, err));
    enum sidestep_status status =
        store_dir_open(t.path.store, t.path.parent, FILE_NAME_SERIES_DIR, &t.annotations_dir, err);
    if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND)
        return status;
    return prune_delete(t.path.parent, t.annotations_dir, t.path.name, named.save_id, NULL, err);
}

enum sidestep_status sidestep_delete(const char *path, struct sidestep_error *err)
{
    if (path == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "path is NULL");
    return WRAP(delete_at(path, err), err, "delete '%s'", path);
}
