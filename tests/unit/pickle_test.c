/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle_test.c -- pickles written by hand, opcode by opcode: their values, and where and why they
 * are refused. tests/interop/test_pickle.py reads pickles of Python.
 */
#include <locale.h>

#include "base/owned.h"
#include "support/pickle_read.h"
#include "support/unit.h"

#define B(literal) literal, sizeof(literal) - 1

/* As Python's repr() would, roughly; opaque values as <text>. */
static void show(struct buffer *out, const struct sidestep_value *v)
{
    static const char *const around[] = {
        [SIDESTEP_VALUE_LIST] = "[]", [SIDESTEP_VALUE_TUPLE] = "()", [SIDESTEP_VALUE_DICT] = "{}"};
    switch (v->kind) {
    case SIDESTEP_VALUE_NONE:
        buffer_put_text(out, "None");
        return;
    case SIDESTEP_VALUE_BOOL:
        buffer_put_text(out, v->as.boolean ? "True" : "False");
        return;
    case SIDESTEP_VALUE_INT:
        buffer_printf(out, "%lld", (long long)v->as.integer);
        return;
    case SIDESTEP_VALUE_FLOAT:
        buffer_printf(out, "%g", v->as.real);
        return;
    case SIDESTEP_VALUE_STR:
    case SIDESTEP_VALUE_BYTES:
        buffer_put_text(out, v->kind == SIDESTEP_VALUE_STR ? "'" : "b'");
        buffer_put(out, v->as.text.bytes, v->as.text.length);
        buffer_put_text(out, "'");
        return;
    case SIDESTEP_VALUE_OPAQUE:
        buffer_printf(out, "<%s>", v->as.text.bytes);
        return;
    case SIDESTEP_VALUE_LIST:
    case SIDESTEP_VALUE_TUPLE:
    case SIDESTEP_VALUE_DICT:
        break;
    }
    buffer_put_u8(out, (uint8_t)around[v->kind][0]);
    for (size_t i = 0; i < v->as.seq.count; i++) {
        bool is_item = v->kind == SIDESTEP_VALUE_DICT && i % 2 == 1;
        buffer_put_text(out, i == 0 ? "" : is_item ? ": " : ", ");
        show(out, v->as.seq.items[i]);
    }
    buffer_put_u8(out, (uint8_t)around[v->kind][1]);
}

struct example {
    const char *bytes;
    size_t length;
    const char *shown;
};

static const struct example values[] = {
    /* Scalars. */
    {B("N."), "None"},
    {B("\x88."), "True"},
    {B("\x89."), "False"},
    {B("\x80\x00I01\n."), "True"},
    {B("I00\n."), "False"},
    {B("I1\n."), "1"},
    {B("I-12\n."), "-12"},
    {B("I9223372036854775807\n."), "9223372036854775807"},
    {B("L-9223372036854775808L\n."), "-9223372036854775808"},
    {B("L9223372036854775808L\n."), "<int, two's complement 0x008000000000000000>"},
    {B("L-9223372036854775809L\n."), "<int, two's complement 0xff7fffffffffffffff>"},
    {B("L0L\n."), "0"},
    {B("L-0\n."), "0"},
    {B("L00000000000000000000000000000000000000000000000007L\n."), "7"},
    {B("K\xff."), "255"},
    {B("M\x00\x01."), "256"},
    {B("J\xff\xff\xff\xff."), "-1"},
    {B("J\x00\x00\x00\x80."), "-2147483648"},
    {B("\x8a\x00."), "0"},
    {B("\x8a\x01\x80."), "-128"},
    {B("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."),
     "<int, two's complement 0x00ffffffffffffffff>"},
    {B("\x8a\x0a\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff."), "-2"},
    {B("\x8a\x0a\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00."), "1"},
    {B("\x8b\x02\x00\x00\x00\x00\x01."), "256"},
    {B("\x8a\x21@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@."), "<int of 33 bytes>"},
    {B("G\x3f\xf8\x00\x00\x00\x00\x00\x00."), "1.5"},
    {B("F1.5\n."), "1.5"},
    {B("F-1e-3\n."), "-0.001"},
    {B("Finf\n."), "inf"},
    {B("F-inf\n."), "-inf"},
    {B("F-nan\n."), "-nan"},
    /* Strings. */
    {B("X\x02\x00\x00\x00h\xc3."), "'h\xc3'"},
    {B("\x8c\x00."), "''"},
    {B("\x8d\x01\x00\x00\x00\x00\x00\x00\x00x."), "'x'"},
    {B("C\x01x."), "b'x'"},
    {B("B\x01\x00\x00\x00x."), "b'x'"},
    {B("\x8e\x01\x00\x00\x00\x00\x00\x00\x00x."), "b'x'"},
    {B("\x96\x01\x00\x00\x00\x00\x00\x00\x00x."), "b'x'"},
    {B("U\x02hi."), "'hi'"},
    {B("U\x02h\xff."), "b'h\xff'"},
    {B("T\x02\x00\x00\x00hi."), "'hi'"},
    {B("S'h\\x69\\n\\\\\\'\\\"\\101\\q\\'\n."), "'hi\n\\'\"A\\q\\'"},
    {B("S\"\\xZZ\\377\"\n."), "b'\\xZZ\xff'"},
    {B("S'\\\\'\n."), "'\\'"},
    {B("Vh\xe9\\u20ac\\U0001f600\\q\n."), "'h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\\q'"},
    {B("V\\ud800\n."), "'\xed\xa0\x80'"},
    {B("V\n."), "''"},
    /* Containers. */
    {B(")."), "()"},
    {B("K\x01\x85."), "(1)"},
    {B("K\x01K\x02\x86."), "(1, 2)"},
    {B("K\x01K\x02K\x03\x87."), "(1, 2, 3)"},
    {B("(K\x01K\x02K\x03K\x04t."), "(1, 2, 3, 4)"},
    {B("(t."), "()"},
    {B("]."), "[]"},
    {B("]K\x01"
       "a(K\x02K\x03"
       "e(e."),
     "[1, 2, 3]"},
    {B("(K\x01l."), "[1]"},
    {B("}."), "{}"},
    {B("}K\x01Ns(K\x02NK\x03Nu."), "{1: None, 2: None, 3: None}"},
    {B("}(K\x01NK\x01\x88u."), "{1: True}"},
    {B("(K\x01Nd."), "{1: None}"},
    {B("\x8f(K\x01K\x02\x90."), "[1, 2]"},
    {B("(K\x01\x91."), "(1)"},
    {B("}(K\x01\x91Ns."), "{(1): None}"},
    /* Memo and stack. */
    {B("Nq\x05"
       "0h\x05."),
     "None"},
    {B("Nr\x05\x00\x00\x00"
       "0j\x05\x00\x00\x00."),
     "None"},
    {B("Np5\n0g5\n."), "None"},
    {B("K\x01\x94K\x02\x94h\x00h\x01\x86\x86\x86."), "(1, (2, (1, 2)))"},
    {B("(K\x01\x8c\x00\x94K\x02\x94h\x00h\x01t."), "(1, '', 2, '', 2)"},
    {B("]2\x86."), "([], [])"},
    {B("]2Na\x86."), "([None], [None])"},
    {B("K\x01(K\x02K\x03"
       "1."),
     "1"},
    {B("K\x01(0."), "1"},
    {B("NK\x01"
       "0."),
     "None"},
    /* Frames. */
    {B("\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N."), "None"},
    {B("\x95\x01\x00\x00\x00\x00\x00\x00\x00N."), "None"},
    {B("\x95\x02\x00\x00\x00\x00\x00\x00\x00K\x01\x95\x01\x00\x00\x00\x00\x00\x00\x00."), "1"},
    {B("\x95\x00\x00\x00\x00\x00\x00\x00\x00N."), "None"},
    /* Known symbols. */
    {B("ctorch\nfloat32\n."), "<torch.float32>"},
    {B("ctorch\nSize\n(K\x02K\x03t\x85R."), "(2, 3)"},
    {B("ccollections\nOrderedDict\n)RK\x01Ns."), "{1: None}"},
    {B("ccollections\nOrderedDict\n)R(K\x01Nu(K\x02Nu."), "{1: None, 2: None}"},
    {B("ccollections\nOrderedDict\n)R."), "{}"},
    {B("ccollections\nOrderedDict\n](](K\x01Ne(K\x02Nle\x85R."), "{1: None, 2: None}"},
    {B("ccollections\nOrderedDict\n]K\x01"
       "a\x85R."),
     "<collections.OrderedDict(...)>"},
    {B("ccollections\nOrderedDict\n(](NNe](]Nel\x85R."), "<collections.OrderedDict(...)>"},
    {B("ccollections\nOrderedDict\n)RK\x01"
       "a."),
     "<collections.OrderedDict(...)>"},
    {B("ccollections\ndefaultdict\nc__builtin__\nlist\n\x85RK\x01Ns."), "{1: None}"},
    {B("ccollections\nCounter\n}K\x01K\x02s\x85R."), "{1: 2}"},
    {B("c__builtin__\nset\n]K\x01"
       "a\x85R."),
     "[1]"},
    {B("cbuiltins\nfrozenset\n]K\x01"
       "a\x85R."),
     "(1)"},
    {B("cbuiltins\nfrozenset\n\x8f\x85R."), "<builtins.frozenset(...)>"},
    {B("c_codecs\nencode\nX\x03\x00\x00\x00"
       "a\xc3\xbfX\x06\x00\x00\x00latin1\x86R."),
     "b'a\xff'"},
    {B("c_codecs\nencode\nX\x02\x00\x00\x00\xc4\xb1X\x06\x00\x00\x00latin1\x86R."),
     "<_codecs.encode(...)>"},
    {B("c_codecs\nencode\nX\x01\x00\x00\x00\xc3X\x06\x00\x00\x00latin1\x86R."),
     "<_codecs.encode(...)>"},
    {B("c_codecs\nencode\nX\x01\x00\x00\x00"
       "aX\x05\x00\x00\x00rot13\x86R."),
     "<_codecs.encode(...)>"},
    {B("c_codecs\nencode\n)R."), "<_codecs.encode(...)>"},
    {B("c__builtin__\nbytes\n)R."), "b''"},
    {B("cbuiltins\nbytearray\nC\x01x\x85R."), "b'x'"},
    {B("c__builtin__\nbytearray\nc_codecs\nencode\nU\x01xU\x06latin1\x86R\x85R."), "b'x'"},
    {B("c__builtin__\nbytearray\nX\x01\x00\x00\x00xX\x07\x00\x00\x00latin-1\x86R."), "b'x'"},
    {B("ctorch.serialization\n_get_layout\n\x8c\rtorch.strided\x85R."), "<torch.strided>"},
    {B("ctorch.serialization\n_get_layout\n)R."), "<torch.serialization._get_layout(...)>"},
    /* Calls of unknown symbols do nothing. */
    {B("cposix\nsystem\n\x8c\x04halt\x85R."), "<posix.system(...)>"},
    {B("\x8c\x05posix\x8c\x06system\x93\x8c\x04halt\x85R."), "<posix.system(...)>"},
    {B("(\x8c\x04haltiposix\nsystem\n."), "<posix.system object>"},
    {B("(cposix\nsystem\n\x8c\x04halto."), "<posix.system object>"},
    {B("(cposix\nsystem\no."), "<posix.system object>"},
    {B("cm\nC\n)\x81}K\x01Nsb."), "<m.C object>"},
    {B("cm\nC\n)}\x92."), "<m.C object>"},
    {B("cm\nC\n)}K\x01Ns\x92."), "<m.C object>"},
    {B("cm\nC\n)R(K\x01K\x02"
       "e(K\x03"
       "e."),
     "<m.C(...)>"},
    {B("cm\nC\n)R(K\x01\x90."), "<m.C(...)>"},
    {B("cbuiltins\ngetattr\ncm\nC\n\x8c\x01x\x86R)R."), "<?(...)>"},
    {B("c\x1b[2J\nx\n."), "<\\x1b[2J.x>"},
    {B("Pkey\n."), "<persistent id ?>"},
    {B("\x8c\x03keyQ."), "<persistent id ?>"},
};

TEST(opcodes_give_their_values)
{
    for (size_t i = 0; i < ARRAY_LENGTH(values); i++) {
        OWNED_VALUE value = NULL;
        OWNED_BUFFER shown = {0};
        struct sidestep_error err = {0};
        if (read_guarded(values[i].bytes, values[i].length, &value, &err) != SIDESTEP_OK)
            fail_msg("%s: %s", values[i].shown, err.message);
        show(&shown, value);
        buffer_put_u8(&shown, 0);
        assert_string_equal((char *)shown.bytes, values[i].shown);
        /* Every beginning of it is an error. */
        for (size_t n = 0; n < values[i].length; n++) {
            OWNED_VALUE none = NULL;
            assert_int_equal(read_guarded(values[i].bytes, n, &none, &err), SIDESTEP_ECORRUPT);
        }
    }
}

static const struct example refusals[] = {
    {B(""), "pickle: ends at byte 0 without STOP"},
    {B("N"), "pickle: ends at byte 1 without STOP"},
    {B("N.."), "pickle: STOP at byte 1: 1 bytes follow"},
    {B("."), "pickle: STOP at byte 0: 0 values and 0 marks are left on the stack"},
    {B("NN."), "pickle: STOP at byte 2: 2 values and 0 marks are left on the stack"},
    {B("N(."), "pickle: STOP at byte 2: 1 values and 1 marks are left on the stack"},
    {B("\xff"), "pickle: unknown opcode 0xff at byte 0"},
    {B("\x80\x06N."), "pickle: PROTO at byte 0: protocol 6, the newest known is 5"},
    {B("\x80"), "pickle: PROTO at byte 0: the argument does not end before the file does"},
    {B("\x95\xff\xff\xff\xff\xff\xff\xff\xffN."),
     "pickle: FRAME at byte 0: a frame of 18446744073709551615 bytes, and 2 are left"},
    {B("\x95\x03\x00\x00\x00\x00\x00\x00\x00N."),
     "pickle: FRAME at byte 0: a frame of 3 bytes, and 2 are left"},
    {B("\x95\x0a\x00\x00\x00\x00\x00\x00\x00\x95\x00\x00\x00\x00\x00\x00\x00\x00N."),
     "pickle: FRAME at byte 9: a frame inside a frame"},
    {B("\x95\x01\x00\x00\x00\x00\x00\x00\x00K\x01."),
     "pickle: BININT1 at byte 9: the argument does not end before the frame does"},
    {B("\x95\x02\x00\x00\x00\x00\x00\x00\x00\x8c\x01x."),
     "pickle: SHORT_BINUNICODE at byte 9: needs 1 bytes, and 0 are left in the frame"},
    {B("\x95\x03\x00\x00\x00\x00\x00\x00\x00N.."),
     "pickle: STOP at byte 10: 1 bytes before the end of the frame"},
    /* Lengths. */
    {B("\x8b\xff\xff\xff\x7f"),
     "pickle: LONG4 at byte 0: needs 2147483647 bytes, and 0 are left in the file"},
    {B("\x8d\x00\x00\x00\x00\x00\x00\x00\x80x."),
     "pickle: BINUNICODE8 at byte 0: needs 9223372036854775808 bytes, and 2 are left in the file"},
    {B("\x8e\xff\xff\xff\xff\xff\xff\xff\xffx."),
     "pickle: BINBYTES8 at byte 0: needs 18446744073709551615 bytes, and 2 are left in the file"},
    {B("\x96\xff\xff\xff\xff\xff\xff\xff\xffx."),
     "pickle: BYTEARRAY8 at byte 0: needs 18446744073709551615 bytes, and 2 are left in the file"},
    {B("T\xff\xff\xff\xff."),
     "pickle: BINSTRING at byte 0: needs 4294967295 bytes, and 1 are left in the file"},
    /* Text. */
    {B("I1"), "pickle: INT at byte 0: a line that does not end"},
    {B("I\n."), "pickle: INT at byte 0: not a decimal number"},
    {B("I-\n."), "pickle: INT at byte 0: not a decimal number"},
    {B("I0x10\n."), "pickle: INT at byte 0: not a decimal number"},
    {B("L12LL\n."), "pickle: LONG at byte 0: not a decimal number"},
    {B("F\n."), "pickle: FLOAT at byte 0: not a float"},
    {B("F1,5\n."), "pickle: FLOAT at byte 0: not a float"},
    {B("F1.5.\n."), "pickle: FLOAT at byte 0: not a float"},
    {B("F0x1p3\n."), "pickle: FLOAT at byte 0: not a float"},
    {B("Finfinity\n."), "pickle: FLOAT at byte 0: not a float"},
    {B("F0.0000000000000000000000000000000000000000000000000000000000001\n."), NULL},
    {B("F0.00000000000000000000000000000000000000000000000000000000000001\n."),
     "pickle: FLOAT at byte 0: not a float"},
    {B("S'x\n."), "pickle: STRING at byte 0: a string without quotes"},
    {B("S'\n."), "pickle: STRING at byte 0: a string without quotes"},
    {B("S\n."), "pickle: STRING at byte 0: a string without quotes"},
    {B("V\\u12\n."), "pickle: UNICODE at byte 0: a broken escape in a string"},
    {B("V\\U00110000\n."), "pickle: UNICODE at byte 0: a broken escape in a string"},
    {B("gx\n."), "pickle: GET at byte 0: not a memo index"},
    {B("g\n."), "pickle: GET at byte 0: not a memo index"},
    {B("g1234567890123456789\n."), "pickle: GET at byte 0: not a memo index"},
    {B("Np-1\n."), "pickle: PUT at byte 1: not a memo index"},
    /* Memo. */
    {B("h\x07."), "pickle: BINGET at byte 0: nothing in the memo at 7"},
    {B("Nq\x00h\x07."), "pickle: BINGET at byte 3: nothing in the memo at 7"},
    {B("j\xff\xff\xff\xff."), "pickle: LONG_BINGET at byte 0: nothing in the memo at 4294967295"},
    {B("q\x00."), "pickle: BINPUT at byte 0: nothing on the stack"},
    {B("\x94."), "pickle: MEMOIZE at byte 0: nothing on the stack"},
    {B("Nr\xff\xff\xff\xff."), "pickle: LONG_BINPUT at byte 1: memo index 4294967295 in 7 bytes"},
    {B("Nr\x07\x04\x00\x00."), "pickle: LONG_BINPUT at byte 1: memo index 1031 in 7 bytes"},
    {B("Nr\x06\x04\x00\x00."), NULL},
    /* Stack. */
    {B("0."), "pickle: POP at byte 0: nothing on the stack"},
    {B("1."), "pickle: POP_MARK at byte 0: no mark on the stack"},
    {B("2."), "pickle: DUP at byte 0: nothing on the stack"},
    {B("N(2."), "pickle: DUP at byte 2: nothing on the stack"},
    {B("t."), "pickle: TUPLE at byte 0: no mark on the stack"},
    {B("\x85."), "pickle: TUPLE1 at byte 0: nothing on the stack"},
    {B("N\x86."), "pickle: TUPLE2 at byte 1: nothing on the stack"},
    {B("]a."), "pickle: APPEND at byte 1: nothing on the stack"},
    {B("(Ne."), "pickle: APPENDS at byte 2: nothing on the stack"},
    {B("N(e."), "pickle: APPENDS at byte 2: the target is not a container of this kind"},
    {B("]NNs."), "pickle: SETITEM at byte 3: the target is not a container of this kind"},
    {B("}Na."), "pickle: APPEND at byte 2: the target is not a container of this kind"},
    {B("}(N\x90."), "pickle: ADDITEMS at byte 3: the target is not a container of this kind"},
    {B("}(NNNu."), "pickle: SETITEMS at byte 5: a key without a value"},
    {B("(Nd."), "pickle: DICT at byte 2: a key without a value"},
    {B("cm\nC\n)RNNsNa."), "pickle: APPEND at byte 11: an object that is both list and dict"},
    /* Keys that Python cannot hash. */
    {B("}]Ns."), "pickle: SETITEM at byte 3: a key that Python cannot hash"},
    {B("}(N}\x86Nu."), "pickle: SETITEMS at byte 6: a key that Python cannot hash"},
    {B("(]Nd."), "pickle: DICT at byte 3: a key that Python cannot hash"},
    {B("}]\x85\x85Ns."), "pickle: SETITEM at byte 5: a key that Python cannot hash"},
    {B("}\x8fNs."), "pickle: SETITEM at byte 3: a key that Python cannot hash"},
    {B("}\x96\x00\x00\x00\x00\x00\x00\x00\x00Ns."),
     "pickle: SETITEM at byte 11: a key that Python cannot hash"},
    {B("\x8f(]\x90."), "pickle: ADDITEMS at byte 3: an item of a set that Python cannot hash"},
    {B("}ccollections\nOrderedDict\n)RNs."), "pickle: a key that Python cannot hash"},
    /* Calls and objects. */
    {B("NNR."), "pickle: REDUCE at byte 2: the arguments are not a tuple"},
    {B("N]\x81."), "pickle: NEWOBJ at byte 2: the arguments are not a tuple"},
    {B("N))\x92."), "pickle: NEWOBJ_EX at byte 3: the arguments are not a tuple and a dict"},
    {B("NNb."), "pickle: BUILD at byte 2: state for a value that cannot have any"},
    {B("cm\nC\n)RNbNb."), "pickle: BUILD at byte 10: state for a value that cannot have any"},
    {B("N\x8c\x01x\x93."), "pickle: STACK_GLOBAL at byte 4: a symbol needs two strings"},
    {B("\x8c\x01\x00\x8c\x01x\x93."),
     "pickle: STACK_GLOBAL at byte 6: a symbol with a NUL in its name"},
    {B("cos\n"), "pickle: GLOBAL at byte 0: a line that does not end"},
    {B("im\nC\n."), "pickle: INST at byte 0: no mark on the stack"},
    {B("(o."), "pickle: OBJ at byte 1: no class after the mark"},
};

TEST(refusals_name_opcode_and_offset)
{
    for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
        OWNED_VALUE value = NULL;
        struct sidestep_error err = {0};
        enum sidestep_status status =
            read_guarded(refusals[i].bytes, refusals[i].length, &value, &err);
        assert_int_equal(status, refusals[i].shown != NULL ? SIDESTEP_ECORRUPT : SIDESTEP_OK);
        if (refusals[i].shown != NULL)
            assert_string_equal(err.message, refusals[i].shown);
    }
}

static const struct {
    enum sidestep_status status;
    struct example of;
} unsupported[] = {
    {SIDESTEP_EUNSAFE,
     {B("\x82\x01."), "pickle: EXT1 at byte 0: an extension code hides the name of a class"}},
    {SIDESTEP_EUNSAFE,
     {B("\x83\x01\x00."), "pickle: EXT2 at byte 0: an extension code hides the name of a class"}},
    {SIDESTEP_EUNSAFE,
     {B("\x84\x01\x00\x00\x00."),
      "pickle: EXT4 at byte 0: an extension code hides the name of a class"}},
    {SIDESTEP_EUNSUPPORTED,
     {B("\x97."), "pickle: NEXT_BUFFER at byte 0: the data lies outside of the pickle"}},
    {SIDESTEP_EUNSUPPORTED,
     {B("N\x98."), "pickle: READONLY_BUFFER at byte 1: the data lies outside of the pickle"}},
#define CYCLE "an object that contains itself, or changes inside another"
    {SIDESTEP_EUNSUPPORTED, {B("]2a."), "pickle: APPEND at byte 2: " CYCLE}},
    {SIDESTEP_EUNSUPPORTED,
     {B("]q\x00h\x00"
        "a."),
      "pickle: APPEND at byte 5: " CYCLE}},
    {SIDESTEP_EUNSUPPORTED,
     {B("]q\x00h\x00\x85"
        "a."),
      "pickle: APPEND at byte 6: " CYCLE}},
    {SIDESTEP_EUNSUPPORTED, {B("}q\x00Nh\x00s."), "pickle: SETITEM at byte 6: " CYCLE}},
    {SIDESTEP_EUNSUPPORTED,
     {B("]q\x00]q\x01h\x00"
        "ah\x00h\x01"
        "a."),
      "pickle: APPEND at byte 13: " CYCLE}},
    {SIDESTEP_EUNSUPPORTED,
     {B("cm\nC\n)Rq\x00h\x00"
        "b."),
      "pickle: BUILD at byte 11: " CYCLE}},
    {SIDESTEP_EUNSUPPORTED,
     {B("cm\nC\n)Rq\x00]h\x00"
        "ab."),
      "pickle: BUILD at byte 13: " CYCLE}},
    {SIDESTEP_EUNSUPPORTED,
     {B("cm\nC\n)Rq\x00h\x00"
        "a."),
      "pickle: APPEND at byte 11: " CYCLE}},
};

TEST(pickles_that_only_python_decodes)
{
    for (size_t i = 0; i < ARRAY_LENGTH(unsupported); i++) {
        OWNED_VALUE value = NULL;
        struct sidestep_error err = {0};
        assert_int_equal(
            read_guarded(unsupported[i].of.bytes, unsupported[i].of.length, &value, &err),
            unsupported[i].status);
        assert_string_equal(err.message, unsupported[i].of.shown);
    }
}

/* All programs of up to three opcodes, followed by arguments, and all of two bytes. */
TEST(every_short_program)
{
    uint8_t *program = guard_copy("\0\0\0\0", 4);
    unsigned accepted = 0;
    for (unsigned i = 0; i < 1u << 24; i++) {
        program[0] = (uint8_t)i;
        program[1] = (uint8_t)(i >> 8);
        program[2] = (uint8_t)(i >> 16);
        program[3] = '.';
        /* Keep only opcodes, and a third of what is left. */
        if (program[0] < '(' || program[1] < '(' || (program[0] > '}' && program[0] < 0x80) ||
            program[0] > 0x98 || program[1] > 0x98 || program[2] > 0x98 || i % 3 != 0)
            continue;
        OWNED_ARENA arena = {0};
        struct pickle_node *root;
        size_t consumed;
        if (pickle_parse(&arena, program, 4, &consumed, &root, NULL) == SIDESTEP_OK) {
            OWNED_VALUE value = NULL;
            accepted += pickle_to_value(root, &value, NULL) == SIDESTEP_OK;
        }
    }
    guard_free(program);
    assert_true(accepted > 100);
}

TEST(consumed_bytes)
{
    OWNED_ARENA arena = {0};
    struct pickle_node *root;
    struct sidestep_error err = {0};
    size_t consumed = 0;
    assert_int_equal(pickle_parse(&arena, B("K\x07.rest"), &consumed, &root, &err), SIDESTEP_OK);
    assert_int_equal(consumed, 3);
    assert_int_equal(root->kind, PICKLE_INT);
}

TEST(looking_up_keys)
{
    OWNED_ARENA arena = {0};
    struct pickle_node *root;
    struct sidestep_error err = {0};
    assert_int_equal(pickle_parse(&arena,
                                  B("}(\x8c\x01"
                                    "aK\x01\x8c\x02"
                                    "abK\x02\x8c\x01"
                                    "aK\x03K\x01Nu."),
                                  NULL, &root, &err),
                     SIDESTEP_OK);
    assert_int_equal(pickle_dict_get(root, "a")->as.integer, 3);
    assert_int_equal(pickle_dict_get(root, "ab")->as.integer, 2);
    assert_null(pickle_dict_get(root, "b"));
    assert_null(pickle_dict_get(pickle_dict_get(root, "a"), "a"));
    assert_false(pickle_is_global(root, "a b"));
}

TEST(the_locale_does_not_matter)
{
    const char *old = setlocale(LC_NUMERIC, NULL);
    /* If no such locale is installed, this repeats the test above. */
    (void)setlocale(LC_NUMERIC, "de_DE.UTF-8");
    OWNED_VALUE value = NULL;
    struct sidestep_error err = {0};
    assert_int_equal(read_guarded(B("F1.5\n."), &value, &err), SIDESTEP_OK);
    assert_true(value->as.real == 1.5);
    (void)setlocale(LC_NUMERIC, old);
}
