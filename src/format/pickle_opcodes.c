/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle_opcodes.c -- what each opcode of protocols 0 to 5 does to the stack.  (Their definition
 * is Lib/pickletools.py of CPython.)  Opcodes that call or construct make a node that says so.
 */
#include <assert.h>
#include <string.h>

#include "format/pickle_parser.h"

/* ---------------------------------------------------------------- arguments */

static enum sidestep_status argument_missing(struct pickle_parser *p)
{
    return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "the argument does not end before the %s does",
                       p->in_frame ? "frame" : "file");
}

static enum sidestep_status argument(struct pickle_parser *p, unsigned width, uint64_t *value)
{
    *value = width == 1   ? cursor_u8(&p->in)
             : width == 2 ? cursor_u16le(&p->in)
             : width == 4 ? cursor_u32le(&p->in)
                          : cursor_u64le(&p->in);
    return p->in.overrun ? argument_missing(p) : SIDESTEP_OK;
}

/* A length of ${width} bytes, and as many bytes. */
static enum sidestep_status counted(struct pickle_parser *p, unsigned width, const uint8_t **bytes,
                                    size_t *length)
{
    uint64_t n;

    TRY(argument(p, width, &n));
    if (n > cursor_left(&p->in))
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "wants %llu bytes, and %zu are left in the %s",
                           (unsigned long long)n, cursor_left(&p->in),
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

    TRY(counted(p, width, &bytes, &length));
    return pickle_push_text(p, kind, bytes, length);
}

/* ---------------------------------------------------------------- framing */

static enum sidestep_status run_proto(struct pickle_parser *p)
{
    uint64_t protocol;

    TRY(argument(p, 1, &protocol));
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
    TRY(argument(p, 8, &length));
    if (length > cursor_left(&p->in))
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "a frame of %llu bytes, and %zu are left",
                           (unsigned long long)length, cursor_left(&p->in));
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
    return PICKLE_FAIL(p, SIDESTEP_EUNSAFE, "an extension code stands for a class that it hides");
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

    TRY(argument(p, p->opcode == 'q' ? 1 : 4, &index));
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

    TRY(argument(p, p->opcode == 'h' ? 1 : 4, &index));
    return pickle_memo_get(p, index);
}

/* ---------------------------------------------------------------- scalars */

static enum sidestep_status run_none(struct pickle_parser *p)
{
    return pickle_push(p, p->none);
}

static enum sidestep_status run_newtrue(struct pickle_parser *p)
{
    return pickle_push(p, p->yes);
}

static enum sidestep_status run_newfalse(struct pickle_parser *p)
{
    return pickle_push(p, p->no);
}

static enum sidestep_status run_binint(struct pickle_parser *p)
{
    uint64_t value;

    TRY(argument(p, 4, &value));
    return pickle_push_int(p, (int32_t)value);
}

static enum sidestep_status run_binint1(struct pickle_parser *p)
{
    uint64_t value;

    TRY(argument(p, 1, &value));
    return pickle_push_int(p, (int64_t)value);
}

static enum sidestep_status run_binint2(struct pickle_parser *p)
{
    uint64_t value;

    TRY(argument(p, 2, &value));
    return pickle_push_int(p, (int64_t)value);
}

static enum sidestep_status run_binlong(struct pickle_parser *p)
{
    const uint8_t *bytes;
    size_t length;

    TRY(counted(p, p->opcode == 0x8a ? 1 : 4, &bytes, &length));
    return pickle_push_long(p, bytes, length);
}

static enum sidestep_status run_binfloat(struct pickle_parser *p)
{
    uint64_t bits;
    double real;

    TRY(argument(p, 8, &bits));
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

    TRY(counted(p, p->opcode == 'T' ? 4 : 1, &bytes, &length));
    return pickle_push_str8(p, bytes, length);
}

/* ---------------------------------------------------------------- containers */

static enum sidestep_status push_new(struct pickle_parser *p, enum pickle_kind kind)
{
    struct pickle_node *node;

    TRY(pickle_node_new(p, kind, &node));
    return pickle_push(p, node);
}

static enum sidestep_status push_filled(struct pickle_parser *p, enum pickle_kind kind,
                                        struct pickle_node **items, size_t count)
{
    struct pickle_node *node;

    TRY(pickle_node_new(p, kind, &node));
    TRY(pickle_extend(p, node, items, count));
    return pickle_push(p, node);
}

static enum sidestep_status run_empty_tuple(struct pickle_parser *p)
{
    return pickle_push(p, p->empty_tuple);
}

static enum sidestep_status run_empty_list(struct pickle_parser *p)
{
    return push_new(p, PICKLE_LIST);
}

static enum sidestep_status run_empty_dict(struct pickle_parser *p)
{
    return push_new(p, PICKLE_DICT);
}

static enum sidestep_status run_empty_set(struct pickle_parser *p)
{
    return push_new(p, PICKLE_SET);
}

static enum sidestep_status run_small_tuple(struct pickle_parser *p)
{
    struct pickle_node *items[3];
    size_t count = p->opcode - 0x84u;

    for (size_t i = count; i-- > 0;)
        TRY(pickle_pop(p, &items[i]));
    return push_filled(p, PICKLE_TUPLE, items, count);
}

static enum sidestep_status run_tuple(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    return count == 0 ? pickle_push(p, p->empty_tuple) : push_filled(p, PICKLE_TUPLE, items, count);
}

static enum sidestep_status run_list(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    return push_filled(p, PICKLE_LIST, items, count);
}

static enum sidestep_status run_frozenset(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    TRY(push_filled(p, PICKLE_SET, items, count));
    p->stack[p->depth - 1]->hashable = true;
    return SIDESTEP_OK;
}

static bool is_call(const struct pickle_node *node)
{
    return node->kind == PICKLE_REDUCE || node->kind == PICKLE_OBJECT;
}

/* ${target} itself if it is of ${kind}; if it is an object, what it is filled with. */
static enum sidestep_status find_container(struct pickle_parser *p, struct pickle_node *target,
                                           enum pickle_kind kind, struct pickle_node **container)
{
    *container = target;
    if (target->kind == kind)
        return SIDESTEP_OK;
    if (!is_call(target))
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "the target cannot be filled so");
    *container = target->as.call.items;
    if (*container == NULL) {
        TRY(pickle_node_new(p, kind, container));
        target->as.call.items = *container;
    }
    if ((*container)->kind != kind)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "an object that is both list and dict");
    return SIDESTEP_OK;
}

static enum sidestep_status check_pairs(struct pickle_parser *p, struct pickle_node **items,
                                        size_t count)
{
    if (count % 2 != 0)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "a key without a value");
    for (size_t i = 0; i < count; i += 2)
        if (!items[i]->hashable)
            return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "a key that Python cannot hash");
    return SIDESTEP_OK;
}

/* Fill the top of the stack. */
static enum sidestep_status fill(struct pickle_parser *p, enum pickle_kind kind,
                                 struct pickle_node **items, size_t count)
{
    struct pickle_node *target, *container;

    TRY(pickle_top(p, &target));
    if (kind == PICKLE_DICT)
        TRY(check_pairs(p, items, count));
    TRY(find_container(p, target, kind, &container));
    if (container == target)
        return pickle_extend(p, target, items, count);
    /* The items are the object's: whether it may change decides whether its container may. */
    for (size_t i = 0; i < count; i++)
        TRY(pickle_attach(p, target, items[i]));
    TRY(pickle_extend(p, container, items, count));
    TRY(pickle_attach(p, target, container));
    container->sealed = false;
    return SIDESTEP_OK;
}

static enum sidestep_status run_append(struct pickle_parser *p)
{
    struct pickle_node *item;

    TRY(pickle_pop(p, &item));
    return fill(p, PICKLE_LIST, &item, 1);
}

static enum sidestep_status run_appends(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    return fill(p, PICKLE_LIST, items, count);
}

static enum sidestep_status run_additems(struct pickle_parser *p)
{
    struct pickle_node **items, *target;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    TRY(pickle_top(p, &target));
    return fill(p, target->kind == PICKLE_SET ? PICKLE_SET : PICKLE_LIST, items, count);
}

static enum sidestep_status run_setitem(struct pickle_parser *p)
{
    struct pickle_node *pair[2];

    TRY(pickle_pop(p, &pair[1]));
    TRY(pickle_pop(p, &pair[0]));
    return fill(p, PICKLE_DICT, pair, 2);
}

static enum sidestep_status run_setitems(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    return fill(p, PICKLE_DICT, items, count);
}

static enum sidestep_status run_dict(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    TRY(check_pairs(p, items, count));
    return push_filled(p, PICKLE_DICT, items, count);
}

/* ---------------------------------------------------------------- symbols, calls, objects */

static enum sidestep_status run_global(struct pickle_parser *p)
{
    const char *module, *name;
    size_t module_length, name_length;

    TRY(pickle_line(p, &module, &module_length));
    TRY(pickle_line(p, &name, &name_length));
    return pickle_push_global(p, module, module_length, name, name_length);
}

static enum sidestep_status run_stack_global(struct pickle_parser *p)
{
    struct pickle_node *module, *name;

    TRY(pickle_pop(p, &name));
    TRY(pickle_pop(p, &module));
    if (module->kind != PICKLE_STR || name->kind != PICKLE_STR)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "a symbol needs two strings");
    return pickle_push_global(p, module->as.text.bytes, module->as.text.length, name->as.text.bytes,
                              name->as.text.length);
}

static enum sidestep_status push_call(struct pickle_parser *p, enum pickle_kind kind,
                                      struct pickle_node *callable, struct pickle_node *args)
{
    struct pickle_node *node;

    TRY(pickle_node_new(p, kind, &node));
    if (callable != NULL)
        TRY(pickle_attach(p, node, callable));
    TRY(pickle_attach(p, node, args));
    node->as.call.callable = callable;
    node->as.call.args = args;
    return pickle_push(p, node);
}

/* REDUCE and NEWOBJ: callable, args. */
static enum sidestep_status run_call(struct pickle_parser *p)
{
    struct pickle_node *callable, *args;

    TRY(pickle_pop(p, &args));
    TRY(pickle_pop(p, &callable));
    if (args->kind != PICKLE_TUPLE)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "the arguments are not a tuple");
    return push_call(p, p->opcode == 'R' ? PICKLE_REDUCE : PICKLE_OBJECT, callable, args);
}

/* The arguments become a tuple of both kinds of them, if there are any by keyword. */
static enum sidestep_status run_newobj_ex(struct pickle_parser *p)
{
    struct pickle_node *class, *both[2], *args;

    TRY(pickle_pop(p, &both[1]));
    TRY(pickle_pop(p, &both[0]));
    TRY(pickle_pop(p, &class));
    if (both[0]->kind != PICKLE_TUPLE || both[1]->kind != PICKLE_DICT)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "the arguments are not a tuple and a dict");
    args = both[0];
    if (both[1]->as.seq.count != 0) {
        TRY(pickle_node_new(p, PICKLE_TUPLE, &args));
        TRY(pickle_extend(p, args, both, 2));
    }
    return push_call(p, PICKLE_OBJECT, class, args);
}

static enum sidestep_status push_object(struct pickle_parser *p, struct pickle_node *class,
                                        struct pickle_node **items, size_t count)
{
    struct pickle_node *args = p->empty_tuple;

    if (count != 0) {
        TRY(pickle_node_new(p, PICKLE_TUPLE, &args));
        TRY(pickle_extend(p, args, items, count));
    }
    return push_call(p, PICKLE_OBJECT, class, args);
}

static enum sidestep_status run_inst(struct pickle_parser *p)
{
    struct pickle_node **items, *class;
    size_t count;

    /* The class goes onto the stack above the arguments, and both come off together. */
    TRY(run_global(p));
    TRY(pickle_pop_mark(p, &items, &count));
    assert(count > 0);
    class = items[--count];
    return push_object(p, class, items, count);
}

static enum sidestep_status run_obj(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    if (count == 0)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "no class behind the mark");
    return push_object(p, items[0], items + 1, count - 1);
}

static enum sidestep_status run_build(struct pickle_parser *p)
{
    struct pickle_node *state, *object;

    TRY(pickle_pop(p, &state));
    TRY(pickle_top(p, &object));
    if (!is_call(object) || object->as.call.state != NULL)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "state for what is no object, or has state");
    TRY(pickle_attach(p, object, state));
    object->as.call.state = state;
    return SIDESTEP_OK;
}

static enum sidestep_status run_persid(struct pickle_parser *p)
{
    struct pickle_node *id;
    const char *line;
    size_t length;

    TRY(pickle_line(p, &line, &length));
    TRY(pickle_text_new(p, PICKLE_STR, line, length, &id));
    return push_call(p, PICKLE_PERSID, NULL, id);
}

static enum sidestep_status run_binpersid(struct pickle_parser *p)
{
    struct pickle_node *id;

    TRY(pickle_pop(p, &id));
    return push_call(p, PICKLE_PERSID, NULL, id);
}

const struct pickle_opcode pickle_opcodes[256] = {
    ['('] = {"MARK", pickle_mark},
    ['.'] = {"STOP", run_stop},
    ['0'] = {"POP", run_pop},
    ['1'] = {"POP_MARK", run_pop_mark},
    ['2'] = {"DUP", run_dup},
    ['F'] = {"FLOAT", pickle_run_float},
    ['I'] = {"INT", pickle_run_int},
    ['J'] = {"BININT", run_binint},
    ['K'] = {"BININT1", run_binint1},
    ['L'] = {"LONG", pickle_run_long},
    ['M'] = {"BININT2", run_binint2},
    ['N'] = {"NONE", run_none},
    ['P'] = {"PERSID", run_persid},
    ['Q'] = {"BINPERSID", run_binpersid},
    ['R'] = {"REDUCE", run_call},
    ['S'] = {"STRING", pickle_run_string},
    ['T'] = {"BINSTRING", run_binstring},
    ['U'] = {"SHORT_BINSTRING", run_binstring},
    ['V'] = {"UNICODE", pickle_run_unicode},
    ['X'] = {"BINUNICODE", run_binunicode},
    ['a'] = {"APPEND", run_append},
    ['b'] = {"BUILD", run_build},
    ['c'] = {"GLOBAL", run_global},
    ['d'] = {"DICT", run_dict},
    ['}'] = {"EMPTY_DICT", run_empty_dict},
    ['e'] = {"APPENDS", run_appends},
    ['g'] = {"GET", run_get},
    ['h'] = {"BINGET", run_binget},
    ['i'] = {"INST", run_inst},
    ['j'] = {"LONG_BINGET", run_binget},
    ['l'] = {"LIST", run_list},
    [']'] = {"EMPTY_LIST", run_empty_list},
    ['o'] = {"OBJ", run_obj},
    ['p'] = {"PUT", run_put},
    ['q'] = {"BINPUT", run_binput},
    ['r'] = {"LONG_BINPUT", run_binput},
    ['s'] = {"SETITEM", run_setitem},
    ['t'] = {"TUPLE", run_tuple},
    [')'] = {"EMPTY_TUPLE", run_empty_tuple},
    ['u'] = {"SETITEMS", run_setitems},
    ['G'] = {"BINFLOAT", run_binfloat},
    ['B'] = {"BINBYTES", run_binbytes},
    ['C'] = {"SHORT_BINBYTES", run_binbytes},
    [0x80] = {"PROTO", run_proto},
    [0x81] = {"NEWOBJ", run_call},
    [0x82] = {"EXT1", run_extension},
    [0x83] = {"EXT2", run_extension},
    [0x84] = {"EXT4", run_extension},
    [0x85] = {"TUPLE1", run_small_tuple},
    [0x86] = {"TUPLE2", run_small_tuple},
    [0x87] = {"TUPLE3", run_small_tuple},
    [0x88] = {"NEWTRUE", run_newtrue},
    [0x89] = {"NEWFALSE", run_newfalse},
    [0x8a] = {"LONG1", run_binlong},
    [0x8b] = {"LONG4", run_binlong},
    [0x8c] = {"SHORT_BINUNICODE", run_binunicode},
    [0x8d] = {"BINUNICODE8", run_binunicode},
    [0x8e] = {"BINBYTES8", run_binbytes},
    [0x8f] = {"EMPTY_SET", run_empty_set},
    [0x90] = {"ADDITEMS", run_additems},
    [0x91] = {"FROZENSET", run_frozenset},
    [0x92] = {"NEWOBJ_EX", run_newobj_ex},
    [0x93] = {"STACK_GLOBAL", run_stack_global},
    [0x94] = {"MEMOIZE", run_memoize},
    [0x95] = {"FRAME", run_frame},
    [0x96] = {"BYTEARRAY8", run_bytearray8},
    [0x97] = {"NEXT_BUFFER", run_out_of_band},
    [0x98] = {"READONLY_BUFFER", run_out_of_band},
};
