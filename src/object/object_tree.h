/* SPDX-License-Identifier: BSD-3-Clause */
/* object_tree.h -- a cache of one listing of all keys below a prefix, with sizes, times and tags.
 * Does not change after it was read, so any thread may use it. */
#ifndef OBJECT_OBJECT_TREE_H
#define OBJECT_OBJECT_TREE_H

#include "object/client.h"

struct object_tree;

/* List all keys that begin with ${prefix}. ${*out}: NULL if there are more than ${most}. */
enum sidestep_status object_tree_read(struct object_client *client, const char *prefix, size_t most,
                                      struct object_tree **out, struct sidestep_error *err);
/* Accepts NULL. */
void object_tree_free(struct object_tree *tree);

/* False: ${key} is not in the listing. */
bool object_tree_find(const struct object_tree *tree, const char *key, struct object_info *info);
/* Does a key begin with ${prefix}? */
bool object_tree_has(const struct object_tree *tree, const char *prefix);
/* Cache a copy of the contents of ${key}. False: the listing does not have it with this tag and
 * length, or memory is short. Only before other threads use the tree. */
bool object_tree_set_contents(struct object_tree *tree, const char *key, const char *tag,
                              const void *bytes, size_t length);
/* The cached contents of ${key}; NULL: there are none. */
const void *object_tree_contents(const struct object_tree *tree, const char *key, size_t *length);
/* Call ${each} for every key that begins with ${prefix}, until it returns false. */
void object_tree_each(const struct object_tree *tree, const char *prefix, object_each *each,
                      void *context);
/* Like ops->list() with the delimiter '/'. */
void object_tree_list(const struct object_tree *tree, const char *prefix, object_each *each,
                      void *context);

#endif
