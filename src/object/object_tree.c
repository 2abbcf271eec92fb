/* SPDX-License-Identifier: BSD-3-Clause */
/* object_tree.c -- caches one listing of all keys below a prefix. */
#include "object/object_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct leaf {
    const char *key;
    const char *tag;
    uint64_t bytes;
    int64_t modified;
    const void *contents; /* NULL: not cached */
};

struct object_tree {
    struct arena arena;
    struct leaf *leaves; /* in byte order */
    size_t count, capacity;
    size_t most; /* keys */
    int64_t now; /* the store's clock */
    bool is_cut; /* there are more keys */
    bool no_memory;
};

void object_tree_free(struct object_tree *tree)
{
    if (tree == NULL)
        return;
    arena_release(&tree->arena);
    free(tree->leaves);
    free(tree);
}

static bool grow(struct object_tree *tree)
{
    size_t capacity = tree->capacity != 0 ? 2 * tree->capacity : 256;
    struct leaf *more = memory_resize(tree->leaves, capacity, sizeof(*more));

    if (more == NULL)
        return false;
    tree->leaves = more;
    tree->capacity = capacity;
    return true;
}

static bool add(void *context, const struct object_info *info)
{
    struct object_tree *tree = context;

    tree->now = info->now;
    tree->is_cut = tree->count == tree->most;
    if (tree->is_cut)
        return false;
    tree->no_memory = tree->count == tree->capacity && !grow(tree);
    if (tree->no_memory)
        return false;
    struct leaf *leaf = &tree->leaves[tree->count];
    *leaf = (struct leaf){.key = arena_strndup(&tree->arena, info->key, strlen(info->key)),
                          .tag = arena_strndup(&tree->arena, info->tag, strlen(info->tag)),
                          .bytes = info->bytes,
                          .modified = info->modified};
    tree->no_memory = leaf->key == NULL || leaf->tag == NULL;
    tree->count++;
    return !tree->no_memory;
}

enum sidestep_status object_tree_read(struct object_client *client, const char *prefix, size_t most,
                                      struct object_tree **out, struct sidestep_error *err)
{
    struct object_tree *tree = memory_new(1, sizeof(*tree));

    *out = NULL;
    if (tree == NULL)
        return FAIL_NOMEM(err, sizeof(*tree));
    tree->most = most;
    enum sidestep_status status = client->ops->list(client, prefix, 0, NULL, 0, add, tree, err);
    if (status == SIDESTEP_OK && tree->no_memory)
        status = FAIL_NOMEM(err, tree->count * sizeof(*tree->leaves));
    if (status == SIDESTEP_OK && !tree->is_cut)
        *out = tree;
    else
        object_tree_free(tree);
    return status;
}

/* The index of the first key that is not before ${key}. */
static size_t lower_bound(const struct object_tree *tree, const char *key)
{
    size_t low = 0, high = tree->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(tree->leaves[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void fill(const struct object_tree *tree, const struct leaf *leaf, struct object_info *info)
{
    *info =
        (struct object_info){.bytes = leaf->bytes, .modified = leaf->modified, .now = tree->now};
    snprintf(info->tag, sizeof(info->tag), "%s", leaf->tag);
}

bool object_tree_find(const struct object_tree *tree, const char *key, struct object_info *info)
{
    size_t at = lower_bound(tree, key);

    if (at == tree->count || strcmp(tree->leaves[at].key, key) != 0)
        return false;
    fill(tree, &tree->leaves[at], info);
    return true;
}

bool object_tree_has(const struct object_tree *tree, const char *prefix)
{
    size_t at = lower_bound(tree, prefix);

    return at != tree->count && strncmp(tree->leaves[at].key, prefix, strlen(prefix)) == 0;
}

void object_tree_list(const struct object_tree *tree, const char *prefix, object_each *each,
                      void *context)
{
    size_t length = strlen(prefix);
    struct object_info info = {0};

    for (size_t i = lower_bound(tree, prefix); i < tree->count; i++) {
        const struct leaf *leaf = &tree->leaves[i];
        if (strncmp(leaf->key, prefix, length) != 0)
            break;
        const char *slash = strchr(leaf->key + length, '/');
        size_t end = slash != NULL ? (size_t)(slash - leaf->key) + 1 : strlen(leaf->key);
        if (slash != NULL && strncmp(info.key, leaf->key, end) == 0 && info.key[end] == '\0')
            continue; /* of the same name as the one before */
        fill(tree, leaf, &info);
        snprintf(info.key, sizeof(info.key), "%.*s", (int)end, leaf->key);
        if (!each(context, &info))
            break;
    }
}

bool object_tree_set_contents(struct object_tree *tree, const char *key, const char *tag,
                              const void *bytes, size_t length)
{
    size_t at = lower_bound(tree, key);

    if (at == tree->count || strcmp(tree->leaves[at].key, key) != 0)
        return false;
    struct leaf *leaf = &tree->leaves[at];
    if (leaf->tag[0] == '\0' || strcmp(leaf->tag, tag) != 0 || leaf->bytes != length)
        return false;
    leaf->contents = arena_copy(&tree->arena, bytes, length);
    return leaf->contents != NULL;
}

const void *object_tree_contents(const struct object_tree *tree, const char *key, size_t *length)
{
    size_t at = lower_bound(tree, key);

    if (at == tree->count || strcmp(tree->leaves[at].key, key) != 0)
        return NULL;
    *length = (size_t)tree->leaves[at].bytes;
    return tree->leaves[at].contents;
}

void object_tree_each(const struct object_tree *tree, const char *prefix, object_each *each,
                      void *context)
{
    struct object_info info;

    for (size_t i = lower_bound(tree, prefix); i < tree->count; i++) {
        if (strncmp(tree->leaves[i].key, prefix, strlen(prefix)) != 0)
            break;
        fill(tree, &tree->leaves[i], &info);
        snprintf(info.key, sizeof(info.key), "%s", tree->leaves[i].key);
        if (!each(context, &info))
            break;
    }
}
