/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle_value.c -- see pickle.h: converts nodes to value trees.  Calls of a few well-known symbols
 * become what the call would make.  All other symbols become a text with their name.
 *
 * As a tree, a graph with shared parts may be exponentially larger.  So there are limits for the
 * number of values, and for the bytes of text in shared nodes.  All other text is copied once.
 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "format/archive_rebuild.h"
#include "format/pickle.h"
#include "model/model.h"

#define MAX_SHOWN_BIGINT 32u /* bytes */

struct conversion {
    bool plain;                  /* refuse what is not plain data */
    enum sidestep_status beyond; /* the status if the tree exceeds a limit */
    size_t values;
    size_t shared_bytes;
    struct sidestep_error *err;
};

/* Recurses at most PICKLE_MAX_DEPTH deep. */
static enum sidestep_status convert(struct conversion *c, const struct pickle_node *node,
                                    bool shared, struct sidestep_value **out);

static enum sidestep_status check_new(struct conversion *c, struct sidestep_value *value,
                                      struct sidestep_value **out)
{
    *out = value;
    return value != NULL ? SIDESTEP_OK : FAIL_NOMEM(c->err, sizeof(*value));
}

/* Count a value against the limits, and ${bytes} of text if it is ${shared}. */
static enum sidestep_status count_value(struct conversion *c, size_t bytes, bool shared)
{
    if (++c->values > PICKLE_MAX_VALUES)
        return FAIL(c->err, c->beyond, "pickle: more than %u values", PICKLE_MAX_VALUES);
    if (shared && bytes > PICKLE_MAX_SHARED_BYTES - c->shared_bytes)
        return FAIL(c->err, c->beyond, "pickle: more than %zu bytes by repeating texts",
                    PICKLE_MAX_SHARED_BYTES);
    if (shared)
        c->shared_bytes += bytes;
    return SIDESTEP_OK;
}

static enum sidestep_status make_text(struct conversion *c, enum sidestep_value_kind kind,
                                      const struct pickle_node *node, bool shared,
                                      struct sidestep_value **out)
{
    TRY(count_value(c, node->as.text.length, shared || node->shared));
    return check_new(c, value_new_text(kind, node->as.text.bytes, node->as.text.length), out);
}

static enum sidestep_status make_opaque_text(struct conversion *c, const char *text,
                                             struct sidestep_value **out)
{
    TRY(count_value(c, 0, false));
    return check_new(c, value_new_text(SIDESTEP_VALUE_OPAQUE, text, strlen(text)), out);
}

/* Make the text "${before}module.name${after}". */
static enum sidestep_status make_opaque(struct conversion *c, const char *before,
                                        const struct pickle_node *global, const char *after,
                                        struct sidestep_value **out)
{
    struct display_text name = {"?"};
    char text[sizeof(name.text) + 64];

    if (pickle_is_kind(global, PICKLE_GLOBAL))
        name = pickle_global_text(global);
    snprintf(text, sizeof(text), "%s%s%s", before, name.text, after);
    return make_opaque_text(c, text, out);
}

static enum sidestep_status make_bigint(struct conversion *c, const struct pickle_node *node,
                                        struct sidestep_value **out)
{
    const unsigned char *bytes = (const unsigned char *)node->as.text.bytes;
    size_t length = node->as.text.length;
    char text[2 * MAX_SHOWN_BIGINT + 64];
    int used;

    TRY(count_value(c, 0, false));
    if (length > MAX_SHOWN_BIGINT) {
        used = snprintf(text, sizeof(text), "int of %zu bytes", length);
    } else {
        used = snprintf(text, sizeof(text), "int, two's complement 0x");
        for (size_t i = length; i-- > 0;)
            used += snprintf(text + used, sizeof(text) - (size_t)used, "%02x", bytes[i]);
    }
    return check_new(c, value_new_text(SIDESTEP_VALUE_OPAQUE, text, (size_t)used), out);
}

static enum sidestep_status make_sequence(struct conversion *c, enum sidestep_value_kind kind,
                                          const struct pickle_node *node, bool shared,
                                          struct sidestep_value **out)
{
    OWNED_BY(sidestep_value_free) struct sidestep_value *seq = NULL;

    TRY(count_value(c, 0, false));
    TRY(check_new(c, kind == SIDESTEP_VALUE_LIST ? sidestep_value_list() : sidestep_value_tuple(),
                  &seq));
    for (size_t i = 0; i < node->as.seq.count; i++) {
        struct sidestep_value *item;
        TRY(convert(c, node->as.seq.items[i], shared || node->shared, &item));
        TRY(sidestep_value_append(seq, item, c->err));
    }
    *out = TAKE(seq);
    return SIDESTEP_OK;
}

static enum sidestep_status set_pair(struct conversion *c, struct sidestep_value *dict,
                                     const struct pickle_node *key, const struct pickle_node *item,
                                     bool shared)
{
    OWNED_BY(sidestep_value_free) struct sidestep_value *key_value = NULL;
    struct sidestep_value *item_value;

    TRY(convert(c, key, shared, &key_value));
    if (!value_keys_is_hashable(key_value))
        return FAIL(c->err, SIDESTEP_ECORRUPT, "pickle: a key that Python cannot hash");
    TRY(convert(c, item, shared, &item_value));
    return sidestep_value_set(dict, TAKE(key_value), item_value, c->err);
}

/* ${node}: a DICT, a LIST of pairs, or NULL. */
static enum sidestep_status make_dict(struct conversion *c, const struct pickle_node *node,
                                      bool shared, struct sidestep_value **out)
{
    OWNED_BY(sidestep_value_free) struct sidestep_value *dict = NULL;
    struct pickle_node **items = node != NULL ? node->as.seq.items : NULL;
    size_t count = node != NULL ? node->as.seq.count : 0;

    TRY(count_value(c, 0, false));
    TRY(check_new(c, sidestep_value_dict(), &dict));
    shared = shared || (node != NULL && node->shared);
    if (node != NULL && node->kind == PICKLE_DICT)
        for (size_t i = 0; i < count; i += 2)
            TRY(set_pair(c, dict, items[i], items[i + 1], shared));
    if (node != NULL && node->kind == PICKLE_LIST)
        for (size_t i = 0; i < count; i++)
            TRY(set_pair(c, dict, items[i]->as.seq.items[0], items[i]->as.seq.items[1],
                         shared || items[i]->shared));
    *out = TAKE(dict);
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- plain data */

/* Is it a call that makes bytes?  Protocols 0 to 2 have no opcode for bytes. */
static bool is_call_for_bytes(const struct pickle_node *node)
{
    return node->kind == PICKLE_REDUCE && node->as.call.state == NULL &&
           node->as.call.items == NULL &&
           (pickle_is_global(node->as.call.callable, "_codecs encode") ||
            pickle_is_global(node->as.call.callable, "builtins bytes") ||
            pickle_is_global(node->as.call.callable, "__builtin__ bytes"));
}

static enum sidestep_status refuse(struct conversion *c, const struct pickle_node *node)
{
    const struct pickle_node *symbol = node;

    if (node->kind == PICKLE_REDUCE || node->kind == PICKLE_OBJECT)
        symbol = node->as.call.callable;
    struct display_text name = display_name(symbol->kind == PICKLE_GLOBAL   ? symbol->as.text.bytes
                                            : symbol->kind == PICKLE_BIGINT ? "int beyond 64 bits"
                                            : symbol->kind == PICKLE_SET    ? "set"
                                            : symbol->kind == PICKLE_BYTES  ? "bytearray"
                                                                            : "object");
    return FAIL(c->err, SIDESTEP_EUNSUPPORTED, "pickle: not plain data: %s", name.text);
}

static enum sidestep_status check_plain(struct conversion *c, const struct pickle_node *node)
{
    switch (node->kind) {
    case PICKLE_STR:
        return utf8_python_prefix(node->as.text.bytes, node->as.text.length) == node->as.text.length
                   ? SIDESTEP_OK
                   : FAIL(c->err, SIDESTEP_ECORRUPT, "pickle: a str is not UTF-8");
    case PICKLE_BYTES:
        return node->hashable ? SIDESTEP_OK : refuse(c, node);
    case PICKLE_REDUCE:
        return is_call_for_bytes(node) ? SIDESTEP_OK : refuse(c, node);
    case PICKLE_BIGINT:
    case PICKLE_SET:
    case PICKLE_GLOBAL:
    case PICKLE_OBJECT:
    case PICKLE_PERSID:
        return refuse(c, node);
    default:
        return SIDESTEP_OK;
    }
}

/* ---------------------------------------------------------------- well-known calls */

/* Counts each item against the limit, because a shared list may be checked many times. */
static bool is_list_of_pairs(struct conversion *c, const struct pickle_node *node)
{
    if (!pickle_is_kind(node, PICKLE_LIST))
        return false;
    for (size_t i = 0; i < node->as.seq.count; i++, c->values++) {
        const struct pickle_node *pair = node->as.seq.items[i];
        if ((pair->kind != PICKLE_LIST && pair->kind != PICKLE_TUPLE) || pair->as.seq.count != 2 ||
            !pair->as.seq.items[0]->hashable)
            return false;
    }
    return true;
}

/* The functions below leave ${*out} NULL if they do not know a call with such arguments. */

/* OrderedDict(), OrderedDict([[key, value], ...]), defaultdict(factory), each perhaps with items
 * that are set later; Counter({...}). */
static enum sidestep_status call_dict(struct conversion *c, const struct pickle_node *call,
                                      bool shared, struct sidestep_value **out)
{
    const struct pickle_node *first = pickle_argument(call, 0), *items = call->as.call.items;

    if (pickle_is_kind(items, PICKLE_DICT) || first == NULL || first->kind == PICKLE_GLOBAL)
        return items == NULL || items->kind == PICKLE_DICT ? make_dict(c, items, shared, out)
                                                           : SIDESTEP_OK;
    if (first->kind == PICKLE_DICT || is_list_of_pairs(c, first))
        return make_dict(c, first, shared, out);
    return SIDESTEP_OK;
}

/* set([...]), frozenset([...]), torch.Size((...)) */
static enum sidestep_status call_sequence(struct conversion *c, const struct pickle_node *call,
                                          bool shared, struct sidestep_value **out)
{
    const struct pickle_node *first = pickle_argument(call, 0);
    bool is_set = pickle_is_global(call->as.call.callable, "builtins set") ||
                  pickle_is_global(call->as.call.callable, "__builtin__ set");

    if (!pickle_is_kind(first, PICKLE_LIST) && !pickle_is_kind(first, PICKLE_TUPLE))
        return SIDESTEP_OK;
    return make_sequence(c, is_set ? SIDESTEP_VALUE_LIST : SIDESTEP_VALUE_TUPLE, first, shared,
                         out);
}

/* Convert UTF-8 to Latin-1.  False: there are characters above 255. */
static bool to_latin1(struct sidestep_value *text)
{
    unsigned char *bytes = (unsigned char *)text->as.text.bytes;
    size_t used = 0;

    for (size_t i = 0; i < text->as.text.length; i++) {
        unsigned char b = bytes[i];
        if (b >= 0x80) {
            unsigned char next = i + 1 < text->as.text.length ? bytes[++i] : 0;
            if ((b & 0xfe) != 0xc2 || (next & 0xc0) != 0x80)
                return false;
            b = (unsigned char)(b << 6 | (next & 0x3f));
        }
        bytes[used++] = b;
    }
    bytes[used] = '\0';
    text->as.text.length = used;
    text->kind = SIDESTEP_VALUE_BYTES;
    return true;
}

static bool is_latin1(const struct pickle_node *name)
{
    return pickle_is_kind(name, PICKLE_STR) && (strcmp(name->as.text.bytes, "latin1") == 0 ||
                                                strcmp(name->as.text.bytes, "latin-1") == 0);
}

/* _codecs.encode(str, 'latin1'), bytes(), bytearray(), bytearray(bytes),
 * bytearray(_codecs.encode(...)), bytearray(str, 'latin-1') */
static enum sidestep_status call_bytes(struct conversion *c, const struct pickle_node *call,
                                       bool shared, struct sidestep_value **out)
{
    OWNED_BY(sidestep_value_free) struct sidestep_value *text = NULL;
    const struct pickle_node *first = pickle_argument(call, 0);

    if (first == NULL && !pickle_is_global(call->as.call.callable, "_codecs encode")) {
        TRY(count_value(c, 0, false));
        return check_new(c, value_new_text(SIDESTEP_VALUE_BYTES, "", 0), out);
    }
    if (pickle_is_kind(first, PICKLE_BYTES) && pickle_argument(call, 1) == NULL)
        return make_text(c, SIDESTEP_VALUE_BYTES, first, shared, out);
    if (pickle_is_kind(first, PICKLE_REDUCE) && pickle_argument(call, 1) == NULL &&
        pickle_is_global(first->as.call.callable, "_codecs encode")) {
        TRY(convert(c, first, shared, &text));
    } else if (pickle_is_kind(first, PICKLE_STR) && is_latin1(pickle_argument(call, 1))) {
        TRY(make_text(c, SIDESTEP_VALUE_STR, first, shared, &text));
        if (!to_latin1(text))
            return SIDESTEP_OK;
    }
    if (text != NULL && text->kind == SIDESTEP_VALUE_BYTES)
        *out = TAKE(text);
    return SIDESTEP_OK;
}

/* torch.serialization._get_layout('torch.strided') */
static enum sidestep_status call_layout(struct conversion *c, const struct pickle_node *call,
                                        bool shared, struct sidestep_value **out)
{
    if (!pickle_is_kind(pickle_argument(call, 0), PICKLE_STR))
        return SIDESTEP_OK;
    return make_text(c, SIDESTEP_VALUE_OPAQUE, pickle_argument(call, 0), shared, out);
}

static const struct {
    const char *global;
    enum sidestep_status (*make)(struct conversion *c, const struct pickle_node *call, bool shared,
                                 struct sidestep_value **out);
} known_calls[] = {
    {"collections OrderedDict", call_dict}, {"collections defaultdict", call_dict},
    {"collections Counter", call_dict},     {"torch Size", call_sequence},
    {"builtins set", call_sequence},        {"__builtin__ set", call_sequence},
    {"builtins frozenset", call_sequence},  {"__builtin__ frozenset", call_sequence},
    {"_codecs encode", call_bytes},         {"builtins bytes", call_bytes},
    {"__builtin__ bytes", call_bytes},      {"builtins bytearray", call_bytes},
    {"__builtin__ bytearray", call_bytes},  {"torch.serialization _get_layout", call_layout},
};

static enum sidestep_status convert_call(struct conversion *c, const struct pickle_node *node,
                                         bool shared, struct sidestep_value **out)
{
    *out = NULL;
    shared = shared || node->shared || node->as.call.args->shared;
    for (size_t i = 0; i < ARRAY_LENGTH(known_calls); i++) {
        if (!pickle_is_global(node->as.call.callable, known_calls[i].global))
            continue;
        TRY(known_calls[i].make(c, node, shared, out));
        if (*out != NULL)
            return SIDESTEP_OK;
    }
    if (c->plain)
        return refuse(c, node);
    struct display_text tensor = archive_rebuild_describe(node);
    if (tensor.text[0] != '\0')
        return make_opaque_text(c, tensor.text, out);
    return make_opaque(c, "", node->as.call.callable,
                       node->kind == PICKLE_OBJECT ? " object" : "(...)", out);
}

static enum sidestep_status convert(struct conversion *c, const struct pickle_node *node,
                                    bool shared, struct sidestep_value **out)
{
    *out = NULL;
    if (c->plain)
        TRY(check_plain(c, node));
    switch (node->kind) {
    case PICKLE_NONE:
        TRY(count_value(c, 0, false));
        return check_new(c, sidestep_value_none(), out);
    case PICKLE_BOOL:
        TRY(count_value(c, 0, false));
        return check_new(c, sidestep_value_bool(node->as.boolean), out);
    case PICKLE_INT:
        TRY(count_value(c, 0, false));
        return check_new(c, sidestep_value_int(node->as.integer), out);
    case PICKLE_FLOAT:
        TRY(count_value(c, 0, false));
        return check_new(c, sidestep_value_float(node->as.real), out);
    case PICKLE_BIGINT:
        return make_bigint(c, node, out);
    case PICKLE_STR:
        return make_text(c, SIDESTEP_VALUE_STR, node, shared, out);
    case PICKLE_BYTES:
        return make_text(c, SIDESTEP_VALUE_BYTES, node, shared, out);
    case PICKLE_LIST:
        return make_sequence(c, SIDESTEP_VALUE_LIST, node, shared, out);
    case PICKLE_TUPLE:
        return make_sequence(c, SIDESTEP_VALUE_TUPLE, node, shared, out);
    case PICKLE_SET: /* a frozenset may be a key, and so may a tuple */
        return make_sequence(c, node->hashable ? SIDESTEP_VALUE_TUPLE : SIDESTEP_VALUE_LIST, node,
                             shared, out);
    case PICKLE_DICT:
        return make_dict(c, node, shared, out);
    case PICKLE_GLOBAL:
        return make_opaque(c, "", node, "", out);
    case PICKLE_REDUCE:
    case PICKLE_OBJECT:
        return convert_call(c, node, shared, out);
    case PICKLE_PERSID:
        break;
    }
    return make_opaque(c, "persistent id ", NULL, "", out);
}

enum sidestep_status pickle_to_value(const struct pickle_node *node, struct sidestep_value **out,
                                     struct sidestep_error *err)
{
    struct conversion c = {.beyond = SIDESTEP_ECORRUPT, .err = err};

    return convert(&c, node, false, out);
}

enum sidestep_status pickle_to_plain_value(const struct pickle_node *node,
                                           struct sidestep_value **out, struct sidestep_error *err)
{
    struct conversion c = {.plain = true, .beyond = SIDESTEP_EUNSUPPORTED, .err = err};

    return convert(&c, node, false, out);
}
