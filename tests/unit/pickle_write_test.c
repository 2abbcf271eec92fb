/* SPDX-License-Identifier: BSD-3-Clause */
/* pickle_write_test.c -- values as pickles, byte for byte; and memory that runs out. */
#include "base/fault.h"
#include "base/owned.h"
#include "support/pickle_read.h"
#include "support/unit.h"

#define B(literal) literal, sizeof(literal) - 1

/* What is read and then written: the same bytes as Python's. */
static const struct {
    const char *from;
    size_t from_length;
    const char *to;
    size_t to_length;
} written[] = {
    {B("N."), B("\x80\x02N.")},
    {B("\x88."), B("\x80\x02\x88.")},
    {B("I255\n."), B("\x80\x02K\xff.")},
    {B("I256\n."), B("\x80\x02M\x00\x01.")},
    {B("I65535\n."), B("\x80\x02M\xff\xff.")},
    {B("I65536\n."), B("\x80\x02J\x00\x00\x01\x00.")},
    {B("I-1\n."), B("\x80\x02J\xff\xff\xff\xff.")},
    {B("I2147483647\n."), B("\x80\x02J\xff\xff\xff\x7f.")},
    {B("I-2147483648\n."), B("\x80\x02J\x00\x00\x00\x80.")},
    {B("I2147483648\n."), B("\x80\x02\x8a\x05\x00\x00\x00\x80\x00.")},
    {B("I-2147483649\n."), B("\x80\x02\x8a\x05\xff\xff\xff\x7f\xff.")},
    {B("I9223372036854775807\n."), B("\x80\x02\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.")},
    {B("I-9223372036854775808\n."), B("\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.")},
    {B("F-1.5\n."), B("\x80\x02G\xbf\xf8\x00\x00\x00\x00\x00\x00.")},
    {B("\x8c\x03"
       "abc."),
     B("\x80\x02X\x03\x00\x00\x00"
       "abcq\x00.")},
    {B("V\\ud800\n."), B("\x80\x02X\x03\x00\x00\x00\xed\xa0\x80q\x00.")},
    {B(")."), B("\x80\x02).")},
    {B("(NNNNt."), B("\x80\x02(NNNNtq\x00.")},
    {B("]."), B("\x80\x02]q\x00.")},
    {B("]Na."), B("\x80\x02]q\x00Na.")},
    {B("](NNe."), B("\x80\x02]q\x00(NNe.")},
    {B("}."), B("\x80\x02}q\x00.")},
    {B("}NNs."), B("\x80\x02}q\x00NNs.")},
    {B("}(NNK\x01Nu."), B("\x80\x02}q\x00(NNK\x01Nu.")},
    {B("C\x00."),
     B("\x80\x02"
       "c_"
       "codecs\nencode\nq\x00X\x00\x00\x00\x00q\x01X\x06\x00\x00\x00latin1q\x02\x86q\x03Rq\x04.")},
    {B("C\x01"
       "aC\x01\xff\x86."),
     B("\x80\x02"
       "c_codecs\nencode\nq\x00X\x01\x00\x00\x00"
       "aq\x01X\x06\x00\x00\x00latin1q\x02\x86q\x03Rq\x04"
       "h\x00X\x02\x00\x00\x00\xc3\xbfq\x05h\x02\x86q\x06Rq\x07\x86q\x08.")},
};

TEST(writes_what_python_writes)
{
    for (size_t i = 0; i < ARRAY_LENGTH(written); i++) {
        OWNED_VALUE value = NULL;
        OWNED_BUFFER out = {0};
        struct sidestep_error err = {0};
        assert_int_equal(read_value(written[i].from, written[i].from_length, &value, &err),
                         SIDESTEP_OK);
        assert_int_equal(pickle_write_value(&out, value, &err), SIDESTEP_OK);
        assert_int_equal(out.length, written[i].to_length);
        assert_memory_equal(out.bytes, written[i].to, out.length);
    }
}

TEST(wide_memo_numbers)
{
    OWNED_VALUE list = sidestep_value_list();
    OWNED_VALUE again = NULL;
    OWNED_BUFFER out = {0};
    struct sidestep_error err = {0};
    /* After 256 memo numbers, bytes use long references, too. */
    for (int i = 0; i < 300; i++)
        assert_int_equal(sidestep_value_append(list, sidestep_value_str("x"), &err), SIDESTEP_OK);
    for (int i = 0; i < 2500; i++)
        assert_int_equal(sidestep_value_append(list, sidestep_value_bytes(&i, sizeof(i)), &err),
                         SIDESTEP_OK);
    assert_int_equal(pickle_write_value(&out, list, &err), SIDESTEP_OK);
    assert_int_equal(read_value(out.bytes, out.length, &again, &err), SIDESTEP_OK);
    assert_true(value_equal(list, again));
}

TEST(values_that_cannot_be_written)
{
    static const char *const not_utf8[] = {"\xff",
                                           "a\xc3",
                                           "\xc0\x80",
                                           "\xe0\x9f\xbf",
                                           "\xf0\x8f\xbf\xbf",
                                           "\xf4\x90\x80\x80",
                                           "\xf5\x80\x80\x80",
                                           "\xe2\x28\xa1",
                                           "\x80"};
    OWNED_BUFFER out = {0};
    struct sidestep_error err = {0};
    buffer_put_text(&out, "before");
    for (size_t i = 0; i < ARRAY_LENGTH(not_utf8); i++) {
        OWNED_VALUE list = sidestep_value_list();
        assert_int_equal(sidestep_value_append(list, sidestep_value_str(not_utf8[i]), &err),
                         SIDESTEP_OK);
        assert_int_equal(pickle_write_value(&out, list, &err), SIDESTEP_EINVAL);
        assert_non_null(strstr(err.message, "a str is not UTF-8 at byte "));
        assert_int_equal(out.length, 6);
    }
    OWNED_VALUE opaque = value_new_text(SIDESTEP_VALUE_OPAQUE, "x.y", 3);
    assert_int_equal(pickle_write_value(&out, opaque, &err), SIDESTEP_EUNSUPPORTED);
    assert_string_equal(err.message, "an opaque object (x.y) cannot be written");
    assert_int_equal(out.length, 6);
}

/* ---------------------------------------------------------------- memory that runs out */

static const char everything[] =
    "\x80\x04(K\x01J\xff\xff\xff\xff\x8a\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01"
    "F1.5\nS'x'\nV\xe9\n"
    "\x8c\x01x\x94}(K\x01NK\x02](K\x01NNNNeu\x8f(N\x90(N\x91h\x00\x8c\x01m\x8c\x01"
    "C\x93)R(NNe}K\x05Nsb"
    "ccollections\nOrderedDict\n)RK\x01Nsc_"
    "codecs\nencode\nX\x01\x00\x00\x00xX\x06\x00\x00\x00latin1\x86R"
    "C\x01xPx\n(imm\nC\n(cm\nC\nNo(NNNNtl.";

static enum sidestep_status read_and_write(struct sidestep_error *err)
{
    OWNED_VALUE value = NULL;
    OWNED_BUFFER out = {0};

    TRY(read_value(B(everything), &value, err));
    (void)pickle_write_value(&out, value, err);
    OWNED_VALUE list = sidestep_value_list();
    TRY(sidestep_value_append(list, sidestep_value_str("x"), err));
    TRY(sidestep_value_append(list, sidestep_value_bytes("x", 1), err));
    return pickle_write_value(&out, list, err);
}

TEST(memory_runs_out)
{
    struct sidestep_error err;
    enum sidestep_status status;
    unsigned long nth = 0;
    do {
        fault_arm("memory", ++nth, false, ENOMEM);
        status = read_and_write(&err);
        if (fault_fired() != NULL)
            assert_int_equal(status, SIDESTEP_ENOMEM);
    } while (fault_fired() != NULL);
    fault_arm("", 0, false, 0);
    assert_int_equal(status, SIDESTEP_OK);
    assert_true(nth > 20);
}
