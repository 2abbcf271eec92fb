/* SPDX-License-Identifier: BSD-3-Clause */
/* missing.c -- finds out why a directory has no `.metadata`; see missing.h. */
#include "checkpoint/missing.h"

#include "checkpoint/weights.h"
#include "commit/commit.h"
#include "format/format.h"
#include "model/model.h"

#define WEIGHTS_SUFFIX ".bin" /* Hugging Face's name for files of torch.save() */
#define MAX_NAMES 1000u       /* entries that are tried; a series keeps fewer */

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

/* Weights of torch.save() are read one file at a time. Report which of them have not arrived. */
static enum sidestep_status check_weights(struct store_dir *dir, const struct name_list *names,
                                          struct sidestep_error *err)
{
    struct weights_missing missing = {0};

    for (size_t i = 0; i < names->count && i < MAX_NAMES; i++) {
        OWNED_BUFFER bytes = {0};
        if (file_name_has_suffix(names->names[i], WEIGHTS_SUFFIX) &&
            small_file_read(dir, names->names[i], 0, POINTER_FILE_MAX_BYTES, &bytes, NULL) ==
                SIDESTEP_OK)
            TRY(WRAP(pointer_file_check_bytes(bytes.bytes, bytes.length, err), err, "file '%s'",
                     names->names[i]));
    }
    weights_find_missing(names, WEIGHTS_SUFFIX, &missing);
    return weights_check_missing(&missing, err);
}

static const char *find_weights(const struct name_list *names)
{
    for (size_t i = 0; i < names->count; i++)
        if (file_name_has_suffix(names->names[i], WEIGHTS_SUFFIX))
            return names->names[i];
    return NULL;
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
    TRY(check_weights(dir, &names, err));
    if (one == NULL && (one = find_weights(&names)) != NULL)
        return FAIL(err, SIDESTEP_EUNCOMMITTED,
                    "there is no %s; the directory contains files of torch.save(), which are read "
                    "one at a time, for example '%s': name one of them",
                    FILE_NAME_METADATA, display_name(one).text);
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
