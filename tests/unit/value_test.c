/* SPDX-License-Identifier: BSD-3-Clause */
/* value_test.c -- value trees: ownership, equal keys, depth, and failing allocations. */
#include <math.h>

#include "base/fault.h"
#include "base/owned.h"
#include "model/value.h"
#include "support/unit.h"

#define value_int sidestep_value_int
#define value_str sidestep_value_str
#define OWNED_VALUE OWNED_BY(sidestep_value_free) struct sidestep_value *

static void append(struct sidestep_value *seq, struct sidestep_value *item)
{
    struct sidestep_error err = {0};

    assert_int_equal(sidestep_value_append(seq, item, &err), SIDESTEP_OK);
}

static void set(struct sidestep_value *dict, struct sidestep_value *key,
                struct sidestep_value *item)
{
    struct sidestep_error err = {0};

    assert_int_equal(sidestep_value_set(dict, key, item, &err), SIDESTEP_OK);
}

TEST(kinds_and_getters)
{
    static const char bytes[] = "a\0b";
    OWNED_VALUE list = sidestep_value_list();
    size_t length;
    append(list, sidestep_value_none());
    append(list, sidestep_value_bool(true));
    append(list, value_int(INT64_MIN));
    append(list, sidestep_value_float(1.5));
    append(list, value_str("caf\xc3\xa9"));
    append(list, sidestep_value_bytes(bytes, 3));
    append(list, sidestep_value_tuple());
    assert_int_equal(sidestep_value_count(list), 7);
    assert_int_equal(sidestep_value_kind(list), SIDESTEP_VALUE_LIST);
    assert_int_equal(sidestep_value_kind(sidestep_value_item(list, 0)), SIDESTEP_VALUE_NONE);
    assert_true(sidestep_value_get_bool(sidestep_value_item(list, 1)));
    assert_true(sidestep_value_get_int(sidestep_value_item(list, 2)) == INT64_MIN);
    assert_true(sidestep_value_get_float(sidestep_value_item(list, 3)) == 1.5);
    assert_string_equal(sidestep_value_get_bytes(sidestep_value_item(list, 4), NULL),
                        "caf\xc3\xa9");
    assert_memory_equal(sidestep_value_get_bytes(sidestep_value_item(list, 5), &length), bytes, 4);
    assert_int_equal(length, 3);
    assert_null(sidestep_value_item(list, 7));
    assert_null(sidestep_value_key(list, 0));
}

TEST(getters_of_another_kind_return_zero)
{
    OWNED_VALUE none = sidestep_value_none();
    const struct sidestep_value *values[] = {none, NULL};
    size_t length = 7;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(sidestep_value_kind(values[i]), SIDESTEP_VALUE_NONE);
        assert_false(sidestep_value_get_bool(values[i]));
        assert_int_equal(sidestep_value_get_int(values[i]), 0);
        assert_true(sidestep_value_get_float(values[i]) == 0.0);
        assert_null(sidestep_value_get_bytes(values[i], &length));
        assert_int_equal(length, 0);
        assert_int_equal(sidestep_value_count(values[i]), 0);
        assert_null(sidestep_value_item(values[i], 0));
        assert_null(sidestep_value_key(values[i], 0));
    }
    assert_null(sidestep_value_str(NULL));
    assert_null(value_new_text(SIDESTEP_VALUE_BYTES, "", SIZE_MAX));
    sidestep_value_free(NULL);
    struct sidestep_value *nothing = NULL;
    sidestep_value_free(&nothing);
}

/* Pairs of keys, and whether Python takes them for one. */
static struct sidestep_value *key_number(int i)
{
    static const double reals[] = {1.0, 1.5, 0.0, -0.0, 0x1p63, -0x1p63, INFINITY, NAN};

    if (i < 8)
        return sidestep_value_float(reals[i]);
    switch (i) {
    case 8:
        return sidestep_value_bool(true);
    case 9:
        return value_int(1);
    case 10:
        return value_int(INT64_MIN);
    case 11:
        return sidestep_value_none();
    case 12:
        return value_str("1");
    case 13:
        return sidestep_value_bytes("1", 1);
    case 14:
        return value_new_text(SIDESTEP_VALUE_OPAQUE, "1", 1);
    default:
        break;
    }
    /* (True, x), (1.0, x) and (1,) */
    struct sidestep_value *tuple = sidestep_value_tuple();
    append(tuple, i == 15 ? sidestep_value_bool(true) : sidestep_value_float(1.0));
    if (i < 17)
        append(tuple, value_str("x"));
    return tuple;
}

static void check_keys(struct sidestep_value *dict, size_t more)
{
    static const int equal_to[] = {
        [0] = 0,   [1] = 1,   [2] = 2,   [3] = 2,   [4] = 4,   [5] = 5,
        [6] = 6,   [7] = 7,   [8] = 0,   [9] = 0,   [10] = 5,  [11] = 11,
        [12] = 12, [13] = 13, [14] = 14, [15] = 15, [16] = 15, [17] = 17};
    size_t distinct = 0;

    for (int i = 0; i < 18; i++) {
        set(dict, key_number(i), value_int(i));
        distinct += equal_to[i] == i;
        assert_int_equal(sidestep_value_count(dict), more + distinct);
    }
    /* Find all of them again, except those that equal nothing. */
    for (int i = 0; i < 18; i++)
        set(dict, key_number(i), value_int(100 + i));
    assert_int_equal(sidestep_value_count(dict), more + distinct + 2);
    /* The dict keeps the first key and the last value. */
    assert_int_equal(sidestep_value_kind(sidestep_value_key(dict, more)), SIDESTEP_VALUE_FLOAT);
    assert_int_equal(sidestep_value_get_int(sidestep_value_item(dict, more)), 109);
}

TEST(equal_keys)
{
    OWNED_VALUE small = sidestep_value_dict();
    OWNED_VALUE large = sidestep_value_dict();
    check_keys(small, 0);
    for (int i = 0; i < 1000; i++)
        set(large, value_int(1000 + i), sidestep_value_none());
    check_keys(large, 1000);
}

static struct sidestep_value *pair_of(struct sidestep_value *a, struct sidestep_value *b)
{
    struct sidestep_value *tuple = sidestep_value_tuple();

    append(tuple, a);
    append(tuple, b);
    return tuple;
}

/* In a small dict, and in a dict with an index. */
TEST(tuples_as_keys)
{
    OWNED_VALUE dict = sidestep_value_dict();
    for (int i = 0; i < 40; i++) {
        set(dict, pair_of(value_str("x"), value_int(i)), value_int(i));
        set(dict, pair_of(value_str("x"), sidestep_value_float(i)), value_int(-i));
        set(dict, pair_of(value_str("x"), sidestep_value_float(NAN)), value_int(i));
    }
    assert_int_equal(sidestep_value_count(dict), 80);
}

TEST(a_million_keys)
{
    OWNED_VALUE dict = sidestep_value_dict();
    char name[32];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 500000; i++) {
            snprintf(name, sizeof(name), "key %d", i);
            set(dict, value_str(name), value_int(i + round));
        }
    assert_int_equal(sidestep_value_count(dict), 500000);
    assert_string_equal(sidestep_value_get_bytes(sidestep_value_key(dict, 77), NULL), "key 77");
    assert_int_equal(sidestep_value_get_int(sidestep_value_item(dict, 77)), 78);
}

static struct sidestep_value *nested(int containers)
{
    struct sidestep_value *value = sidestep_value_none();

    for (int i = 0; i < containers; i++) {
        struct sidestep_value *outer = sidestep_value_list();
        append(outer, value);
        value = outer;
    }
    return value;
}

TEST(depth_is_limited)
{
    struct sidestep_error err;
    /* From the inside out, and from the outside in. */
    OWNED_VALUE deepest = nested(VALUE_MAX_DEPTH);
    OWNED_VALUE outer = sidestep_value_tuple();
    assert_int_equal(sidestep_value_append(outer, nested(VALUE_MAX_DEPTH), &err), SIDESTEP_EINVAL);
    assert_string_equal(err.message, "values nested more than 128 deep");
    OWNED_VALUE root = sidestep_value_list();
    struct sidestep_value *inner = root;
    for (int i = 1; i < VALUE_MAX_DEPTH; i++) {
        struct sidestep_value *next = sidestep_value_list();
        append(inner, next);
        inner = next;
    }
    append(inner, sidestep_value_none());
    assert_int_equal(sidestep_value_append(inner, nested(1), &err), SIDESTEP_EINVAL);
    OWNED_VALUE dict = sidestep_value_dict();
    assert_int_equal(sidestep_value_set(dict, sidestep_value_none(), nested(VALUE_MAX_DEPTH), &err),
                     SIDESTEP_EINVAL);
    set(dict, sidestep_value_none(), nested(VALUE_MAX_DEPTH - 1));
    assert_true(value_equal(deepest, deepest));
}

static void refused(enum sidestep_status status, const struct sidestep_error *err,
                    const char *message)
{
    assert_int_equal(status, err->status);
    assert_string_equal(err->message, message);
}

TEST(refusals_free_what_they_took)
{
    OWNED_VALUE list = sidestep_value_list();
    OWNED_VALUE dict = sidestep_value_dict();
    OWNED_VALUE number = value_int(1);
    struct sidestep_value *shared = sidestep_value_none();
    struct sidestep_error err;
    refused(sidestep_value_append(list, NULL, &err), &err,
            "the value is NULL: no memory when it was made");
    assert_int_equal(err.status, SIDESTEP_ENOMEM);
    refused(sidestep_value_append(number, value_int(2), &err), &err,
            "cannot append to a value that is not a list or tuple");
    refused(sidestep_value_append(NULL, value_int(2), &err), &err,
            "the value is NULL: no memory when it was made");
    refused(sidestep_value_set(NULL, value_int(1), value_int(2), &err), &err,
            "the value is NULL: no memory when it was made");
    refused(sidestep_value_append(number, number, &err), &err,
            "cannot append to a value that is not a list or tuple");
    refused(sidestep_value_set(list, value_int(1), value_int(2), &err), &err,
            "cannot set a key of a value that is not a dict");
    refused(sidestep_value_set(dict, value_int(1), NULL, &err), &err,
            "the value is NULL: no memory when it was made");
    refused(sidestep_value_set(dict, NULL, value_int(1), &err), &err,
            "the value is NULL: no memory when it was made");
    refused(sidestep_value_set(dict, sidestep_value_list(), value_int(2), &err), &err,
            "a list or dict cannot be a key");
    struct sidestep_value *key = sidestep_value_tuple();
    append(key, sidestep_value_dict());
    refused(sidestep_value_set(dict, key, value_int(2), &err), &err,
            "a list or dict cannot be a key");
    key = value_int(3);
    refused(sidestep_value_set(dict, key, key, &err), &err, "key and value are the same object");
    append(list, shared);
    refused(sidestep_value_append(list, shared, &err), &err,
            "the value is already part of another value");
    refused(sidestep_value_set(dict, value_int(1), shared, &err), &err,
            "the value is already part of another value");
    assert_int_equal(sidestep_value_count(list), 1);
    assert_int_equal(sidestep_value_count(dict), 0);
    /* Freeing a value that a container owns only clears the pointer. */
    struct sidestep_value *alias = shared;
    sidestep_value_free(&alias);
    assert_null(alias);
    assert_int_equal(sidestep_value_kind(sidestep_value_item(list, 0)), SIDESTEP_VALUE_NONE);
}

TEST(no_value_contains_itself)
{
    OWNED_VALUE root = sidestep_value_list();
    struct sidestep_value *inner = sidestep_value_dict();
    struct sidestep_error err;
    append(root, inner);
    refused(sidestep_value_append(root, root, &err), &err, "a value cannot contain itself");
    refused(sidestep_value_set(inner, value_int(1), root, &err), &err,
            "a value cannot contain itself");
    refused(sidestep_value_set(inner, root, value_int(1), &err), &err,
            "a value cannot contain itself");
    assert_int_equal(sidestep_value_count(root), 1);
}

TEST(equality)
{
    for (int a = 0; a < 18; a++)
        for (int b = 0; b < 18; b++) {
            OWNED_VALUE left = key_number(a);
            OWNED_VALUE right = key_number(b);
            bool is_whole = sidestep_value_kind(left) != SIDESTEP_VALUE_OPAQUE;
            assert_int_equal(value_equal(left, right), a == b && is_whole);
        }
    OWNED_VALUE one = sidestep_value_dict();
    OWNED_VALUE other = sidestep_value_dict();
    set(one, value_str("a"), value_int(1));
    assert_false(value_equal(one, other));
    set(other, value_str("a"), value_int(2));
    assert_false(value_equal(one, other));
    set(other, value_str("a"), value_int(1));
    assert_true(value_equal(one, other));
}

static enum sidestep_status build_a_tree(struct sidestep_error *err)
{
    OWNED_VALUE dict = sidestep_value_dict();
    struct sidestep_value *list = sidestep_value_list();

    TRY(sidestep_value_set(dict, value_str("list"), list, err));
    for (int i = 0; i < 100; i++) {
        TRY(sidestep_value_append(list, sidestep_value_bytes(&i, sizeof(i)), err));
        TRY(sidestep_value_set(dict, value_int(i), sidestep_value_tuple(), err));
    }
    TRY(sidestep_value_set(dict, value_int(1), value_str("replaced"), err));
    return SIDESTEP_OK;
}

TEST(memory_runs_out)
{
    unsigned long nth = 0;
    struct sidestep_error err;
    enum sidestep_status status;
    do {
        fault_arm("memory", ++nth, false, ENOMEM);
        status = build_a_tree(&err);
        if (fault_fired() != NULL)
            assert_int_equal(status, SIDESTEP_ENOMEM);
    } while (fault_fired() != NULL);
    fault_arm("", 0, false, 0);
    assert_int_equal(status, SIDESTEP_OK);
    assert_true(nth > 300);
}
