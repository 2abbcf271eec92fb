/* SPDX-License-Identifier: BSD-3-Clause */
/* object_delete.c -- deletes a checkpoint on an object store; see object_delete.h. */
#include "commit/object_delete.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/extra_files.h"
#include "commit/name_list.h"
#include "commit/object_form.h"

#define IS_PENDING "a save to it is under way, or ended less than an hour ago"
#define HAS_OTHERS "it holds files that sidestep did not write, or a save"
#define WAS_REPLACED "another save has replaced it meanwhile"

void object_deletion_release(struct object_deletion *deletion)
{
    referenced_files_release(&deletion->named);
    buffer_release(&deletion->metadata);
    arena_release(&deletion->arena);
    store_dir_close(TAKE(deletion->dir));
    free(deletion->keys);
    *deletion = (struct object_deletion){0};
}

/* The id of the save that object ${name} belongs to: a shard, a manifest, or an object below
 * OBJECT_SAVES_DIR. "": no save. */
static void save_id_of(const char *name, char save_id[SAVE_ID_HEX])
{
    save_id[0] = '\0';
    if (object_record_find(name, save_id) == OBJECT_RECORD_NONE)
        memcpy(save_id, file_name_parse(name).save_id, SAVE_ID_HEX);
}

static bool is_ours(const char *name)
{
    char save_id[SAVE_ID_HEX];

    save_id_of(name, save_id);
    return strcmp(name, FILE_NAME_METADATA) == 0 || save_id[0] != '\0' ||
           file_name_parse(name).kind != FILE_NAME_NONE;
}

static bool add_key(struct object_deletion *deletion, const char *name,
                    const struct object_info *info)
{
    if (deletion->count == deletion->capacity) {
        size_t capacity = deletion->capacity != 0 ? 2 * deletion->capacity : 16;
        struct object_deletion_key *keys = memory_resize(deletion->keys, capacity, sizeof(*keys));
        if (keys == NULL)
            return false;
        deletion->keys = keys;
        deletion->capacity = capacity;
    }
    struct object_deletion_key key = {
        .name = arena_strndup(&deletion->arena, name, strlen(name)),
        .tag = arena_strndup(&deletion->arena, info->tag, strlen(info->tag)),
        .bytes = info->bytes,
    };
    deletion->keys[deletion->count++] = key;
    return key.name != NULL && key.tag != NULL;
}

/* Add one listed key. */
static bool add_listed(void *context, const struct object_info *info)
{
    struct object_deletion *deletion = context;
    const char *name = info->key + strlen(object_store_prefix(deletion->dir));
    char save_id[SAVE_ID_HEX];

    if (!is_ours(name))
        deletion->has_others = true;
    else if (object_record_find(name, save_id) == OBJECT_RECORD_MARKER &&
             !fault_hit("object.pending") &&
             (info->now == 0 || info->now - info->modified <= OBJECT_DEAD_SECONDS))
        deletion->objection = IS_PENDING;
    deletion->no_memory = !add_key(deletion, name, info);
    return deletion->objection == NULL && !deletion->no_memory;
}

/* Does a manifest list all names that are not ours?  A copy has small files under their own names:
 * these have the same bytes. */
static enum sidestep_status check_others(struct object_deletion *deletion,
                                         struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_EXTRA_LISTED listed = {0};

    for (size_t i = 0; i < deletion->count; i++)
        TRY(name_list_add(&names, deletion->keys[i].name, err));
    enum sidestep_status status = extra_listed_read(deletion->dir, &names, &listed);
    if (status != SIDESTEP_OK)
        return FAIL(err, status, "read its manifest");
    for (size_t i = 0; i < deletion->count; i++)
        if (!is_ours(names.names[i]) && !extra_listed_owns(deletion->dir, &listed, names.names[i]))
            return FAIL(err, SIDESTEP_ELOCKED, HAS_OTHERS);
    return SIDESTEP_OK;
}

static enum sidestep_status metadata_key(const struct object_deletion *deletion,
                                         char key[OBJECT_KEY_BYTES], struct sidestep_error *err)
{
    int used = snprintf(key, OBJECT_KEY_BYTES, "%s%s", object_store_prefix(deletion->dir),
                        FILE_NAME_METADATA);

    return used > 0 && (size_t)used < OBJECT_KEY_BYTES
               ? SIDESTEP_OK
               : error_set(err, SIDESTEP_EINVAL, ENAMETOOLONG, HERE, "the key of %s",
                           FILE_NAME_METADATA);
}

/* Read .metadata, and find out which save it belongs to. */
static enum sidestep_status identify(struct object_deletion *deletion, const char *save_id,
                                     struct sidestep_error *err)
{
    struct object_client *client = object_store_client(deletion->dir->store);
    struct object_info info = {0};
    char key[OBJECT_KEY_BYTES];

    TRY(metadata_key(deletion, key, err));
    TRY(client->ops->get_all(client, key, DCP_METADATA_MAX_BYTES, &deletion->metadata, &info, err));
    memcpy(deletion->tag, info.tag, sizeof(deletion->tag));
    enum sidestep_status status =
        referenced_files_parse(deletion->dir, &deletion->metadata, &deletion->named);
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, deletion->metadata.length);
    if (status != SIDESTEP_OK && save_id != NULL)
        return FAIL(err, status, "its %s cannot be read, so it is not known which save it is",
                    FILE_NAME_METADATA);
    if (save_id != NULL &&
        (deletion->named.save_id == NULL || strcmp(deletion->named.save_id, save_id) != 0))
        return FAIL(err, SIDESTEP_ELOCKED, WAS_REPLACED);
    return SIDESTEP_OK;
}

enum sidestep_status object_delete_look(struct store_dir *root, const char *name,
                                        const char *save_id, struct object_deletion *deletion,
                                        struct sidestep_error *err)
{
    struct object_client *client = object_store_client(root->store);

    assert(deletion->dir == NULL && deletion->count == 0);
    TRY(store_dir_open(root->store, root, name, &deletion->dir, err));
    TRY(client->ops->list(client, object_store_prefix(deletion->dir), 0, NULL, 0, add_listed,
                          deletion, err));
    if (deletion->no_memory)
        return FAIL_NOMEM(err, deletion->capacity);
    if (deletion->objection != NULL)
        return FAIL(err, SIDESTEP_ELOCKED, "%s", deletion->objection);
    if (deletion->has_others)
        TRY(check_others(deletion, err));
    return identify(deletion, save_id, err);
}

/* Does key ${index} belong to the checkpoint, and not to a dead save beside it? */
static bool is_part(const struct object_deletion *deletion, size_t index)
{
    const char *name = deletion->keys[index].name, *own = deletion->named.save_id;
    char save_id[SAVE_ID_HEX];

    assert(index < deletion->count);
    save_id_of(name, save_id);
    return strcmp(name, FILE_NAME_METADATA) == 0 ||
           hash_table_find(&deletion->named.files, name) != SIZE_MAX ||
           (own != NULL && save_id[0] != '\0' && strcmp(save_id, own) == 0);
}

uint64_t object_delete_bytes(const struct object_deletion *deletion)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < deletion->count; i++)
        if (is_part(deletion, i))
            bytes += deletion->keys[i].bytes;
    return bytes;
}

/* Delete ${key} if it has the version ${tag}. */
static enum sidestep_status delete_version(struct object_deletion *deletion, const char *key,
                                           const char *tag, struct sidestep_error *err)
{
    struct object_client *client = object_store_client(deletion->dir->store);
    const char *const keys[] = {key};
    struct object_info info = {0};

    if (fault_hit("object.delete_version")) /* a negative control: tests must notice it */
        return client->ops->delete_keys(client, keys, 1, err);
    enum sidestep_status status = client->ops->delete_version(client, key, tag, err);
    if (status != SIDESTEP_EUNSUPPORTED)
        return status;
    /* The weaker form: compare, and delete right after it. */
    status = client->ops->head(client, key, &info, err);
    if (status == SIDESTEP_OK && strcmp(info.tag, tag) != 0)
        return FAIL(err, SIDESTEP_EEXISTS, WAS_REPLACED);
    return status == SIDESTEP_OK ? client->ops->delete_keys(client, keys, 1, err) : status;
}

/* Is .metadata still there? ENOTFOUND: no. EEXISTS: there is another version. EIO: it is there, or
 * storage does not tell. */
static enum sidestep_status check_deleted(struct object_deletion *deletion, const char *key,
                                          struct sidestep_error *err)
{
    struct object_client *client = object_store_client(deletion->dir->store);
    struct object_info info = {0};
    enum sidestep_status status = client->ops->head(client, key, &info, err);

    if (status == SIDESTEP_OK && strcmp(info.tag, deletion->tag) != 0)
        return SIDESTEP_EEXISTS;
    return status == SIDESTEP_OK
               ? FAIL(err, SIDESTEP_EIO, "it is still there, though the store says it is deleted")
               : status;
}

enum sidestep_status object_delete_hide(struct object_deletion *deletion,
                                        struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1}, now_why = {.rank = -1};
    char key[OBJECT_KEY_BYTES];

    assert(deletion->dir != NULL && deletion->objection == NULL);
    if (fault_hit("object.delete_order")) { /* a negative control: tests must notice it */
        return object_delete_rest(deletion, NULL, err);
    }
    TRY(metadata_key(deletion, key, err));
    enum sidestep_status status = delete_version(deletion, key, deletion->tag, &why);
    /* Whatever the answer was: if .metadata is there, the rest must stay. */
    enum sidestep_status now = check_deleted(deletion, key, &now_why);
    if (now == SIDESTEP_ENOTFOUND || (now == SIDESTEP_EEXISTS && status == SIDESTEP_OK))
        return SIDESTEP_OK;
    if (now == SIDESTEP_EEXISTS)
        return FAIL(err, SIDESTEP_ELOCKED, WAS_REPLACED);
    error_copy(err, status != SIDESTEP_OK ? &why : &now_why);
    error_wrap(err, "delete its %s, which may have happened; delete the checkpoint again",
               FILE_NAME_METADATA);
    return status != SIDESTEP_OK ? status : now;
}

enum sidestep_status object_delete_restore(struct object_deletion *deletion,
                                           struct sidestep_error *err)
{
    struct object_client *client = object_store_client(deletion->dir->store);
    const struct object_condition absent = {.if_absent = true};
    const struct buffer *metadata = &deletion->metadata;
    struct sidestep_error why = {.rank = -1};
    char key[OBJECT_KEY_BYTES];

    assert(deletion->dir != NULL && deletion->objection == NULL);
    TRY(metadata_key(deletion, key, err));
    enum sidestep_status status =
        client->ops->put(client, key, metadata->bytes, metadata->length, &absent, NULL, &why);
    if (status == SIDESTEP_EUNSUPPORTED)
        return client->ops->put(client, key, metadata->bytes, metadata->length, NULL, NULL, err);
    if (status != SIDESTEP_OK)
        error_copy(err, &why);
    return status;
}

static bool is_manifest(const char *name)
{
    return file_name_parse(name).kind == FILE_NAME_MANIFEST;
}

/* May a copy of another checkpoint have a file of the same name? */
static bool is_shared(const char *name)
{
    char save_id[SAVE_ID_HEX];

    save_id_of(name, save_id);
    return save_id[0] == '\0';
}

/* The deletion of the files: keys for one request, and how it went so far. */
struct rest {
    struct object_deletion *deletion;
    const char *keys[OBJECT_MAX_LISTED];
    size_t count;
    uint64_t bytes;      /* of these keys */
    uint64_t left_bytes; /* of files that stay */
    enum sidestep_status status;
    struct sidestep_error why; /* of the first failure */
};

static void note_deleted(struct rest *rest, enum sidestep_status status, uint64_t bytes,
                         const struct sidestep_error *why)
{
    if (status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND)
        return;
    rest->left_bytes += bytes;
    if (rest->status != SIDESTEP_OK)
        return;
    rest->status = status;
    rest->why = *why;
}

/* Delete files of the copy of a checkpoint that was saved on a file system. As soon as .metadata is
 * gone, another copy may be put to this name, and a request may arrive late. So each has a
 * condition. */
static void delete_shared(struct rest *rest)
{
    struct object_deletion *deletion = rest->deletion;
    const char *prefix = object_store_prefix(deletion->dir);

    for (size_t i = 0; i < deletion->count; i++) {
        const char *name = deletion->keys[i].name;
        struct sidestep_error why = {.rank = -1};
        if (strcmp(name, FILE_NAME_METADATA) == 0 || !is_shared(name) || !is_part(deletion, i))
            continue;
        const char *key = arena_printf(&deletion->arena, "%s%s", prefix, name);
        enum sidestep_status status =
            key != NULL ? delete_version(deletion, key, deletion->keys[i].tag, &why)
                        : FAIL_NOMEM(&why, strlen(name));
        if (status != SIDESTEP_EEXISTS) /* what replaced it is not ours to delete */
            note_deleted(rest, status, deletion->keys[i].bytes, &why);
    }
}

static void flush(struct rest *rest)
{
    struct object_client *client = object_store_client(rest->deletion->dir->store);
    struct sidestep_error why = {.rank = -1};

    if (rest->count != 0)
        note_deleted(rest, client->ops->delete_keys(client, rest->keys, rest->count, &why),
                     rest->bytes, &why);
    rest->count = rest->bytes = 0;
}

/* Delete the parts of the checkpoint whose keys nobody else uses: the manifests, or all others. */
static void delete_own(struct rest *rest, bool manifests)
{
    struct object_deletion *deletion = rest->deletion;
    const char *prefix = object_store_prefix(deletion->dir);

    for (size_t i = 0; i < deletion->count; i++) {
        const char *name = deletion->keys[i].name;
        struct sidestep_error why = {.rank = -1};
        if (is_shared(name) || !is_part(deletion, i) || is_manifest(name) != manifests)
            continue;
        const char *key = arena_printf(&deletion->arena, "%s%s", prefix, name);
        if (key == NULL) {
            note_deleted(rest, FAIL_NOMEM(&why, strlen(name)), deletion->keys[i].bytes, &why);
            continue;
        }
        rest->keys[rest->count++] = key;
        rest->bytes += deletion->keys[i].bytes;
        if (rest->count == OBJECT_MAX_LISTED)
            flush(rest);
    }
    flush(rest);
}

enum sidestep_status object_delete_rest(struct object_deletion *deletion, uint64_t *bytes,
                                        struct sidestep_error *err)
{
    struct rest rest = {.deletion = deletion};

    assert(deletion->dir != NULL && deletion->objection == NULL);
    delete_shared(&rest);
    delete_own(&rest, false);
    delete_own(&rest, true);
    if (bytes != NULL)
        *bytes -= min_u64(*bytes, rest.left_bytes);
    if (rest.status == SIDESTEP_OK)
        return SIDESTEP_OK;
    error_copy(err, &rest.why);
    return rest.status;
}
