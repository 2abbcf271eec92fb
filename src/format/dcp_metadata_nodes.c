/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp_metadata_nodes.c -- see dcp_metadata_nodes.h. */
#include "format/dcp_metadata_nodes.h"

#include <string.h>

#include "base/base.h"
#include "format/dcp_metadata.h"
#include "model/model.h"

#define MAX_CHECKPOINT_ID 65536u

static bool is_call_of(const struct pickle_node *node, const char *global)
{
    return node->kind == PICKLE_REDUCE && pickle_is_global(node->as.call.callable, global);
}

static bool is_one_of(const struct pickle_node *node, const char *const *globals, size_t count)
{
    for (size_t i = 0; node != NULL && i < count; i++)
        if (pickle_is_global(node, globals[i]))
            return true;
    return false;
}

static const struct pickle_node *class_of(const struct pickle_node *node)
{
    if (node->kind == PICKLE_OBJECT)
        return node->as.call.callable;
    if (is_call_of(node, "copyreg _reconstructor") || is_call_of(node, "copy_reg _reconstructor"))
        return pickle_argument(node, 0);
    return NULL;
}

bool dcp_nodes_is_instance(const struct pickle_node *node, const char *class)
{
    const struct pickle_node *its_class = class_of(node);

    return its_class != NULL && pickle_is_global(its_class, class);
}

/* The symbol that ${node} is, calls or instantiates.  NULL: none. */
static const struct pickle_node *symbol_of(const struct pickle_node *node)
{
    const struct pickle_node *class = class_of(node);

    if (pickle_is_kind(class, PICKLE_GLOBAL))
        return class;
    while (node->kind == PICKLE_REDUCE || node->kind == PICKLE_OBJECT)
        node = node->as.call.callable;
    return node->kind == PICKLE_GLOBAL ? node : NULL;
}

enum sidestep_status dcp_nodes_type_error(const struct dcp_nodes *n, const struct pickle_node *node,
                                          const char *what, const char *wanted)
{
    const struct pickle_node *symbol = node != NULL ? symbol_of(node) : NULL;

    if (symbol != NULL)
        return FAIL(n->err, SIDESTEP_EUNSAFE, "%s is not %s but made by '%s', which is not run",
                    what, wanted, display_name(symbol->as.text.bytes).text);
    return FAIL(n->err, SIDESTEP_ECORRUPT, node != NULL ? "%s is not %s" : "%s (%s) is missing",
                what, wanted);
}

enum sidestep_status dcp_nodes_fields(const struct dcp_nodes *n, const struct pickle_node *node,
                                      const char *what, const char *class,
                                      const struct pickle_node **fields)
{
    *fields = NULL;
    if (node == NULL || !dcp_nodes_is_instance(node, class))
        return dcp_nodes_type_error(n, node, what, strrchr(class, ' ') + 1);
    *fields = node->as.call.state;
    if (*fields == NULL || (*fields)->kind == PICKLE_NONE) {
        *fields = NULL;
        return SIDESTEP_OK;
    }
    if ((*fields)->kind != PICKLE_DICT)
        return dcp_nodes_type_error(n, *fields, what, "a dict of fields");
    if ((*fields)->as.seq.count / 2 > DCP_METADATA_MAX_FIELDS)
        return FAIL(n->err, SIDESTEP_ECORRUPT, "%s has %zu fields, the limit is %u", what,
                    (*fields)->as.seq.count / 2, DCP_METADATA_MAX_FIELDS);
    return SIDESTEP_OK;
}

struct pickle_node *dcp_nodes_field(const struct pickle_node *fields, const char *name)
{
    struct pickle_node *value = fields != NULL ? pickle_dict_get(fields, name) : NULL;

    return value != NULL && value->kind != PICKLE_NONE ? value : NULL;
}

enum sidestep_status dcp_nodes_text(const struct dcp_nodes *n, struct pickle_node *node,
                                    const char *what, size_t max, const char **text)
{
    if (!pickle_is_kind(node, PICKLE_STR))
        return dcp_nodes_type_error(n, node, what, "a str");
    if (node->as.text.length > max)
        return FAIL(n->err, SIDESTEP_EUNSUPPORTED, "%s has %zu bytes, the limit is %zu", what,
                    node->as.text.length, max);
    if (node->kept == NULL) {
        if (!utf8_is_valid(node->as.text.bytes, node->as.text.length))
            return FAIL(n->err, SIDESTEP_ECORRUPT, "%s is not UTF-8, or has a NUL in it", what);
        node->kept = arena_strndup(n->arena, node->as.text.bytes, node->as.text.length);
        if (node->kept == NULL)
            return FAIL_NOMEM(n->err, node->as.text.length + 1);
    }
    *text = node->kept;
    return SIDESTEP_OK;
}

enum sidestep_status dcp_nodes_count(const struct dcp_nodes *n, const struct pickle_node *node,
                                     const char *what, uint64_t *count)
{
    if (pickle_is_kind(node, PICKLE_BIGINT))
        return FAIL(n->err, SIDESTEP_ECORRUPT, "%s does not fit in 63 bits", what);
    if (!pickle_is_kind(node, PICKLE_INT))
        return dcp_nodes_type_error(n, node, what, "an int");
    if (node->as.integer < 0)
        return FAIL(n->err, SIDESTEP_ECORRUPT, "%s is %lld", what, (long long)node->as.integer);
    *count = (uint64_t)node->as.integer;
    return SIDESTEP_OK;
}

static enum sidestep_status copy_integers(const struct dcp_nodes *n, struct pickle_node *tuple,
                                          const char *what)
{
    size_t count = tuple->as.seq.count;
    int64_t *copy = arena_new(n->arena, count, sizeof(*copy));

    if (copy == NULL)
        return FAIL_NOMEM(n->err, count * sizeof(*copy));
    for (size_t i = 0; i < count; i++) {
        const struct pickle_node *item = tuple->as.seq.items[i];
        if (item->kind == PICKLE_BIGINT)
            return FAIL(n->err, SIDESTEP_ECORRUPT, "%s[%zu] does not fit in 63 bits", what, i);
        if (item->kind != PICKLE_INT)
            return dcp_nodes_type_error(n, item, what, "integers");
        copy[i] = item->as.integer;
    }
    tuple->kept = copy;
    return SIDESTEP_OK;
}

enum sidestep_status dcp_nodes_size(const struct dcp_nodes *n, const struct pickle_node *node,
                                    const char *what, uint32_t *ndim, const int64_t **lengths)
{
    const struct pickle_node *tuple = node;

    if (node != NULL && is_call_of(node, "torch Size") &&
        pickle_is_kind(pickle_argument(node, 0), PICKLE_TUPLE))
        tuple = pickle_argument(node, 0);
    if (!pickle_is_kind(tuple, PICKLE_TUPLE))
        return dcp_nodes_type_error(n, tuple, what, "a torch.Size");
    if (tuple->as.seq.count > SIDESTEP_MAX_NDIM)
        return FAIL(n->err, SIDESTEP_EUNSUPPORTED, "%s has %zu dimensions, the limit is %d", what,
                    tuple->as.seq.count, SIDESTEP_MAX_NDIM);
    if (tuple->kept == NULL)
        TRY(copy_integers(n, (struct pickle_node *)tuple, what));
    *ndim = (uint32_t)tuple->as.seq.count;
    *lengths = tuple->kept;
    return SIDESTEP_OK;
}

/* Is it a dtype of torch, like "torch float32"?  Also one that sidestep does not know. */
static bool is_dtype(const struct pickle_node *node)
{
    static const char *const families[] = {"float", "bfloat",  "int",  "uint",  "bool",
                                           "bits",  "complex", "qint", "quint", "bcomplex"};
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

    if (!pickle_is_kind(node, PICKLE_GLOBAL) || strncmp(node->as.text.bytes, "torch ", 6) != 0)
        return false;
    const char *name = node->as.text.bytes + 6;
    if (name[strspn(name, alphabet)] != '\0')
        return false;
    for (size_t i = 0; i < ARRAY_LENGTH(families); i++)
        if (strncmp(name, families[i], strlen(families[i])) == 0)
            return true;
    return false;
}

enum sidestep_status dcp_nodes_dtype(const struct dcp_nodes *n, struct pickle_node *node,
                                     const char **name)
{
    if (!is_dtype(node))
        return dcp_nodes_type_error(n, node, "dtype", "a torch.dtype");
    if (node->kept == NULL)
        node->kept = arena_strndup(n->arena, node->as.text.bytes + 6, node->as.text.length - 6);
    if (node->kept == NULL)
        return FAIL_NOMEM(n->err, node->as.text.length);
    *name = node->kept;
    return SIDESTEP_OK;
}

enum sidestep_status dcp_nodes_check_layout(const struct dcp_nodes *n,
                                            const struct pickle_node *node)
{
    if (pickle_is_global(node, "torch strided"))
        return SIDESTEP_OK;
    if (!is_call_of(node, "torch.serialization _get_layout") ||
        !pickle_is_kind(pickle_argument(node, 0), PICKLE_STR))
        return dcp_nodes_type_error(n, node, "layout", "a torch.layout");
    if (strcmp(pickle_argument(node, 0)->as.text.bytes, "torch.strided") != 0)
        return FAIL(n->err, SIDESTEP_EUNSUPPORTED,
                    "the layout is '%s', only torch.strided is known",
                    display_name(pickle_argument(node, 0)->as.text.bytes).text);
    return SIDESTEP_OK;
}

enum sidestep_status dcp_nodes_check_memory_format(const struct dcp_nodes *n,
                                                   const struct pickle_node *node)
{
    static const char *const enums[] = {
        "torch.distributed.checkpoint.metadata _MEM_FORMAT_ENCODING",
        "torch.distributed._shard.sharded_tensor.metadata MEM_FORMAT_ENCODING",
    };
    static const char *const formats[] = {"torch contiguous_format", "torch channels_last",
                                          "torch channels_last_3d", "torch preserve_format"};

    if (is_one_of(node, formats, ARRAY_LENGTH(formats)))
        return SIDESTEP_OK;
    /* A member of an enum, by value; or by name, as some versions of Python 3.11 write it. */
    if (node->kind == PICKLE_REDUCE &&
        is_one_of(node->as.call.callable, enums, ARRAY_LENGTH(enums)) &&
        pickle_is_kind(pickle_argument(node, 0), PICKLE_INT))
        return SIDESTEP_OK;
    if ((is_call_of(node, "builtins getattr") || is_call_of(node, "__builtin__ getattr")) &&
        is_one_of(pickle_argument(node, 0), enums, ARRAY_LENGTH(enums)) &&
        pickle_is_kind(pickle_argument(node, 1), PICKLE_STR))
        return SIDESTEP_OK;
    return dcp_nodes_type_error(n, node, "memory_format", "a torch.memory_format");
}

/* Join the parts of a pathlib object. */
static enum sidestep_status join_path(const struct dcp_nodes *n, const struct pickle_node *parts,
                                      const char *what, const char **path)
{
    size_t room = 0;

    for (size_t i = 0; i < parts->as.seq.count; i++) {
        if (parts->as.seq.items[i]->kind != PICKLE_STR)
            return dcp_nodes_type_error(n, parts->as.seq.items[i], what, "a path");
        room += parts->as.seq.items[i]->as.text.length + 1;
        if (room > MAX_CHECKPOINT_ID)
            return FAIL(n->err, SIDESTEP_EUNSUPPORTED, "%s has more than %u bytes", what,
                        MAX_CHECKPOINT_ID);
    }
    char *text = arena_new(n->arena, room + 1, 1), *at = text;
    if (text == NULL)
        return FAIL_NOMEM(n->err, room + 1);
    for (size_t i = 0; i < parts->as.seq.count; i++) {
        const struct pickle_node *part = parts->as.seq.items[i];
        if (at != text && at[-1] != '/')
            *at++ = '/';
        memcpy(at, part->as.text.bytes, part->as.text.length);
        at += part->as.text.length;
    }
    *path = utf8_is_valid(text, (size_t)(at - text)) ? text : NULL;
    return SIDESTEP_OK;
}

enum sidestep_status dcp_nodes_path(const struct dcp_nodes *n, struct pickle_node *node,
                                    const char *what, const char **path)
{
    static const char *const classes[] = {
        "pathlib PosixPath",
        "pathlib PurePosixPath",
        "pathlib WindowsPath",
        "pathlib PureWindowsPath",
        "pathlib Path",
        "pathlib._local PosixPath",
        "pathlib._local PurePosixPath",
        "pathlib._local WindowsPath",
        "pathlib._local PureWindowsPath",
        "pathlib._local Path",
    };

    *path = NULL;
    if (node->kind == PICKLE_STR) {
        if (!utf8_is_valid(node->as.text.bytes, node->as.text.length))
            return SIDESTEP_OK;
        return dcp_nodes_text(n, node, what, MAX_CHECKPOINT_ID, path);
    }
    if (node->kind != PICKLE_REDUCE ||
        !is_one_of(node->as.call.callable, classes, ARRAY_LENGTH(classes)))
        return dcp_nodes_type_error(n, node, what, "a str or path");
    return join_path(n, node->as.call.args, what, path);
}
