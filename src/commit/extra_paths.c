/* SPDX-License-Identifier: BSD-3-Clause */
/* extra_paths.c -- see extra_paths.h. */
#include "commit/extra_paths.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* Open ${name} in ${at}; if ${make}, make it first. */
static enum sidestep_status open_one(struct store_dir *at, const char *name, bool make,
                                     struct store_dir **out, struct sidestep_error *err)
{
    enum sidestep_status status = store_dir_open(at->store, at, name, out, err);

    if (status != SIDESTEP_ENOTFOUND || !make)
        return status;
    status = store_dir_make(at, name, err);
    if (status != SIDESTEP_OK && status != SIDESTEP_EEXISTS)
        return status;
    return store_dir_open(at->store, at, name, out, err);
}

enum sidestep_status extra_path_open(struct store_dir *dir, const char *path, bool make,
                                     struct store_dir **owned, struct store_dir **parent,
                                     const char **last, struct sidestep_error *err)
{
    char name[EXTRA_FILE_MAX_NAME_BYTES + 1];

    *owned = NULL;
    *parent = dir;
    *last = path;
    for (const char *slash; (slash = strchr(*last, '/')) != NULL; *last = slash + 1) {
        struct store_dir *inner = NULL;
        size_t length = (size_t)(slash - *last);
        assert(length < sizeof(name));
        memcpy(name, *last, length);
        name[length] = '\0';
        TRY(open_one(*parent, name, make, &inner, err));
        store_dir_close(*owned);
        *owned = *parent = inner;
    }
    return SIDESTEP_OK;
}

/* Sync the directories of ${path} that are not in ${synced}, and add them. */
static enum sidestep_status sync_directories(struct store_dir *dir, const char *path,
                                             struct hash_table *synced, struct arena *arena,
                                             struct sidestep_error *err)
{
    for (size_t length = strlen(path); length > 0; length--) {
        OWNED_DIR *owned = NULL;
        struct store_dir *parent;
        const char *last;
        size_t existing;
        if (path[length - 1] != '/')
            continue;
        const char *prefix = arena_strndup(arena, path, length);
        if (prefix == NULL)
            return FAIL_NOMEM(err, length + 1);
        TRY(hash_table_insert(synced, prefix, 0, &existing, err));
        if (existing != SIZE_MAX)
            return SIDESTEP_OK; /* and those around it */
        enum sidestep_status status =
            extra_path_open(dir, prefix, false, &owned, &parent, &last, err);
        if (status == SIDESTEP_ENOTFOUND) /* removed, as it was empty */
            continue;
        TRY(status);
        TRY(store_dir_sync(owned, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status extra_path_sync_all(struct store_dir *dir, const struct manifest *manifest,
                                         struct sidestep_error *err)
{
    OWNED_HASH_TABLE synced = {0};
    OWNED_ARENA arena = {0};

    for (size_t i = 0; i < manifest->extra_count; i++)
        TRY(sync_directories(dir, manifest->extras[i].name, &synced, &arena, err));
    return SIDESTEP_OK;
}

void extra_path_remove_empty(struct store_dir *dir, const char *path)
{
    char shorter[EXTRA_FILE_MAX_NAME_BYTES + 1];

    snprintf(shorter, sizeof(shorter), "%s", path);
    for (char *slash; (slash = strrchr(shorter, '/')) != NULL;) {
        OWNED_DIR *owned = NULL;
        struct store_dir *parent;
        const char *last;
        *slash = '\0';
        if (extra_path_open(dir, shorter, false, &owned, &parent, &last, NULL) != SIDESTEP_OK ||
            store_dir_remove(parent, last, NULL) != SIDESTEP_OK)
            return;
    }
}
