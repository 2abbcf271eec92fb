/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * value_keys.h -- the keys of a dict as Python compares them: 1, 1.0 and True are one key.
 * Small dicts are searched, larger ones have a hash index with a random seed (keys come from
 * files).
 */
#ifndef MODEL_VALUE_KEYS_H
#define MODEL_VALUE_KEYS_H

#include "model/value.h"

/* Not a list or dict, and no tuple with one inside. */
bool value_keys_is_hashable(const struct sidestep_value *key);

/* Pair number of the key of ${dict} that equals ${key}, or SIZE_MAX. */
size_t value_keys_find(const struct sidestep_value *dict, const struct sidestep_value *key);

/* Make sure that value_keys_add() of one more pair cannot fail. */
enum sidestep_status value_keys_reserve(struct sidestep_value *dict, struct sidestep_error *err);
/* The last pair of ${dict} is new. */
void value_keys_add(struct sidestep_value *dict);
void value_keys_free(struct value_keys *keys);

#endif
