/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle_parser.h -- declares the state of the parser of pickles.  pickle.c has the machine.
 * pickle_opcodes.c, pickle_objects.c and pickle_text.c (arguments that are lines of text) have the
 * opcodes.
 *
 * No graph has a cycle: a node is sealed when it becomes part of another, and a sealed node does
 * not change.  So heights are final when they are computed, and a walk over the graph ends.
 */
#ifndef FORMAT_PICKLE_PARSER_H
#define FORMAT_PICKLE_PARSER_H

#include "base/base.h"
#include "format/pickle.h"

struct pickle_parser {
    struct cursor in; /* in a frame, it ends at the frame's end */
    size_t length;    /* of the whole input */
    bool in_frame;
    size_t opcode_at;
    uint8_t opcode;
    bool stopped;
    struct arena *arena;
    struct sidestep_error *err;
    enum sidestep_status beyond; /* the status if the pickle exceeds a limit */
    struct pickle_node **stack;
    size_t depth;
    size_t stack_capacity;
    size_t *marks; /* heights of the stack */
    size_t mark_count;
    size_t mark_capacity;
    struct pickle_node **memo;
    size_t memo_capacity;
    size_t memo_count;
    size_t global_bytes; /* of the names of all symbols so far */
    /* Constant nodes for opcodes of one or two bytes.  Each is made once. */
    struct pickle_node *none, *no, *yes, *empty_tuple;
    struct pickle_node *small[256];
};

struct pickle_opcode {
    const char *name; /* NULL: no such opcode */
    enum sidestep_status (*run)(struct pickle_parser *p);
};
extern const struct pickle_opcode pickle_opcodes[256];

/* Fail with the opcode and the offset.  The value is ${status} itself, so that compilers do not
 * warn of variables that are not set on failure. */
#define PICKLE_FAIL(p, status, fmt, ...)                                                           \
    ((void)FAIL((p)->err, status, "pickle: %s at byte %zu: " fmt,                                  \
                pickle_opcodes[(p)->opcode].name, (p)->opcode_at, ##__VA_ARGS__),                  \
     (status))

/* The stack.  The last mark hides what is below it. */
enum sidestep_status pickle_push(struct pickle_parser *p, struct pickle_node *node);
enum sidestep_status pickle_pop(struct pickle_parser *p, struct pickle_node **node);
/* Get the top of the stack, which stays there. */
enum sidestep_status pickle_top(struct pickle_parser *p, struct pickle_node **node);
enum sidestep_status pickle_mark(struct pickle_parser *p);
/* Remove the last mark and what is above it.  ${items} are valid until the next push. */
enum sidestep_status pickle_pop_mark(struct pickle_parser *p, struct pickle_node ***items,
                                     size_t *count);

enum sidestep_status pickle_memo_put(struct pickle_parser *p, uint64_t index);
enum sidestep_status pickle_memo_get(struct pickle_parser *p, uint64_t index);

enum sidestep_status pickle_node_new(struct pickle_parser *p, enum pickle_kind kind,
                                     struct pickle_node **node);
/* Make a STR, BYTES, BIGINT or GLOBAL with a copy of ${bytes}. */
enum sidestep_status pickle_text_new(struct pickle_parser *p, enum pickle_kind kind,
                                     const void *bytes, size_t length, struct pickle_node **node);
enum sidestep_status pickle_push_text(struct pickle_parser *p, enum pickle_kind kind,
                                      const void *bytes, size_t length);
enum sidestep_status pickle_push_int(struct pickle_parser *p, int64_t integer);
/* ${bytes} are little-endian two's complement of any length. */
enum sidestep_status pickle_push_long(struct pickle_parser *p, const uint8_t *bytes, size_t length);
enum sidestep_status pickle_push_float(struct pickle_parser *p, double real);
/* Push the GLOBAL "module name". */
enum sidestep_status pickle_push_global(struct pickle_parser *p, const char *module,
                                        size_t module_length, const char *name, size_t name_length);

/* Seal ${child}, which becomes part of ${parent}.  EUNSUPPORTED: ${parent} is sealed. */
enum sidestep_status pickle_attach(struct pickle_parser *p, struct pickle_node *parent,
                                   struct pickle_node *child);
/* Append ${items} to a LIST, TUPLE or SET, or as pairs to a DICT. */
enum sidestep_status pickle_extend(struct pickle_parser *p, struct pickle_node *seq,
                                   struct pickle_node **items, size_t count);

/* pickle_text.c: arguments that are lines of text. */
enum sidestep_status pickle_line(struct pickle_parser *p, const char **line, size_t *length);
enum sidestep_status pickle_line_index(struct pickle_parser *p, uint64_t *index);
enum sidestep_status pickle_run_int(struct pickle_parser *p);
enum sidestep_status pickle_run_long(struct pickle_parser *p);
enum sidestep_status pickle_run_float(struct pickle_parser *p);
enum sidestep_status pickle_run_string(struct pickle_parser *p);
enum sidestep_status pickle_run_unicode(struct pickle_parser *p);
/* Push a str of Python 2: a STR if it is ASCII, otherwise BYTES. */
enum sidestep_status pickle_push_str8(struct pickle_parser *p, const void *bytes, size_t length);

/* pickle_objects.c. */
enum sidestep_status pickle_run_empty_tuple(struct pickle_parser *p);
enum sidestep_status pickle_run_empty(struct pickle_parser *p);
enum sidestep_status pickle_run_small_tuple(struct pickle_parser *p);
enum sidestep_status pickle_run_tuple(struct pickle_parser *p);
enum sidestep_status pickle_run_list(struct pickle_parser *p);
enum sidestep_status pickle_run_frozenset(struct pickle_parser *p);
enum sidestep_status pickle_run_append(struct pickle_parser *p);
enum sidestep_status pickle_run_appends(struct pickle_parser *p);
enum sidestep_status pickle_run_additems(struct pickle_parser *p);
enum sidestep_status pickle_run_setitem(struct pickle_parser *p);
enum sidestep_status pickle_run_setitems(struct pickle_parser *p);
enum sidestep_status pickle_run_dict(struct pickle_parser *p);
enum sidestep_status pickle_run_global(struct pickle_parser *p);
enum sidestep_status pickle_run_stack_global(struct pickle_parser *p);
enum sidestep_status pickle_run_call(struct pickle_parser *p);
enum sidestep_status pickle_run_newobj_ex(struct pickle_parser *p);
enum sidestep_status pickle_run_inst(struct pickle_parser *p);
enum sidestep_status pickle_run_obj(struct pickle_parser *p);
enum sidestep_status pickle_run_build(struct pickle_parser *p);
enum sidestep_status pickle_run_persid(struct pickle_parser *p);
enum sidestep_status pickle_run_binpersid(struct pickle_parser *p);

#endif
