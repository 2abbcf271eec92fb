/* SPDX-License-Identifier: BSD-3-Clause */
/* value_keys.c -- see value_keys.h. */
#include "model/value_keys.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"

#define SEARCHED_PAIRS 16u /* a dict with at most this many pairs has no index */
#define MIN_CAPACITY 64u

struct value_keys {
    uint64_t seed;
    size_t capacity; /* a power of two */
    size_t count;    /* slots in use */
    struct key_slot {
        uint64_t hash;
        size_t pair; /* from 1; 0: free */
    } slots[];
};

bool value_keys_is_hashable(const struct sidestep_value *key)
{
    if (key->kind == SIDESTEP_VALUE_LIST || key->kind == SIDESTEP_VALUE_DICT)
        return false;
    for (size_t i = 0; key->kind == SIDESTEP_VALUE_TUPLE && i < key->as.seq.count; i++)
        if (!value_keys_is_hashable(key->as.seq.items[i]))
            return false;
    return true;
}

/* Set ${integer} to the one that ${v} equals in Python.  False: there is none. */
static bool as_integer(const struct sidestep_value *v, int64_t *integer)
{
    switch (v->kind) {
    case SIDESTEP_VALUE_BOOL:
        *integer = v->as.boolean;
        return true;
    case SIDESTEP_VALUE_INT:
        *integer = v->as.integer;
        return true;
    case SIDESTEP_VALUE_FLOAT:
        if (!(v->as.real >= -0x1p63 && v->as.real < 0x1p63) || v->as.real != trunc(v->as.real))
            return false;
        *integer = (int64_t)v->as.real;
        return true;
    default:
        return false;
    }
}

/* False: the key equals no other key, because it is NaN or opaque, or a tuple that contains one. */
static bool hash_of(const struct sidestep_value *key, uint64_t seed, uint64_t *hash)
{
    int64_t integer;

    if (as_integer(key, &integer)) {
        *hash = XXH3_64bits_withSeed(&integer, sizeof(integer), seed);
        return true;
    }
    switch (key->kind) {
    case SIDESTEP_VALUE_FLOAT:
        *hash = XXH3_64bits_withSeed(&key->as.real, sizeof(key->as.real), seed);
        return !isnan(key->as.real);
    case SIDESTEP_VALUE_STR:
    case SIDESTEP_VALUE_BYTES:
        *hash = XXH3_64bits_withSeed(key->as.text.bytes, key->as.text.length, seed + key->kind);
        return true;
    case SIDESTEP_VALUE_TUPLE:
        *hash = seed + key->kind;
        for (size_t i = 0; i < key->as.seq.count; i++)
            if (!hash_of(key->as.seq.items[i], *hash, hash))
                return false;
        return true;
    default:
        *hash = seed + key->kind;
        return key->kind == SIDESTEP_VALUE_NONE;
    }
}

static bool keys_equal(const struct sidestep_value *a, const struct sidestep_value *b)
{
    int64_t a_integer, b_integer;
    bool a_is_integer = as_integer(a, &a_integer), b_is_integer = as_integer(b, &b_integer);

    if (a_is_integer || b_is_integer)
        return a_is_integer && b_is_integer && a_integer == b_integer;
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case SIDESTEP_VALUE_FLOAT:
        return a->as.real == b->as.real;
    case SIDESTEP_VALUE_STR:
    case SIDESTEP_VALUE_BYTES:
        return a->as.text.length == b->as.text.length &&
               memcmp(a->as.text.bytes, b->as.text.bytes, a->as.text.length) == 0;
    case SIDESTEP_VALUE_TUPLE:
        for (size_t i = 0; i < a->as.seq.count && i < b->as.seq.count; i++)
            if (!keys_equal(a->as.seq.items[i], b->as.seq.items[i]))
                return false;
        return a->as.seq.count == b->as.seq.count;
    default:
        return a->kind == SIDESTEP_VALUE_NONE;
    }
}

static const struct sidestep_value *key_of_pair(const struct sidestep_value *dict, size_t pair)
{
    return dict->as.seq.items[2 * pair];
}

/* The slot of ${key}, or the free slot for it. */
static struct key_slot *find_slot(struct value_keys *keys, const struct sidestep_value *dict,
                                  const struct sidestep_value *key, uint64_t hash)
{
    size_t at = hash & (keys->capacity - 1);

    for (;; at = (at + 1) & (keys->capacity - 1)) {
        struct key_slot *slot = &keys->slots[at];
        if (slot->pair == 0 ||
            (slot->hash == hash && keys_equal(key_of_pair(dict, slot->pair - 1), key)))
            return slot;
    }
}

size_t value_keys_find(const struct sidestep_value *dict, const struct sidestep_value *key)
{
    struct value_keys *keys = dict->as.seq.keys;
    size_t pairs = dict->as.seq.count / 2;
    uint64_t hash;

    if (keys != NULL) {
        size_t pair = hash_of(key, keys->seed, &hash) ? find_slot(keys, dict, key, hash)->pair : 0;
        return pair != 0 ? pair - 1 : SIZE_MAX;
    }
    for (size_t i = 0; i < pairs; i++)
        if (keys_equal(key_of_pair(dict, i), key))
            return i;
    return SIZE_MAX;
}

static void put_pair(struct value_keys *keys, const struct sidestep_value *dict, size_t pair)
{
    const struct sidestep_value *key = key_of_pair(dict, pair);
    uint64_t hash;

    if (!hash_of(key, keys->seed, &hash))
        return;
    *find_slot(keys, dict, key, hash) = (struct key_slot){.hash = hash, .pair = pair + 1};
    keys->count++;
}

enum sidestep_status value_keys_reserve(struct sidestep_value *dict, struct sidestep_error *err)
{
    struct value_keys *old = dict->as.seq.keys;
    size_t pairs = dict->as.seq.count / 2;

    if (old != NULL ? (old->count + 1) * 4 <= old->capacity * 3 : pairs < SEARCHED_PAIRS)
        return SIDESTEP_OK;
    size_t capacity = old != NULL ? old->capacity * 2 : MIN_CAPACITY;
    size_t bytes = sizeof(*old) + capacity * sizeof(old->slots[0]);
    struct value_keys *keys = memory_new(1, bytes);
    if (keys == NULL)
        return FAIL_NOMEM(err, bytes);
    keys->capacity = capacity;
    if (old != NULL) {
        keys->seed = old->seed;
    } else {
        enum sidestep_status status = random_bytes(&keys->seed, sizeof(keys->seed), err);
        if (status != SIDESTEP_OK) {
            value_keys_free(keys);
            return status;
        }
    }
    for (size_t i = 0; i < pairs; i++)
        put_pair(keys, dict, i);
    value_keys_free(old);
    dict->as.seq.keys = keys;
    return SIDESTEP_OK;
}

void value_keys_add(struct sidestep_value *dict)
{
    if (dict->as.seq.keys == NULL)
        return;
    assert(dict->as.seq.keys->count < dict->as.seq.keys->capacity);
    put_pair(dict->as.seq.keys, dict, dict->as.seq.count / 2 - 1);
}

void value_keys_free(struct value_keys *keys)
{
    free(keys);
}
