/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_skeleton.c -- an example of a store: directories and files in the memory of this process.
 *
 * In a real store, dir_sync() and file_sync() return when names and bytes survive a power loss,
 * several processes see the same names, and writes of different threads do not wait for each other.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "skeletons.h"

struct entry;
/* A directory or a file; a handle is a pointer to it. It exists while it has a name or a handle. */
struct node {
    bool is_directory;
    bool is_removed;     /* a directory without a name: nothing can be created in it */
    unsigned references; /* number of names and handles */
    uint64_t id;
    struct entry *entries; /* of a directory */
    uint8_t *bytes;        /* of a file */
    uint64_t size;
};
struct entry {
    struct entry *next;
    struct node *node;
    char name[];
};

struct store_skeleton {
    pthread_mutex_t lock; /* guards the fields below, and all nodes */
    struct node *root;
    uint64_t next_id;
};

static enum sidestep_status fail(struct sidestep_error *err, enum sidestep_status status,
                                 const char *what, const char *name, int why)
{
    err->sys_errno = why;
    snprintf(err->message, sizeof(err->message), "%s '%s'", what, name);
    return status;
}

/* ---- nodes and entries: the lock is held */

static struct node *new_node(struct store_skeleton *store, bool is_directory)
{
    struct node *node = calloc(1, sizeof(*node));

    if (node != NULL)
        *node =
            (struct node){.is_directory = is_directory, .references = 1, .id = ++store->next_id};
    return node;
}

static void release(struct node *node)
{
    if (--node->references != 0)
        return;
    while (node->entries != NULL) {
        struct entry *entry = node->entries;
        node->entries = entry->next;
        release(entry->node); /* recursion is as deep as the directories */
        free(entry);
    }
    free(node->bytes);
    free(node);
}

/* The address of the pointer to the entry of ${name}; that pointer is NULL if there is none. */
static struct entry **find(struct node *directory, const char *name)
{
    struct entry **at = &directory->entries;

    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

static void drop(struct entry **at)
{
    struct entry *entry = *at;

    *at = entry->next;
    release(entry->node);
    free(entry);
}

/* Give ${node} a name, which must not exist yet. */
static bool add(struct node *directory, const char *name, struct node *node)
{
    struct entry *entry = malloc(sizeof(*entry) + strlen(name) + 1);

    if (entry == NULL)
        return false;
    strcpy(entry->name, name);
    entry->node = node;
    entry->next = directory->entries;
    directory->entries = entry;
    node->references++;
    return true;
}

/* Walk a path of names from ${node}; NULL: it does not exist. */
static struct node *walk(struct node *node, const char *path)
{
    char name[256];

    while (node != NULL && *path != '\0') {
        size_t length = strcspn(path, "/");
        if (length >= sizeof(name) || (length != 0 && !node->is_directory))
            return NULL;
        if (length != 0 && !(length == 1 && path[0] == '.')) {
            memcpy(name, path, length);
            name[length] = '\0';
            struct entry *entry = *find(node, name);
            node = entry != NULL ? entry->node : NULL;
        }
        path += length + (path[length] == '/');
    }
    return node;
}

/* ---- directories */

static enum sidestep_status open_node(void *context, void *at, const char *path, bool directory,
                                      void **out, struct sidestep_error *err)
{
    struct store_skeleton *store = context;

    pthread_mutex_lock(&store->lock);
    struct node *node = walk(at != NULL ? at : store->root, path);
    bool fits = node != NULL && node->is_directory == directory;
    if (fits)
        node->references++;
    pthread_mutex_unlock(&store->lock);
    *out = node;
    if (node == NULL || (directory && !fits))
        return fail(err, SIDESTEP_ENOTFOUND, "open", path, node == NULL ? ENOENT : ENOTDIR);
    return fits ? SIDESTEP_OK : fail(err, SIDESTEP_EUNSAFE, "open", path, EISDIR);
}

static enum sidestep_status dir_open(void *context, void *at, const char *name, void **dir,
                                     struct sidestep_error *err)
{
    return open_node(context, at, name, true, dir, err);
}

static void node_close(void *context, void *node)
{
    struct store_skeleton *store = context;

    pthread_mutex_lock(&store->lock);
    release(node);
    pthread_mutex_unlock(&store->lock);
}

/* Create a node; unless ${out} is NULL, also open it. */
static enum sidestep_status make(struct store_skeleton *store, struct node *at, const char *name,
                                 bool is_directory, void **out, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    pthread_mutex_lock(&store->lock);
    struct node *node = *find(at, name) == NULL ? new_node(store, is_directory) : NULL;
    if (at->is_removed)
        status = fail(err, SIDESTEP_ENOTFOUND, "create", name, ENOENT);
    else if (*find(at, name) != NULL)
        status = fail(err, SIDESTEP_EEXISTS, "create", name, EEXIST);
    else if (node == NULL || !add(at, name, node))
        status = fail(err, SIDESTEP_ENOMEM, "create", name, ENOMEM);
    if (status == SIDESTEP_OK && out != NULL)
        *out = node; /* the first reference is the caller's */
    else if (node != NULL)
        release(node);
    pthread_mutex_unlock(&store->lock);
    return status;
}

static enum sidestep_status dir_make(void *context, void *at, const char *name,
                                     struct sidestep_error *err)
{
    return make(context, at, name, true, NULL, err);
}

static enum sidestep_status remove_entry(struct store_skeleton *store, struct node *at,
                                         const char *name, bool directory,
                                         struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    pthread_mutex_lock(&store->lock);
    struct entry **entry = find(at, name);
    if (*entry == NULL)
        status = fail(err, SIDESTEP_ENOTFOUND, "remove", name, ENOENT);
    else if ((*entry)->node->is_directory != directory)
        status = fail(err, SIDESTEP_EIO, "remove", name, directory ? ENOTDIR : EISDIR);
    else if ((*entry)->node->entries != NULL)
        status = fail(err, SIDESTEP_EEXISTS, "remove", name, ENOTEMPTY);
    if (status == SIDESTEP_OK) {
        (*entry)->node->is_removed = directory;
        drop(entry);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}

static enum sidestep_status dir_remove(void *context, void *at, const char *name,
                                       struct sidestep_error *err)
{
    return remove_entry(context, at, name, true, err);
}

static enum sidestep_status unlink_file(void *context, void *at, const char *name,
                                        struct sidestep_error *err)
{
    return remove_entry(context, at, name, false, err);
}

/* Calls ${each} without the lock for a copy of the names, because it may change the directory. */
static enum sidestep_status dir_list(void *context, void *dir,
                                     bool (*each)(void *each_context, const char *name),
                                     void *each_context, struct sidestep_error *err)
{
    struct store_skeleton *store = context;
    struct node seen = {.is_directory = true, .references = 1};
    bool complete = true;

    pthread_mutex_lock(&store->lock);
    for (struct entry *e = ((struct node *)dir)->entries; e != NULL && complete; e = e->next)
        complete = add(&seen, e->name, e->node);
    pthread_mutex_unlock(&store->lock);
    for (struct entry *e = seen.entries; complete && e != NULL; e = e->next)
        if (!each(each_context, e->name))
            break;
    pthread_mutex_lock(&store->lock);
    while (seen.entries != NULL)
        drop(&seen.entries);
    pthread_mutex_unlock(&store->lock);
    return complete ? SIDESTEP_OK : fail(err, SIDESTEP_ENOMEM, "list", "directory", ENOMEM);
}

static enum sidestep_status sync_node(void *context, void *node, struct sidestep_error *err)
{
    (void)context, (void)node, (void)err;
    return SIDESTEP_OK; /* traits() reports that the store is volatile */
}

static enum sidestep_status traits(void *context, void *dir, struct sidestep_store_traits *out,
                                   struct sidestep_error *err)
{
    (void)context, (void)dir, (void)err;
    *out = (struct sidestep_store_traits){.is_volatile = 1, .type_name = "memory"};
    return SIDESTEP_OK;
}

static enum sidestep_status stat_node(void *context, void *node, struct sidestep_store_stat *out,
                                      struct sidestep_error *err)
{
    struct store_skeleton *store = context;
    const struct node *of = node;

    (void)err;
    pthread_mutex_lock(&store->lock);
    *out = (struct sidestep_store_stat){.kind = of->is_directory ? SIDESTEP_STORE_DIRECTORY
                                                                 : SIDESTEP_STORE_FILE,
                                        .size = of->size,
                                        .device = (uintptr_t)store,
                                        .inode = of->id};
    pthread_mutex_unlock(&store->lock);
    return SIDESTEP_OK;
}

static enum sidestep_status stat_name(void *context, void *at, const char *name,
                                      struct sidestep_store_stat *out, struct sidestep_error *err)
{
    struct store_skeleton *store = context;

    pthread_mutex_lock(&store->lock);
    struct entry *entry = *find(at, name);
    struct node *node = entry != NULL ? entry->node : NULL;
    if (node != NULL)
        node->references++;
    pthread_mutex_unlock(&store->lock);
    if (node == NULL)
        return fail(err, SIDESTEP_ENOTFOUND, "stat", name, ENOENT);
    enum sidestep_status status = stat_node(context, node, out, err);
    node_close(context, node);
    return status;
}

/* The lock is held. Is ${wanted} this node, or below it? */
static bool contains(const struct node *node, const struct node *wanted)
{
    bool found = node == wanted;

    for (const struct entry *e = node->entries; e != NULL && !found; e = e->next)
        found = contains(e->node, wanted);
    return found;
}

/* The lock is held. */
static enum sidestep_status move(struct node *from_dir, const char *from, struct node *to_dir,
                                 const char *to, enum sidestep_store_rename mode,
                                 struct sidestep_error *err)
{
    struct entry **source = find(from_dir, from), **target = find(to_dir, to);
    struct node *node = *source != NULL ? (*source)->node : NULL;

    if (node == NULL || (mode == SIDESTEP_STORE_EXCHANGE && *target == NULL))
        return fail(err, SIDESTEP_ENOTFOUND, "rename", from, ENOENT);
    if (*target != NULL && mode == SIDESTEP_STORE_EXCHANGE) {
        (*source)->node = (*target)->node;
        (*target)->node = node;
        return SIDESTEP_OK;
    }
    if (*target != NULL && mode == SIDESTEP_STORE_NOREPLACE)
        return fail(err, SIDESTEP_EEXISTS, "rename", from, EEXIST);
    if (*target != NULL && (*target)->node == node)
        return SIDESTEP_OK;
    if (*target != NULL && (*target)->node->is_directory != node->is_directory)
        return fail(err, SIDESTEP_EIO, "rename", to, node->is_directory ? ENOTDIR : EISDIR);
    if (*target != NULL && (*target)->node->entries != NULL)
        return fail(err, SIDESTEP_EEXISTS, "rename", from, ENOTEMPTY);
    if (contains(node, to_dir))
        return fail(err, SIDESTEP_EIO, "rename", to, EINVAL);
    if (*target == NULL)
        return add(to_dir, to, node) ? SIDESTEP_OK
                                     : fail(err, SIDESTEP_ENOMEM, "rename", to, ENOMEM);
    (*target)->node->is_removed = node->is_directory;
    release((*target)->node);
    (*target)->node = node;
    node->references++;
    return SIDESTEP_OK;
}

static enum sidestep_status rename_node(void *context, void *from_dir, const char *from,
                                        void *to_dir, const char *to,
                                        enum sidestep_store_rename mode, struct sidestep_error *err)
{
    struct store_skeleton *store = context;

    pthread_mutex_lock(&store->lock);
    bool same = from_dir == to_dir && strcmp(from, to) == 0;
    enum sidestep_status status = move(from_dir, from, to_dir, to, mode, err);
    if (status == SIDESTEP_OK && mode != SIDESTEP_STORE_EXCHANGE && !same)
        drop(find(from_dir, from));
    pthread_mutex_unlock(&store->lock);
    return status;
}

static enum sidestep_status link_file(void *context, void *from_dir, const char *from, void *to_dir,
                                      const char *to, struct sidestep_error *err)
{
    struct store_skeleton *store = context;
    enum sidestep_status status = SIDESTEP_OK;

    pthread_mutex_lock(&store->lock);
    struct entry *entry = *find(from_dir, from);
    if (entry == NULL)
        status = fail(err, SIDESTEP_ENOTFOUND, "link", from, ENOENT);
    else if (entry->node->is_directory)
        status = fail(err, SIDESTEP_EUNSAFE, "link", from, EISDIR);
    else if (*find(to_dir, to) != NULL)
        status = fail(err, SIDESTEP_EEXISTS, "link", to, EEXIST);
    else if (!add(to_dir, to, entry->node))
        status = fail(err, SIDESTEP_ENOMEM, "link", to, ENOMEM);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* ---- files */

static enum sidestep_status file_create(void *context, void *at, const char *name, void **file,
                                        struct sidestep_error *err)
{
    return make(context, at, name, false, file, err);
}

static enum sidestep_status file_open(void *context, void *at, const char *name, void **file,
                                      struct sidestep_error *err)
{
    return open_node(context, at, name, false, file, err);
}

/* The lock is held. */
static bool resize(struct node *node, uint64_t size)
{
    uint8_t *bytes = realloc(node->bytes, size != 0 ? size : 1);

    if (bytes == NULL)
        return false;
    if (size > node->size)
        memset(bytes + node->size, 0, size - node->size);
    node->bytes = bytes;
    node->size = size;
    return true;
}

static enum sidestep_status file_write_at(void *context, void *file, const void *from, size_t bytes,
                                          uint64_t offset, struct sidestep_error *err)
{
    struct store_skeleton *store = context;
    struct node *node = file;

    pthread_mutex_lock(&store->lock);
    bool fits = offset + bytes <= node->size || resize(node, offset + bytes);
    if (fits)
        memcpy(node->bytes + offset, from, bytes);
    pthread_mutex_unlock(&store->lock);
    return fits ? SIDESTEP_OK : fail(err, SIDESTEP_ENOSPC, "write", "file", ENOSPC);
}

static enum sidestep_status file_read_at(void *context, void *file, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    struct store_skeleton *store = context;
    const struct node *node = file;

    pthread_mutex_lock(&store->lock);
    uint64_t size = node->size;
    if (offset + bytes <= size)
        memcpy(to, node->bytes + offset, bytes);
    pthread_mutex_unlock(&store->lock);
    if (offset + bytes <= size)
        return SIDESTEP_OK;
    snprintf(err->message, sizeof(err->message), "file ends at %llu", (unsigned long long)size);
    return SIDESTEP_ECORRUPT;
}

static enum sidestep_status file_truncate(void *context, void *file, uint64_t bytes,
                                          struct sidestep_error *err)
{
    struct store_skeleton *store = context;

    pthread_mutex_lock(&store->lock);
    bool done = resize(file, bytes);
    pthread_mutex_unlock(&store->lock);
    return done ? SIDESTEP_OK : fail(err, SIDESTEP_ENOSPC, "truncate", "file", ENOSPC);
}

static enum sidestep_status file_close(void *context, void *file, struct sidestep_error *err)
{
    (void)err;
    node_close(context, file);
    return SIDESTEP_OK;
}

/* ---- the store */

struct store_skeleton *store_skeleton_new(void)
{
    struct store_skeleton *store = calloc(1, sizeof(*store));

    if (store == NULL)
        return NULL;
    pthread_mutex_init(&store->lock, NULL);
    store->root = new_node(store, true);
    if (store->root == NULL)
        store_skeleton_free(&store);
    return store;
}

void store_skeleton_free(struct store_skeleton **store)
{
    if (*store == NULL)
        return;
    if ((*store)->root != NULL)
        release((*store)->root);
    pthread_mutex_destroy(&(*store)->lock);
    free(*store);
    *store = NULL;
}

struct sidestep_store store_skeleton_ops(struct store_skeleton *store)
{
    return (struct sidestep_store){.struct_size = sizeof(struct sidestep_store),
                                   .name = "skeleton",
                                   .context = store,
                                   .dir_open = dir_open,
                                   .dir_close = node_close,
                                   .dir_make = dir_make,
                                   .dir_remove = dir_remove,
                                   .dir_list = dir_list,
                                   .dir_sync = sync_node,
                                   .dir_stat = stat_node,
                                   .dir_traits = traits,
                                   .stat = stat_name,
                                   .rename = rename_node,
                                   .unlink = unlink_file,
                                   .link = link_file,
                                   .file_create = file_create,
                                   .file_open = file_open,
                                   .file_write_at = file_write_at,
                                   .file_read_at = file_read_at,
                                   .file_truncate = file_truncate,
                                   .file_sync = sync_node,
                                   .file_stat = stat_node,
                                   .file_close = file_close};
}
