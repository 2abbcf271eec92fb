/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket_owner.c -- see owner.h: reads the owner of a save in a bucket. A save is dead if its
 * marker was not put again for OBJECT_DEAD_SECONDS (commit/object_form.h). */
#include "root/bucket.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "object/object.h"

enum sidestep_status bucket_read_owner(struct store_dir *dir, const char *save_id,
                                       struct owner *owner, struct sidestep_error *err)
{
    struct object_client *client = object_store_client(dir->store);
    OWNED_FILE *file = NULL;
    struct object_info info = {0};
    char name[FILE_NAME_BYTES], key[OBJECT_KEY_BYTES];

    *owner = (struct owner){.marker.step = -1};
    snprintf(name, sizeof(name), OBJECT_SAVES_DIR "%s/pending", save_id);
    snprintf(key, sizeof(key), "%s%s", object_store_prefix(dir), name);
    TRY(client->ops->head(client, key, &info, err));
    TRY(store_file_open(dir, name, 0, &file, err));
    TRY(commit_marker_read(file, &owner->marker, err));
    owner->is_dead = info.now != 0 && info.now - info.modified > OBJECT_DEAD_SECONDS;
    return SIDESTEP_OK;
}

/* Add the saves with a marker below OBJECT_SAVES_DIR. */
static enum sidestep_status find_below(struct store_dir *dir, struct name_list *save_ids,
                                       struct sidestep_error *err)
{
    OWNED_NAMES struct name_list ids = {0};
    OWNED_DIR *saves = NULL;
    struct store_stat stat;

    TRY(store_dir_open(dir->store, dir, FILE_NAME_SERIES_DIR, &saves, err));
    TRY(name_list_read(saves, &ids, err));
    for (size_t i = 0; i < ids.count; i++) {
        char name[FILE_NAME_BYTES];
        if (!file_name_is_save_id(ids.names[i]))
            continue;
        snprintf(name, sizeof(name), "%s/pending", ids.names[i]);
        if (store_stat(saves, name, &stat, NULL) == SIDESTEP_OK)
            TRY(name_list_add(save_ids, ids.names[i], err));
    }
    return SIDESTEP_OK;
}

/* A save has its marker below OBJECT_SAVES_DIR. The root may also be a copy of a directory, with
 * markers at their places there. */
enum sidestep_status bucket_find_saves(struct store_dir *dir, const struct name_list *names,
                                       struct name_list *save_ids, struct sidestep_error *err)
{
    for (size_t i = 0; i < names->count; i++) {
        struct file_name parsed = file_name_parse(names->names[i]);
        if (strcmp(names->names[i], FILE_NAME_SERIES_DIR) == 0)
            TRY(find_below(dir, save_ids, err));
        else if (parsed.kind == FILE_NAME_PENDING)
            TRY(name_list_add(save_ids, parsed.save_id, err));
    }
    return SIDESTEP_OK;
}
