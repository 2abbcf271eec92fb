/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle_objects.c -- see pickle_parser.h: runs the opcodes that make and fill containers, and
 * those that call, construct or look up.  The latter only make a node that describes the call,
 * object or symbol.
 */
#include <assert.h>

#include "format/pickle_parser.h"

/* ---------------------------------------------------------------- containers */

static enum sidestep_status push_filled(struct pickle_parser *p, enum pickle_kind kind,
                                        struct pickle_node **items, size_t count)
{
    struct pickle_node *node;

    TRY(pickle_node_new(p, kind, &node));
    TRY(pickle_extend(p, node, items, count));
    return pickle_push(p, node);
}

enum sidestep_status pickle_run_empty_tuple(struct pickle_parser *p)
{
    return pickle_push(p, p->empty_tuple);
}

/* An empty list, dict or set, which may be filled later. */
enum sidestep_status pickle_run_empty(struct pickle_parser *p)
{
    enum pickle_kind kind = p->opcode == ']'   ? PICKLE_LIST
                            : p->opcode == '}' ? PICKLE_DICT
                                               : PICKLE_SET;
    struct pickle_node *node;

    TRY(pickle_node_new(p, kind, &node));
    return pickle_push(p, node);
}

enum sidestep_status pickle_run_small_tuple(struct pickle_parser *p)
{
    struct pickle_node *items[3];
    size_t count = p->opcode - 0x84u;

    for (size_t i = count; i-- > 0;)
        TRY(pickle_pop(p, &items[i]));
    return push_filled(p, PICKLE_TUPLE, items, count);
}

enum sidestep_status pickle_run_tuple(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    return count == 0 ? pickle_push(p, p->empty_tuple) : push_filled(p, PICKLE_TUPLE, items, count);
}

enum sidestep_status pickle_run_list(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    return push_filled(p, PICKLE_LIST, items, count);
}

enum sidestep_status pickle_run_frozenset(struct pickle_parser *p)
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

/* Get the container to fill: ${target} itself if it has ${kind}; for an object, its items. */
static enum sidestep_status find_container(struct pickle_parser *p, struct pickle_node *target,
                                           enum pickle_kind kind, struct pickle_node **container)
{
    *container = target;
    if (target->kind == kind)
        return SIDESTEP_OK;
    if (!is_call(target))
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "the target is not a container of this kind");
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
    /* The container belongs to the object, so it may change as long as the object may. */
    for (size_t i = 0; i < count; i++)
        TRY(pickle_attach(p, target, items[i]));
    TRY(pickle_extend(p, container, items, count));
    TRY(pickle_attach(p, target, container));
    container->sealed = false;
    return SIDESTEP_OK;
}

enum sidestep_status pickle_run_append(struct pickle_parser *p)
{
    struct pickle_node *item;

    TRY(pickle_pop(p, &item));
    return fill(p, PICKLE_LIST, &item, 1);
}

enum sidestep_status pickle_run_appends(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    return fill(p, PICKLE_LIST, items, count);
}

enum sidestep_status pickle_run_additems(struct pickle_parser *p)
{
    struct pickle_node **items, *target;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    TRY(pickle_top(p, &target));
    return fill(p, target->kind == PICKLE_SET ? PICKLE_SET : PICKLE_LIST, items, count);
}

enum sidestep_status pickle_run_setitem(struct pickle_parser *p)
{
    struct pickle_node *pair[2];

    TRY(pickle_pop(p, &pair[1]));
    TRY(pickle_pop(p, &pair[0]));
    return fill(p, PICKLE_DICT, pair, 2);
}

enum sidestep_status pickle_run_setitems(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    return fill(p, PICKLE_DICT, items, count);
}

enum sidestep_status pickle_run_dict(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    TRY(check_pairs(p, items, count));
    return push_filled(p, PICKLE_DICT, items, count);
}

/* ---------------------------------------------------------------- symbols, calls, objects */

enum sidestep_status pickle_run_global(struct pickle_parser *p)
{
    const char *module, *name;
    size_t module_length, name_length;

    TRY(pickle_line(p, &module, &module_length));
    TRY(pickle_line(p, &name, &name_length));
    return pickle_push_global(p, module, module_length, name, name_length);
}

enum sidestep_status pickle_run_stack_global(struct pickle_parser *p)
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

/* REDUCE and NEWOBJ, with callable and args on the stack. */
enum sidestep_status pickle_run_call(struct pickle_parser *p)
{
    struct pickle_node *callable, *args;

    TRY(pickle_pop(p, &args));
    TRY(pickle_pop(p, &callable));
    if (args->kind != PICKLE_TUPLE)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "the arguments are not a tuple");
    return push_call(p, p->opcode == 'R' ? PICKLE_REDUCE : PICKLE_OBJECT, callable, args);
}

/* If there are keyword arguments, the node's args are a tuple of both: (args, kwargs). */
enum sidestep_status pickle_run_newobj_ex(struct pickle_parser *p)
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

enum sidestep_status pickle_run_inst(struct pickle_parser *p)
{
    struct pickle_node **items, *class;
    size_t count;

    /* Push the class above the arguments, and pop both together. */
    TRY(pickle_run_global(p));
    TRY(pickle_pop_mark(p, &items, &count));
    assert(count > 0);
    class = items[--count];
    return push_object(p, class, items, count);
}

enum sidestep_status pickle_run_obj(struct pickle_parser *p)
{
    struct pickle_node **items;
    size_t count;

    TRY(pickle_pop_mark(p, &items, &count));
    if (count == 0)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "no class after the mark");
    return push_object(p, items[0], items + 1, count - 1);
}

enum sidestep_status pickle_run_build(struct pickle_parser *p)
{
    struct pickle_node *state, *object;

    TRY(pickle_pop(p, &state));
    TRY(pickle_top(p, &object));
    if (!is_call(object) || object->as.call.state != NULL)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "state for a value that cannot have any");
    TRY(pickle_attach(p, object, state));
    object->as.call.state = state;
    return SIDESTEP_OK;
}

enum sidestep_status pickle_run_persid(struct pickle_parser *p)
{
    struct pickle_node *id;
    const char *line;
    size_t length;

    TRY(pickle_line(p, &line, &length));
    TRY(pickle_text_new(p, PICKLE_STR, line, length, &id));
    return push_call(p, PICKLE_PERSID, NULL, id);
}

enum sidestep_status pickle_run_binpersid(struct pickle_parser *p)
{
    struct pickle_node *id;

    TRY(pickle_pop(p, &id));
    return push_call(p, PICKLE_PERSID, NULL, id);
}
