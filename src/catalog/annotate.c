/* SPDX-License-Identifier: BSD-3-Clause */
/* annotate.c -- sets and removes pins and tags for a user, and checks that the checkpoint still
 * exists. */
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "catalog/annotations.h"
#include "catalog/list.h"
#include "object/object.h"

/* The checkpoint to annotate, and the directory of annotations of its root. */
struct annotation_target {
    struct commit path;
    struct store_dir *dir;
    bool has_id;
    char save_id[SAVE_ID_HEX];
};

static void annotation_target_release(struct annotation_target *m)
{
    store_dir_close(m->dir);
    commit_close(&m->path);
    object_path_close(&m->path.store);
}

/* Find the save id of the checkpoint that is now at the path. A listing knows every form. */
static enum sidestep_status find_save_id(struct annotation_target *m, bool *has_id,
                                         char save_id[SAVE_ID_HEX], struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    char root[COMMIT_PATH_BYTES];
    size_t length = strlen(m->path.path) - strlen(m->path.name);

    memcpy(root, m->path.path, length);
    root[length > 1 ? length - 1 : length] = '\0';
    TRY(list_root(m->path.store, root, 0, &list, err));
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        if (strcmp(entry->name, m->path.name) != 0)
            continue;
        TRY(list_check_readable(entry, err));
        if (entry->state != SIDESTEP_COMMITTED)
            return FAIL(err, SIDESTEP_ENOTFOUND, "it is %s%s%s", entry->state_name,
                        entry->reason != NULL ? ": " : "",
                        entry->reason != NULL ? entry->reason : "");
        *has_id = entry->save_id != NULL;
        if (*has_id)
            memcpy(save_id, entry->save_id, SAVE_ID_HEX);
        return SIDESTEP_OK;
    }
    return FAIL(err, SIDESTEP_ENOTFOUND, "there is no checkpoint");
}

static enum sidestep_status annotation_target_open(struct annotation_target *m, const char *path,
                                                   struct sidestep_error *err)
{
    struct store_dir *parent;

    TRY(object_path_open(path, &m->path.store, err));
    TRY(commit_open(&m->path, path, err));
    TRY(find_save_id(m, &m->has_id, m->save_id, err));
    parent = m->path.parent;
    enum sidestep_status status = store_dir_make(parent, FILE_NAME_SERIES_DIR, err);
    if (status == SIDESTEP_OK)
        status = store_dir_sync(parent, err);
    if (status != SIDESTEP_OK && status != SIDESTEP_EEXISTS)
        return status;
    return store_dir_open(m->path.store, parent, FILE_NAME_SERIES_DIR, &m->dir, err);
}

/* Check that the checkpoint was not replaced. Retention may have deleted it before the annotation
 * was set. */
static enum sidestep_status check_unchanged(struct annotation_target *m, struct sidestep_error *err)
{
    char now[SAVE_ID_HEX];
    bool has_id;

    TRY(find_save_id(m, &has_id, now, err));
    if (has_id != m->has_id || (has_id && strcmp(now, m->save_id) != 0))
        return FAIL(err, SIDESTEP_ENOTFOUND, "it was replaced meanwhile");
    return SIDESTEP_OK;
}

static enum sidestep_status annotate(enum annotation_kind kind, const char *path, const char *tag,
                                     bool on, struct sidestep_error *err)
{
    OWNED_BY(annotation_target_release) struct annotation_target m = {0};

    if (path == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "path is NULL");
    if (kind == ANNOTATION_TAG && !annotations_is_valid_word(tag))
        return FAIL(err, SIDESTEP_EINVAL,
                    "tag '%s': it must be 1 to %u letters, digits, '_' or '-'",
                    tag != NULL ? tag : "", ANNOTATIONS_MAX_WORD);
    TRY(annotation_target_open(&m, path, err));
    if (!on)
        return annotations_remove(m.dir, kind, tag, m.path.name, err);
    TRY(annotations_set(m.dir, kind, tag, m.path.name, m.has_id ? m.save_id : NULL, NULL, err));
    enum sidestep_status status = check_unchanged(&m, err);
    if (status != SIDESTEP_OK)
        (void)annotations_remove(m.dir, kind, tag, m.path.name, NULL);
    return status;
}

enum sidestep_status sidestep_pin(const char *path, bool on, struct sidestep_error *err)
{
    return WRAP(annotate(ANNOTATION_PIN, path, NULL, on, err), err, "%s '%s'", on ? "pin" : "unpin",
                path != NULL ? path : "");
}

enum sidestep_status sidestep_tag(const char *path, const char *tag, bool on,
                                  struct sidestep_error *err)
{
    return WRAP(annotate(ANNOTATION_TAG, path, tag, on, err), err, "tag '%s'",
                path != NULL ? path : "");
}
