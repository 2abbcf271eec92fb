/* SPDX-License-Identifier: BSD-3-Clause */
/* missing.c -- finds out why a directory has no `.metadata`; see missing.h. */
#include "checkpoint/missing.h"

#include <stdio.h>
#include <string.h>

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

/* Is the marker of ${save_id} there, below OBJECT_SAVES_DIR? */
static bool has_object_marker(struct store_dir *dir, const char *save_id)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    snprintf(name, sizeof(name), OBJECT_SAVES_DIR "%s/pending", save_id);
    return dir->store->ops->layout == STORE_OF_KEYS &&
           store_stat(dir, name, &stat, NULL) == SIDESTEP_OK;
}

/* Fail, if the directory is a part of a checkpoint. */
static enum sidestep_status check_no_part(struct store_dir *dir, struct sidestep_error *err)
{
    OWNED_ARENA arena = {0};
    struct manifest manifest;

    if (!referenced_files_find_part(dir, &arena, &manifest))
        return SIDESTEP_OK;
    return FAIL(
        err, SIDESTEP_EUNCOMMITTED,
        "it is no checkpoint, but one of %u parts, of ranks %s of %u: the others lie in the "
        "directories of other nodes, and a series that is opened on all of them puts them "
        "together (SIDESTEP_SERIES_PER_NODE)",
        manifest.part.parts, manifest_part_text(&manifest).text, manifest.world_size);
}

enum ending {
    NO_SAVE,
    NOT_ENDED, /* there is a pending marker */
    ENDED,     /* a manifest but no marker: a checkpoint of sidestep without its .metadata */
};

static enum ending find_ending(struct store_dir *dir, const struct name_list *names)
{
    bool has_manifest = false, is_pending = false;
    char last[SAVE_ID_HEX] = ""; /* of the names, which are sorted */

    for (size_t i = 0; i < names->count; i++) {
        struct file_name name = file_name_parse(names->names[i]);
        has_manifest |= name.kind == FILE_NAME_MANIFEST;
        is_pending |= name.kind == FILE_NAME_PENDING;
        if (strcmp(name.save_id, last) == 0)
            continue;
        memcpy(last, name.save_id, sizeof(last));
        is_pending = is_pending || has_object_marker(dir, last);
    }
    return is_pending ? NOT_ENDED : has_manifest ? ENDED : NO_SAVE;
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
    TRY(check_no_part(dir, err));
    one = find_checkpoint(dir, &names);
    enum ending ending = find_ending(dir, &names);
    if (ending == ENDED)
        return FAIL(err, SIDESTEP_EUNCOMMITTED,
                    "its %s is missing ('sidestep rebuild' makes a new one)", FILE_NAME_METADATA);
    if (ending == NOT_ENDED)
        return FAIL(err, SIDESTEP_EUNCOMMITTED,
                    "the save or copy to it has not ended: it is under way, or failed or was "
                    "killed ('sidestep gc' removes what such ones have left)");
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
           name_list_read(dir, &names, NULL) == SIDESTEP_OK && find_ending(dir, &names) == ENDED;
}
