/* SPDX-License-Identifier: BSD-3-Clause */
/* owner.c -- reads the owner of a save; see owner.h. Gives the same answer as sweep.c, which takes
 * the lock. */
#include "commit/owner.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "commit/object_form.h"

/* On object stores a save is dead if its marker was not put again for long (object_form.h). */
static enum sidestep_status read_object(struct store_dir *dir, const char *save_id,
                                        struct owner *owner, struct sidestep_error *err)
{
    struct object_client *client = object_store_client(dir->store);
    OWNED_FILE *file = NULL;
    struct object_info info = {0};
    char name[FILE_NAME_BYTES], key[OBJECT_KEY_BYTES];

    snprintf(name, sizeof(name), OBJECT_SAVES_DIR "%s/pending", save_id);
    snprintf(key, sizeof(key), "%s%s", object_store_prefix(dir), name);
    TRY(client->ops->head(client, key, &info, err));
    TRY(store_file_open(dir, name, 0, &file, err));
    TRY(commit_marker_read(file, &owner->marker, err));
    owner->is_dead = info.now != 0 && info.now - info.modified > OBJECT_DEAD_SECONDS;
    return SIDESTEP_OK;
}

/* The saves below OBJECT_SAVES_DIR. */
static enum sidestep_status find_objects(struct store_dir *dir, struct name_list *save_ids,
                                         struct sidestep_error *err)
{
    OWNED_NAMES struct name_list ids = {0};
    OWNED_DIR *saves = NULL;
    struct store_stat stat;

    TRY(store_dir_open(dir->store, dir, FILE_NAME_SERIES_DIR, &saves, err));
    TRY(name_list_read(saves, &ids, err));
    for (size_t i = 0; i < ids.count; i++) {
        char name[FILE_NAME_BYTES];
        if (strspn(ids.names[i], "0123456789abcdef") != SAVE_ID_HEX - 1 ||
            strlen(ids.names[i]) != SAVE_ID_HEX - 1)
            continue;
        snprintf(name, sizeof(name), "%s/pending", ids.names[i]);
        if (store_stat(saves, name, &stat, NULL) == SIDESTEP_OK)
            TRY(name_list_add(save_ids, ids.names[i], err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status owner_find_saves(struct store_dir *dir, const struct name_list *names,
                                      struct name_list *save_ids, struct sidestep_error *err)
{
    bool is_bucket = object_store_client(dir->store) != NULL;

    for (size_t i = 0; i < names->count; i++) {
        struct file_name parsed = file_name_parse(names->names[i]);
        if (is_bucket && strcmp(names->names[i], FILE_NAME_SERIES_DIR) == 0)
            TRY(find_objects(dir, save_ids, err));
        else if (parsed.kind == FILE_NAME_PENDING)
            TRY(name_list_add(save_ids, parsed.save_id, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status owner_read(struct store_dir *dir, const char *save_id, struct owner *owner,
                                struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;
    char name[FILE_NAME_BYTES];
    bool is_locked = true;

    *owner = (struct owner){.marker.step = -1};
    if (object_store_client(dir->store) != NULL)
        return read_object(dir, save_id, owner, err);
    file_name_format(FILE_NAME_PENDING, save_id, 0, 0, name);
    enum sidestep_status status = store_file_open(dir, name, 0, &file, err);
    if (status == SIDESTEP_ENOTFOUND) {
        owner->is_dead = !commit_marker_is_elsewhere(dir, &owner->marker);
        return SIDESTEP_OK;
    }
    TRY(status);
    TRY(commit_marker_read(file, &owner->marker, err));
    if (store_file_is_locked(file, &is_locked, NULL) == SIDESTEP_OK && !is_locked)
        owner->is_dead = !commit_marker_is_elsewhere(dir, &owner->marker);
    return SIDESTEP_OK;
}
