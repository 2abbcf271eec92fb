/* SPDX-License-Identifier: BSD-3-Clause */
/* path.h -- compares paths of state dicts with names, copies them, and marks integer keys. */
#ifndef MODEL_PATH_H
#define MODEL_PATH_H

#include "base/base.h"

#define PATH_ITEM_DECIMAL_BYTES 24u /* of an int64_t in decimal, sign and NUL included */

_Static_assert(SIDESTEP_MAX_PATH_ITEMS <= 64, "path_int_keys() has a bit for each item");

/* The item's text in a name: its key, or its number, written to ${decimal}. */
const char *path_item_text(const struct sidestep_path_item *item,
                           char decimal[PATH_ITEM_DECIMAL_BYTES]);
/* Does ${name} consist of the texts of ${path}, joined by '.'?  This is torch's rule for FQNs. */
bool path_matches_name(const char *name, const struct sidestep_path_item *path,
                       uint32_t path_length);

static inline bool path_item_is_int_key(const struct sidestep_path_item *item)
{
    return (item->flags & SIDESTEP_PATH_INT_KEY) != 0;
}
/* Copy a path, and the texts of its keys, to ${arena}. */
enum sidestep_status path_copy(struct arena *arena, const struct sidestep_path_item *path,
                               uint32_t path_length, const struct sidestep_path_item **copy,
                               struct sidestep_error *err);
/* Bit i is set if item i is an integer key. */
uint64_t path_int_keys(const struct sidestep_path_item *path, uint32_t path_length);
/*
 * The reverse, for a path whose integer keys are still texts, as stock torch reads them: for each
 * bit i of ${integers}, make item i an integer key.  False, and nothing changes: there is no such
 * item, or it is not a key, or its text is not a number as path_item_text() writes it.
 */
bool path_set_int_keys(struct sidestep_path_item *path, uint32_t path_length, uint64_t integers);

#endif
