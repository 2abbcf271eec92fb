/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects_test.c -- values from and to Python's pickles, and many objects of a state at once.
 */
#include "base/buffer.h"
#include "base/fault.h"
#include "base/owned.h"
#include "format/pickle.h"
#include "model/state_dict.h"
#include "support/guard.h"
#include "support/unit.h"

#define OWNED_VALUE OWNED_BY(sidestep_value_free) struct sidestep_value *

struct bytes {
    const char *bytes;
    size_t length;
};
#define B(literal) literal, sizeof(literal) - 1

/* pickle.dumps({'lr': 0.5, 'n': -3, 'big': 1099511627776, 't': (True, None, '\xe9'), 'b':
 * b'\x00\xff', 'e': b'', 'l': [1, [2]], (1, 'k'): {}}, n), n = 0 to 5 */
static const struct bytes same[] = {
    {B("(dp0\x0aVlr\x0ap1\x0a\x46\x30.5\x0asVn\x0ap2\x0aI-3\x0asVbig\x0ap3\x0aL1099511627"
       "776L\x0asVt\x0ap4\x0a(I01\x0aNV\xe9\x0ap5\x0atp6\x0asVb\x0ap7\x0a\x63_codecs\x0a\x65"
       "ncode\x0ap8\x0a(V\x5cu0000\xff\x0ap9\x0aVlatin1\x0ap10\x0atp11\x0aRp12\x0asVe\x0a"
       "p13\x0a\x63__builtin__\x0a\x62ytes\x0ap14\x0a(tRp15\x0asVl\x0ap16\x0a(lp17\x0aI1\x0a"
       "a(lp18\x0aI2\x0a\x61\x61s(I1\x0aVk\x0ap19\x0atp20\x0a(dp21\x0as.")},
    {B("}q\x00(X\x02\x00\x00\x00lrq\x01G?\xe0\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00nq\x02"
       "J\xfd\xff\xff\xffX\x03\x00\x00\x00\x62igq\x03L1099511627776L\x0aX\x01\x00\x00\x00"
       "tq\x04(I01\x0aNX\x02\x00\x00\x00\xc3\xa9q\x05tq\x06X\x01\x00\x00\x00\x62q\x07\x63"
       "_codecs\x0a\x65ncode\x0aq\x08(X\x03\x00\x00\x00\x00\xc3\xbfq\x09X\x06\x00\x00\x00"
       "latin1q\x0atq\x0bRq\x0cX\x01\x00\x00\x00\x65q\x0d\x63__builtin__\x0a\x62ytes\x0aq"
       "\x0e)Rq\x0fX\x01\x00\x00\x00lq\x10]q\x11(K\x01]q\x12K\x02\x61\x65(K\x01X\x01\x00\x00"
       "\x00kq\x13tq\x14}q\x15u.")},
    {B("\x80\x02}q\x00(X\x02\x00\x00\x00lrq\x01G?\xe0\x00\x00\x00\x00\x00\x00X\x01\x00\x00"
       "\x00nq\x02J\xfd\xff\xff\xffX\x03\x00\x00\x00\x62igq\x03\x8a\x06\x00\x00\x00\x00\x00"
       "\x01X\x01\x00\x00\x00tq\x04\x88NX\x02\x00\x00\x00\xc3\xa9q\x05\x87q\x06X\x01\x00\x00"
       "\x00\x62q\x07\x63_codecs\x0a\x65ncode\x0aq\x08X\x03\x00\x00\x00\x00\xc3\xbfq\x09X"
       "\x06\x00\x00\x00latin1q\x0a\x86q\x0bRq\x0cX\x01\x00\x00\x00\x65q\x0d\x63__builtin"
       "__\x0a\x62ytes\x0aq\x0e)Rq\x0fX\x01\x00\x00\x00lq\x10]q\x11(K\x01]q\x12K\x02\x61\x65"
       "K\x01X\x01\x00\x00\x00kq\x13\x86q\x14}q\x15u.")},
    {B("\x80\x03}q\x00(X\x02\x00\x00\x00lrq\x01G?\xe0\x00\x00\x00\x00\x00\x00X\x01\x00\x00"
       "\x00nq\x02J\xfd\xff\xff\xffX\x03\x00\x00\x00\x62igq\x03\x8a\x06\x00\x00\x00\x00\x00"
       "\x01X\x01\x00\x00\x00tq\x04\x88NX\x02\x00\x00\x00\xc3\xa9q\x05\x87q\x06X\x01\x00\x00"
       "\x00\x62q\x07\x43\x02\x00\xffq\x08X\x01\x00\x00\x00\x65q\x09\x43\x00q\x0aX\x01\x00"
       "\x00\x00lq\x0b]q\x0c(K\x01]q\x0dK\x02\x61\x65K\x01X\x01\x00\x00\x00kq\x0e\x86q\x0f"
       "}q\x10u.")},
    {B("\x80\x04\x95`\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x02lr\x94G?\xe0\x00\x00\x00\x00"
       "\x00\x00\x8c\x01n\x94J\xfd\xff\xff\xff\x8c\x03\x62ig\x94\x8a\x06\x00\x00\x00\x00\x00"
       "\x01\x8c\x01t\x94\x88N\x8c\x02\xc3\xa9\x94\x87\x94\x8c\x01\x62\x94\x43\x02\x00\xff"
       "\x94\x8c\x01\x65\x94\x43\x00\x94\x8c\x01l\x94]\x94(K\x01]\x94K\x02\x61\x65K\x01\x8c"
       "\x01k\x94\x86\x94}\x94u.")},
    {B("\x80\x05\x95`\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x02lr\x94G?\xe0\x00\x00\x00\x00"
       "\x00\x00\x8c\x01n\x94J\xfd\xff\xff\xff\x8c\x03\x62ig\x94\x8a\x06\x00\x00\x00\x00\x00"
       "\x01\x8c\x01t\x94\x88N\x8c\x02\xc3\xa9\x94\x87\x94\x8c\x01\x62\x94\x43\x02\x00\xff"
       "\x94\x8c\x01\x65\x94\x43\x00\x94\x8c\x01l\x94]\x94(K\x01]\x94K\x02\x61\x65K\x01\x8c"
       "\x01k\x94\x86\x94}\x94u.")},
};
static const struct {
    const char *says;
    struct bytes pickle;
} refused[] = {
    {"not plain data: int beyond 64 bits",
     {B("\x80\x04\x95\x0f\x00\x00\x00\x00\x00\x00\x00]\x94\x8a\x09\x00\x00\x00\x00\x00\x00"
        "\x00\x80\x00\x61.")}},
    {"not plain data: int beyond 64 bits", {B("(lp0\x0aL-9223372036854775809L\x0a\x61.")}},
    {"not plain data: set",
     {B("\x80\x04\x95\x0a\x00\x00\x00\x00\x00\x00\x00]\x94\x8f\x94(K\x01\x90\x61.")}},
    {"not plain data: __builtin__ set",
     {B("\x80\x02]q\x00\x63__builtin__\x0aset\x0aq\x01]q\x02K\x01\x61\x85q\x03Rq\x04\x61.")}},
    {"not plain data: set",
     {B("\x80\x04\x95\x09\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01\x91\x94\x61.")}},
    {"not plain data: bytearray",
     {B("\x80\x05\x95\x0f\x00\x00\x00\x00\x00\x00\x00]\x94\x96\x01\x00\x00\x00\x00\x00\x00"
        "\x00x\x94\x61.")}},
    {"not plain data: builtins bytearray",
     {B("\x80\x04\x95%\x00\x00\x00\x00\x00\x00\x00]\x94\x8c\x08\x62uiltins\x94\x8c\x09\x62"
        "ytearray\x94\x93\x94\x43\x01x\x94\x85\x94R\x94\x61.")}},
    {"not plain data: collections OrderedDict",
     {B("\x80\x04\x95,\x00\x00\x00\x00\x00\x00\x00]\x94\x8c\x0b\x63ollections\x94\x8c\x0bO"
        "rderedDict\x94\x93\x94)R\x94\x8c\x01\x61\x94K\x01sa.")}},
    {"not plain data: builtins complex",
     {B("\x80\x04\x95\x31\x00\x00\x00\x00\x00\x00\x00]\x94\x8c\x08\x62uiltins\x94\x8c\x07\x63"
        "omplex\x94\x93\x94G\x00\x00\x00\x00\x00\x00\x00\x00G?\xf0\x00\x00\x00\x00\x00\x00"
        "\x86\x94R\x94\x61.")}},
    {"not plain data: builtins len",
     {B("\x80\x04\x95\x17\x00\x00\x00\x00\x00\x00\x00]\x94\x8c\x08\x62uiltins\x94\x8c\x03l"
        "en\x94\x93\x94\x61.")}},
};

static enum sidestep_status from_pickle(const void *bytes, size_t length,
                                        struct sidestep_value **value, struct sidestep_error *err)
{
    void *copy = guard_copy(bytes, length);
    enum sidestep_status status = sidestep_value_from_pickle(copy, length, value, err);

    guard_free(copy);
    return status;
}

TEST(every_protocol_gives_the_same_value)
{
    OWNED_VALUE first = NULL;
    struct sidestep_error err = {0};

    assert_int_equal(from_pickle(same[0].bytes, same[0].length, &first, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_value_count(first), 8);
    assert_true(sidestep_value_get_float(sidestep_value_item(first, 0)) == 0.5);
    assert_int_equal(sidestep_value_get_int(sidestep_value_item(first, 2)), INT64_C(1) << 40);
    for (size_t i = 1; i < ARRAY_LENGTH(same); i++) {
        OWNED_VALUE value = NULL;

        assert_int_equal(from_pickle(same[i].bytes, same[i].length, &value, &err), SIDESTEP_OK);
        assert_true(value_equal(value, first));
    }
    /* No prefix of it is a pickle. */
    for (size_t length = 0; length < same[4].length; length++) {
        struct sidestep_value *value = first;

        assert_int_equal(from_pickle(same[4].bytes, length, &value, &err), SIDESTEP_ECORRUPT);
        assert_null(value);
    }
}

TEST(a_value_is_written_as_python_does)
{
    OWNED_VALUE value = NULL;
    OWNED void *bytes = NULL;
    size_t length;
    struct sidestep_error err = {0};

    assert_int_equal(from_pickle(same[5].bytes, same[5].length, &value, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_value_to_pickle(value, &bytes, &length, &err), SIDESTEP_OK);
    assert_int_equal(length, same[3].length);
    assert_memory_equal(bytes, same[3].bytes, length);
    sidestep_bytes_free(&bytes);
    /* Bytes whose length has four bytes, and a surrogate. */
    OWNED_VALUE list = sidestep_value_list();
    OWNED_VALUE again = NULL;
    static const char many[300] = {1};
    assert_int_equal(sidestep_value_append(list, sidestep_value_bytes(many, sizeof(many)), &err),
                     SIDESTEP_OK);
    assert_int_equal(sidestep_value_append(list, sidestep_value_str("\xed\xa0\x80"), &err),
                     SIDESTEP_OK);
    assert_int_equal(sidestep_value_to_pickle(list, &bytes, &length, &err), SIDESTEP_OK);
    assert_null(memmem(bytes, length, "c", 1)); /* no symbol */
    assert_int_equal(from_pickle(bytes, length, &again, &err), SIDESTEP_OK);
    assert_true(value_equal(list, again));
}

TEST(an_opaque_value_cannot_be_written)
{
    OWNED_VALUE opaque = value_new_text(SIDESTEP_VALUE_OPAQUE, "x.y", 3);
    OWNED void *bytes = NULL;
    size_t length;
    struct sidestep_error err = {0};

    assert_int_equal(sidestep_value_to_pickle(opaque, &bytes, &length, &err),
                     SIDESTEP_EUNSUPPORTED);
    assert_string_equal(err.message, "an opaque object (x.y) cannot be written");
    assert_int_equal(sidestep_value_to_pickle(NULL, &bytes, &length, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_value_to_pickle(opaque, NULL, &length, &err), SIDESTEP_EINVAL);
    assert_null(bytes);
}

TEST(values_that_are_not_plain_are_refused)
{
    for (size_t i = 0; i < ARRAY_LENGTH(refused); i++) {
        struct sidestep_error err = {0};
        struct sidestep_value *value = NULL;

        assert_int_equal(
            from_pickle(refused[i].pickle.bytes, refused[i].pickle.length, &value, &err),
            SIDESTEP_EUNSUPPORTED);
        if (strstr(err.message, refused[i].says) == NULL)
            fail_msg("%zu: '%s'", i, err.message);
        assert_null(value);
    }
}

/* Of sound pickles that cannot be decoded the caller must be told so; of others, that. */
TEST(odd_pickles)
{
    static const struct {
        struct bytes pickle;
        enum sidestep_status status;
        const char *says;
    } cases[] = {
        {{B("\x80\x04]\x94h\x00\x61.")}, SIDESTEP_EUNSUPPORTED, "contains itself"},
        {{B("\x80\x04}\x94K\x01h\x00s.")}, SIDESTEP_EUNSUPPORTED, "contains itself"},
        {{B("X\x01\x00\x00\x00\xff.")}, SIDESTEP_ECORRUPT, "a str is not UTF-8"},
        {{B("X\x01\x00\x00\x00\x00.")}, SIDESTEP_OK, ""},
        {{B("Pid\n.")}, SIDESTEP_EUNSUPPORTED, "not plain data: object"},
        {{B("c_codecs\nencode\n.")}, SIDESTEP_EUNSUPPORTED, "not plain data: _codecs encode"},
        {{B("c_codecs\nencode\n(X\x01\x00\x00\x00xX\x05\x00\x00\x00utf-8tR.")},
         SIDESTEP_EUNSUPPORTED,
         "not plain data: _codecs encode"},
        {{B("c_codecs\nencode\n(X\x01\x00\x00\x00xX\x06\x00\x00\x00latin1tR}b.")},
         SIDESTEP_EUNSUPPORTED,
         "not plain data: _codecs encode"},
        {{B("\x82\x01.")}, SIDESTEP_EUNSAFE, "EXT1"},
        {{B("N.x")}, SIDESTEP_ECORRUPT, "1 bytes follow"},
        {{B("")}, SIDESTEP_ECORRUPT, "without STOP"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        OWNED_VALUE value = NULL;
        struct sidestep_error err = {0};

        enum sidestep_status status =
            from_pickle(cases[i].pickle.bytes, cases[i].pickle.length, &value, &err);
        if (status != cases[i].status || strstr(err.message, cases[i].says) == NULL)
            fail_msg("%zu: %d '%s'", i, (int)status, err.message);
    }
    struct sidestep_value *value;
    assert_int_equal(sidestep_value_from_pickle(NULL, 1, &value, NULL), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_value_from_pickle("N.", 2, NULL, NULL), SIDESTEP_EINVAL);
}

/* ${depth} lists, each ${times} in the next one: a DAG when it is more than once. */
static void put_lists(struct buffer *out, unsigned depth, unsigned times)
{
    buffer_put_text(out, "]");
    for (unsigned i = 0; i < depth; i++) {
        buffer_put_text(out, "\x94]("); /* the one before is on the stack already */
        for (unsigned k = 0; k < times; k++) {
            buffer_put_u8(out, 'j');
            buffer_put_u32le(out, i);
        }
        buffer_put_text(out, "e");
    }
    buffer_put_text(out, ".");
}

TEST(limits)
{
    static const struct {
        unsigned depth, times;
        enum sidestep_status status;
        const char *says;
    } cases[] = {
        {128, 1, SIDESTEP_OK, ""},
        {129, 1, SIDESTEP_EUNSUPPORTED, "nested more than 128 deep"},
        {10, 2, SIDESTEP_OK, ""},
        {100, 2, SIDESTEP_EUNSUPPORTED, "more than 1000000 values"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        OWNED_BUFFER pickle = {0};
        OWNED_VALUE value = NULL;
        struct sidestep_error err = {0};

        put_lists(&pickle, cases[i].depth, cases[i].times);
        /* All but the last are popped, to stand in the memo only. */
        OWNED_BUFFER whole = {0};
        for (size_t k = 0; k < pickle.length; k++) {
            buffer_put_u8(&whole, pickle.bytes[k]);
            if (pickle.bytes[k] == 0x94)
                buffer_put_u8(&whole, '0');
        }
        enum sidestep_status status = from_pickle(whole.bytes, whole.length, &value, &err);
        if (status != cases[i].status || strstr(err.message, cases[i].says) == NULL)
            fail_msg("%zu: %d '%s'", i, (int)status, err.message);
    }
    /* A text of 1 MiB, 300 times. */
    OWNED_BUFFER shared = {0};
    OWNED_VALUE value = NULL;
    struct sidestep_error err = {0};
    buffer_put_text(&shared, "](X");
    buffer_put_u32le(&shared, 1 << 20);
    memset(buffer_extend(&shared, 1 << 20), 'x', 1 << 20);
    buffer_put_text(&shared, "\x94");
    for (unsigned i = 0; i < 300; i++)
        buffer_put(&shared, "h", 2); /* BINGET 0 */
    buffer_put_text(&shared, "e.");
    assert_int_equal(from_pickle(shared.bytes, shared.length, &value, &err), SIDESTEP_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "by repeating texts"));
}

/* ---------------------------------------------------------------- objects of a state */

static void free_state(struct sidestep_state_dict **state)
{
    sidestep_state_dict_free(state);
}
#define OWNED_STATE OWNED_BY(free_state) struct sidestep_state_dict *

/* Objects "a", "b" and "c", and tensors before, between and behind them. */
static struct sidestep_state_dict *new_state(void)
{
    static float data[4];
    static const char *const names[] = {"x", "a", "y", "b", "c", "z"};
    struct sidestep_state_dict *state = NULL;

    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                         .name = names[i],
                                         .dtype = SIDESTEP_FLOAT32,
                                         .ndim = 1,
                                         .shape = (int64_t[]){4},
                                         .data = data};
        enum sidestep_status status =
            names[i][0] >= 'x' ? sidestep_state_dict_add_tensor(state, &tensor, NULL)
                               : sidestep_state_dict_add_value(state, names[i], NULL, 0,
                                                               sidestep_value_str(names[i]), NULL);
        assert_int_equal(status, SIDESTEP_OK);
    }
    return state;
}

static void assert_text(const struct sidestep_state_dict *state, const char *name, const char *text)
{
    const struct sidestep_value *value = sidestep_state_dict_value(state, name);

    assert_non_null(value);
    assert_string_equal(sidestep_value_get_bytes(value, NULL), text);
}

#define PICKLED(i, literal)                                                                        \
    {                                                                                              \
        i, B(literal), SIDESTEP_OBJECT_PICKLE, 0                                                   \
    }
#define STORED(i, literal)                                                                         \
    {                                                                                              \
        i, B(literal), SIDESTEP_OBJECT_STORED, 0                                                   \
    }

TEST(objects_are_set_by_place)
{
    const struct sidestep_object objects[] = {PICKLED(2, "\x8c\x01q."), STORED(0, "stored"),
                                              PICKLED(2, "\x8c\x01r.")};
    OWNED_STATE s = new_state();
    struct sidestep_error err = {0};
    size_t length;

    assert_int_equal(sidestep_state_dict_set_objects(s, objects, 3, &err), SIDESTEP_OK);
    assert_null(sidestep_state_dict_value(s, "a"));
    assert_memory_equal(sidestep_state_dict_bytes(s, "a", &length), "stored", 6);
    assert_int_equal(length, 6);
    assert_text(s, "b", "b");
    assert_text(s, "c", "r");
    const struct sidestep_object empty = {.index = 0, .kind = SIDESTEP_OBJECT_STORED};
    assert_int_equal(sidestep_state_dict_set_objects(s, &empty, 1, &err), SIDESTEP_OK);
    assert_non_null(sidestep_state_dict_bytes(s, "a", &length));
    assert_int_equal(length, 0);
    assert_int_equal(sidestep_state_dict_set_objects(s, NULL, 0, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_set_objects(s, NULL, 1, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_state_dict_set_objects(NULL, objects, 1, &err), SIDESTEP_EINVAL);
}

TEST(all_or_none)
{
    static const struct {
        struct sidestep_object bad;
        enum sidestep_status status;
        const char *says;
    } cases[] = {
        {PICKLED(3, "N."), SIDESTEP_ENOTFOUND, "object 3 of a state that has 3 objects"},
        {PICKLED(UINT64_MAX, "N."), SIDESTEP_ENOTFOUND, "object 18446744073709551615 of a"},
        {PICKLED(1, "\x8f."), SIDESTEP_EUNSUPPORTED, "'b': pickle: not plain data: set"},
        {PICKLED(1, "N"), SIDESTEP_ECORRUPT, "'b': pickle: ends at byte 1 without STOP"},
        {{1, "N.", 2, 0, 0}, SIDESTEP_EINVAL, "'b': unknown kind 0"},
        {{1, "N.", 2, 3, 0}, SIDESTEP_EINVAL, "'b': unknown kind 3"},
        {{1, "N.", 2, 1, 1}, SIDESTEP_EINVAL, "'b': unknown kind 1"},
        {{1, NULL, 2, SIDESTEP_OBJECT_STORED, 0}, SIDESTEP_EINVAL, "'b': 2 bytes at NULL"},
        {{1, NULL, 2, SIDESTEP_OBJECT_PICKLE, 0}, SIDESTEP_EINVAL, "'b': 2 bytes at NULL"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        OWNED_STATE s = new_state();
        struct sidestep_error err = {0};
        const struct sidestep_object objects[] = {PICKLED(0, "N."), STORED(2, "x"), cases[i].bad,
                                                  PICKLED(1, "N.")};

        assert_int_equal(sidestep_state_dict_set_objects(s, objects, 4, &err), cases[i].status);
        if (strstr(err.message, cases[i].says) == NULL)
            fail_msg("%zu: '%s'", i, err.message);
        assert_text(s, "a", "a");
        assert_text(s, "b", "b");
        assert_text(s, "c", "c");
    }
}

TEST(when_memory_is_short)
{
    OWNED_STATE s = new_state();
    OWNED_VALUE list = NULL;
    unsigned long fired = 0;
    const struct sidestep_object objects[] = {STORED(0, "abc"), PICKLED(1, "](K\x01K\x02\x65."),
                                              PICKLED(2, "}\x8c\x01kC\x01xs.")};

    assert_int_equal(sidestep_value_from_pickle("](K\x01K\x02\x65.", 8, &list, NULL), SIDESTEP_OK);
    for (unsigned long n = 1;; n++) {
        OWNED void *bytes = NULL;
        size_t length;

        fault_arm("memory", n, false, 0);
        enum sidestep_status status = sidestep_state_dict_set_objects(s, objects, 3, NULL);
        bool set = status == SIDESTEP_OK;
        if (set)
            status = sidestep_value_to_pickle(list, &bytes, &length, NULL);
        bool hit = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(status, hit ? SIDESTEP_ENOMEM : SIDESTEP_OK);
        if (!set) /* as before */
            assert_text(s, "b", "b");
        if (!hit)
            break;
        fired++;
    }
    assert_true(fired > 8);
    assert_int_equal(sidestep_value_count(sidestep_state_dict_value(s, "b")), 2);
}
