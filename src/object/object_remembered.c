/* SPDX-License-Identifier: BSD-3-Clause */
/* object_remembered.c -- the cached listing of a directory of an object store (dir_remember()). */
#include "object/object_store_internal.h"

bool object_store_set_contents(struct store_dir *dir, const char *name, const char *tag,
                               const void *bytes, size_t length)
{
    struct object_tree *own = ((struct object_dir *)(void *)dir)->own;
    char key[OBJECT_KEY_BYTES];

    return own != NULL && object_store_key(dir, name, key, NULL) == SIDESTEP_OK &&
           object_tree_set_contents(own, key, tag, bytes, length);
}

const void *object_store_contents(const struct store_dir *dir, const char *name, size_t *length)
{
    const struct object_tree *tree = ((const struct object_dir *)(const void *)dir)->tree;
    char key[OBJECT_KEY_BYTES];

    if (tree == NULL || object_store_key(dir, name, key, NULL) != SIDESTEP_OK)
        return NULL;
    return object_tree_contents(tree, key, length);
}

void object_store_each(const struct store_dir *dir, object_each *each, void *context)
{
    const struct object_tree *tree = ((const struct object_dir *)(const void *)dir)->tree;

    if (tree != NULL)
        object_tree_each(tree, object_store_prefix(dir), each, context);
}
