/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle.h -- Python pickles as data.  The reader builds inert nodes and never calls, imports
 * or constructs anything; the writer makes the few shapes that sidestep needs.
 */
#ifndef FORMAT_PICKLE_H
#define FORMAT_PICKLE_H

#include "base/base.h"
#include "model/model.h"

/* Limits on what a file may ask for; each has a test one past it. */
#define PICKLE_MAX_BYTES ((size_t)2 << 30)
#define PICKLE_MAX_DEPTH 128      /* of the graph, from the root */
#define PICKLE_MAX_STACK 1000000u /* values on the stack at once */
#define PICKLE_MAX_PROTOCOL 5
#define PICKLE_MAX_DIGITS 4300                      /* of an integer written as text */
#define PICKLE_MAX_VALUES 1000000u                  /* of one tree that pickle_to_value() makes */
#define PICKLE_MAX_SHARED_BYTES ((size_t)256 << 20) /* text it may copy because of sharing */

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,    /* fits in 64 bits */
    PICKLE_BIGINT, /* does not: bytes, little-endian two's complement */
    PICKLE_FLOAT,
    PICKLE_STR,
    PICKLE_BYTES, /* and bytearray */
    PICKLE_LIST,
    PICKLE_TUPLE,
    PICKLE_DICT,   /* items: key, value, key, value ... */
    PICKLE_SET,    /* and frozenset */
    PICKLE_GLOBAL, /* text: "module name" */
    PICKLE_REDUCE, /* callable applied to args */
    PICKLE_OBJECT, /* class instantiated with args */
    PICKLE_PERSID, /* persistent id: args */
};

/* Nodes live in the arena that pickle_parse() was given.  A node may be reached by several
 * ways (memo), never through itself: a cycle is refused. */
struct pickle_node {
    enum pickle_kind kind : 8;
    uint8_t depth;     /* height of the graph below it; <= PICKLE_MAX_DEPTH */
    bool hashable : 1; /* may be the key of a dict */
    bool sealed : 1;   /* is part of another node, and does not change any more */
    bool shared : 1;   /* may be reached by more than one way */
    bool noted : 1;    /* false; with ${note}: free for whoever walks the graph */
    bool note : 1;
    uint32_t spread; /* 0, or what pickle_tree_size() said */
    void *kept;      /* NULL; free for whoever walks the graph, to convert a node only once */
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct { /* STR, BYTES, BIGINT, GLOBAL; NUL behind the end */
            const char *bytes;
            size_t length;
        } text;
        struct { /* LIST, TUPLE, DICT, SET */
            struct pickle_node **items;
            size_t count;
            size_t capacity;
        } seq;
        struct {                          /* REDUCE, OBJECT, PERSID */
            struct pickle_node *callable; /* NULL for PERSID */
            struct pickle_node *args;
            struct pickle_node *state; /* what BUILD gave; NULL: none */
            struct pickle_node *items; /* what SETITEMS/APPENDS/ADDITEMS gave (DICT/LIST); NULL */
        } call;
    } as;
};

/*
 * Parse one pickle of protocol 0-5 that ends exactly at ${length} (or, with ${consumed} not NULL,
 * that may be followed by other bytes).  ECORRUPT names opcode and offset; EUNSUPPORTED for a
 * graph with a cycle and for out-of-band buffers, EUNSAFE for extension codes; ENOMEM when the
 * arena's limit is reached.  Time and memory are linear in ${length}.
 */
enum sidestep_status pickle_parse(struct arena *arena, const void *bytes, size_t length,
                                  size_t *consumed, struct pickle_node **root,
                                  struct sidestep_error *err);

/* The same with another status for what is beyond the limits above: EUNSUPPORTED for a pickle that
 * its own process made, and that nothing is wrong with. */
enum sidestep_status pickle_parse_with_status(enum sidestep_status beyond, struct arena *arena,
                                              const void *bytes, size_t length, size_t *consumed,
                                              struct pickle_node **root,
                                              struct sidestep_error *err);

/* True if ${node} is the global "module name". */
bool pickle_is_global(const struct pickle_node *node, const char *module_and_name);
/* Value of a string key of a DICT, or NULL. */
struct pickle_node *pickle_dict_get(const struct pickle_node *dict, const char *key);

/* How many nodes the graph has as a tree, each counted as often as it can be reached: few bytes
 * make many.  At most UINT32_MAX is told.  In time linear in the graph. */
uint32_t pickle_tree_size(struct pickle_node *node);

/* A value tree from nodes: builtin containers and scalars become what they are (OrderedDict a
 * DICT, set a LIST, frozenset and torch.Size a TUPLE, _codecs.encode(str, 'latin1') BYTES, dtypes
 * their name as OPAQUE ...), everything else OPAQUE with a description.  The visit is bounded (a
 * DAG may be exponential as a tree): more than 1,000,000 values is ECORRUPT. */
enum sidestep_status pickle_to_value(const struct pickle_node *node, struct sidestep_value **out,
                                     struct sidestep_error *err);

/* The same for plain data, which loses nothing: EUNSUPPORTED for every node that is not exactly one
 * of None, bool, int of 64 bits, float, str, bytes, list, tuple, dict, and beyond the limits. */
enum sidestep_status pickle_to_plain_value(const struct pickle_node *node,
                                           struct sidestep_value **out, struct sidestep_error *err);

/* UTF-8 as pickles have it: lone surrogates and NULs are allowed. */
bool pickle_is_utf8(const char *bytes, size_t length);

/* Append a protocol-2 pickle of ${value} as torch.save(obj) writes it (weights_only-loadable
 * opcodes); EUNSUPPORTED for OPAQUE. */
enum sidestep_status pickle_write_value(struct buffer *out, const struct sidestep_value *value,
                                        struct sidestep_error *err);
/* Append ${value}, or an int, as a part of a protocol-2 pickle, of which no part refers to another.
 */
enum sidestep_status pickle_write_fragment(struct buffer *out, const struct sidestep_value *value,
                                           struct sidestep_error *err);
void pickle_write_int(struct buffer *out, int64_t value);
/* The pickle of ${value} with protocol 3, which needs no symbol. */
enum sidestep_status pickle_write_plain_value(struct buffer *out,
                                              const struct sidestep_value *value,
                                              struct sidestep_error *err);

#endif
