/* SPDX-License-Identifier: BSD-3-Clause */
/* object_store.c -- the directories of an object store, and its files for reading. */
#include "object/object_store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "object/object_store_internal.h"
#include "object/profile.h"

#define DEFAULT_PART_BYTES ((uint64_t)8 << 20)

static const struct store_ops ops;

struct object_client *object_store_client(const struct store *store)
{
    assert(store->ops == &ops);
    return object_client_of(store);
}

const char *object_store_bucket(const struct store *store)
{
    return ((const struct object_store *)(const void *)store)->bucket;
}

const char *object_store_prefix(const struct store_dir *dir)
{
    return ((const struct object_dir *)(const void *)dir)->prefix;
}

static enum sidestep_status fail_unsupported(const char *what, struct sidestep_error *err)
{
    return FAIL(err, SIDESTEP_EUNSUPPORTED, "object stores cannot %s", what);
}

/* ---- names */

static enum sidestep_status check_name(const char *name, struct sidestep_error *err)
{
    size_t begin = 0;

    for (;;) {
        size_t length = strcspn(name + begin, "/");
        if (!object_url_is_component(name + begin, length))
            return FAIL(err, SIDESTEP_EUNSAFE, "'%s' is not a plain relative name", name);
        begin += length;
        if (name[begin] == '\0')
            return SIDESTEP_OK;
        begin++;
    }
}

enum sidestep_status object_store_key(const struct store_dir *dir, const char *name,
                                      char key[OBJECT_KEY_BYTES], struct sidestep_error *err)
{
    TRY(check_name(name, err));
    int used = snprintf(key, OBJECT_KEY_BYTES, "%s%s", object_store_prefix(dir), name);
    if (used < 0 || (size_t)used >= OBJECT_KEY_BYTES)
        return error_set(err, SIDESTEP_EINVAL, ENAMETOOLONG, HERE, "the key of '%s'", name);
    return SIDESTEP_OK;
}

/* ---- directories */

static struct object_dir *dir_of(struct store_dir *dir)
{
    return (struct object_dir *)(void *)dir;
}

static enum sidestep_status new_dir(struct store *store, struct object_dir **out,
                                    struct sidestep_error *err)
{
    *out = memory_new(1, sizeof(**out));
    if (*out == NULL)
        return FAIL_NOMEM(err, sizeof(**out));
    (*out)->base.store = store;
    return SIDESTEP_OK;
}

static enum sidestep_status open_url(struct store *store, const char *path, struct object_dir *dir,
                                     struct sidestep_error *err)
{
    struct object_url url;

    TRY(object_url_parse(path, &url, err));
    if (strcmp(url.bucket, object_store_bucket(store)) != 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is not in bucket '%s'", path,
                    object_store_bucket(store));
    if (url.key[0] != '\0' &&
        snprintf(dir->prefix, sizeof(dir->prefix), "%s/", url.key) >= (int)sizeof(dir->prefix))
        return error_set(err, SIDESTEP_EINVAL, ENAMETOOLONG, HERE, "'%s'", path);
    return SIDESTEP_OK;
}

static enum sidestep_status dir_open(struct store *store, struct store_dir *at, const char *name,
                                     struct store_dir **out, struct sidestep_error *err)
{
    OWNED struct object_dir *dir = NULL;

    TRY(new_dir(store, &dir, err));
    if (at == NULL) {
        TRY(open_url(store, name, dir, err));
    } else {
        TRY(object_store_key(at, name, dir->prefix, err));
        dir->tree = dir_of(at)->tree;
        size_t length = strlen(dir->prefix);
        if (length + 1 >= sizeof(dir->prefix))
            return error_set(err, SIDESTEP_EINVAL, ENAMETOOLONG, HERE, "'%s'", name);
        dir->prefix[length] = '/';
    }
    *out = &TAKE(dir)->base;
    return SIDESTEP_OK;
}

static void dir_close(struct store_dir *dir)
{
    object_tree_free(dir_of(dir)->own);
    free(dir);
}

static enum sidestep_status dir_remember(struct store_dir *base, struct sidestep_error *err)
{
    struct object_dir *dir = dir_of(base);

    object_tree_free(TAKE(dir->own));
    dir->tree = NULL;
    TRY(object_tree_read(object_client_of(base->store), dir->prefix, OBJECT_REMEMBERED_KEYS,
                         &dir->own, err));
    dir->tree = dir->own;
    return SIDESTEP_OK;
}

static enum sidestep_status dir_make(struct store_dir *at UNUSED, const char *name,
                                     struct sidestep_error *err)
{
    return check_name(name, err);
}

static enum sidestep_status dir_sync(struct store_dir *dir UNUSED,
                                     struct sidestep_error *err UNUSED)
{
    return SIDESTEP_OK;
}

struct listing {
    size_t prefix_length;
    bool (*each)(void *context, const char *name);
    void *context;
};

static bool list_key(void *context, const struct object_info *info)
{
    const struct listing *listing = context;
    char name[OBJECT_KEY_BYTES];

    snprintf(name, sizeof(name), "%s", info->key + listing->prefix_length);
    size_t length = strlen(name);
    if (length != 0 && name[length - 1] == '/')
        name[--length] = '\0';
    /* Skip keys that are not names, such as "a//b". */
    return !object_url_is_component(name, length) || listing->each(listing->context, name);
}

static enum sidestep_status dir_list(struct store_dir *dir,
                                     bool (*each)(void *context, const char *name), void *context,
                                     struct sidestep_error *err)
{
    struct object_client *client = object_client_of(dir->store);
    const char *prefix = object_store_prefix(dir);
    struct listing listing = {strlen(prefix), each, context};
    const struct object_tree *tree = dir_of(dir)->tree;

    if (tree != NULL) {
        object_tree_list(tree, prefix, list_key, &listing);
        return SIDESTEP_OK;
    }
    return client->ops->list(client, prefix, '/', NULL, 0, list_key, &listing, err);
}

static uint64_t identity_of(const struct store *store, const char *key)
{
    return XXH3_64bits(key, strlen(key)) ^
           XXH3_64bits(object_store_bucket(store), strlen(object_store_bucket(store)));
}

void object_store_fill_stat(const struct store *store, const struct object_info *info,
                            const char *key, struct store_stat *out)
{
    uint64_t changed = (uint64_t)info->modified * 1000000000u;

    /* The tag is part of the identity: it changes when the object is replaced. */
    *out = (struct store_stat){.kind = STORE_FILE,
                               .size = info->bytes,
                               .stored = info->bytes,
                               .device = identity_of(store, key),
                               .inode = XXH3_64bits(info->tag, strlen(info->tag)),
                               .modified = info->modified,
                               .modified_ns = changed,
                               .changed_ns = changed,
                               .links = 1};
}

static enum sidestep_status dir_stat(struct store_dir *dir, struct store_stat *out,
                                     struct sidestep_error *err UNUSED)
{
    *out = (struct store_stat){.kind = STORE_DIRECTORY,
                               .device = identity_of(dir->store, object_store_prefix(dir)),
                               .inode = 1};
    return SIDESTEP_OK;
}

static enum sidestep_status dir_traits(struct store_dir *dir UNUSED, struct store_traits *out,
                                       struct sidestep_error *err UNUSED)
{
    *out = (struct store_traits){.is_network = true, .type_name = "s3"};
    return SIDESTEP_OK;
}

static enum sidestep_status dir_path(struct store_dir *dir, char *path, size_t bytes,
                                     struct sidestep_error *err)
{
    const char *prefix = object_store_prefix(dir);
    int used =
        snprintf(path, bytes, OBJECT_SCHEME "%s/%s", object_store_bucket(dir->store), prefix);

    if (used < 0 || (size_t)used >= bytes)
        return error_set(err, SIDESTEP_EINVAL, ENAMETOOLONG, HERE, "the URL of '%s'", prefix);
    path[used - 1] = '\0'; /* the last slash */
    return SIDESTEP_OK;
}

static bool set_found(void *context, const struct object_info *info UNUSED)
{
    *(bool *)context = true;
    return false;
}

/* Get the info of ${key} from the remembered listing of ${at}, or by a request. */
static enum sidestep_status get_info(struct store_dir *at, const char *key,
                                     struct object_info *info, struct sidestep_error *err)
{
    struct object_client *client = object_client_of(at->store);
    const struct object_tree *tree = dir_of(at)->tree;

    if (tree == NULL)
        return client->ops->head(client, key, info, err);
    if (object_tree_find(tree, key, info))
        return SIDESTEP_OK;
    return error_set(err, SIDESTEP_ENOTFOUND, ENOENT, HERE, "there is no object '%s'", key);
}

/* Does a key begin with "${key}/"? */
static enum sidestep_status stat_prefix(struct store_dir *at, char key[OBJECT_KEY_BYTES],
                                        struct store_stat *out, struct sidestep_error *err)
{
    struct object_client *client = object_client_of(at->store);
    const struct object_tree *tree = dir_of(at)->tree;
    size_t length = strlen(key);
    bool is_found = false;

    if (length + 1 < OBJECT_KEY_BYTES) {
        memcpy(key + length, "/", 2);
        is_found = tree != NULL && object_tree_has(tree, key);
        if (tree == NULL)
            TRY(client->ops->list(client, key, 0, NULL, 1, set_found, &is_found, err));
    }
    *out = (struct store_stat){
        .kind = STORE_DIRECTORY, .device = identity_of(at->store, key), .inode = 1};
    if (is_found)
        return SIDESTEP_OK;
    key[length] = '\0';
    return error_set(err, SIDESTEP_ENOTFOUND, ENOENT, HERE, "there is no object '%s'", key);
}

static enum sidestep_status stat_name(struct store_dir *at, const char *name,
                                      struct store_stat *out, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    struct object_info info = {0};
    char key[OBJECT_KEY_BYTES];

    TRY(object_store_key(at, name, key, err));
    enum sidestep_status status = get_info(at, key, &info, &why);
    if (status == SIDESTEP_ENOTFOUND)
        return stat_prefix(at, key, out, err);
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    object_store_fill_stat(at->store, &info, key, out);
    return SIDESTEP_OK;
}

static enum sidestep_status rename_name(struct store_dir *from_dir UNUSED, const char *from UNUSED,
                                        struct store_dir *to_dir UNUSED, const char *to UNUSED,
                                        enum store_rename_mode mode UNUSED,
                                        struct sidestep_error *err)
{
    return fail_unsupported("rename", err);
}

static enum sidestep_status link_name(struct store_dir *from_dir UNUSED, const char *from UNUSED,
                                      struct store_dir *to_dir UNUSED, const char *to UNUSED,
                                      struct sidestep_error *err)
{
    return fail_unsupported("share a file between two names", err);
}

static enum sidestep_status unlink_name(struct store_dir *at, const char *name,
                                        struct sidestep_error *err)
{
    struct object_client *client = object_client_of(at->store);
    char key[OBJECT_KEY_BYTES];
    const char *const keys[] = {key};

    TRY(object_store_key(at, name, key, err));
    return client->ops->delete_keys(client, keys, 1, err);
}

/* ---- files */

static struct object_file *file_of(struct store_file *file)
{
    return (struct object_file *)(void *)file;
}

static enum sidestep_status new_file(struct store_dir *at, const char *name,
                                     struct object_file **out, struct sidestep_error *err)
{
    *out = memory_new(1, sizeof(**out));
    if (*out == NULL)
        return FAIL_NOMEM(err, sizeof(**out));
    (*out)->base.store = at->store;
    return object_store_key(at, name, (*out)->key, err);
}

static enum sidestep_status file_create(struct store_dir *at, const char *name,
                                        uint32_t flags UNUSED, struct store_file **out,
                                        struct sidestep_error *err)
{
    OWNED struct object_file *file = NULL;

    TRY(new_file(at, name, &file, err));
    TRY(object_writer_new(object_client_of(at->store), file->key, object_part_bytes_of(at->store),
                          &file->writer, err));
    *out = &TAKE(file)->base;
    return SIDESTEP_OK;
}

static enum sidestep_status file_open(struct store_dir *at, const char *name, uint32_t flags UNUSED,
                                      struct store_file **out, struct sidestep_error *err)
{
    OWNED struct object_file *file = NULL;

    TRY(new_file(at, name, &file, err));
    TRY(get_info(at, file->key, &file->info, err));
    *out = &TAKE(file)->base;
    return SIDESTEP_OK;
}

static enum sidestep_status get_writer(struct store_file *file, struct object_writer **writer,
                                       struct sidestep_error *err)
{
    *writer = file_of(file)->writer;
    return *writer != NULL
               ? SIDESTEP_OK
               : FAIL(err, SIDESTEP_EPERM, "'%s' is open for reading only", file_of(file)->key);
}

static enum sidestep_status file_allocate(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err)
{
    struct object_writer *writer;

    TRY(get_writer(file, &writer, err));
    return object_writer_expect(writer, bytes, err);
}

static enum sidestep_status file_write_at(struct store_file *file, const void *from, size_t bytes,
                                          uint64_t offset, struct sidestep_error *err)
{
    struct object_writer *writer;

    TRY(get_writer(file, &writer, err));
    return object_writer_write(writer, from, bytes, offset, err);
}

void object_store_set_condition(struct store_file *file, const struct object_condition *condition)
{
    object_writer_set_condition(file_of(file)->writer, condition);
}

enum sidestep_status object_store_flush(struct store_file *file, struct sidestep_error *err)
{
    return object_writer_flush(file_of(file)->writer, err);
}

static enum sidestep_status file_truncate(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err)
{
    struct object_writer *writer;

    TRY(get_writer(file, &writer, err));
    return object_writer_resize(writer, bytes, err);
}

static enum sidestep_status file_sync(struct store_file *file, struct sidestep_error *err)
{
    struct object_writer *writer;

    TRY(get_writer(file, &writer, err));
    return object_writer_complete(writer, &file_of(file)->info, err);
}

static enum sidestep_status file_read_places(struct store_file *base,
                                             const struct store_places *places, uint64_t offset,
                                             struct sidestep_error *err)
{
    struct object_client *client = object_client_of(base->store);
    struct object_file *file = file_of(base);
    struct sidestep_error why = {.rank = -1};
    uint64_t bytes = store_places_bytes(places);

    if (file->writer != NULL && file->info.tag[0] == '\0')
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s' cannot be read before it is complete",
                    file->key);
    if (bytes == 0)
        return SIDESTEP_OK;
    if (offset > file->info.bytes || bytes > file->info.bytes - offset)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s': %llu bytes at %llu, but the file ends at %llu",
                    file->key, (unsigned long long)bytes, (unsigned long long)offset,
                    (unsigned long long)file->info.bytes);
    const char *tag =
        file->info.tag[0] != '\0' ? file->info.tag : NULL; /* a listing may have none */
    enum sidestep_status status =
        client->ops->get(client, file->key, offset, places, tag, NULL, &why);
    if (status == SIDESTEP_EEXISTS)
        return FAIL(err, SIDESTEP_ENOTFOUND, "'%s' was replaced while it was being read",
                    file->key);
    return status == SIDESTEP_OK ? SIDESTEP_OK : error_copy(err, &why);
}

static enum sidestep_status file_read_at(struct store_file *file, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    const struct store_place place = {to, bytes};

    return file_read_places(file, &(struct store_places){.list = &place, .count = 1}, offset, err);
}

static enum sidestep_status file_stat(struct store_file *base, struct store_stat *out,
                                      struct sidestep_error *err UNUSED)
{
    struct object_file *file = file_of(base);

    object_store_fill_stat(base->store, &file->info, file->key, out);
    if (file->writer != NULL)
        out->size = object_writer_length(file->writer);
    return SIDESTEP_OK;
}

static size_t file_alignment(struct store_file *file UNUSED)
{
    return 0;
}

static enum sidestep_status file_lock(struct store_file *file UNUSED, bool exclusive UNUSED,
                                      struct sidestep_error *err)
{
    return fail_unsupported("lock a file", err);
}

static enum sidestep_status file_is_locked(struct store_file *file UNUSED, bool *is_locked,
                                           struct sidestep_error *err)
{
    *is_locked = false;
    return fail_unsupported("lock a file", err);
}

static void file_discard(struct store_file *file)
{
    object_writer_free(file_of(file)->writer);
    free(file);
}

static enum sidestep_status file_close(struct store_file *file, struct sidestep_error *err UNUSED)
{
    file_discard(file);
    return SIDESTEP_OK;
}

static enum sidestep_status file_get(struct store_dir *at, const char *name, uint64_t max,
                                     struct buffer *out, struct sidestep_error *err)
{
    struct object_client *client = object_client_of(at->store);
    const struct object_tree *tree = dir_of(at)->tree;
    char key[OBJECT_KEY_BYTES];

    TRY(object_store_key(at, name, key, err));
    size_t known;
    const void *bytes = tree != NULL ? object_tree_contents(tree, key, &known) : NULL;
    if (bytes == NULL || known > max)
        return client->ops->get_all(client, key, max, out, NULL, err);
    buffer_put(out, bytes, known);
    return buffer_check(out, err);
}

static enum sidestep_status file_put(struct store_dir *at, const char *name, const void *bytes,
                                     size_t length, struct sidestep_error *err)
{
    struct object_client *client = object_client_of(at->store);
    char key[OBJECT_KEY_BYTES];

    TRY(object_store_key(at, name, key, err));
    return client->ops->put(client, key, bytes, length, NULL, NULL, err);
}

static unsigned count_reads(struct store *store)
{
    return object_client_of(store)->ops->reads(object_client_of(store));
}

static void free_store(struct store *store)
{
    object_store_free(&store);
}

static const struct store_ops ops = {.name = "s3",
                                     .layout = STORE_OF_KEYS,
                                     .takes_urls = true,
                                     .reads = count_reads,
                                     .free = free_store,
                                     .dir_open = dir_open,
                                     .dir_close = dir_close,
                                     .dir_make = dir_make,
                                     .dir_remove = dir_make,
                                     .dir_list = dir_list,
                                     .dir_remember = dir_remember,
                                     .dir_sync = dir_sync,
                                     .dir_stat = dir_stat,
                                     .dir_traits = dir_traits,
                                     .dir_path = dir_path,
                                     .stat = stat_name,
                                     .rename = rename_name,
                                     .unlink = unlink_name,
                                     .link = link_name,
                                     .file_create = file_create,
                                     .file_open = file_open,
                                     .file_allocate = file_allocate,
                                     .file_write_at = file_write_at,
                                     .file_read_at = file_read_at,
                                     .file_read_places = file_read_places,
                                     .file_truncate = file_truncate,
                                     .file_sync = file_sync,
                                     .file_stat = file_stat,
                                     .file_alignment = file_alignment,
                                     .file_lock = file_lock,
                                     .file_is_locked = file_is_locked,
                                     .file_close = file_close,
                                     .file_discard = file_discard,
                                     .file_get = file_get,
                                     .file_put = file_put};

enum sidestep_status object_store_new(const char *bucket, struct object_client *client,
                                      struct store **out, struct sidestep_error *err)
{
    struct object_store *store = memory_new(1, sizeof(*store));

    if (store == NULL) {
        object_client_free(&client);
        return FAIL_NOMEM(err, sizeof(*store));
    }
    store->base.ops = &ops;
    store->client = client;
    snprintf(store->bucket, sizeof(store->bucket), "%s", bucket);
    *out = &store->base;
    enum sidestep_status status =
        profile_number("SIDESTEP_OBJECT_PART_BYTES", OBJECT_MIN_PART_BYTES, OBJECT_MAX_PART_BYTES,
                       &store->part_bytes, err);
    if (status != SIDESTEP_OK) {
        object_store_free(out);
        return status;
    }
    if (store->part_bytes == 0)
        store->part_bytes = DEFAULT_PART_BYTES;
    return SIDESTEP_OK;
}

void object_store_free(struct store **store)
{
    struct object_store *object_store = (struct object_store *)(void *)*store;

    if (object_store == NULL)
        return;
    object_client_free(&object_store->client);
    free(object_store);
    *store = NULL;
}
