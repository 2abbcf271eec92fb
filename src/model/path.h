/* SPDX-License-Identifier: BSD-3-Clause */
/* path.h -- paths of nested state dicts: what their items are called, and which are integer keys.
 */
#ifndef MODEL_PATH_H
#define MODEL_PATH_H

#include "base/base.h"

#define PATH_ITEM_DECIMAL_BYTES 24u /* of an int64_t in decimal, sign and NUL included */

_Static_assert(SIDESTEP_MAX_PATH_ITEMS <= 64, "path_int_keys() has a bit for each item");

/* The item as it stands in a name: its key, or its number in ${decimal}. */
const char *path_item_text(const struct sidestep_path_item *item,
                           char decimal[PATH_ITEM_DECIMAL_BYTES]);
/* Torch's rule: a fully qualified name is the texts of its path joined by '.'. */
bool path_matches_name(const char *name, const struct sidestep_path_item *path,
                       uint32_t path_length);

static inline bool path_item_is_int_key(const struct sidestep_path_item *item)
{
    return (item->flags & SIDESTEP_PATH_INT_KEY) != 0;
}
/* Bit i: item i is an integer key. */
uint64_t path_int_keys(const struct sidestep_path_item *path, uint32_t path_length);
/*
 * The reverse, for a path in which integer keys are still the texts that stock torch sees: make
 * item i an integer key for each bit i of ${integers}.  False, with nothing changed, if a bit
 * stands for no item, or for one that is no key, or no number as path_item_text() writes it.
 */
bool path_set_int_keys(struct sidestep_path_item *path, uint32_t path_length, uint64_t integers);

#endif
