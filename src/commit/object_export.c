/* SPDX-License-Identifier: BSD-3-Clause */
/* object_export.c -- begins and publishes an export; see object_export.h. */
#include "commit/object_export.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "commit/object_form.h"

static struct object_client *client_of(const struct object_export *e)
{
    return object_commit_client(e->commit);
}

/* ---- 1 begin */

/* The state of listing what the directory holds. */
struct look {
    struct object_export *e;
    size_t prefix_length;
    struct name_list exporting; /* ids that have a marker */
    enum sidestep_status status;
    struct sidestep_error *err;
};

static void release_look(struct look *look)
{
    name_list_release(&look->exporting);
}

/* Keep the id of "<id>/export" below OBJECT_SAVES_DIR. These are listed before the files, because
 * '.' is before 'm'. */
static enum sidestep_status add_marker(struct look *look, const char *rest)
{
    char id[SAVE_ID_HEX];

    if (strlen(rest) < SAVE_ID_HEX || strcmp(rest + SAVE_ID_HEX - 1, "/" OBJECT_EXPORT_MARKER) != 0)
        return SIDESTEP_OK;
    snprintf(id, sizeof(id), "%.*s", (int)SAVE_ID_HEX - 1, rest);
    return name_list_add(&look->exporting, id, look->err);
}

/* Decide about one key. Files of an export that is not published do not matter. */
static enum sidestep_status check_key(struct look *look, const char *key)
{
    struct object_export *e = look->e;
    const char *name = key + look->prefix_length;
    char id[SAVE_ID_HEX] = "";

    if (strncmp(name, OBJECT_SAVES_DIR, strlen(OBJECT_SAVES_DIR)) == 0)
        return add_marker(look, name + strlen(OBJECT_SAVES_DIR));
    bool has_id = object_export_parse(name, id);
    if (has_id && (!e->replace || name_list_contains(&look->exporting, id)))
        return SIDESTEP_OK;
    if (!e->replace)
        return FAIL(look->err, SIDESTEP_EEXISTS, "'%s' exists and is not empty: it holds '%s'",
                    e->commit->path, display_name(name).text);
    if (strchr(name, '/') != NULL || !e->is_known(name))
        return FAIL(look->err, SIDESTEP_EEXISTS,
                    "'%s' is not replaced: it holds '%s', which no conversion makes",
                    e->commit->path, display_name(name).text);
    TRY(name_list_add(&e->replaced, key, look->err));
    if (has_id && !name_list_contains(&e->replaced_ids, id))
        return name_list_add(&e->replaced_ids, id, look->err);
    return SIDESTEP_OK;
}

static bool look_at_key(void *context, const struct object_info *info)
{
    struct look *look = context;

    look->status = check_key(look, info->key);
    return look->status == SIDESTEP_OK;
}

static enum sidestep_status look_at_directory(struct object_export *e, struct sidestep_error *err)
{
    OWNED_BY(release_look) struct look look = {.e = e, .err = err};
    struct object_client *client = client_of(e);
    char prefix[OBJECT_KEY_BYTES];

    object_key(e->commit, "", prefix);
    look.prefix_length = strlen(prefix);
    TRY(client->ops->list(client, prefix, 0, NULL, 0, look_at_key, &look, err));
    return look.status;
}

static enum sidestep_status put_marker(struct object_export *e, const char *id, const char *text,
                                       char key[OBJECT_KEY_BYTES], struct sidestep_error *err)
{
    struct object_client *client = client_of(e);
    char name[sizeof(OBJECT_SAVES_DIR) + SAVE_ID_HEX + sizeof(OBJECT_EXPORT_MARKER)];

    snprintf(name, sizeof(name), OBJECT_SAVES_DIR "%s/" OBJECT_EXPORT_MARKER, id);
    object_key(e->commit, name, key);
    return client->ops->put(client, key, text, strlen(text), NULL, NULL, err);
}

enum sidestep_status object_export_begin(struct object_export *e, const char *url,
                                         const uint8_t id[SAVE_ID_BYTES],
                                         struct sidestep_error *err)
{
    struct commit *commit = e->commit;
    char text[512], key[OBJECT_KEY_BYTES];

    TRY(commit_open(commit, url, err));
    commit_set_save_id(commit, id);
    TRY(store_dir_open(commit->store, commit->parent, commit->name, &commit->dir, err));
    object_sweep_dead(commit->dir, NULL);
    if (!e->is_file)
        TRY(look_at_directory(e, err));
    object_describe_marker(commit, text, sizeof(text));
    TRY(put_marker(e, commit->save_id, text, key, err));
    return object_keeper_start(client_of(e), key, text, commit->clock, &commit->objects->keeper,
                               err);
}

/* ---- 2 files */

/* The key of a file: in the directory of the export, or NAME itself. */
static enum sidestep_status key_of(const struct object_export *e, const char *name,
                                   char key[OBJECT_KEY_BYTES], struct sidestep_error *err)
{
    return object_store_key(e->is_file ? e->commit->parent : e->commit->dir, name, key, err);
}

static enum sidestep_status look_at_head(struct object_export *e, struct sidestep_error *err)
{
    struct object_client *client = client_of(e);
    struct sidestep_error why = {.rank = -1};
    struct object_info info;

    enum sidestep_status status = client->ops->head(client, e->head_key, &info, &why);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    if (!e->replace)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' exists", e->commit->path);
    memcpy(e->head_tag, info.tag, sizeof(e->head_tag));
    return SIDESTEP_OK;
}

enum sidestep_status object_export_create(struct object_export *e, const char *name, bool is_head,
                                          struct store_file **file, struct sidestep_error *err)
{
    struct commit *commit = e->commit;
    struct store_dir *dir = e->is_file ? commit->parent : commit->dir;

    assert(commit->objects->keeper != NULL);
    if (!is_head)
        return store_file_create(dir, name, 0, file, err);
    assert(e->head_key[0] == '\0');
    TRY(key_of(e, name, e->head_key, err));
    TRY(look_at_head(e, err));
    TRY(store_file_create(dir, name, 0, file, err));
    struct object_condition condition = {.if_absent = e->head_tag[0] == '\0',
                                         .if_tag = e->head_tag[0] != '\0' ? e->head_tag : NULL,
                                         .maker = commit->save_id};
    object_store_set_condition(*file, &condition);
    return SIDESTEP_OK;
}

enum sidestep_status object_export_seal(struct object_export *e, bool is_head,
                                        struct store_file *file, struct sidestep_error *err)
{
    OWNED_FILE *owned = file;

    if (is_head) {
        TRY(object_store_flush(owned, err));
        e->head = TAKE(owned);
        return SIDESTEP_OK;
    }
    TRY(store_file_sync(owned, err));
    return store_file_close(TAKE(owned), err);
}

/* ---- 3 replace, 4 publish */

/* Put markers, so that a sweep deletes what this replaces if the process is killed. */
static enum sidestep_status mark_replaced(struct object_export *e, struct sidestep_error *err)
{
    char key[OBJECT_KEY_BYTES];

    for (size_t i = 0; i < e->replaced_ids.count; i++)
        TRY(put_marker(e, e->replaced_ids.names[i], "replaced\n", key, err));
    return SIDESTEP_OK;
}

static enum sidestep_status refuse(const struct object_export *e, struct sidestep_error *err)
{
    return FAIL(err, SIDESTEP_EEXISTS,
                "'%s' was made, replaced or deleted by another process meanwhile: it stays as it "
                "is, and nothing was published; look at it, then convert again",
                e->commit->path);
}

/* Compare the head with what it was. Stores without conditions have only this check. */
static enum sidestep_status compare(const struct object_export *e, struct sidestep_error *err)
{
    struct object_client *client = client_of(e);
    struct sidestep_error why = {.rank = -1};
    struct object_info info = {0};

    enum sidestep_status status = client->ops->head(client, e->head_key, &info, &why);
    if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND)
        return error_copy(err, &why);
    return strcmp(info.tag, e->head_tag) == 0 ? SIDESTEP_OK : refuse(e, err);
}

/* The put of the head was refused or not answered. It succeeded if the head names this export as
 * its maker. */
static enum sidestep_status read_head_back(struct object_export *e,
                                           const struct sidestep_error *why,
                                           struct sidestep_error *err)
{
    struct object_client *client = client_of(e);
    struct object_info info = {0};

    enum sidestep_status status = client->ops->head(client, e->head_key, &info, NULL);
    if (status == SIDESTEP_OK && strcmp(info.maker, e->commit->save_id) == 0)
        return SIDESTEP_OK;
    if (!object_is_unanswered((enum sidestep_status)why->status) &&
        (status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND))
        return refuse(e, err);
    e->stays = true;
    error_copy(err, why);
    error_wrap(err,
               "the store did not answer, but '%s' may be there: look at it, or convert again "
               "to another name",
               e->commit->path);
    return SIDESTEP_EUNKNOWN;
}

static enum sidestep_status put_head(struct object_export *e, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status = store_file_sync(e->head, &why);

    if (status == SIDESTEP_OK)
        return SIDESTEP_OK;
    if (status == SIDESTEP_EEXISTS || status == SIDESTEP_ENOTFOUND || object_is_unanswered(status))
        return read_head_back(e, &why, err);
    return error_copy(err, &why);
}

/* Delete the replaced files at once, because readers may prefer one of them to the new head. */
static enum sidestep_status delete_replaced(struct object_export *e, struct sidestep_error *err)
{
    struct object_client *client = client_of(e);
    enum sidestep_status status = SIDESTEP_OK;
    const char *keys[OBJECT_MAX_LISTED];
    size_t count = 0;

    for (size_t i = 0; i < e->replaced.count && status == SIDESTEP_OK; i++) {
        if (strcmp(e->replaced.names[i], e->head_key) != 0)
            keys[count++] = e->replaced.names[i];
        if (count == 0 || (count < OBJECT_MAX_LISTED && i + 1 < e->replaced.count))
            continue;
        status = client->ops->delete_keys(client, keys, count, err);
        count = 0;
    }
    return WRAP(status, err, "'%s' is there, but files that it replaces could not be deleted",
                e->commit->path);
}

struct uploads {
    const char *key;
    bool is_there;
};

static bool note_upload(void *context, const struct object_info *info, const char *id UNUSED)
{
    struct uploads *uploads = context;

    uploads->is_there = strcmp(info->key, uploads->key) == 0;
    return !uploads->is_there;
}

/* Is there another upload to the key of the head? There is, if the answer to the first request was
 * lost, and it does not tell whose it is. Then the marker stays, and a sweep aborts it in an hour.
 */
static bool has_uploads(struct object_export *e)
{
    struct object_client *client = client_of(e);
    struct uploads uploads = {.key = e->head_key};

    if (e->head_key[0] != '\0')
        (void)client->ops->upload_list(client, e->head_key, note_upload, &uploads, NULL);
    return uploads.is_there;
}

/* Delete the markers of what was replaced, and last that of this export. Best effort. */
static void delete_markers(struct object_export *e)
{
    struct object_client *client = client_of(e);
    char name[FILE_NAME_BYTES], key[OBJECT_KEY_BYTES];
    const char *const keys[] = {key};

    object_keeper_stop(&e->commit->objects->keeper);
    size_t count = e->replaced_ids.count + !has_uploads(e);
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), OBJECT_SAVES_DIR "%s/" OBJECT_EXPORT_MARKER,
                 i < e->replaced_ids.count ? e->replaced_ids.names[i] : e->commit->save_id);
        object_key(e->commit, name, key);
        (void)client->ops->delete_keys(client, keys, 1, NULL);
    }
}

enum sidestep_status object_export_publish(struct object_export *e, struct sidestep_error *err)
{
    assert(e->head != NULL && e->commit->objects->keeper != NULL);
    TRY(mark_replaced(e, err));
    TRY(compare(e, err));
    TRY(object_check_lease(e->commit, err));
    TRY(put_head(e, err));
    store_file_discard(TAKE(e->head));
    e->stays = true;
    TRY(delete_replaced(e, err));
    delete_markers(e);
    return SIDESTEP_OK;
}

void object_export_end(struct object_export *e)
{
    struct commit *commit = e->commit;

    store_file_discard(TAKE(e->head));
    if (commit->dir != NULL && commit->objects->keeper != NULL) {
        object_keeper_stop(&commit->objects->keeper);
        if (!e->stays && !has_uploads(e))
            object_sweep_save(commit->dir, commit->save_id);
    }
    name_list_release(&e->replaced);
    name_list_release(&e->replaced_ids);
    commit_close(commit);
}
