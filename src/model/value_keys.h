/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * value_keys.h -- finds keys of a dict, compared as in Python: 1, 1.0 and True are one key.
 *
 * A small dict is searched.  A larger one has a hash index.  The seed is random, because keys come
 * from files.
 */
#ifndef MODEL_VALUE_KEYS_H
#define MODEL_VALUE_KEYS_H

#include "model/value.h"

/* Can it be a key?  Lists and dicts cannot, nor tuples that contain one. */
bool value_keys_is_hashable(const struct sidestep_value *key);

/* The number of the pair of ${dict} whose key equals ${key}, or SIZE_MAX. */
size_t value_keys_find(const struct sidestep_value *dict, const struct sidestep_value *key);

/* Reserve memory, so that the next value_keys_add() cannot fail. */
enum sidestep_status value_keys_reserve(struct sidestep_value *dict, struct sidestep_error *err);
/* Add the last pair of ${dict} to the index. */
void value_keys_add(struct sidestep_value *dict);
void value_keys_free(struct value_keys *keys);

#endif
