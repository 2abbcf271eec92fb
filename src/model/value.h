/* SPDX-License-Identifier: BSD-3-Clause */
/* value.h -- struct sidestep_value from the inside; the public functions are in value.c. */
#ifndef MODEL_VALUE_H
#define MODEL_VALUE_H

#include "base/base.h"

#define VALUE_MAX_DEPTH 128 /* containers around a leaf */

struct value_keys;

struct sidestep_value {
    enum sidestep_value_kind kind;
    uint32_t height; /* containers on the longest way down; an upper bound after replacements */
    struct sidestep_value *parent; /* the container that owns it, or NULL */
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct { /* STR, BYTES, OPAQUE (a description); NUL behind the end */
            char *bytes;
            size_t length;
        } text;
        struct { /* LIST, TUPLE: items.  DICT: key, value, key, value ... */
            struct sidestep_value **items;
            size_t count; /* pointers in ${items} */
            size_t capacity;
            struct value_keys *keys; /* index over the keys of a larger dict, or NULL */
        } seq;
    } as;
};

/* ${length} bytes that may hold NULs. */
struct sidestep_value *value_new_text(enum sidestep_value_kind kind, const char *bytes,
                                      size_t length);
/* Same kind and content; dicts in the same order; floats by bits. */
bool value_equal(const struct sidestep_value *a, const struct sidestep_value *b);

#endif
