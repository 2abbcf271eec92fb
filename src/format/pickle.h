/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle.h -- reads and writes Python pickles as data.
 *
 * The reader makes a graph of nodes, and never calls, imports or constructs anything.  The writer
 * writes the few kinds of values that sidestep needs.
 */
#ifndef FORMAT_PICKLE_H
#define FORMAT_PICKLE_H

#include "base/base.h"
#include "model/model.h"

/* Limits on what a file may ask for; each has a test one past it. */
#define PICKLE_MAX_BYTES ((size_t)2 << 30)
#define PICKLE_MAX_DEPTH 128      /* of the graph, from the root */
#define PICKLE_MAX_STACK 1000000u /* values on the stack */
#define PICKLE_MAX_PROTOCOL 5
#define PICKLE_MAX_DIGITS 4300                      /* of an integer written as text */
#define PICKLE_MAX_VALUES 1000000u                  /* of one tree that pickle_to_value() makes */
#define PICKLE_MAX_SHARED_BYTES ((size_t)256 << 20) /* of text that it copies for shared nodes */

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,    /* of at most 64 bits */
    PICKLE_BIGINT, /* of more: bytes, little-endian two's complement */
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

/* Nodes live in the arena of pickle_parse().  Because of the memo, a node may be part of several
 * others, but never of itself: the parser refuses cycles. */
struct pickle_node {
    enum pickle_kind kind : 8;
    uint8_t depth;     /* height of the graph below it; <= PICKLE_MAX_DEPTH */
    bool hashable : 1; /* may be the key of a dict */
    bool sealed : 1;   /* is part of another node, and must not change any more */
    bool shared : 1;   /* may be part of several nodes */
    bool noted : 1;    /* false at first; for code that walks the graph: ${note} is valid */
    bool note : 1;
    uint32_t tree_size; /* the result of pickle_tree_size(); 0: not computed */
    void *kept; /* NULL at first; for code that walks the graph, to convert each node only once */
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct { /* STR, BYTES, BIGINT, GLOBAL; a NUL follows */
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
            struct pickle_node *state; /* from BUILD; NULL: none */
            struct pickle_node *items; /* from SETITEMS/APPENDS/ADDITEMS (DICT/LIST); NULL: none */
        } call;
    } as;
};

/*
 * Parse one pickle of protocol 0 to 5.  It ends at ${length}; with ${consumed}, it may end before.
 * ECORRUPT: the message names the opcode and the offset.  EUNSUPPORTED: the graph has a cycle, or
 * there are out-of-band buffers.  EUNSAFE: there are extension codes.  ENOMEM also if the arena
 * reaches its limit.  Time and memory are linear in ${length}.
 */
enum sidestep_status pickle_parse(struct arena *arena, const void *bytes, size_t length,
                                  size_t *consumed, struct pickle_node **root,
                                  struct sidestep_error *err);

/* The same, with the status ${beyond} for a pickle that exceeds the limits above.  If this process
 * made the pickle, it is not corrupt, and ${beyond} is EUNSUPPORTED. */
enum sidestep_status pickle_parse_with_status(enum sidestep_status beyond, struct arena *arena,
                                              const void *bytes, size_t length, size_t *consumed,
                                              struct pickle_node **root,
                                              struct sidestep_error *err);

/* Is ${node} the symbol "module name"? */
bool pickle_is_global(const struct pickle_node *node, const char *module_and_name);
/* The name of a global as "module.name", for messages. */
struct display_text pickle_global_text(const struct pickle_node *global);
/* The value of a string key of a DICT, or NULL. */
struct pickle_node *pickle_dict_get(const struct pickle_node *dict, const char *key);

/* The number of nodes if the graph were a tree: each node counts as often as it is reached.  A few
 * bytes can make many.  At most UINT32_MAX.  The time is linear in the graph. */
uint32_t pickle_tree_size(struct pickle_node *node);

/* Make a value tree from nodes.  Builtin containers and scalars stay what they are; OrderedDict
 * becomes a DICT, set a LIST, frozenset and torch.Size a TUPLE, _codecs.encode(str, 'latin1')
 * BYTES.  All else becomes OPAQUE with a description, for dtypes their name.  ECORRUPT: it exceeds
 * the limits above.  There are limits because a small graph may be a tree of exponential size. */
enum sidestep_status pickle_to_value(const struct pickle_node *node, struct sidestep_value **out,
                                     struct sidestep_error *err);

/* The same for plain data, without loss.  EUNSUPPORTED: a node is not exactly None, bool, int of 64
 * bits, float, str, bytes, list, tuple or dict; or it exceeds the limits. */
enum sidestep_status pickle_to_plain_value(const struct pickle_node *node,
                                           struct sidestep_value **out, struct sidestep_error *err);

/* Does ${node} have this kind?  False for NULL. */
bool pickle_is_kind(const struct pickle_node *node, enum pickle_kind kind);
/* Argument ${i} of a call, or NULL. */
const struct pickle_node *pickle_argument(const struct pickle_node *call, size_t i);

/* Append a pickle of ${value}, with protocol 2, as torch.save(obj) writes it, so that torch.load()
 * with weights_only accepts it.  EUNSUPPORTED: there is an OPAQUE value. */
enum sidestep_status pickle_write_value(struct buffer *out, const struct sidestep_value *value,
                                        struct sidestep_error *err);
/* Append ${value}, or an int, as a part of a pickle of protocol 2 in which no part refers to
 * another. */
enum sidestep_status pickle_write_fragment(struct buffer *out, const struct sidestep_value *value,
                                           struct sidestep_error *err);
void pickle_write_int(struct buffer *out, int64_t value);
/* Append a pickle of ${value} with protocol 3, which needs no symbol. */
enum sidestep_status pickle_write_plain_value(struct buffer *out,
                                              const struct sidestep_value *value,
                                              struct sidestep_error *err);

#endif
