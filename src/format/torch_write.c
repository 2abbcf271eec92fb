/* SPDX-License-Identifier: BSD-3-Clause */
/* torch_write.c -- see torch_write.h: makes a tree from the paths, and writes its pickle, without a
 * memo. */
#include "format/torch_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/archive_dtype.h"
#include "format/pickle.h"
#include "model/model.h"

#define BATCH 1000u
#define MAX_HOLES 100000u /* indices of a list without a value, which become None */

enum node_kind { NODE_NEW, NODE_DICT, NODE_LIST, NODE_LEAF };

struct node {
    enum node_kind kind;
    struct sidestep_path_item step;        /* from the parent */
    size_t first, last, next;              /* children and siblings; SIZE_MAX: none */
    size_t count;                          /* of children */
    int64_t length;                        /* of a list: its highest index plus 1 */
    const struct torch_write_entry *entry; /* of a leaf */
};

struct tree {
    struct arena arena;
    struct node *nodes;
    size_t count, capacity;
    struct hash_table children; /* from "PARENT KIND STEP" to nodes */
    struct sidestep_error *err;
};

static enum sidestep_status new_node(struct tree *t, const struct sidestep_path_item *step,
                                     size_t *out)
{
    TRY_GROW(t->nodes, t->capacity, t->count, t->err);
    *out = t->count++;
    t->nodes[*out] =
        (struct node){.step = *step, .first = SIZE_MAX, .last = SIZE_MAX, .next = SIZE_MAX};
    return SIDESTEP_OK;
}

/* The kind of a node with a child at ${step}. */
static enum node_kind kind_of(const struct sidestep_path_item *step)
{
    return step->key == NULL && !path_item_is_int_key(step) ? NODE_LIST : NODE_DICT;
}

static enum sidestep_status fail_conflict(const struct tree *t,
                                          const struct torch_write_entry *entry)
{
    return FAIL(t->err, SIDESTEP_EUNSUPPORTED,
                "'%s' is nested in a way that contradicts another name",
                display_name(entry->name).text);
}

/* Go from node ${*at} to its child at ${step}.  Make the child if it does not exist. */
static enum sidestep_status descend(struct tree *t, size_t *at,
                                    const struct sidestep_path_item *step,
                                    const struct torch_write_entry *entry)
{
    enum node_kind kind = kind_of(step);
    char decimal[PATH_ITEM_DECIMAL_BYTES];
    char *key = arena_printf(&t->arena, "%zu %d %s", *at,
                             step->key != NULL            ? 0
                             : path_item_is_int_key(step) ? 1
                                                          : 2,
                             path_item_text(step, decimal));
    size_t child = 0, existing;

    if (key == NULL)
        return FAIL_NOMEM(t->err, SIDESTEP_MAX_NAME);
    if (t->nodes[*at].kind != NODE_NEW && t->nodes[*at].kind != kind)
        return fail_conflict(t, entry);
    t->nodes[*at].kind = kind;
    size_t found = hash_table_find(&t->children, key);
    if (found != SIZE_MAX) {
        *at = found;
        return SIDESTEP_OK;
    }
    TRY(new_node(t, step, &child));
    TRY(hash_table_insert(&t->children, key, child, &existing, t->err));
    struct node *parent = &t->nodes[*at];
    if (parent->last != SIZE_MAX)
        t->nodes[parent->last].next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->count++;
    if (kind == NODE_LIST && step->index >= parent->length)
        parent->length = step->index + 1;
    *at = child;
    return SIDESTEP_OK;
}

static enum sidestep_status add_entry(struct tree *t, const struct torch_write_entry *entry)
{
    const struct sidestep_path_item only = {.key = entry->name};
    uint32_t steps = entry->path_length != 0 ? entry->path_length : 1;
    size_t at = 0;

    for (uint32_t i = 0; i < steps; i++)
        TRY(descend(t, &at, entry->path_length != 0 ? &entry->path[i] : &only, entry));
    if (t->nodes[at].kind != NODE_NEW)
        return fail_conflict(t, entry);
    t->nodes[at].kind = NODE_LEAF;
    t->nodes[at].entry = entry;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- the pickle */

static void put_text(struct buffer *out, const char *text)
{
    buffer_put_u8(out, 'X'); /* BINUNICODE */
    buffer_put_u32le(out, (uint32_t)strlen(text));
    buffer_put_text(out, text);
}

/* "module name" */
static void put_global(struct buffer *out, const char *global)
{
    const char *space = strchr(global, ' ');

    buffer_put_u8(out, 'c');
    buffer_put(out, global, (size_t)(space - global));
    buffer_put_u8(out, '\n');
    buffer_put_text(out, space + 1);
    buffer_put_u8(out, '\n');
}

/* Write a tuple. */
static void put_integers(struct buffer *out, const int64_t *numbers, uint32_t count)
{
    buffer_put_u8(out, '('); /* MARK */
    for (uint32_t i = 0; i < count; i++)
        pickle_write_int(out, numbers[i]);
    buffer_put_u8(out, 't'); /* TUPLE */
}

/* ('storage', class, key, 'cpu', count) as a persistent id. */
static void put_storage(struct buffer *out, const struct torch_write_entry *e, uint64_t elements)
{
    const struct archive_dtype *dtype = archive_dtype_of(e->dtype);
    char key[24];

    snprintf(key, sizeof(key), "%zu", e->storage);
    buffer_put_u8(out, '(');
    put_text(out, "storage");
    put_global(out, dtype->storage != NULL ? dtype->storage : ARCHIVE_UNTYPED_STORAGE);
    put_text(out, key);
    put_text(out, "cpu");
    pickle_write_int(
        out,
        (int64_t)(dtype->storage != NULL ? elements : elements * sidestep_dtype_size(e->dtype)));
    buffer_put_text(out, "tQ"); /* TUPLE, BINPERSID */
}

/* _rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict()), or _v3(..., dtype). */
static void put_tensor(struct buffer *out, const struct torch_write_entry *e)
{
    bool is_v3 = archive_dtype_of(e->dtype)->storage == NULL;
    int64_t strides[SIDESTEP_MAX_NDIM];
    uint64_t elements = box_volume(&(struct box){.ndim = e->ndim, .lengths = e->shape});

    box_row_major_strides(e->ndim, e->shape, strides);
    put_global(out, is_v3 ? "torch._utils _rebuild_tensor_v3" : "torch._utils _rebuild_tensor_v2");
    buffer_put_u8(out, '(');
    put_storage(out, e, elements);
    pickle_write_int(out, 0);
    put_integers(out, e->shape, e->ndim);
    put_integers(out, strides, e->ndim);
    buffer_put_u8(out, 0x89); /* NEWFALSE */
    put_global(out, "collections OrderedDict");
    buffer_put_text(out, ")R"); /* EMPTY_TUPLE, REDUCE */
    if (is_v3)
        buffer_printf(out, "ctorch\n%s\n", sidestep_dtype_name(e->dtype));
    buffer_put_text(out, "tR"); /* TUPLE, REDUCE */
}

/* Recurses at most SIDESTEP_MAX_PATH_ITEMS deep. */
static enum sidestep_status put_node(const struct tree *t, size_t i, struct buffer *out);

static enum sidestep_status put_dict(const struct tree *t, const struct node *dict,
                                     struct buffer *out)
{
    size_t in_batch = 0;

    buffer_put_u8(out, '}'); /* EMPTY_DICT */
    for (size_t i = dict->first; i != SIZE_MAX; i = t->nodes[i].next) {
        const struct sidestep_path_item *step = &t->nodes[i].step;

        if (in_batch++ == 0)
            buffer_put_u8(out, '('); /* MARK */
        if (step->key != NULL)
            put_text(out, step->key);
        else
            pickle_write_int(out, step->index);
        TRY(put_node(t, i, out));
        if (in_batch == BATCH || t->nodes[i].next == SIZE_MAX) {
            buffer_put_u8(out, 'u'); /* SETITEMS */
            in_batch = 0;
        }
    }
    return SIDESTEP_OK;
}

static enum sidestep_status put_list(const struct tree *t, const struct node *list,
                                     struct buffer *out)
{
    OWNED size_t *places = NULL;

    if (list->length < 0 || (uint64_t)list->length > list->count + MAX_HOLES)
        return FAIL(t->err, SIDESTEP_EUNSUPPORTED,
                    "a list has %zu values, but its last index is %lld", list->count,
                    (long long)list->length - 1);
    places = memory_new((size_t)list->length, sizeof(*places)); /* node plus 1; 0: none */
    if (places == NULL)
        return FAIL_NOMEM(t->err, (size_t)list->length * sizeof(*places));
    for (size_t i = list->first; i != SIZE_MAX; i = t->nodes[i].next)
        if (t->nodes[i].step.index >= 0)
            places[t->nodes[i].step.index] = i + 1;
    buffer_put_text(out, "]("); /* EMPTY_LIST, MARK */
    for (int64_t k = 0; k < list->length; k++) {
        if (places[k] != 0)
            TRY(put_node(t, places[k] - 1, out));
        else
            buffer_put_u8(out, 'N'); /* NONE */
    }
    buffer_put_u8(out, 'e'); /* APPENDS */
    return SIDESTEP_OK;
}

static enum sidestep_status put_node(const struct tree *t, size_t i, struct buffer *out)
{
    const struct node *node = &t->nodes[i];

    if (node->kind == NODE_LIST)
        return put_list(t, node, out);
    if (node->kind != NODE_LEAF)
        return put_dict(t, node, out);
    if (node->entry->value == NULL) {
        put_tensor(out, node->entry);
        return SIDESTEP_OK;
    }
    enum sidestep_status status = pickle_write_fragment(out, node->entry->value, t->err);
    if (status != SIDESTEP_OK)
        error_wrap(t->err, "'%s'", display_name(node->entry->name).text);
    return status;
}

static enum sidestep_status build(struct tree *t, const struct torch_write_entry *entries,
                                  size_t count)
{
    const struct sidestep_path_item root = {0};
    size_t at;

    TRY(new_node(t, &root, &at));
    for (size_t i = 0; i < count; i++)
        TRY(add_entry(t, &entries[i]));
    return SIDESTEP_OK;
}

enum sidestep_status torch_write_pickle(const struct torch_write_entry *entries, size_t count,
                                        struct buffer *out, struct sidestep_error *err)
{
    struct tree t = {.err = err};

    buffer_put_u8(out, 0x80); /* PROTO */
    buffer_put_u8(out, 2);
    enum sidestep_status status = build(&t, entries, count);
    if (status == SIDESTEP_OK)
        status = put_node(&t, 0, out);
    buffer_put_u8(out, '.'); /* STOP */
    hash_table_release(&t.children);
    arena_release(&t.arena);
    free(t.nodes);
    return status == SIDESTEP_OK ? buffer_check(out, err) : status;
}
