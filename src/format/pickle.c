/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle.c -- see pickle.h: runs the machine that reads pickles, with a stack, a memo, and nodes.
 *
 * Memory is linear in the input: an opcode makes at most one node and a copy of its argument, nodes
 * of opcodes of one byte are shared, and the length of the input limits memo indices.
 */
#include "format/pickle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/pickle_parser.h"

#define FIRST_CAPACITY 64u
#define MEMO_SLACK 1024u        /* indices beyond the input's length: a memo may have gaps */
#define GLOBAL_SLACK (1u << 20) /* bytes of names beyond the input's length */

static enum sidestep_status grow(struct pickle_parser *p, void **array, size_t *capacity,
                                 size_t item_bytes, size_t wanted)
{
    size_t want = *capacity * 2 > FIRST_CAPACITY ? *capacity * 2 : FIRST_CAPACITY;

    if (want < wanted)
        want = wanted;
    void *bigger = memory_resize(*array, want, item_bytes);
    if (bigger == NULL)
        return FAIL_NOMEM(p->err, want * item_bytes);
    memset((char *)bigger + *capacity * item_bytes, 0, (want - *capacity) * item_bytes);
    *array = bigger;
    *capacity = want;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- the stack */

/* The height of the stack below the last mark, or 0. */
static size_t bottom(const struct pickle_parser *p)
{
    return p->mark_count != 0 ? p->marks[p->mark_count - 1] : 0;
}

enum sidestep_status pickle_push(struct pickle_parser *p, struct pickle_node *node)
{
    if (p->depth == PICKLE_MAX_STACK)
        return PICKLE_FAIL(p, p->beyond, "more than %u values on the stack", PICKLE_MAX_STACK);
    if (p->depth == p->stack_capacity)
        TRY(grow(p, (void **)&p->stack, &p->stack_capacity, sizeof(struct pickle_node *), 0));
    p->stack[p->depth++] = node;
    return SIDESTEP_OK;
}

enum sidestep_status pickle_pop(struct pickle_parser *p, struct pickle_node **node)
{
    TRY(pickle_top(p, node));
    p->depth--;
    return SIDESTEP_OK;
}

enum sidestep_status pickle_top(struct pickle_parser *p, struct pickle_node **node)
{
    if (p->depth == bottom(p))
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "nothing on the stack");
    *node = p->stack[p->depth - 1];
    return SIDESTEP_OK;
}

enum sidestep_status pickle_mark(struct pickle_parser *p)
{
    if (p->mark_count == PICKLE_MAX_STACK)
        return PICKLE_FAIL(p, p->beyond, "more than %u marks", PICKLE_MAX_STACK);
    if (p->mark_count == p->mark_capacity)
        TRY(grow(p, (void **)&p->marks, &p->mark_capacity, sizeof(*p->marks), 0));
    p->marks[p->mark_count++] = p->depth;
    return SIDESTEP_OK;
}

enum sidestep_status pickle_pop_mark(struct pickle_parser *p, struct pickle_node ***items,
                                     size_t *count)
{
    if (p->mark_count == 0)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "no mark on the stack");
    size_t at = p->marks[--p->mark_count];
    assert(at <= p->depth);
    *items = p->stack != NULL ? p->stack + at : NULL;
    *count = p->depth - at;
    p->depth = at;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- the memo */

enum sidestep_status pickle_memo_put(struct pickle_parser *p, uint64_t index)
{
    struct pickle_node *node;

    TRY(pickle_top(p, &node));
    if (index >= p->length + MEMO_SLACK)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "memo index %llu in %zu bytes",
                           (unsigned long long)index, p->length);
    if (index >= p->memo_capacity)
        TRY(grow(p, (void **)&p->memo, &p->memo_capacity, sizeof(struct pickle_node *), index + 1));
    p->memo_count += p->memo[index] == NULL;
    p->memo[index] = node;
    return SIDESTEP_OK;
}

enum sidestep_status pickle_memo_get(struct pickle_parser *p, uint64_t index)
{
    if (index >= p->memo_capacity || p->memo[index] == NULL)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "nothing in the memo at %llu",
                           (unsigned long long)index);
    p->memo[index]->shared = true;
    return pickle_push(p, p->memo[index]);
}

/* ---------------------------------------------------------------- nodes */

enum sidestep_status pickle_node_new(struct pickle_parser *p, enum pickle_kind kind,
                                     struct pickle_node **node)
{
    *node = arena_new(p->arena, 1, sizeof(**node));
    if (*node == NULL)
        return FAIL_NOMEM(p->err, sizeof(**node));
    (*node)->kind = kind;
    (*node)->hashable = kind != PICKLE_LIST && kind != PICKLE_DICT && kind != PICKLE_SET;
    return SIDESTEP_OK;
}

enum sidestep_status pickle_text_new(struct pickle_parser *p, enum pickle_kind kind,
                                     const void *bytes, size_t length, struct pickle_node **node)
{
    TRY(pickle_node_new(p, kind, node));
    (*node)->as.text.bytes = length != 0 ? arena_strndup(p->arena, bytes, length) : "";
    (*node)->as.text.length = length;
    return (*node)->as.text.bytes != NULL ? SIDESTEP_OK : FAIL_NOMEM(p->err, length + 1);
}

enum sidestep_status pickle_push_text(struct pickle_parser *p, enum pickle_kind kind,
                                      const void *bytes, size_t length)
{
    struct pickle_node *node;

    TRY(pickle_text_new(p, kind, bytes, length, &node));
    return pickle_push(p, node);
}

enum sidestep_status pickle_push_int(struct pickle_parser *p, int64_t integer)
{
    bool is_small = integer >= 0 && integer < (int64_t)ARRAY_LENGTH(p->small);
    struct pickle_node *node = is_small ? p->small[integer] : NULL;

    if (node == NULL) {
        TRY(pickle_node_new(p, PICKLE_INT, &node));
        node->as.integer = integer;
        if (is_small)
            p->small[integer] = node;
    }
    return pickle_push(p, node);
}

enum sidestep_status pickle_push_long(struct pickle_parser *p, const uint8_t *bytes, size_t length)
{
    bool negative = length != 0 && (bytes[length - 1] & 0x80) != 0;
    uint8_t sign = negative ? 0xff : 0;
    uint64_t integer = negative ? UINT64_MAX : 0;

    /* Drop bytes that only repeat the sign. */
    while (length > 1 && bytes[length - 1] == sign && (bytes[length - 2] & 0x80) == (sign & 0x80))
        length--;
    if (length > sizeof(integer))
        return pickle_push_text(p, PICKLE_BIGINT, bytes, length);
    for (size_t i = length; i-- > 0;)
        integer = integer << 8 | bytes[i];
    return pickle_push_int(p, (int64_t)integer);
}

enum sidestep_status pickle_push_float(struct pickle_parser *p, double real)
{
    struct pickle_node *node;

    TRY(pickle_node_new(p, PICKLE_FLOAT, &node));
    node->as.real = real;
    return pickle_push(p, node);
}

enum sidestep_status pickle_push_global(struct pickle_parser *p, const char *module,
                                        size_t module_length, const char *name, size_t name_length)
{
    size_t length = module_length + 1 + name_length;
    struct pickle_node *node;

    /* Both may be shared strings, so a few bytes of input could make many long names. */
    p->global_bytes += length;
    if (p->global_bytes > p->length + GLOBAL_SLACK)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT,
                           "the names of all symbols are longer than the file");
    if (memchr(module, '\0', module_length) != NULL || memchr(name, '\0', name_length) != NULL)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "a symbol with a NUL in its name");
    char *text = arena_new(p->arena, length + 1, 1);
    if (text == NULL)
        return FAIL_NOMEM(p->err, length + 1);
    memcpy(text, module, module_length);
    text[module_length] = ' ';
    memcpy(text + module_length + 1, name, name_length);
    TRY(pickle_node_new(p, PICKLE_GLOBAL, &node));
    node->as.text.bytes = text;
    node->as.text.length = length;
    return pickle_push(p, node);
}

enum sidestep_status pickle_attach(struct pickle_parser *p, struct pickle_node *parent,
                                   struct pickle_node *child)
{
    child->sealed = true;
    if (parent->sealed)
        return PICKLE_FAIL(p, SIDESTEP_EUNSUPPORTED,
                           "an object that contains itself, or changes inside another");
    if (child->depth >= PICKLE_MAX_DEPTH)
        return PICKLE_FAIL(p, p->beyond, "nested more than %d deep", PICKLE_MAX_DEPTH);
    if (parent->depth <= child->depth)
        parent->depth = (uint8_t)(child->depth + 1);
    if (parent->kind == PICKLE_SET && !child->hashable)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "an item of a set that Python cannot hash");
    if (parent->kind == PICKLE_TUPLE)
        parent->hashable = parent->hashable && child->hashable;
    return SIDESTEP_OK;
}

enum sidestep_status pickle_extend(struct pickle_parser *p, struct pickle_node *seq,
                                   struct pickle_node **items, size_t count)
{
    size_t want = seq->as.seq.count + count;

    if (want > seq->as.seq.capacity) {
        if (want < seq->as.seq.capacity * 2)
            want = seq->as.seq.capacity * 2;
        struct pickle_node **bigger = arena_new(p->arena, want, sizeof(struct pickle_node *));
        if (bigger == NULL)
            return FAIL_NOMEM(p->err, want * sizeof(struct pickle_node *));
        if (seq->as.seq.count != 0)
            memcpy(bigger, seq->as.seq.items, seq->as.seq.count * sizeof(*bigger));
        seq->as.seq.items = bigger;
        seq->as.seq.capacity = want;
    }
    for (size_t i = 0; i < count; i++) {
        TRY(pickle_attach(p, seq, items[i]));
        seq->as.seq.items[seq->as.seq.count++] = items[i];
    }
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- the machine */

static void release(struct pickle_parser *p)
{
    free(p->stack);
    free(p->marks);
    free(p->memo);
}

static enum sidestep_status make_constants(struct pickle_parser *p)
{
    TRY(pickle_node_new(p, PICKLE_NONE, &p->none));
    TRY(pickle_node_new(p, PICKLE_BOOL, &p->no));
    TRY(pickle_node_new(p, PICKLE_BOOL, &p->yes));
    p->yes->as.boolean = true;
    return pickle_node_new(p, PICKLE_TUPLE, &p->empty_tuple);
}

static enum sidestep_status step(struct pickle_parser *p)
{
    if (p->in_frame && p->in.position == p->in.length) {
        p->in_frame = false;
        p->in.length = p->length;
    }
    p->opcode_at = p->in.position;
    p->opcode = cursor_u8(&p->in);
    if (p->in.overrun)
        return FAIL(p->err, SIDESTEP_ECORRUPT, "pickle: ends at byte %zu without STOP",
                    p->opcode_at);
    const struct pickle_opcode *opcode = &pickle_opcodes[p->opcode];
    if (opcode->run == NULL)
        return FAIL(p->err, SIDESTEP_ECORRUPT, "pickle: unknown opcode 0x%02x at byte %zu",
                    p->opcode, p->opcode_at);
    return opcode->run(p);
}

enum sidestep_status pickle_parse(struct arena *arena, const void *bytes, size_t length,
                                  size_t *consumed, struct pickle_node **root,
                                  struct sidestep_error *err)
{
    return pickle_parse_with_status(SIDESTEP_ECORRUPT, arena, bytes, length, consumed, root, err);
}

enum sidestep_status pickle_parse_with_status(enum sidestep_status beyond, struct arena *arena,
                                              const void *bytes, size_t length, size_t *consumed,
                                              struct pickle_node **root, struct sidestep_error *err)
{
    OWNED_BY(release)
    struct pickle_parser p = {.in = cursor_from_memory(bytes, length),
                              .length = length,
                              .arena = arena,
                              .beyond = beyond,
                              .err = err};

    if (length > PICKLE_MAX_BYTES)
        return FAIL(err, beyond, "pickle: %zu bytes, the limit is %zu", length, PICKLE_MAX_BYTES);
    TRY(make_constants(&p));
    while (!p.stopped)
        TRY(step(&p));
    if (p.depth != 1 || p.mark_count != 0)
        return PICKLE_FAIL(&p, SIDESTEP_ECORRUPT, "%zu values and %zu marks are left on the stack",
                           p.depth, p.mark_count);
    if (p.in_frame && p.in.position != p.in.length)
        return PICKLE_FAIL(&p, SIDESTEP_ECORRUPT, "%zu bytes before the end of the frame",
                           p.in.length - p.in.position);
    if (consumed == NULL && p.in.position != length)
        return PICKLE_FAIL(&p, SIDESTEP_ECORRUPT, "%zu bytes follow", length - p.in.position);
    if (consumed != NULL)
        *consumed = p.in.position;
    *root = p.stack[0];
    return SIDESTEP_OK;
}

static void add_tree_size(uint32_t *total, struct pickle_node *node)
{
    uint32_t more = node != NULL ? pickle_tree_size(node) : 0;

    *total = more < UINT32_MAX - *total ? *total + more : UINT32_MAX;
}

/* Recurses at most PICKLE_MAX_DEPTH deep. */
uint32_t pickle_tree_size(struct pickle_node *node)
{
    uint32_t total = 1;

    if (node->tree_size != 0)
        return node->tree_size;
    switch (node->kind) {
    case PICKLE_LIST:
    case PICKLE_TUPLE:
    case PICKLE_DICT:
    case PICKLE_SET:
        for (size_t i = 0; i < node->as.seq.count; i++)
            add_tree_size(&total, node->as.seq.items[i]);
        break;
    case PICKLE_REDUCE:
    case PICKLE_OBJECT:
    case PICKLE_PERSID:
        add_tree_size(&total, node->as.call.callable);
        add_tree_size(&total, node->as.call.args);
        add_tree_size(&total, node->as.call.state);
        add_tree_size(&total, node->as.call.items);
        break;
    default:
        break;
    }
    node->tree_size = total;
    return total;
}

bool pickle_is_global(const struct pickle_node *node, const char *module_and_name)
{
    return node->kind == PICKLE_GLOBAL && strcmp(node->as.text.bytes, module_and_name) == 0;
}

struct display_text pickle_global_text(const struct pickle_node *global)
{
    struct display_text name = display_name(global->as.text.bytes);
    char *space = strchr(name.text, ' ');

    if (space != NULL)
        *space = '.';
    return name;
}

bool pickle_is_kind(const struct pickle_node *node, enum pickle_kind kind)
{
    return node != NULL && node->kind == kind;
}

const struct pickle_node *pickle_argument(const struct pickle_node *call, size_t i)
{
    const struct pickle_node *args = call->as.call.args;

    return args->kind == PICKLE_TUPLE && i < args->as.seq.count ? args->as.seq.items[i] : NULL;
}

struct pickle_node *pickle_dict_get(const struct pickle_node *dict, const char *key)
{
    size_t length = strlen(key);

    /* If a key comes twice, Python uses the last value. */
    for (size_t i = dict->kind == PICKLE_DICT ? dict->as.seq.count : 0; i >= 2; i -= 2) {
        const struct pickle_node *at = dict->as.seq.items[i - 2];
        if (at->kind == PICKLE_STR && at->as.text.length == length &&
            memcmp(at->as.text.bytes, key, length) == 0)
            return dict->as.seq.items[i - 1];
    }
    return NULL;
}
