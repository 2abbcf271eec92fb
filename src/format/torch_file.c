/* SPDX-License-Identifier: BSD-3-Clause */
/* torch_file.c -- see torch_file.h. */
#include "format/torch_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/archive_rebuild.h"
#include "format/archive_zip.h"
#include "format/pickle.h"
#include "model/model.h"

struct walk {
    struct arena *arena;
    const struct archive_zip *zip;
    struct hash_table members; /* from names to indices of members */
    bool is_big;               /* big-endian */
    struct torch_file_entry *entries;
    size_t count, capacity;
    struct sidestep_path_item path[SIDESTEP_MAX_PATH_ITEMS];
    uint32_t depth;
    struct sidestep_error *err;
};

/* ---------------------------------------------------------------- kinds of nodes */

/* The dict that a node is, or would make.  NULL: it is something else. */
static const struct pickle_node *mapping_of(const struct pickle_node *node)
{
    static const struct pickle_node empty = {.kind = PICKLE_DICT};

    if (node->kind == PICKLE_DICT)
        return node;
    if (node->kind != PICKLE_REDUCE ||
        (!pickle_is_global(node->as.call.callable, "collections OrderedDict") &&
         !pickle_is_global(node->as.call.callable, "collections defaultdict")))
        return NULL;
    const struct pickle_node *items = node->as.call.items;
    if (items == NULL)
        return &empty;
    return items->kind == PICKLE_DICT ? items : NULL;
}

/* The call that makes the tensor.  NULL: ${node} is not a tensor. */
static const struct pickle_node *tensor_of(const struct pickle_node *node, bool *requires_grad)
{
    *requires_grad = false;
    if (node->kind != PICKLE_REDUCE || node->as.call.callable->kind != PICKLE_GLOBAL)
        return NULL;
    if (pickle_is_global(node->as.call.callable, "torch._utils _rebuild_parameter") ||
        pickle_is_global(node->as.call.callable, "torch._utils _rebuild_parameter_with_state")) {
        const struct pickle_node *args = node->as.call.args;
        if (args == NULL || args->kind != PICKLE_TUPLE || args->as.seq.count < 3)
            return NULL;
        *requires_grad =
            args->as.seq.items[1]->kind == PICKLE_BOOL && args->as.seq.items[1]->as.boolean;
        node = args->as.seq.items[0];
        if (node->kind != PICKLE_REDUCE || node->as.call.callable->kind != PICKLE_GLOBAL)
            return NULL;
    }
    const char *callable = node->as.call.callable->as.text.bytes;
    bool makes_tensor = strncmp(callable, "torch._utils _rebuild_", 22) == 0 ||
                        strcmp(callable, "torch._tensor _rebuild_from_type_v2") == 0;
    return makes_tensor ? node : NULL;
}

static bool is_flattened(struct pickle_node *node);

static bool has_tensors_or_dicts(const struct pickle_node *list)
{
    bool requires_grad;

    for (size_t i = 0; i < list->as.seq.count; i++)
        if (tensor_of(list->as.seq.items[i], &requires_grad) != NULL ||
            is_flattened(list->as.seq.items[i]))
            return true;
    return false;
}

/* Looks into each list once, because many paths may lead to it.  Recurses at most PICKLE_MAX_DEPTH
 * deep. */
static bool is_flattened(struct pickle_node *node)
{
    if (mapping_of(node) != NULL)
        return true;
    if (node->kind != PICKLE_LIST)
        return false;
    if (!node->noted) {
        node->note = has_tensors_or_dicts(node);
        node->noted = true;
    }
    return node->note;
}

static bool is_text_key(const struct pickle_node *key)
{
    return key->kind == PICKLE_STR && utf8_is_valid(key->as.text.bytes, key->as.text.length);
}

/* Can all keys be items of a path? */
static bool has_names(const struct pickle_node *mapping)
{
    for (size_t i = 0; i < mapping->as.seq.count; i += 2)
        if (!is_text_key(mapping->as.seq.items[i]) && mapping->as.seq.items[i]->kind != PICKLE_INT)
            return false;
    return true;
}

/* ---------------------------------------------------------------- entries */

/* Set the path of the entry, and its name. */
static enum sidestep_status name_entry(struct walk *w, struct torch_file_entry *entry)
{
    OWNED_BUFFER name = {0};
    char decimal[PATH_ITEM_DECIMAL_BYTES];

    for (uint32_t i = 0; i < w->depth; i++) {
        if (i != 0)
            buffer_put_u8(&name, '.');
        buffer_put_text(&name, path_item_text(&w->path[i], decimal));
    }
    buffer_put_u8(&name, '\0');
    TRY(buffer_check(&name, w->err));
    if (name.length == 1 || name.length > SIDESTEP_MAX_NAME)
        return FAIL(w->err, SIDESTEP_EUNSUPPORTED,
                    "torch.save: a value has a name of %zu bytes; 1 to %d can be read",
                    name.length - 1, SIDESTEP_MAX_NAME);
    entry->path_length = w->depth;
    entry->path = arena_copy(w->arena, w->path, w->depth * sizeof(*w->path));
    entry->name = arena_copy(w->arena, name.bytes, name.length);
    return entry->path != NULL && entry->name != NULL ? SIDESTEP_OK
                                                      : FAIL_NOMEM(w->err, name.length);
}

static enum sidestep_status new_entry(struct walk *w, struct torch_file_entry **out)
{
    if (w->count == TORCH_FILE_MAX_ENTRIES)
        return FAIL(w->err, SIDESTEP_EUNSUPPORTED, "torch.save: it has more than %u values",
                    TORCH_FILE_MAX_ENTRIES);
    TRY_GROW(w->entries, w->capacity, w->count, w->err);
    *out = &w->entries[w->count];
    **out = (struct torch_file_entry){0};
    return name_entry(w, *out);
}

static enum sidestep_status find_storage(struct walk *w, const struct archive_storage *storage,
                                         struct archive_tensor *tensor, struct sidestep_error *err)
{
    char name[64];
    int length = snprintf(name, sizeof(name), "data/%s", storage->key);
    size_t i =
        length > 0 && (size_t)length < sizeof(name) ? hash_table_find(&w->members, name) : SIZE_MAX;

    if (i == SIZE_MAX)
        return FAIL(err, SIDESTEP_ECORRUPT, "it has no 'data/%s'", display_name(storage->key).text);
    return archive_rebuild_set_data(tensor, storage, &w->zip->members[i], w->is_big, err);
}

/* Add a tensor that cannot be read.  The others still can. */
static enum sidestep_status add_unreadable(struct walk *w, struct torch_file_entry *entry,
                                           const struct sidestep_error *why)
{
    entry->unreadable = arena_strndup(w->arena, why->message, strlen(why->message));
    if (entry->unreadable == NULL)
        return FAIL_NOMEM(w->err, strlen(why->message));
    w->count++;
    return SIDESTEP_OK;
}

static enum sidestep_status add_tensor(struct walk *w, const struct pickle_node *call,
                                       bool requires_grad)
{
    struct archive_tensor *tensor = arena_new(w->arena, 1, sizeof(*tensor));
    struct archive_storage storage = {0};
    struct torch_file_entry *entry;
    struct sidestep_error why = {0};

    if (tensor == NULL)
        return FAIL_NOMEM(w->err, sizeof(*tensor));
    TRY(new_entry(w, &entry));
    enum sidestep_status status = archive_rebuild_parse_tensor(call, tensor, &storage, &why);
    if (status == SIDESTEP_EUNSUPPORTED || status == SIDESTEP_EUNSAFE)
        return add_unreadable(w, entry, &why);
    if (status == SIDESTEP_OK)
        status = find_storage(w, &storage, tensor, &why);
    if (status != SIDESTEP_OK) {
        error_wrap(&why, "'%s'", display_name(entry->name).text);
        if (w->err != NULL)
            *w->err = why;
        return status;
    }
    entry->tensor = tensor;
    entry->requires_grad = requires_grad;
    w->count++;
    return SIDESTEP_OK;
}

static enum sidestep_status add_object(struct walk *w, const struct pickle_node *node)
{
    struct torch_file_entry *entry;

    TRY(new_entry(w, &entry));
    entry->object = node;
    w->count++;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- the walk */

/* Recurses at most SIDESTEP_MAX_PATH_ITEMS deep. */
static enum sidestep_status walk_value(struct walk *w, struct pickle_node *node);

static enum sidestep_status walk_step(struct walk *w, const struct sidestep_path_item *step,
                                      struct pickle_node *node)
{
    if (w->depth == SIDESTEP_MAX_PATH_ITEMS)
        return FAIL(w->err, SIDESTEP_EUNSUPPORTED,
                    "torch.save: its dicts and lists are more than %d deep",
                    SIDESTEP_MAX_PATH_ITEMS);
    w->path[w->depth++] = *step;
    TRY(walk_value(w, node));
    w->depth--;
    return SIDESTEP_OK;
}

static enum sidestep_status walk_mapping(struct walk *w, const struct pickle_node *mapping)
{
    for (size_t i = 0; i < mapping->as.seq.count; i += 2) {
        const struct pickle_node *key = mapping->as.seq.items[i];
        struct sidestep_path_item step = {0};

        if (key->kind == PICKLE_INT) {
            step.index = key->as.integer;
            step.flags = SIDESTEP_PATH_INT_KEY;
        } else {
            step.key = key->as.text.bytes;
        }
        TRY(walk_step(w, &step, mapping->as.seq.items[i + 1]));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status walk_list(struct walk *w, const struct pickle_node *list)
{
    for (size_t i = 0; i < list->as.seq.count; i++) {
        struct sidestep_path_item step = {.index = (int64_t)i};

        TRY(walk_step(w, &step, list->as.seq.items[i]));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status walk_value(struct walk *w, struct pickle_node *node)
{
    const struct pickle_node *mapping = mapping_of(node);
    bool requires_grad;
    const struct pickle_node *tensor = tensor_of(node, &requires_grad);

    if (tensor != NULL)
        return add_tensor(w, tensor, requires_grad);
    if (mapping != NULL && (mapping->as.seq.count != 0 || w->depth == 0) && has_names(mapping))
        return walk_mapping(w, mapping);
    if (mapping == NULL && node->kind == PICKLE_LIST && is_flattened(node))
        return walk_list(w, node);
    return add_object(w, node);
}

static enum sidestep_status walk_root(struct walk *w, struct pickle_node *root)
{
    struct sidestep_path_item only = {.key = "tensor"};
    bool requires_grad;

    if (tensor_of(root, &requires_grad) != NULL)
        return walk_step(w, &only, root);
    if (!is_flattened(root) || (mapping_of(root) != NULL && !has_names(mapping_of(root)))) {
        const struct pickle_node *class = root->kind == PICKLE_REDUCE || root->kind == PICKLE_OBJECT
                                              ? root->as.call.callable
                                              : NULL;
        return FAIL(w->err, SIDESTEP_EUNSUPPORTED,
                    "torch.save: it holds %s%s, not a dict or list of tensors; save the "
                    "state_dict() of a module",
                    class != NULL && class->kind == PICKLE_GLOBAL ? "an object of class " : "",
                    class != NULL && class->kind == PICKLE_GLOBAL
                        ? display_name(class->as.text.bytes).text
                        : "something else");
    }
    return walk_value(w, root);
}

/* ---------------------------------------------------------------- the file */

static enum sidestep_status index_members(struct walk *w)
{
    size_t existing;

    for (size_t i = 0; i < w->zip->count; i++) {
        const struct archive_member *member = &w->zip->members[i];
        char *name = arena_strndup(w->arena, member->name, member->name_length);

        if (name == NULL)
            return FAIL_NOMEM(w->err, member->name_length);
        TRY(hash_table_insert(&w->members, name, i, &existing, w->err));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status check_names(const struct walk *w)
{
    OWNED_HASH_TABLE names = {0};
    size_t existing;

    for (size_t i = 0; i < w->count; i++) {
        TRY(hash_table_insert(&names, w->entries[i].name, i, &existing, w->err));
        if (existing != SIZE_MAX)
            return FAIL(w->err, SIDESTEP_EUNSUPPORTED,
                        "torch.save: two of its values have the name '%s': the keys, joined by "
                        "dots",
                        display_name(w->entries[i].name).text);
    }
    return SIDESTEP_OK;
}

/* Larger than any name, path or shape.  With less memory left, the arena's limit was reached. */
#define LARGEST_PART ((size_t)8 << 10)

static enum sidestep_status walk_with_limits(struct walk *w, struct pickle_node *root,
                                             uint64_t bytes)
{
    struct arena *arena = w->arena;
    uint32_t nodes = pickle_tree_size(root);

    if (nodes > TORCH_FILE_MAX_NODES(bytes))
        return FAIL(w->err, SIDESTEP_EUNSUPPORTED,
                    "torch.save: shared parts make it a tree of %s%u nodes; the limit is %llu for "
                    "a pickle of %llu bytes",
                    nodes == UINT32_MAX ? "more than " : "", nodes,
                    (unsigned long long)TORCH_FILE_MAX_NODES(bytes), (unsigned long long)bytes);
    arena->limit_bytes = arena->used_bytes + TORCH_FILE_MAX_MEMORY(bytes);
    enum sidestep_status status = walk_root(w, root);
    if (status == SIDESTEP_ENOMEM && arena->limit_bytes - arena->used_bytes < LARGEST_PART)
        status = FAIL(w->err, SIDESTEP_EUNSUPPORTED,
                      "torch.save: names and shapes of its values take more than %zu bytes, the "
                      "limit for a pickle of %llu bytes",
                      TORCH_FILE_MAX_MEMORY(bytes), (unsigned long long)bytes);
    return status;
}

static enum sidestep_status read_entries(struct walk *w, struct archive_zip *zip,
                                         struct torch_file *out)
{
    struct pickle_node *root = NULL;

    TRY(archive_read_byte_order(zip, &w->is_big, w->err));
    TRY(archive_read_pickle(zip, ARCHIVE_LARGE_MAX_PICKLE_BYTES, w->arena, &root, w->err));
    w->arena->limit_bytes = 0; /* the directory limits the names of members */
    TRY(index_members(w));
    TRY(walk_with_limits(w, root, archive_zip_find(zip, "data.pkl")->size));
    w->arena->limit_bytes = 0;
    TRY(check_names(w));
    out->entries = arena_copy(w->arena, w->entries, w->count * sizeof(*w->entries));
    out->count = w->count;
    return out->entries != NULL ? SIDESTEP_OK : FAIL_NOMEM(w->err, w->count * sizeof(*w->entries));
}

enum sidestep_status torch_file_read(const struct source *source, struct arena *arena,
                                     struct torch_file *out, struct sidestep_error *err)
{
    OWNED_ARCHIVE_ZIP zip = {.is_large = true};
    struct walk w = {.arena = arena, .zip = &zip, .err = err};

    *out = (struct torch_file){0};
    TRY(archive_zip_open(&zip, source, 0, source->length, err));
    enum sidestep_status status = read_entries(&w, &zip, out);
    hash_table_release(&w.members);
    free(w.entries);
    return status;
}

enum sidestep_status torch_file_write_object(const void *object, struct buffer *out,
                                             struct sidestep_error *err)
{
    OWNED_BY(sidestep_value_free) struct sidestep_value *value = NULL;

    TRY(pickle_to_plain_value(object, &value, err));
    return archive_object_write(value, out, err);
}
