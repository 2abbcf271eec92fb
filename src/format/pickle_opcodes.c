/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle_opcodes.c -- see pickle_parser.h: lists the opcodes of protocols 0 to 5, and runs those
 * for framing, stack, memo and scalars.  Lib/pickletools.py of CPython defines them.
 */
#include <string.h>

#include "format/pickle_parser.h"

/* ---------------------------------------------------------------- arguments */

static enum sidestep_status fail_argument(struct pickle_parser *p)
{
    return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "the argument does not end before the %s does",
                       p->in_frame ? "frame" : "file");
}

static enum sidestep_status read_argument(struct pickle_parser *p, unsigned width, uint64_t *value)
{
    *value = cursor_le(&p->in, width);
    return p->in.overrun ? fail_argument(p) : SIDESTEP_OK;
}

/* Read a length of ${width} bytes, and take that many bytes. */
static enum sidestep_status read_counted(struct pickle_parser *p, unsigned width,
                                         const uint8_t **bytes, size_t *length)
{
    uint64_t n;

    TRY(read_argument(p, width, &n));
    if (n > cursor_remaining(&p->in))
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "needs %llu bytes, and %zu are left in the %s",
                           (unsigned long long)n, cursor_remaining(&p->in),
                           p->in_frame ? "frame" : "file");
    *length = (size_t)n;
    *bytes = cursor_take(&p->in, *length);
    return SIDESTEP_OK;
}

static enum sidestep_status push_counted(struct pickle_parser *p, unsigned width,
                                         enum pickle_kind kind)
{
    const uint8_t *bytes;
    size_t length;

    TRY(read_counted(p, width, &bytes, &length));
    return pickle_push_text(p, kind, bytes, length);
}

/* ---------------------------------------------------------------- framing */

static enum sidestep_status run_proto(struct pickle_parser *p)
{
    uint64_t protocol;

    TRY(read_argument(p, 1, &protocol));
    if (protocol > PICKLE_MAX_PROTOCOL)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "protocol %llu, the newest known is %d",
                           (unsigned long long)protocol, PICKLE_MAX_PROTOCOL);
    return SIDESTEP_OK;
}

static enum sidestep_status run_frame(struct pickle_parser *p)
{
    uint64_t length;

    if (p->in_frame)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "a frame inside a frame");
    TRY(read_argument(p, 8, &length));
    if (length > cursor_remaining(&p->in))
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "a frame of %llu bytes, and %zu are left",
                           (unsigned long long)length, cursor_remaining(&p->in));
    p->in_frame = true;
    p->in.length = p->in.position + (size_t)length;
    return SIDESTEP_OK;
}

static enum sidestep_status run_stop(struct pickle_parser *p)
{
    p->stopped = true;
    return SIDESTEP_OK;
}

static enum sidestep_status run_extension(struct pickle_parser *p)
{
    return PICKLE_FAIL(p, SIDESTEP_EUNSAFE, "an extension code hides the name of a class");
}

static enum sidestep_status run_out_of_band(struct pickle_parser *p)
{
    return PICKLE_FAIL(p, SIDESTEP_EUNSUPPORTED, "the data lies outside of the pickle");
}

/* ---------------------------------------------------------------- the stack and the memo */

static enum sidestep_status run_pop(struct pickle_parser *p)
{
    struct pickle_node *node;

    if (p->mark_count != 0 && p->marks[p->mark_count - 1] == p->depth) {
        p->mark_count--;
        return SIDESTEP_OK;
    }
    return pickle_pop(p, &node);
}

static enum sidestep_status run_pop_mark(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    return pickle_pop_mark(p, &items, &count);
}

static enum sidestep_status run_dup(struct pickle_parser *p)
{
    struct pickle_node *node;

    TRY(pickle_top(p, &node));
    node->shared = true;
    return pickle_push(p, node);
}

static enum sidestep_status run_put(struct pickle_parser *p)
{
    uint64_t index;

    TRY(pickle_line_index(p, &index));
    return pickle_memo_put(p, index);
}

static enum sidestep_status run_binput(struct pickle_parser *p)
{
    uint64_t index;

    TRY(read_argument(p, p->opcode == 'q' ? 1 : 4, &index));
    return pickle_memo_put(p, index);
}

static enum sidestep_status run_memoize(struct pickle_parser *p)
{
    return pickle_memo_put(p, p->memo_count);
}

static enum sidestep_status run_get(struct pickle_parser *p)
{
    uint64_t index;

    TRY(pickle_line_index(p, &index));
    return pickle_memo_get(p, index);
}

static enum sidestep_status run_binget(struct pickle_parser *p)
{
    uint64_t index;

    TRY(read_argument(p, p->opcode == 'h' ? 1 : 4, &index));
    return pickle_memo_get(p, index);
}

/* ---------------------------------------------------------------- scalars */

static enum sidestep_status run_none(struct pickle_parser *p)
{
    return pickle_push(p, p->none);
}

static enum sidestep_status run_newbool(struct pickle_parser *p)
{
    return pickle_push(p, p->opcode == 0x88 ? p->yes : p->no);
}

static enum sidestep_status run_binint(struct pickle_parser *p)
{
    uint64_t value;

    TRY(read_argument(p, 4, &value));
    return pickle_push_int(p, (int32_t)value);
}

static enum sidestep_status run_small_binint(struct pickle_parser *p)
{
    uint64_t value;

    TRY(read_argument(p, p->opcode == 'K' ? 1 : 2, &value));
    return pickle_push_int(p, (int64_t)value);
}

static enum sidestep_status run_binlong(struct pickle_parser *p)
{
    const uint8_t *bytes;
    size_t length;

    TRY(read_counted(p, p->opcode == 0x8a ? 1 : 4, &bytes, &length));
    return pickle_push_long(p, bytes, length);
}

static enum sidestep_status run_binfloat(struct pickle_parser *p)
{
    uint64_t bits;
    double real;

    TRY(read_argument(p, 8, &bits));
    bits = __builtin_bswap64(bits);
    memcpy(&real, &bits, sizeof(real));
    return pickle_push_float(p, real);
}

static enum sidestep_status run_binunicode(struct pickle_parser *p)
{
    return push_counted(p, p->opcode == 'X' ? 4 : p->opcode == 0x8c ? 1 : 8, PICKLE_STR);
}

static enum sidestep_status run_binbytes(struct pickle_parser *p)
{
    return push_counted(p, p->opcode == 'B' ? 4 : p->opcode == 'C' ? 1 : 8, PICKLE_BYTES);
}

static enum sidestep_status run_bytearray8(struct pickle_parser *p)
{
    TRY(push_counted(p, 8, PICKLE_BYTES));
    p->stack[p->depth - 1]->hashable = false;
    return SIDESTEP_OK;
}

static enum sidestep_status run_binstring(struct pickle_parser *p)
{
    const uint8_t *bytes;
    size_t length;

    TRY(read_counted(p, p->opcode == 'T' ? 4 : 1, &bytes, &length));
    return pickle_push_str8(p, bytes, length);
}

/* ---------------------------------------------------------------- the table */

const struct pickle_opcode pickle_opcodes[256] = {
    ['('] = {"MARK", pickle_mark},
    ['.'] = {"STOP", run_stop},
    ['0'] = {"POP", run_pop},
    ['1'] = {"POP_MARK", run_pop_mark},
    ['2'] = {"DUP", run_dup},
    ['F'] = {"FLOAT", pickle_run_float},
    ['I'] = {"INT", pickle_run_int},
    ['J'] = {"BININT", run_binint},
    ['K'] = {"BININT1", run_small_binint},
    ['L'] = {"LONG", pickle_run_long},
    ['M'] = {"BININT2", run_small_binint},
    ['N'] = {"NONE", run_none},
    ['P'] = {"PERSID", pickle_run_persid},
    ['Q'] = {"BINPERSID", pickle_run_binpersid},
    ['R'] = {"REDUCE", pickle_run_call},
    ['S'] = {"STRING", pickle_run_string},
    ['T'] = {"BINSTRING", run_binstring},
    ['U'] = {"SHORT_BINSTRING", run_binstring},
    ['V'] = {"UNICODE", pickle_run_unicode},
    ['X'] = {"BINUNICODE", run_binunicode},
    ['a'] = {"APPEND", pickle_run_append},
    ['b'] = {"BUILD", pickle_run_build},
    ['c'] = {"GLOBAL", pickle_run_global},
    ['d'] = {"DICT", pickle_run_dict},
    ['}'] = {"EMPTY_DICT", pickle_run_empty},
    ['e'] = {"APPENDS", pickle_run_appends},
    ['g'] = {"GET", run_get},
    ['h'] = {"BINGET", run_binget},
    ['i'] = {"INST", pickle_run_inst},
    ['j'] = {"LONG_BINGET", run_binget},
    ['l'] = {"LIST", pickle_run_list},
    [']'] = {"EMPTY_LIST", pickle_run_empty},
    ['o'] = {"OBJ", pickle_run_obj},
    ['p'] = {"PUT", run_put},
    ['q'] = {"BINPUT", run_binput},
    ['r'] = {"LONG_BINPUT", run_binput},
    ['s'] = {"SETITEM", pickle_run_setitem},
    ['t'] = {"TUPLE", pickle_run_tuple},
    [')'] = {"EMPTY_TUPLE", pickle_run_empty_tuple},
    ['u'] = {"SETITEMS", pickle_run_setitems},
    ['G'] = {"BINFLOAT", run_binfloat},
    ['B'] = {"BINBYTES", run_binbytes},
    ['C'] = {"SHORT_BINBYTES", run_binbytes},
    [0x80] = {"PROTO", run_proto},
    [0x81] = {"NEWOBJ", pickle_run_call},
    [0x82] = {"EXT1", run_extension},
    [0x83] = {"EXT2", run_extension},
    [0x84] = {"EXT4", run_extension},
    [0x85] = {"TUPLE1", pickle_run_small_tuple},
    [0x86] = {"TUPLE2", pickle_run_small_tuple},
    [0x87] = {"TUPLE3", pickle_run_small_tuple},
    [0x88] = {"NEWTRUE", run_newbool},
    [0x89] = {"NEWFALSE", run_newbool},
    [0x8a] = {"LONG1", run_binlong},
    [0x8b] = {"LONG4", run_binlong},
    [0x8c] = {"SHORT_BINUNICODE", run_binunicode},
    [0x8d] = {"BINUNICODE8", run_binunicode},
    [0x8e] = {"BINBYTES8", run_binbytes},
    [0x8f] = {"EMPTY_SET", pickle_run_empty},
    [0x90] = {"ADDITEMS", pickle_run_additems},
    [0x91] = {"FROZENSET", pickle_run_frozenset},
    [0x92] = {"NEWOBJ_EX", pickle_run_newobj_ex},
    [0x93] = {"STACK_GLOBAL", pickle_run_stack_global},
    [0x94] = {"MEMOIZE", run_memoize},
    [0x95] = {"FRAME", run_frame},
    [0x96] = {"BYTEARRAY8", run_bytearray8},
    [0x97] = {"NEXT_BUFFER", run_out_of_band},
    [0x98] = {"READONLY_BUFFER", run_out_of_band},
};
