/* SPDX-License-Identifier: BSD-3-Clause */
/* store_parent.c -- see store.h: opens the directory of one file. */
#include "store/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum sidestep_status store_parent_open(struct store *store, const char *path, struct arena *arena,
                                       struct store_dir **dir, const char **name,
                                       struct sidestep_error *err)
{
    bool has_links = store->ops->layout == STORE_OF_DIRECTORIES;
    OWNED char *real = has_links ? realpath(path, NULL) : NULL;

    if (has_links && real == NULL)
        return FAIL_SYS(err, "'%s'", path);
    const char *found = has_links ? real : path;
    char *parent = arena_strndup(arena, found, strlen(found));
    if (parent == NULL)
        return FAIL_NOMEM(err, strlen(found));
    char *slash = strrchr(parent, '/');
    assert(slash != NULL);
    if (!has_links && slash[-1] == '/') { /* a bucket has no parent */
        *name = "";
        return store_dir_open(store, NULL, parent, dir, err);
    }
    *slash = '\0';
    *name = slash + 1;
    return store_dir_open(store, NULL, slash != parent ? parent : "/", dir, err);
}

bool store_parent_has_object(struct store *store, const char *path, struct arena *arena)
{
    OWNED_DIR *dir = NULL;
    OWNED_FILE *file = NULL;
    const char *name;

    return store->ops->layout == STORE_OF_KEYS &&
           store_parent_open(store, path, arena, &dir, &name, NULL) == SIDESTEP_OK &&
           store_file_open(dir, name, 0, &file, NULL) == SIDESTEP_OK;
}
