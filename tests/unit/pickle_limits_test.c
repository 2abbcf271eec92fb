/* SPDX-License-Identifier: BSD-3-Clause */
/* pickle_limits_test.c -- pickles that exceed each limit by one, and bombs. */
#include "base/owned.h"
#include "support/pickle_read.h"
#include "support/unit.h"

#define B(literal) literal, sizeof(literal) - 1

/* before, then count times unit, then after */
static struct buffer repeated(const char *before, size_t before_length, const char *unit,
                              size_t unit_length, size_t count, const char *after,
                              size_t after_length)
{
    struct buffer out = {0};

    buffer_put(&out, before, before_length);
    for (size_t i = 0; i < count; i++)
        buffer_put(&out, unit, unit_length);
    buffer_put(&out, after, after_length);
    assert_false(out.failed);
    return out;
}

static void expect(struct buffer *pickle, const char *message)
{
    OWNED_VALUE value = NULL;
    struct sidestep_error err = {0};
    enum sidestep_status status = read_guarded(pickle->bytes, pickle->length, &value, &err);

    buffer_release(pickle);
    assert_string_equal(err.message, message);
    assert_int_equal(status, message[0] != '\0' ? SIDESTEP_ECORRUPT : SIDESTEP_OK);
}

TEST(limits)
{
    static const struct {
        const char *before;
        const char *unit;
        size_t unit_length;
        const char *after;
        size_t most;
        const char *message; /* one more */
    } table[] = {
        {"N", B("\x85"), ".", PICKLE_MAX_DEPTH,
         "pickle: TUPLE1 at byte 129: nested more than 128 deep"},
        {"I", B("7"), "\n.", PICKLE_MAX_DIGITS,
         "pickle: INT at byte 0: 4301 digits, the limit is 4300"},
        {"I-", B("7"), "\n.", PICKLE_MAX_DIGITS,
         "pickle: INT at byte 0: 4301 digits, the limit is 4300"},
        {"(", B("N"), "l.", PICKLE_MAX_VALUES - 1, "pickle: more than 1000000 values"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        for (size_t more = 0; more < 2; more++) {
            struct buffer pickle = repeated(table[i].before, strlen(table[i].before), table[i].unit,
                                            table[i].unit_length, table[i].most + more,
                                            table[i].after, strlen(table[i].after));
            expect(&pickle, more == 0 ? "" : table[i].message);
        }
    }
}

TEST(limit_of_the_stack)
{
    OWNED_ARENA arena = {0};
    struct pickle_node *root;
    struct sidestep_error err = {0};
    for (size_t more = 0; more < 2; more++) {
        OWNED_BUFFER values_on_it = repeated("(", 1, "N", 1, PICKLE_MAX_STACK + more, "l.", 2);
        assert_int_equal(
            pickle_parse(&arena, values_on_it.bytes, values_on_it.length, NULL, &root, &err),
            more == 0 ? SIDESTEP_OK : SIDESTEP_ECORRUPT);
        OWNED_BUFFER marks = repeated("", 0, "(", 1, PICKLE_MAX_STACK + more, "N.", 2);
        assert_int_equal(pickle_parse(&arena, marks.bytes, marks.length, NULL, &root, &err),
                         SIDESTEP_ECORRUPT);
        assert_string_equal(err.message,
                            more == 0 ? "pickle: STOP at byte 1000001: 1 values and 1000000 marks "
                                        "are left on the stack"
                                      : "pickle: MARK at byte 1000000: more than 1000000 marks");
    }
    assert_int_equal(pickle_parse(&arena, "", PICKLE_MAX_BYTES + 1, NULL, &root, &err),
                     SIDESTEP_ECORRUPT);
    assert_string_equal(err.message, "pickle: 2147483649 bytes, the limit is 2147483648");
}

TEST(depth_through_objects)
{
    /* An object with items has depth two: the object and the items. */
    OWNED_BUFFER deep = {0};
    for (int i = 0; i < PICKLE_MAX_DEPTH / 2 + 1; i++)
        buffer_put_text(&deep, "cm\nC\n)R");
    buffer_put_u8(&deep, 'N');
    for (int i = 0; i < PICKLE_MAX_DEPTH / 2 + 1; i++)
        buffer_put_u8(&deep, 'a');
    buffer_put_u8(&deep, '.');
    struct buffer copy = {0};
    buffer_put(&copy, deep.bytes, deep.length);
    expect(&copy, "pickle: APPEND at byte 520: nested more than 128 deep");
}

/* x = [x, x, x ...], repeated 20 times: small as a graph, but huge as a tree. */
TEST(shared_nodes_do_not_explode)
{
    struct buffer pickle = repeated("N", 1, "2\x86", 2, 100, ".", 1);
    expect(&pickle, "pickle: more than 1000000 values");
    /* A text of a megabyte, 1,000 times. */
    OWNED_BUFFER bomb = {0};
    buffer_put(&bomb, "(X\x00\x00\x10\x00", 6);
    memset(buffer_extend(&bomb, 1 << 20), 'x', 1 << 20);
    buffer_put(&bomb, "q\x00", 2);
    for (int i = 0; i < 1000; i++)
        buffer_put(&bomb, "h\x00", 2);
    buffer_put_text(&bomb, "l.");
    struct buffer copy = {0};
    buffer_put(&copy, bomb.bytes, bomb.length);
    expect(&copy, "pickle: more than 268435456 bytes by repeating texts");
}

/* Memory for each byte of the most expensive inputs. */
TEST(memory_is_linear)
{
    static const struct {
        const char *before;
        size_t before_length;
        const char *unit;
        size_t unit_length;
    } table[] = {
        {B("N"), B("]0")},
        {B("N"), B("]Na0")},
        {B("N"), B("}NNs0")},
        {B("N"), B("\x8c\x01x0")},
        {B("N"), B("\x8c\x00"
                   "0")},
        {B("N"), B("K\x01"
                   "0")},
        {B("N"), B("N0)0\x88"
                   "0")},
        {B("N"), B("N\x94"
                   "0")},
        {B("NNq\x00"), B("h\x00\x85"
                         "0")},
        {B("]"), B("Na")},
        {B("}"), B("NNs")},
        {B("\x8c\x08posixxxx\x94"), B("h\x00h\x00\x93"
                                      "0")},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        OWNED_ARENA arena = {0};
        OWNED_BUFFER pickle = repeated(table[i].before, table[i].before_length, table[i].unit,
                                       table[i].unit_length, 100000, ".", 1);
        struct pickle_node *root;
        struct sidestep_error err = {0};
        (void)pickle_parse(&arena, pickle.bytes, pickle.length, NULL, &root, &err);
        assert_true(arena.used_bytes <= 4096 + 32 * pickle.length);
    }
}

TEST(long_names_of_symbols)
{
    OWNED_BUFFER pickle = {0};
    /* A name of 64 KiB, which 5 bytes turn into a symbol, many times. */
    buffer_put(&pickle, "X\x00\x00\x01\x00", 5);
    memset(buffer_extend(&pickle, 1 << 16), 'x', 1 << 16);
    buffer_put(&pickle, "q\x00", 2);
    for (int i = 0; i < 20; i++)
        buffer_put(&pickle,
                   "h\x00h\x00\x93"
                   "0",
                   6);
    buffer_put_u8(&pickle, '.');
    struct buffer copy = {0};
    buffer_put(&copy, pickle.bytes, pickle.length);
    expect(&copy, "pickle: STACK_GLOBAL at byte 65595: the names of all symbols are longer than "
                  "the file");
}

TEST(arena_limit)
{
    OWNED_ARENA arena = {.limit_bytes = 1 << 20};
    OWNED_BUFFER pickle = repeated("N", 1, "]0", 2, 100000, ".", 1);
    struct pickle_node *root;
    struct sidestep_error err = {0};
    assert_int_equal(pickle_parse(&arena, pickle.bytes, pickle.length, NULL, &root, &err),
                     SIDESTEP_ENOMEM);
}
