/* SPDX-License-Identifier: BSD-3-Clause */
/* object_tree.h -- the keys below a prefix as one flat listing showed them, with sizes, times and
 * tags. Constant once it is read, so any thread may use it. */
#ifndef OBJECT_OBJECT_TREE_H
#define OBJECT_OBJECT_TREE_H

#include "object/client.h"

struct object_tree;

/* List all keys that begin with ${prefix}. ${*out} is NULL if there are more than ${most}. */
enum sidestep_status object_tree_read(struct object_client *client, const char *prefix, size_t most,
                                      struct object_tree **out, struct sidestep_error *err);
/* Accepts NULL. */
void object_tree_free(struct object_tree *tree);

/* False: ${key} is not there. */
bool object_tree_find(const struct object_tree *tree, const char *key, struct object_info *info);
/* Does a key begin with ${prefix}? */
bool object_tree_has(const struct object_tree *tree, const char *prefix);
/* Remember the contents of ${key}, a copy. False: the tree does not show it with this tag and so
 * many bytes, or memory is short. Only before other threads use the tree. */
bool object_tree_give(struct object_tree *tree, const char *key, const char *tag, const void *bytes,
                      size_t length);
/* The contents of ${key}, as object_tree_give() got them. NULL: they are not known. */
const void *object_tree_given(const struct object_tree *tree, const char *key, size_t *length);
/* Call ${each} for every key that begins with ${prefix}, until it returns false. */
void object_tree_each(const struct object_tree *tree, const char *prefix, object_each *each,
                      void *context);
/* As ops->list() with the delimiter '/'. */
void object_tree_list(const struct object_tree *tree, const char *prefix, object_each *each,
                      void *context);

#endif
