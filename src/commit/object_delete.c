/* SPDX-License-Identifier: BSD-3-Clause */
/* object_delete.c -- deletes a checkpoint on an object store; see object_delete.h. */
#include "commit/object_delete.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/object_form.h"

#define IS_PENDING "a save to it is under way, or ended less than an hour ago"
#define HAS_OTHERS "it holds files that are not ours, or a save"
#define WAS_REPLACED "another save has replaced it meanwhile"

void object_doomed_release(struct object_doomed *doomed)
{
    referenced_files_release(&doomed->named);
    buffer_release(&doomed->metadata);
    arena_release(&doomed->arena);
    store_dir_close(TAKE(doomed->dir));
    free(doomed->keys);
    *doomed = (struct object_doomed){0};
}

/* The save whose object ${name} is: a shard, a manifest, or below OBJECT_SAVES_DIR; "": of none. */
static void save_id_of(const char *name, char save_id[SAVE_ID_HEX])
{
    size_t scheme = strlen(OBJECT_SAVES_DIR);

    save_id[0] = '\0';
    if (strncmp(name, OBJECT_SAVES_DIR, scheme) != 0)
        memcpy(save_id, file_name_parse(name).save_id, SAVE_ID_HEX);
    else if (strspn(name + scheme, "0123456789abcdef") == SAVE_ID_HEX - 1 &&
             name[scheme + SAVE_ID_HEX - 1] == '/')
        snprintf(save_id, SAVE_ID_HEX, "%.*s", (int)SAVE_ID_HEX - 1, name + scheme);
}

static bool is_ours(const char *name)
{
    char save_id[SAVE_ID_HEX];

    save_id_of(name, save_id);
    return strcmp(name, FILE_NAME_METADATA) == 0 || save_id[0] != '\0' ||
           file_name_parse(name).kind != FILE_NAME_NONE;
}

static bool add_key(struct object_doomed *doomed, const char *name, const struct object_info *info)
{
    if (doomed->count == doomed->capacity) {
        size_t capacity = doomed->capacity != 0 ? 2 * doomed->capacity : 16;
        struct object_doomed_key *keys = memory_resize(doomed->keys, capacity, sizeof(*keys));
        if (keys == NULL)
            return false;
        doomed->keys = keys;
        doomed->capacity = capacity;
    }
    struct object_doomed_key key = {
        .name = arena_strndup(&doomed->arena, name, strlen(name)),
        .tag = arena_strndup(&doomed->arena, info->tag, strlen(info->tag)),
        .bytes = info->bytes,
    };
    doomed->keys[doomed->count++] = key;
    return key.name != NULL && key.tag != NULL;
}

static bool note(void *context, const struct object_info *info)
{
    struct object_doomed *doomed = context;
    const char *name = info->key + strlen(object_store_prefix(doomed->dir));

    if (!is_ours(name))
        doomed->objection = HAS_OTHERS;
    else if (strncmp(name, OBJECT_SAVES_DIR, strlen(OBJECT_SAVES_DIR)) == 0 &&
             file_name_has_suffix(name, "/pending") && !fault_hit("object.pending") &&
             (info->now == 0 || info->now - info->modified <= OBJECT_DEAD_SECONDS))
        doomed->objection = IS_PENDING;
    doomed->no_memory = !add_key(doomed, name, info);
    return doomed->objection == NULL && !doomed->no_memory;
}

static enum sidestep_status metadata_key(const struct object_doomed *doomed,
                                         char key[OBJECT_KEY_BYTES], struct sidestep_error *err)
{
    int used = snprintf(key, OBJECT_KEY_BYTES, "%s%s", object_store_prefix(doomed->dir),
                        FILE_NAME_METADATA);

    return used > 0 && (size_t)used < OBJECT_KEY_BYTES
               ? SIDESTEP_OK
               : error_set(err, SIDESTEP_EINVAL, ENAMETOOLONG, HERE, "the key of %s",
                           FILE_NAME_METADATA);
}

/* Read .metadata, and see which save it is. */
static enum sidestep_status identify(struct object_doomed *doomed, const char *save_id,
                                     struct sidestep_error *err)
{
    struct object_client *client = object_store_client(doomed->dir->store);
    struct object_info info = {0};
    char key[OBJECT_KEY_BYTES];

    TRY(metadata_key(doomed, key, err));
    TRY(client->ops->get_all(client, key, DCP_METADATA_MAX_BYTES, &doomed->metadata, &info, err));
    memcpy(doomed->tag, info.tag, sizeof(doomed->tag));
    enum sidestep_status status =
        referenced_files_parse(doomed->dir, &doomed->metadata, &doomed->named);
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, doomed->metadata.length);
    if (status != SIDESTEP_OK && save_id != NULL)
        return FAIL(err, status, "its %s cannot be read, so it is not known which save it is",
                    FILE_NAME_METADATA);
    if (save_id != NULL &&
        (doomed->named.save_id == NULL || strcmp(doomed->named.save_id, save_id) != 0))
        return FAIL(err, SIDESTEP_ELOCKED, WAS_REPLACED);
    return SIDESTEP_OK;
}

enum sidestep_status object_delete_look(struct store_dir *root, const char *name,
                                        const char *save_id, struct object_doomed *doomed,
                                        struct sidestep_error *err)
{
    struct object_client *client = object_store_client(root->store);

    assert(doomed->dir == NULL && doomed->count == 0);
    TRY(store_dir_open(root->store, root, name, &doomed->dir, err));
    TRY(client->ops->list(client, object_store_prefix(doomed->dir), 0, NULL, 0, note, doomed, err));
    if (doomed->no_memory)
        return FAIL_NOMEM(err, doomed->capacity);
    if (doomed->objection != NULL)
        return FAIL(err, SIDESTEP_ELOCKED, "%s", doomed->objection);
    return identify(doomed, save_id, err);
}

/* Does ${index} belong to the checkpoint, and not to a dead save beside it? */
static bool is_part(const struct object_doomed *doomed, size_t index)
{
    const char *name = doomed->keys[index].name, *own = doomed->named.save_id;
    char save_id[SAVE_ID_HEX];

    assert(index < doomed->count);
    save_id_of(name, save_id);
    return strcmp(name, FILE_NAME_METADATA) == 0 ||
           hash_table_find(&doomed->named.files, name) != SIZE_MAX ||
           (own != NULL && save_id[0] != '\0' && strcmp(save_id, own) == 0);
}

uint64_t object_delete_bytes(const struct object_doomed *doomed)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < doomed->count; i++)
        if (is_part(doomed, i))
            bytes += doomed->keys[i].bytes;
    return bytes;
}

/* Delete ${key} if it has the version ${tag}. */
static enum sidestep_status delete_version(struct object_doomed *doomed, const char *key,
                                           const char *tag, struct sidestep_error *err)
{
    struct object_client *client = object_store_client(doomed->dir->store);
    const char *const keys[] = {key};
    struct object_info info = {0};

    if (fault_hit("object.delete_version")) /* wrong on purpose: tests must notice it */
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

/* ENOTFOUND: there is none any more. EEXISTS: there is another version. EIO: it is still there, or
 * storage does not say. */
static enum sidestep_status look_again(struct object_doomed *doomed, const char *key,
                                       struct sidestep_error *err)
{
    struct object_client *client = object_store_client(doomed->dir->store);
    struct object_info info = {0};
    enum sidestep_status status = client->ops->head(client, key, &info, err);

    if (status == SIDESTEP_OK && strcmp(info.tag, doomed->tag) != 0)
        return SIDESTEP_EEXISTS;
    return status == SIDESTEP_OK
               ? FAIL(err, SIDESTEP_EIO, "it is still there, though the store says it is deleted")
               : status;
}

enum sidestep_status object_delete_hide(struct object_doomed *doomed, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1}, now_why = {.rank = -1};
    char key[OBJECT_KEY_BYTES];

    assert(doomed->dir != NULL && doomed->objection == NULL);
    if (fault_hit("object.delete_order")) { /* wrong on purpose: tests must notice it */
        object_delete_rest(doomed);
        return SIDESTEP_OK;
    }
    TRY(metadata_key(doomed, key, err));
    enum sidestep_status status = delete_version(doomed, key, doomed->tag, &why);
    /* Whatever was said: with .metadata there, the rest has to stay. */
    enum sidestep_status now = look_again(doomed, key, &now_why);
    if (now == SIDESTEP_ENOTFOUND || (now == SIDESTEP_EEXISTS && status == SIDESTEP_OK))
        return SIDESTEP_OK;
    if (now == SIDESTEP_EEXISTS)
        return FAIL(err, SIDESTEP_ELOCKED, WAS_REPLACED);
    error_copy(err, status != SIDESTEP_OK ? &why : &now_why);
    error_wrap(err, "delete its %s, which may or may not have been done; delete it again",
               FILE_NAME_METADATA);
    return status != SIDESTEP_OK ? status : now;
}

enum sidestep_status object_delete_restore(struct object_doomed *doomed, struct sidestep_error *err)
{
    struct object_client *client = object_store_client(doomed->dir->store);
    const struct object_condition absent = {.if_absent = true};
    const struct buffer *metadata = &doomed->metadata;
    struct sidestep_error why = {.rank = -1};
    char key[OBJECT_KEY_BYTES];

    assert(doomed->dir != NULL && doomed->objection == NULL);
    TRY(metadata_key(doomed, key, err));
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

/* Delete files of the copy of a checkpoint that was saved on a file system. Somebody may put
 * another copy to this name as soon as .metadata is gone, and a request may arrive late: so each
 * has a condition. */
static void delete_shared(struct object_doomed *doomed)
{
    const char *prefix = object_store_prefix(doomed->dir);

    for (size_t i = 0; i < doomed->count; i++) {
        const char *name = doomed->keys[i].name;
        if (strcmp(name, FILE_NAME_METADATA) == 0 || !is_shared(name) || !is_part(doomed, i))
            continue;
        const char *key = arena_printf(&doomed->arena, "%s%s", prefix, name);
        if (key != NULL)
            (void)delete_version(doomed, key, doomed->keys[i].tag, NULL);
    }
}

/* Delete the parts of the checkpoint that nobody else has keys for: the manifests, or all others.
 */
static void delete_own(struct object_doomed *doomed, bool manifests)
{
    struct object_client *client = object_store_client(doomed->dir->store);
    const char *prefix = object_store_prefix(doomed->dir);
    const char *keys[OBJECT_MAX_LISTED];
    size_t count = 0;

    for (size_t i = 0; i < doomed->count; i++) {
        const char *name = doomed->keys[i].name;
        if (!is_shared(name) && is_part(doomed, i) && is_manifest(name) == manifests)
            keys[count] = arena_printf(&doomed->arena, "%s%s", prefix, name);
        else
            continue;
        count += keys[count] != NULL;
        if (count == OBJECT_MAX_LISTED) {
            (void)client->ops->delete_keys(client, keys, count, NULL);
            count = 0;
        }
    }
    if (count != 0)
        (void)client->ops->delete_keys(client, keys, count, NULL);
}

void object_delete_rest(struct object_doomed *doomed)
{
    assert(doomed->dir != NULL && doomed->objection == NULL);
    delete_shared(doomed);
    delete_own(doomed, false);
    delete_own(doomed, true);
}
