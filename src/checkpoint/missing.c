/* SPDX-License-Identifier: BSD-3-Clause */
/* missing.c -- finds out why a directory has no `.metadata`; see missing.h. */
#include "checkpoint/missing.h"

#include "commit/commit.h"
#include "format/format.h"
#include "model/model.h"

#define MAX_NAMES 1000u /* entries that are tried; a series keeps fewer */

/* Find the last entry of ${dir}, by name, that has a .metadata. NULL: there is none. */
static const char *find_checkpoint(struct store_dir *dir, const struct name_list *names)
{
    size_t first = names->count > MAX_NAMES ? names->count - MAX_NAMES : 0;

    for (size_t i = names->count; i > first; i--)
        if (names->names[i - 1][0] != '.' &&
            referenced_files_has_metadata(dir->store, dir, names->names[i - 1]))
            return names->names[i - 1];
    return NULL;
}

/* Is there a manifest but no pending marker? Then the directory is a checkpoint of sidestep whose
 * save has ended. */
static bool has_lost_metadata(const struct name_list *names)
{
    bool has_manifest = false, is_pending = false;

    for (size_t i = 0; i < names->count; i++) {
        enum file_name_kind kind = file_name_parse(names->names[i]).kind;
        has_manifest |= kind == FILE_NAME_MANIFEST;
        is_pending |= kind == FILE_NAME_PENDING;
    }
    return has_manifest && !is_pending;
}

enum sidestep_status missing_metadata_error(struct store_dir *dir, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    const char *one = NULL;

    TRY(name_list_read(dir, &names, err));
    if (names.count == 0 && dir->store->ops->layout == STORE_OF_KEYS) /* a prefix without a key */
        return FAIL(err, SIDESTEP_ENOTFOUND, "there is no object of this name or below it");
    one = find_checkpoint(dir, &names);
    if (has_lost_metadata(&names))
        return FAIL(err, SIDESTEP_EUNCOMMITTED,
                    "its %s is missing ('sidestep rebuild' makes a new one)", FILE_NAME_METADATA);
    if (names.count == 0)
        return FAIL(err, SIDESTEP_EUNCOMMITTED, "there is no checkpoint yet");
    if (one == NULL)
        return FAIL(err, SIDESTEP_EUNCOMMITTED, "there is no %s", FILE_NAME_METADATA);
    return FAIL(
        err, SIDESTEP_EUNCOMMITTED,
        "there is no %s; the directory contains checkpoints, for example '%s': name one of them",
        FILE_NAME_METADATA, display_name(one).text);
}

bool missing_metadata_is_lost(struct store *store, const char *path)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *dir = NULL;

    return store_dir_open(store, NULL, path, &dir, NULL) == SIDESTEP_OK &&
           name_list_read(dir, &names, NULL) == SIDESTEP_OK && has_lost_metadata(&names);
}
