/* SPDX-License-Identifier: BSD-3-Clause */
/* value.h -- defines struct sidestep_value: trees of Python-like values. */
#ifndef MODEL_VALUE_H
#define MODEL_VALUE_H

#include "base/base.h"

#define VALUE_MAX_DEPTH 128 /* how many containers may enclose a leaf */

struct value_keys;

struct sidestep_value {
    enum sidestep_value_kind kind;
    uint32_t height; /* of the tree, in containers; may be too large after a replacement */
    struct sidestep_value *parent; /* the container that owns it, or NULL */
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct { /* STR, BYTES, OPAQUE (a description); a NUL follows */
            char *bytes;
            size_t length;
        } text;
        struct { /* LIST, TUPLE: items.  DICT: key, value, key, value ... */
            struct sidestep_value **items;
            size_t count; /* pointers in ${items} */
            size_t capacity;
            struct value_keys *keys; /* the index of a large dict; else NULL */
        } seq;
    } as;
};

/* A text of ${length} bytes, which may contain NULs. */
struct sidestep_value *value_new_text(enum sidestep_value_kind kind, const char *bytes,
                                      size_t length);
/* Do they have the same kind and content?  Dicts must have the same order, floats the same bits.
 * False if there is an OPAQUE: it only describes what the pickle has. */
bool value_equal(const struct sidestep_value *a, const struct sidestep_value *b);

#endif
