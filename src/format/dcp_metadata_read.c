/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dcp_metadata_read.c -- see dcp_metadata.h: converts torch's pickle of `Metadata`, of torch 2.0
 * and later, to struct metadata.  It interprets only known classes in known places.
 */
#include "format/dcp_metadata.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "format/dcp_metadata_nodes.h"
#include "format/file_name.h"
#include "model/model.h"

#define CLASSES "torch.distributed.checkpoint.metadata "
#define OLD_CLASSES "torch.distributed._shard.sharded_tensor.metadata "
#define MEGATRONS "megatron.core.dist_checkpointing.strategies.torch MCoreMetadata"
#define MAX_FILE_NAME 4095u

/* The limit for the nodes is NODES_SLACK, plus NODES_FACTOR times the file's size. */
#define NODES_SLACK ((size_t)64 << 20)
#define NODES_FACTOR 24u

struct reader {
    struct dcp_nodes nodes;
    struct metadata *out;
    struct sidestep_error *err;
    size_t length;     /* of the pickle */
    size_t chunks;     /* read so far */
    size_t path_items; /* read so far */
};

/* ---------------------------------------------------------------- tensors */

/* As box_check(), but ECORRUPT: the box comes from the file. */
static enum sidestep_status check_box(struct reader *r, const struct box *box,
                                      const struct metadata_entry *entry)
{
    size_t item_bytes = sidestep_dtype_size(entry->dtype);

    if (box_check(box, entry->shape, item_bytes != 0 ? item_bytes : 1, r->err) == SIDESTEP_OK)
        return SIDESTEP_OK;
    if (r->err != NULL)
        r->err->status = SIDESTEP_ECORRUPT;
    return SIDESTEP_ECORRUPT;
}

static enum sidestep_status read_properties(struct reader *r, const struct pickle_node *node,
                                            struct metadata_entry *entry)
{
    const struct pickle_node *state;
    struct pickle_node *dtype, *layout, *requires_grad, *format;

    if (node == NULL || (!dcp_nodes_is_instance(node, CLASSES "TensorProperties") &&
                         !dcp_nodes_is_instance(node, OLD_CLASSES "TensorProperties")))
        return dcp_nodes_type_error(&r->nodes, node, "properties", "TensorProperties");
    state = node->as.call.state;
    if (state != NULL && state->kind == PICKLE_TUPLE && state->as.seq.count >= 5) {
        dtype = state->as.seq.items[0];
        layout = state->as.seq.items[1];
        requires_grad = state->as.seq.items[2];
        format = state->as.seq.items[3];
    } else if (state != NULL && state->kind == PICKLE_DICT &&
               state->as.seq.count / 2 <= DCP_METADATA_MAX_FIELDS) {
        dtype = dcp_nodes_field(state, "dtype");
        layout = dcp_nodes_field(state, "layout");
        requires_grad = dcp_nodes_field(state, "requires_grad");
        format = dcp_nodes_field(state, "memory_format");
    } else {
        return dcp_nodes_type_error(&r->nodes, state, "properties", "a tuple of 5 or a dict");
    }
    TRY(dcp_nodes_dtype(&r->nodes, dtype, &entry->dtype_name));
    if (layout != NULL)
        TRY(dcp_nodes_check_layout(&r->nodes, layout));
    if (format != NULL)
        TRY(dcp_nodes_check_memory_format(&r->nodes, format));
    if (requires_grad != NULL && requires_grad->kind != PICKLE_BOOL)
        return dcp_nodes_type_error(&r->nodes, requires_grad, "requires_grad", "a bool");
    entry->requires_grad = requires_grad != NULL && requires_grad->as.boolean;
    entry->dtype = sidestep_dtype_from_name(entry->dtype_name);
    return SIDESTEP_OK;
}

static enum sidestep_status read_box(struct reader *r, const struct pickle_node *node,
                                     const struct metadata_entry *entry, struct box *box)
{
    const struct pickle_node *fields;
    uint32_t ndim;

    TRY(dcp_nodes_fields(&r->nodes, node, "a chunk", CLASSES "ChunkStorageMetadata", &fields));
    TRY(dcp_nodes_size(&r->nodes, dcp_nodes_field(fields, "offsets"), "offsets", &box->ndim,
                       &box->offsets));
    TRY(dcp_nodes_size(&r->nodes, dcp_nodes_field(fields, "sizes"), "sizes", &ndim, &box->lengths));
    if (box->ndim != entry->ndim || ndim != entry->ndim)
        return FAIL(r->err, SIDESTEP_ECORRUPT,
                    "%u offsets and %u sizes for a tensor of %u dimensions", box->ndim, ndim,
                    entry->ndim);
    return check_box(r, box, entry);
}

/* Add ${box} to the chunks of entry ${i}, which have room for it. */
static enum sidestep_status add_chunk(struct reader *r, size_t i, const struct box *box)
{
    struct metadata_entry *entry = &r->out->entries[i];
    size_t existing;

    entry->chunks[entry->chunk_count].box = *box;
    TRY(chunk_table_insert(&r->out->chunks, r->out, i, entry->chunk_count, &existing, r->err));
    if (existing == SIZE_MAX) {
        entry->chunk_count++;
        return SIDESTEP_OK;
    }
    if (box_volume(box) == 0)
        return SIDESTEP_OK;
    if (box_volume(&entry->chunks[existing].box) != 0)
        return FAIL(r->err, SIDESTEP_ECORRUPT, "two chunks begin at %s",
                    display_shape(box->ndim, box->offsets).text);
    entry->chunks[existing].box = *box;
    return SIDESTEP_OK;
}

static enum sidestep_status read_chunks(struct reader *r, const struct pickle_node *list, size_t i)
{
    struct metadata_entry *entry = &r->out->entries[i];

    if (list == NULL || (list->kind != PICKLE_LIST && list->kind != PICKLE_TUPLE))
        return dcp_nodes_type_error(&r->nodes, list, "chunks", "a list");
    size_t count = list->as.seq.count;
    r->chunks += count;
    if (r->chunks > r->length / DCP_METADATA_MIN_CHUNK_BYTES)
        return FAIL(r->err, SIDESTEP_ECORRUPT, "more chunks (%zu) than the file can describe",
                    r->chunks);
    entry->chunks = arena_new(&r->out->arena, count, sizeof(*entry->chunks));
    if (entry->chunks == NULL)
        return FAIL_NOMEM(r->err, count * sizeof(*entry->chunks));
    for (size_t c = 0; c < count; c++) {
        struct box box;
        enum sidestep_status status = read_box(r, list->as.seq.items[c], entry, &box);
        if (status != SIDESTEP_OK) {
            error_wrap(r->err, "chunk %zu", c);
            return status;
        }
        TRY(add_chunk(r, i, &box));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status read_tensor(struct reader *r, const struct pickle_node *node, size_t i)
{
    struct metadata_entry *entry = &r->out->entries[i];
    const int64_t zeroes[SIDESTEP_MAX_NDIM] = {0};
    const struct pickle_node *fields;

    TRY(dcp_nodes_fields(&r->nodes, node, "the entry", CLASSES "TensorStorageMetadata", &fields));
    TRY(read_properties(r, dcp_nodes_field(fields, "properties"), entry));
    TRY(dcp_nodes_size(&r->nodes, dcp_nodes_field(fields, "size"), "size", &entry->ndim,
                       &entry->shape));
    const struct box whole = {.ndim = entry->ndim, .offsets = zeroes, .lengths = entry->shape};
    TRY(check_box(r, &whole, entry));
    return read_chunks(r, dcp_nodes_field(fields, "chunks"), i);
}

static enum sidestep_status read_entry(struct reader *r, const struct pickle_node *node, size_t i)
{
    struct metadata_entry *entry = &r->out->entries[i];

    entry->is_object = dcp_nodes_is_instance(node, CLASSES "BytesStorageMetadata");
    if (entry->is_object)
        return SIDESTEP_OK;
    enum sidestep_status status = read_tensor(r, node, i);
    if (status != SIDESTEP_OK)
        error_wrap(r->err, "tensor '%s'", display_name(entry->name).text);
    return status;
}

static enum sidestep_status read_entries(struct reader *r, const struct pickle_node *dict)
{
    if (dict == NULL || dict->kind != PICKLE_DICT)
        return dcp_nodes_type_error(&r->nodes, dict, "state_dict_metadata", "a dict");
    size_t count = dict->as.seq.count / 2;
    r->out->entries = arena_new(&r->out->arena, count, sizeof(*r->out->entries));
    if (r->out->entries == NULL)
        return FAIL_NOMEM(r->err, count * sizeof(*r->out->entries));
    for (size_t i = 0; i < count; i++)
        TRY(dcp_nodes_text(&r->nodes, dict->as.seq.items[2 * i], "a name of state_dict_metadata",
                           SIDESTEP_MAX_NAME, &r->out->entries[i].name));
    r->out->count = count;
    TRY(metadata_index_names(r->out, r->err));
    for (size_t i = 0; i < count; i++)
        TRY(read_entry(r, dict->as.seq.items[2 * i + 1], i));
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- storage_data */

/* Join a list of names with commas. */
static enum sidestep_status read_transforms(struct reader *r, struct pickle_node *list,
                                            const char **transform)
{
    char text[DCP_METADATA_MAX_TRANSFORMS * (DCP_METADATA_MAX_TRANSFORM_NAME + 1)] = "";
    size_t used = 0;

    if (list == NULL)
        return SIDESTEP_OK;
    if (list->kind != PICKLE_LIST)
        return dcp_nodes_type_error(&r->nodes, list, "transform_descriptors", "a list");
    if (list->as.seq.count > DCP_METADATA_MAX_TRANSFORMS)
        return FAIL(r->err, SIDESTEP_EUNSUPPORTED, "%zu transforms of one item, the limit is %u",
                    list->as.seq.count, DCP_METADATA_MAX_TRANSFORMS);
    for (size_t i = 0; list->kept == NULL && i < list->as.seq.count; i++) {
        const char *name;
        TRY(dcp_nodes_text(&r->nodes, list->as.seq.items[i], "a transform",
                           DCP_METADATA_MAX_TRANSFORM_NAME, &name));
        if (name[0] == '\0' || strchr(name, ',') != NULL)
            return FAIL(r->err, SIDESTEP_EUNSUPPORTED, "a transform is called '%s'",
                        display_name(name).text);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i != 0 ? "," : "", name);
    }
    if (list->kept == NULL && used != 0) {
        list->kept = arena_strndup(&r->out->arena, text, used);
        if (list->kept == NULL)
            return FAIL_NOMEM(r->err, used + 1);
    }
    *transform = list->kept;
    return SIDESTEP_OK;
}

static enum sidestep_status read_storage(struct reader *r, const struct pickle_node *node,
                                         struct metadata_storage *storage)
{
    const struct pickle_node *fields;
    struct metadata_storage read = {0};

    TRY(dcp_nodes_fields(&r->nodes, node, "the storage entry",
                         "torch.distributed.checkpoint.filesystem _StorageInfo", &fields));
    TRY(dcp_nodes_text(&r->nodes, dcp_nodes_field(fields, "relative_path"), "relative_path",
                       MAX_FILE_NAME, &read.file));
    if (!file_name_is_beneath(read.file, strlen(read.file)))
        return FAIL(r->err, SIDESTEP_EUNSAFE, "the file name '%s' leads out of the checkpoint",
                    display_name(read.file).text);
    TRY(dcp_nodes_count(&r->nodes, dcp_nodes_field(fields, "offset"), "offset", &read.offset));
    TRY(dcp_nodes_count(&r->nodes, dcp_nodes_field(fields, "length"), "length", &read.length));
    if (read.length > INT64_MAX - read.offset)
        return FAIL(r->err, SIDESTEP_ECORRUPT, "offset and length exceed 63 bits");
    TRY(read_transforms(r, dcp_nodes_field(fields, "transform_descriptors"), &read.transform));
    if (storage->file != NULL)
        return FAIL(r->err, SIDESTEP_ECORRUPT, "two storage entries for the same item");
    *storage = read;
    return SIDESTEP_OK;
}

/* Find the storage of the item that a MetadataIndex means.  NULL: there is no such item. */
static enum sidestep_status find_item(struct reader *r, const struct pickle_node *key,
                                      const char **name, struct metadata_storage **storage)
{
    const struct pickle_node *fields, *offset;
    const int64_t *offsets;
    uint32_t ndim;

    *storage = NULL;
    TRY(dcp_nodes_fields(&r->nodes, key, "a key of storage_data", CLASSES "MetadataIndex",
                         &fields));
    TRY(dcp_nodes_text(&r->nodes, dcp_nodes_field(fields, "fqn"), "a name of storage_data",
                       SIDESTEP_MAX_NAME, name));
    size_t i = hash_table_find(&r->out->names, *name);
    if (i == SIZE_MAX)
        return SIDESTEP_OK;
    struct metadata_entry *entry = &r->out->entries[i];
    offset = dcp_nodes_field(fields, "offset");
    if (entry->is_object || offset == NULL) {
        *storage = entry->is_object && offset == NULL ? &entry->storage : NULL;
        return SIDESTEP_OK;
    }
    TRY(dcp_nodes_size(&r->nodes, offset, "the offset of a key of storage_data", &ndim, &offsets));
    if (ndim != entry->ndim)
        return SIDESTEP_OK;
    size_t c = chunk_table_find(&r->out->chunks, r->out, i, offsets);
    *storage = c != SIZE_MAX ? &entry->chunks[c].storage : NULL;
    return SIDESTEP_OK;
}

static enum sidestep_status read_storage_data(struct reader *r, const struct pickle_node *dict)
{
    if (dict == NULL)
        return SIDESTEP_OK;
    if (dict->kind != PICKLE_DICT)
        return dcp_nodes_type_error(&r->nodes, dict, "storage_data", "a dict");
    for (size_t i = 0; i < dict->as.seq.count; i += 2) {
        struct metadata_storage *storage;
        const char *name;
        TRY(find_item(r, dict->as.seq.items[i], &name, &storage));
        if (storage == NULL)
            continue;
        enum sidestep_status status = read_storage(r, dict->as.seq.items[i + 1], storage);
        if (status != SIDESTEP_OK) {
            error_wrap(r->err, "storage_data of '%s'", display_name(name).text);
            return status;
        }
    }
    return SIDESTEP_OK;
}

/* Write offsets as torch shows them, "(0, 4)".  A long text is cut. */
static void show_offsets(const struct box *box, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "(");

    for (uint32_t d = 0; d < box->ndim && used + 32 < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d != 0 ? ", " : "",
                                 (long long)box->offsets[d]);
    snprintf(text + used, size - used, ")");
}

static enum sidestep_status check_storage(struct reader *r)
{
    char text[160];

    for (size_t i = 0; i < r->out->count; i++) {
        const struct metadata_entry *entry = &r->out->entries[i];
        if (entry->is_object && entry->storage.file == NULL)
            return FAIL(r->err, SIDESTEP_ECORRUPT, "object '%s' has no storage entry",
                        display_name(entry->name).text);
        for (size_t c = 0; c < entry->chunk_count; c++) {
            if (entry->chunks[c].storage.file != NULL)
                continue;
            show_offsets(&entry->chunks[c].box, text, sizeof(text));
            return FAIL(r->err, SIDESTEP_ECORRUPT, "tensor '%s': chunk at %s has no storage entry",
                        display_name(entry->name).text, text);
        }
    }
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- the rest */

static bool is_path(const struct pickle_node *node)
{
    if (node->kind != PICKLE_TUPLE && node->kind != PICKLE_LIST)
        return false;
    for (size_t i = 0; i < node->as.seq.count && i <= SIDESTEP_MAX_PATH_ITEMS; i++)
        if (node->as.seq.items[i]->kind != PICKLE_STR && node->as.seq.items[i]->kind != PICKLE_INT)
            return false;
    return true;
}

static enum sidestep_status read_path(struct reader *r, const struct pickle_node *node,
                                      struct metadata_entry *entry)
{
    size_t count = node->as.seq.count;
    struct sidestep_path_item *path;

    if (count > SIDESTEP_MAX_PATH_ITEMS)
        return FAIL(r->err, SIDESTEP_EUNSUPPORTED, "'%s' lies %zu levels deep, the limit is %d",
                    display_name(entry->name).text, count, SIDESTEP_MAX_PATH_ITEMS);
    r->path_items += count;
    if (r->path_items > r->length / DCP_METADATA_MIN_PATH_BYTES)
        return FAIL(r->err, SIDESTEP_ECORRUPT, "planner_data is longer than the file can describe");
    path = arena_new(&r->out->arena, count, sizeof(*path));
    if (path == NULL)
        return FAIL_NOMEM(r->err, count * sizeof(*path));
    for (size_t i = 0; i < count; i++) {
        struct pickle_node *item = node->as.seq.items[i];
        if (item->kind == PICKLE_INT)
            path[i].index = item->as.integer;
        else
            TRY(dcp_nodes_text(&r->nodes, item, "a key of planner_data", SIDESTEP_MAX_NAME,
                               &path[i].key));
    }
    entry->path = path;
    entry->path_length = (uint32_t)count;
    return SIDESTEP_OK;
}

/* Read paths like those of the default planner, for names that exist.  Ignore the rest: other
 * planners may store anything here. */
static enum sidestep_status read_planner_data(struct reader *r, const struct pickle_node *dict)
{
    for (size_t k = 0; dict != NULL && dict->kind == PICKLE_DICT && k < dict->as.seq.count;
         k += 2) {
        struct pickle_node *key = dict->as.seq.items[k], *path = dict->as.seq.items[k + 1];
        if (key->kind != PICKLE_STR || strlen(key->as.text.bytes) != key->as.text.length)
            continue;
        size_t i = hash_table_find(&r->out->names, key->as.text.bytes);
        if (i != SIZE_MAX && is_path(path))
            TRY(read_path(r, path, &r->out->entries[i]));
    }
    return SIDESTEP_OK;
}

/* Read the positions in a tuple as bits.  They must ascend, so that there is one way to write
 * them. */
static enum sidestep_status read_positions(struct reader *r, const struct pickle_node *tuple,
                                           uint64_t *positions)
{
    uint64_t position, next = 0;

    *positions = 0;
    if (tuple->kind != PICKLE_TUPLE || tuple->as.seq.count > SIDESTEP_MAX_PATH_ITEMS)
        return dcp_nodes_type_error(&r->nodes, tuple, "a value of " DCP_METADATA_INT_KEYS,
                                    "a short tuple");
    for (size_t i = 0; i < tuple->as.seq.count; i++, next = position + 1) {
        TRY(dcp_nodes_count(&r->nodes, tuple->as.seq.items[i],
                            "a position of " DCP_METADATA_INT_KEYS, &position));
        if (position < next || position >= SIDESTEP_MAX_PATH_ITEMS)
            return FAIL(r->err, SIDESTEP_ECORRUPT,
                        DCP_METADATA_INT_KEYS ": position %llu is out of order or too large",
                        (unsigned long long)position);
        *positions |= (uint64_t)1 << position;
    }
    return SIDESTEP_OK;
}

/* Read which keys of paths are integers, from our own attribute.  Ignore names that do not exist: a
 * tool may have removed their entries. */
static enum sidestep_status read_int_keys(struct reader *r, const struct pickle_node *dict)
{
    if (dict != NULL && dict->kind != PICKLE_DICT)
        return dcp_nodes_type_error(&r->nodes, dict, DCP_METADATA_INT_KEYS, "a dict");
    for (size_t k = 0; dict != NULL && k < dict->as.seq.count; k += 2) {
        uint64_t positions;
        const char *name;

        TRY(dcp_nodes_text(&r->nodes, dict->as.seq.items[k], "a name of " DCP_METADATA_INT_KEYS,
                           SIDESTEP_MAX_NAME, &name));
        TRY(read_positions(r, dict->as.seq.items[k + 1], &positions));
        size_t i = hash_table_find(&r->out->names, name);
        if (i == SIZE_MAX || r->out->entries[i].path_length == 0)
            continue;
        struct metadata_entry *entry = &r->out->entries[i];
        /* The path is in our arena; it is const only for others. */
        if (!path_set_int_keys((struct sidestep_path_item *)(uintptr_t)entry->path,
                               entry->path_length, positions))
            return FAIL(r->err, SIDESTEP_ECORRUPT,
                        "'%s': " DCP_METADATA_INT_KEYS " names keys that are not integers",
                        display_name(name).text);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status read_storage_meta(struct reader *r, const struct pickle_node *node)
{
    const struct pickle_node *fields;

    if (node == NULL)
        return SIDESTEP_OK;
    TRY(dcp_nodes_fields(&r->nodes, node, "storage_meta", CLASSES "StorageMeta", &fields));
    struct pickle_node *checkpoint_id = dcp_nodes_field(fields, "checkpoint_id");
    struct pickle_node *save_id = dcp_nodes_field(fields, "save_id");
    if (checkpoint_id != NULL)
        TRY(dcp_nodes_path(&r->nodes, checkpoint_id, "checkpoint_id", &r->out->checkpoint_id));
    if (save_id != NULL)
        TRY(dcp_nodes_text(&r->nodes, save_id, "save_id", SIDESTEP_MAX_NAME, &r->out->save_id));
    return SIDESTEP_OK;
}

/* Megatron-core before 0.16 saves a subclass with one more field, which no load needs. */
static const char *class_of_root(const struct pickle_node *root)
{
    return root != NULL && dcp_nodes_is_instance(root, MEGATRONS) ? MEGATRONS : CLASSES "Metadata";
}

static enum sidestep_status read_root(struct reader *r, const struct pickle_node *root)
{
    const struct pickle_node *fields;

    TRY(dcp_nodes_fields(&r->nodes, root, "the root", class_of_root(root), &fields));
    TRY(read_entries(r, dcp_nodes_field(fields, "state_dict_metadata")));
    TRY(read_storage_data(r, dcp_nodes_field(fields, "storage_data")));
    TRY(check_storage(r));
    TRY(read_planner_data(r, dcp_nodes_field(fields, "planner_data")));
    TRY(read_int_keys(r, dcp_nodes_field(fields, DCP_METADATA_INT_KEYS)));
    return read_storage_meta(r, dcp_nodes_field(fields, "storage_meta"));
}

enum sidestep_status dcp_metadata_read(const void *bytes, size_t length, struct metadata *out,
                                       struct sidestep_error *err)
{
    OWNED_METADATA metadata = {0};
    OWNED_ARENA nodes = {.limit_bytes = NODES_SLACK + NODES_FACTOR * length};
    struct pickle_node *root;
    struct reader r = {.nodes = {.arena = &metadata.arena, .err = err},
                       .out = &metadata,
                       .err = err,
                       .length = length};

    if (length > DCP_METADATA_MAX_BYTES)
        return FAIL(err, SIDESTEP_ECORRUPT, "%zu bytes of metadata, the limit is %llu", length,
                    (unsigned long long)DCP_METADATA_MAX_BYTES);
    TRY(pickle_parse(&nodes, bytes, length, NULL, &root, err));
    TRY(read_root(&r, root));
    chunk_table_release(&metadata.chunks);
    *out = metadata;
    metadata = (struct metadata){0};
    return SIDESTEP_OK;
}
