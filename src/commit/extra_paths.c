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

enum sidestep_status extra_path_sync_all(struct store_dir *dir, const struct manifest *manifest,
                                         struct sidestep_error *err)
{
    for (size_t i = 0; i < manifest->extra_count; i++) {
        char path[EXTRA_FILE_MAX_NAME_BYTES + 1];
        snprintf(path, sizeof(path), "%s", manifest->extras[i].name);
        for (char *slash; (slash = strrchr(path, '/')) != NULL;) {
            OWNED_DIR *owned = NULL;
            struct store_dir *parent;
            const char *last;
            *slash = '\0';
            TRY(extra_path_open(dir, path, false, &owned, &parent, &last, err));
            if (owned != NULL)
                TRY(store_dir_sync(owned, err));
        }
    }
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
