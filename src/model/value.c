/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * value.c -- see value.h.
 *
 * Every value knows its container.  So a tree is freed without recursion, and a value cannot be put
 * into two containers or into itself.  The depth of a tree is limited when it is built, so code
 * that walks a tree may recurse.
 */
#include "model/value.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/value_keys.h"

static struct sidestep_value *new_value(enum sidestep_value_kind kind)
{
    struct sidestep_value *value = memory_new(1, sizeof(*value));

    if (value != NULL)
        value->kind = kind;
    return value;
}

struct sidestep_value *sidestep_value_none(void)
{
    return new_value(SIDESTEP_VALUE_NONE);
}

struct sidestep_value *sidestep_value_bool(bool v)
{
    struct sidestep_value *value = new_value(SIDESTEP_VALUE_BOOL);

    if (value != NULL)
        value->as.boolean = v;
    return value;
}

struct sidestep_value *sidestep_value_int(int64_t v)
{
    struct sidestep_value *value = new_value(SIDESTEP_VALUE_INT);

    if (value != NULL)
        value->as.integer = v;
    return value;
}

struct sidestep_value *sidestep_value_float(double v)
{
    struct sidestep_value *value = new_value(SIDESTEP_VALUE_FLOAT);

    if (value != NULL)
        value->as.real = v;
    return value;
}

struct sidestep_value *value_new_text(enum sidestep_value_kind kind, const char *bytes,
                                      size_t length)
{
    struct sidestep_value *value = length < SIZE_MAX ? new_value(kind) : NULL;

    if (value == NULL)
        return NULL;
    value->as.text.bytes = memory_new(1, length + 1);
    if (value->as.text.bytes == NULL) {
        free(value);
        return NULL;
    }
    if (length != 0)
        memcpy(value->as.text.bytes, bytes, length);
    value->as.text.length = length;
    return value;
}

struct sidestep_value *sidestep_value_str(const char *utf8)
{
    return utf8 != NULL ? value_new_text(SIDESTEP_VALUE_STR, utf8, strlen(utf8)) : NULL;
}

struct sidestep_value *sidestep_value_bytes(const void *bytes, size_t length)
{
    return value_new_text(SIDESTEP_VALUE_BYTES, bytes, length);
}

struct sidestep_value *sidestep_value_list(void)
{
    return new_value(SIDESTEP_VALUE_LIST);
}

struct sidestep_value *sidestep_value_tuple(void)
{
    return new_value(SIDESTEP_VALUE_TUPLE);
}

struct sidestep_value *sidestep_value_dict(void)
{
    return new_value(SIDESTEP_VALUE_DICT);
}

static bool is_text(const struct sidestep_value *value)
{
    return value->kind == SIDESTEP_VALUE_STR || value->kind == SIDESTEP_VALUE_BYTES ||
           value->kind == SIDESTEP_VALUE_OPAQUE;
}

static bool is_sequence(const struct sidestep_value *value)
{
    return value->kind == SIDESTEP_VALUE_LIST || value->kind == SIDESTEP_VALUE_TUPLE;
}

static bool is_dict(const struct sidestep_value *value)
{
    return value->kind == SIDESTEP_VALUE_DICT;
}

static bool is_container(const struct sidestep_value *value)
{
    return is_sequence(value) || is_dict(value);
}

static void free_node(struct sidestep_value *value)
{
    if (is_text(value))
        free(value->as.text.bytes);
    if (is_container(value)) {
        free(value->as.seq.items);
        value_keys_free(value->as.seq.keys);
    }
    free(value);
}

/* Free the leaves first, and go up to their containers by ${parent}. */
static void free_tree(struct sidestep_value *root)
{
    struct sidestep_value *at = root;

    root->parent = NULL;
    while (at != NULL) {
        if (is_container(at) && at->as.seq.count > 0) {
            at = at->as.seq.items[--at->as.seq.count];
            continue;
        }
        struct sidestep_value *parent = at->parent;
        free_node(at);
        at = parent;
    }
}

void sidestep_value_free(struct sidestep_value **value)
{
    if (value == NULL)
        return;
    /* A value in a container is freed with it. */
    if (*value != NULL && (*value)->parent == NULL)
        free_tree(*value);
    *value = NULL;
}

static enum sidestep_status reserve(struct sidestep_value *seq, size_t more,
                                    struct sidestep_error *err)
{
    size_t want = seq->as.seq.count + more;

    if (want <= seq->as.seq.capacity)
        return SIDESTEP_OK;
    if (want < seq->as.seq.capacity * 2)
        want = seq->as.seq.capacity * 2;
    struct sidestep_value **items =
        memory_resize(seq->as.seq.items, want, sizeof(struct sidestep_value *));
    if (items == NULL)
        return FAIL_NOMEM(err, want * sizeof(struct sidestep_value *));
    seq->as.seq.items = items;
    seq->as.seq.capacity = want;
    return SIDESTEP_OK;
}

/* Is ${item} ${seq} itself, or one of the containers around it? */
static bool is_around(const struct sidestep_value *seq, const struct sidestep_value *item)
{
    for (const struct sidestep_value *up = seq; up != NULL; up = up->parent)
        if (up == item)
            return true;
    return false;
}

static enum sidestep_status check_child(const struct sidestep_value *seq,
                                        const struct sidestep_value *item,
                                        struct sidestep_error *err)
{
    size_t depth = 0;

    if (seq == NULL || item == NULL)
        return FAIL(err, SIDESTEP_ENOMEM, "the value is NULL: no memory when it was made");
    if (is_around(seq, item))
        return FAIL(err, SIDESTEP_EINVAL, "a value cannot contain itself");
    if (item->parent != NULL)
        return FAIL(err, SIDESTEP_EINVAL, "the value is already part of another value");
    for (const struct sidestep_value *up = seq; up != NULL; up = up->parent)
        depth++;
    if (depth + item->height > VALUE_MAX_DEPTH)
        return FAIL(err, SIDESTEP_EINVAL, "values nested more than %d deep", VALUE_MAX_DEPTH);
    return SIDESTEP_OK;
}

static void adopt(struct sidestep_value *seq, struct sidestep_value *item)
{
    uint32_t height = item->height + 1;

    item->parent = seq;
    for (struct sidestep_value *up = seq; up != NULL && up->height < height; up = up->parent)
        up->height = height++;
}

/* On failure ${item} is freed, unless it contains ${seq}.  sidestep_value_free() does not free a
 * value that another container owns. */
enum sidestep_status sidestep_value_append(struct sidestep_value *seq, struct sidestep_value *item,
                                           struct sidestep_error *err)
{
    OWNED_BY(sidestep_value_free)
    struct sidestep_value *taken = is_around(seq, item) ? NULL : item;

    if (seq != NULL && !is_sequence(seq))
        return FAIL(err, SIDESTEP_EINVAL, "cannot append to a value that is not a list or tuple");
    TRY(check_child(seq, item, err));
    TRY(reserve(seq, 1, err));
    adopt(seq, taken);
    seq->as.seq.items[seq->as.seq.count++] = TAKE(taken);
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_value_set(struct sidestep_value *dict, struct sidestep_value *key,
                                        struct sidestep_value *item, struct sidestep_error *err)
{
    OWNED_BY(sidestep_value_free)
    struct sidestep_value *taken_key = is_around(dict, key) ? NULL : key;
    OWNED_BY(sidestep_value_free)
    struct sidestep_value *taken = item == key || is_around(dict, item) ? NULL : item;

    if (dict != NULL && !is_dict(dict))
        return FAIL(err, SIDESTEP_EINVAL, "cannot set a key of a value that is not a dict");
    TRY(check_child(dict, key, err));
    TRY(check_child(dict, item, err));
    if (key == item)
        return FAIL(err, SIDESTEP_EINVAL, "key and value are the same object");
    if (!value_keys_is_hashable(key))
        return FAIL(err, SIDESTEP_EINVAL, "a list or dict cannot be a key");
    size_t pair = value_keys_find(dict, key);
    if (pair != SIZE_MAX) {
        struct sidestep_value **place = &dict->as.seq.items[2 * pair + 1];
        adopt(dict, taken);
        free_tree(*place);
        *place = TAKE(taken);
        return SIDESTEP_OK;
    }
    TRY(value_keys_reserve(dict, err));
    TRY(reserve(dict, 2, err));
    adopt(dict, taken_key);
    adopt(dict, taken);
    dict->as.seq.items[dict->as.seq.count++] = TAKE(taken_key);
    dict->as.seq.items[dict->as.seq.count++] = TAKE(taken);
    value_keys_add(dict);
    return SIDESTEP_OK;
}

enum sidestep_value_kind sidestep_value_kind(const struct sidestep_value *value)
{
    return value != NULL ? value->kind : SIDESTEP_VALUE_NONE;
}

bool sidestep_value_get_bool(const struct sidestep_value *value)
{
    return value != NULL && value->kind == SIDESTEP_VALUE_BOOL && value->as.boolean;
}

int64_t sidestep_value_get_int(const struct sidestep_value *value)
{
    return value != NULL && value->kind == SIDESTEP_VALUE_INT ? value->as.integer : 0;
}

double sidestep_value_get_float(const struct sidestep_value *value)
{
    return value != NULL && value->kind == SIDESTEP_VALUE_FLOAT ? value->as.real : 0.0;
}

const char *sidestep_value_get_bytes(const struct sidestep_value *value, size_t *length)
{
    bool has = value != NULL && is_text(value);

    if (length != NULL)
        *length = has ? value->as.text.length : 0;
    return has ? value->as.text.bytes : NULL;
}

size_t sidestep_value_count(const struct sidestep_value *value)
{
    if (value == NULL || !is_container(value))
        return 0;
    return is_dict(value) ? value->as.seq.count / 2 : value->as.seq.count;
}

const struct sidestep_value *sidestep_value_item(const struct sidestep_value *value, size_t i)
{
    if (i >= sidestep_value_count(value))
        return NULL;
    return value->as.seq.items[is_dict(value) ? 2 * i + 1 : i];
}

const struct sidestep_value *sidestep_value_key(const struct sidestep_value *value, size_t i)
{
    if (value == NULL || !is_dict(value) || i >= sidestep_value_count(value))
        return NULL;
    return value->as.seq.items[2 * i];
}

/* Recurses at most VALUE_MAX_DEPTH deep. */
bool value_equal(const struct sidestep_value *a, const struct sidestep_value *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case SIDESTEP_VALUE_NONE:
        return true;
    case SIDESTEP_VALUE_BOOL:
        return a->as.boolean == b->as.boolean;
    case SIDESTEP_VALUE_INT:
        return a->as.integer == b->as.integer;
    case SIDESTEP_VALUE_FLOAT:
        return memcmp(&a->as.real, &b->as.real, sizeof(a->as.real)) == 0;
    case SIDESTEP_VALUE_OPAQUE:
        return false;
    case SIDESTEP_VALUE_STR:
    case SIDESTEP_VALUE_BYTES:
        return a->as.text.length == b->as.text.length &&
               memcmp(a->as.text.bytes, b->as.text.bytes, a->as.text.length) == 0;
    case SIDESTEP_VALUE_LIST:
    case SIDESTEP_VALUE_TUPLE:
    case SIDESTEP_VALUE_DICT:
        break;
    }
    if (a->as.seq.count != b->as.seq.count)
        return false;
    for (size_t i = 0; i < a->as.seq.count; i++)
        if (!value_equal(a->as.seq.items[i], b->as.seq.items[i]))
            return false;
    return true;
}
