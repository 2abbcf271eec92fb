/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_rebuild.c -- see archive_rebuild.h.  Two calls make a plain tensor:
 *
 *   _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata])
 *   _rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype[, metadata])
 *
 * Both are in torch._utils.  storage is the persistent id ('storage', class, key, location, count).
 */
#include "format/archive_rebuild.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "format/archive_dtype.h"
#include "format/archive_zip.h"
#include "model/model.h"

#define MAX_TENSOR_BYTES ((uint64_t)1 << 62)

#define NO_CLASS SIZE_MAX

/* Other functions of torch, what they make, and which argument is its class. */
static const struct {
    const char *function;
    const char *makes;
    size_t class;
} other_functions[] = {
    {"torch._utils _rebuild_qtensor", "a quantised tensor", NO_CLASS},
    {"torch._utils _rebuild_sparse_tensor", "a sparse tensor", NO_CLASS},
    {"torch._utils _rebuild_sparse_csr_tensor", "a sparse tensor", NO_CLASS},
    {"torch._utils _rebuild_nested_tensor", "a nested tensor", NO_CLASS},
    {"torch._utils _rebuild_meta_tensor_no_storage", "a tensor without data", NO_CLASS},
    {"torch._utils _rebuild_wrapper_subclass", "a tensor subclass", 0},
    {"torch._tensor _rebuild_from_type_v2", "a tensor subclass", 1},
    {"torch._utils _rebuild_parameter", "a parameter", NO_CLASS},
    {"torch._utils _rebuild_parameter_with_state", "a parameter", NO_CLASS},
    {"torch._utils _rebuild_device_tensor_from_numpy", "a tensor of a device without storages",
     NO_CLASS},
    {"torch._utils _rebuild_device_tensor_from_cpu_tensor", "a tensor of a device without storages",
     NO_CLASS},
};

/* The call, with its arguments by name. */
struct rebuild {
    bool is_v3;
    const struct pickle_node *storage;
    const struct pickle_node *offset;
    const struct pickle_node *size;
    const struct pickle_node *stride;
    const struct pickle_node *hooks;
    const struct pickle_node *dtype;    /* only in v3 */
    const struct pickle_node *metadata; /* NULL: none */
};

static bool is_tuple(const struct pickle_node *node, size_t count)
{
    return node != NULL && node->kind == PICKLE_TUPLE && node->as.seq.count == count;
}

static bool is_count(const struct pickle_node *node)
{
    return node->kind == PICKLE_INT && node->as.integer >= 0;
}

static bool is_text(const struct pickle_node *node)
{
    return node->kind == PICKLE_STR && strlen(node->as.text.bytes) == node->as.text.length;
}

/* The class that is argument ${i} of a call; empty: it is no class. */
static struct display_text class_of(const struct pickle_node *call, size_t i)
{
    const struct pickle_node *class = i != NO_CLASS ? pickle_argument(call, i) : NULL;

    return pickle_is_kind(class, PICKLE_GLOBAL) ? pickle_global_text(class)
                                                : (struct display_text){""};
}

/* The index in other_functions; SIZE_MAX: it is another one. */
static size_t find_maker(const struct pickle_node *callable)
{
    for (size_t i = 0; i < ARRAY_LENGTH(other_functions); i++)
        if (pickle_is_global(callable, other_functions[i].function))
            return i;
    return SIZE_MAX;
}

static enum sidestep_status refuse_call(const struct pickle_node *call, struct sidestep_error *err)
{
    const struct pickle_node *callable = call->as.call.callable;

    if (callable == NULL || callable->kind != PICKLE_GLOBAL)
        return FAIL(err, SIDESTEP_EUNSAFE, "archive: data.pkl calls something without a name");
    size_t maker = find_maker(callable);
    if (maker != SIZE_MAX) {
        struct display_text class = class_of(call, other_functions[maker].class);
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "it is %s%s%s (%s), and only plain tensors can be read",
                    other_functions[maker].makes, class.text[0] != '\0' ? ", " : "", class.text,
                    strchr(other_functions[maker].function, ' ') + 1);
    }
    return FAIL(err, SIDESTEP_EUNSAFE, "archive: data.pkl calls '%s', which does not make a tensor",
                display_name(callable->as.text.bytes).text);
}

static enum sidestep_status match_call(const struct pickle_node *root, struct rebuild *call,
                                       struct sidestep_error *err)
{
    if (root->kind != PICKLE_REDUCE)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: data.pkl holds an object, not a tensor");
    bool is_v2 = pickle_is_global(root->as.call.callable, "torch._utils _rebuild_tensor_v2");
    call->is_v3 = pickle_is_global(root->as.call.callable, "torch._utils _rebuild_tensor_v3");
    if (!is_v2 && !call->is_v3)
        return refuse_call(root, err);

    const struct pickle_node *args = root->as.call.args;
    size_t count = call->is_v3 ? 7 : 6;
    if ((!is_tuple(args, count) && !is_tuple(args, count + 1)) || root->as.call.items != NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: wrong arguments for _rebuild_tensor_v%d",
                    call->is_v3 ? 3 : 2);
    if (root->as.call.state != NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "archive: the tensor has attributes");
    struct pickle_node *const *items = args->as.seq.items;
    call->storage = items[0];
    call->offset = items[1];
    call->size = items[2];
    call->stride = items[3];
    call->hooks = items[5];
    call->dtype = call->is_v3 ? items[6] : NULL;
    call->metadata = args->as.seq.count > count ? items[count] : NULL;
    return SIDESTEP_OK;
}

/* Hooks are functions.  A plain tensor has an empty OrderedDict() of them. */
static enum sidestep_status check_hooks(const struct pickle_node *hooks, struct sidestep_error *err)
{
    bool is_empty = hooks->kind == PICKLE_NONE ||
                    (hooks->kind == PICKLE_DICT && hooks->as.seq.count == 0) ||
                    (hooks->kind == PICKLE_REDUCE && hooks->as.call.items == NULL &&
                     hooks->as.call.state == NULL && is_tuple(hooks->as.call.args, 0) &&
                     pickle_is_global(hooks->as.call.callable, "collections OrderedDict"));

    return is_empty ? SIDESTEP_OK
                    : FAIL(err, SIDESTEP_EUNSUPPORTED, "archive: the tensor has backward hooks");
}

static enum sidestep_status read_dtype(const struct pickle_node *class,
                                       const struct pickle_node *dtype, enum sidestep_dtype *out,
                                       struct sidestep_error *err)
{
    const struct pickle_node *named = dtype != NULL ? dtype : class;

    *out = SIDESTEP_DTYPE_NONE;
    if (named->kind != PICKLE_GLOBAL)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: the tensor's type has no name");
    if (dtype == NULL)
        *out = archive_dtype_from_storage(class->as.text.bytes);
    else if (!pickle_is_global(class, ARCHIVE_UNTYPED_STORAGE))
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: _rebuild_tensor_v3 without UntypedStorage");
    else if (strncmp(dtype->as.text.bytes, "torch ", 6) == 0 &&
             strchr(dtype->as.text.bytes, '.') == NULL)
        *out = sidestep_dtype_from_name(dtype->as.text.bytes + 6);
    if (*out == SIDESTEP_DTYPE_NONE)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "archive: the type '%s' cannot be read",
                    display_name(named->as.text.bytes).text);
    return SIDESTEP_OK;
}

static enum sidestep_status read_storage(const struct rebuild *call, struct archive_tensor *tensor,
                                         struct archive_storage *storage,
                                         struct sidestep_error *err)
{
    const struct pickle_node *id =
        call->storage->kind == PICKLE_PERSID ? call->storage->as.call.args : NULL;

    if (!is_tuple(id, 5) || !is_text(id->as.seq.items[0]) ||
        strcmp(id->as.seq.items[0]->as.text.bytes, "storage") != 0 ||
        !is_text(id->as.seq.items[2]) || !is_count(id->as.seq.items[4]))
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: the tensor's storage is not a storage");
    TRY(read_dtype(id->as.seq.items[1], call->dtype, &tensor->dtype, err));
    uint64_t count = (uint64_t)id->as.seq.items[4]->as.integer;
    uint64_t unit = call->is_v3 ? 1 : sidestep_dtype_size(tensor->dtype);
    if (!checked_mul(count, unit, &storage->bytes) || storage->bytes > MAX_TENSOR_BYTES)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: a storage of %llu elements is too large",
                    (unsigned long long)count);
    storage->key = id->as.seq.items[2]->as.text.bytes;
    return SIDESTEP_OK;
}

static enum sidestep_status read_geometry(const struct rebuild *call, struct archive_tensor *tensor,
                                          struct sidestep_error *err)
{
    if (call->size->kind != PICKLE_TUPLE || call->stride->kind != PICKLE_TUPLE ||
        call->size->as.seq.count != call->stride->as.seq.count || !is_count(call->offset))
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: damaged size, stride or offset");
    size_t ndim = call->size->as.seq.count;
    if (ndim > SIDESTEP_MAX_NDIM)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "archive: %zu dimensions are more than %d", ndim,
                    SIDESTEP_MAX_NDIM);
    for (size_t i = 0; i < ndim; i++) {
        const struct pickle_node *length = call->size->as.seq.items[i];
        const struct pickle_node *stride = call->stride->as.seq.items[i];

        if (!is_count(length) || !is_count(stride))
            return FAIL(err, SIDESTEP_ECORRUPT,
                        "archive: the length or stride of dimension %zu is not a number >= 0", i);
        tensor->shape[i] = length->as.integer;
        tensor->strides[i] = stride->as.integer;
    }
    tensor->ndim = (uint32_t)ndim;
    tensor->storage_offset = (uint64_t)call->offset->as.integer;
    return SIDESTEP_OK;
}

/* Check that all elements lie inside the storage.  All sizes are >= 0.  Strides of 0 can make the
 * volume larger than the storage, so the volume has a limit of its own.  There, dimensions of 0
 * count as 1, so that no product of lengths overflows later. */
static enum sidestep_status check_bounds(struct archive_tensor *tensor, uint64_t storage_bytes,
                                         struct sidestep_error *err)
{
    uint64_t item = sidestep_dtype_size(tensor->dtype);
    uint64_t volume = item;
    uint64_t last = tensor->storage_offset; /* the element with the highest address */
    bool fits = true;
    bool is_empty = false;

    for (uint32_t i = 0; i < tensor->ndim; i++) {
        uint64_t length = (uint64_t)tensor->shape[i];
        uint64_t reach = 0;

        is_empty = is_empty || length == 0;
        if (!checked_mul(volume, max_u64(length, 1), &volume) || volume > MAX_TENSOR_BYTES)
            return FAIL(err, SIDESTEP_ECORRUPT, "archive: shape %s is too large",
                        display_shape(tensor->ndim, tensor->shape).text);
        fits = fits && checked_mul(max_u64(length, 1) - 1, (uint64_t)tensor->strides[i], &reach) &&
               checked_add(last, reach, &last);
    }
    uint64_t elements = storage_bytes / item;
    if (is_empty ? tensor->storage_offset > elements : !fits || last >= elements)
        return FAIL(
            err, SIDESTEP_ECORRUPT, "archive: shape %s does not fit its storage of %llu bytes",
            display_shape(tensor->ndim, tensor->shape).text, (unsigned long long)storage_bytes);
    tensor->row_major = box_is_row_major(tensor->ndim, tensor->shape, tensor->strides);
    return SIDESTEP_OK;
}

static enum sidestep_status read_flag(const struct pickle_node *key,
                                      const struct pickle_node *value,
                                      struct archive_tensor *tensor, struct sidestep_error *err)
{
    if (!is_text(key) || value->kind != PICKLE_BOOL)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: the tensor's metadata is damaged");
    if (strcmp(key->as.text.bytes, "conj") == 0)
        tensor->conjugate = value->as.boolean;
    else if (strcmp(key->as.text.bytes, "neg") == 0)
        tensor->negative = value->as.boolean;
    else
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "archive: unknown metadata '%s' of the tensor",
                    display_name(key->as.text.bytes).text);
    return SIDESTEP_OK;
}

static enum sidestep_status read_metadata(const struct pickle_node *metadata,
                                          struct archive_tensor *tensor, struct sidestep_error *err)
{
    const struct archive_dtype *dtype = archive_dtype_of(tensor->dtype);

    if (metadata == NULL || metadata->kind == PICKLE_NONE)
        return SIDESTEP_OK;
    if (metadata->kind != PICKLE_DICT)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: the tensor's metadata is damaged");
    for (size_t i = 0; i + 1 < metadata->as.seq.count; i += 2)
        TRY(read_flag(metadata->as.seq.items[i], metadata->as.seq.items[i + 1], tensor, err));
    if (tensor->conjugate && !dtype->is_complex)
        return FAIL(err, SIDESTEP_ECORRUPT, "archive: a %s tensor has no conjugate",
                    sidestep_dtype_name(tensor->dtype));
    if (tensor->negative && dtype->negation == ARCHIVE_NEGATE_NEVER)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "archive: negation of a %s tensor",
                    sidestep_dtype_name(tensor->dtype));
    return SIDESTEP_OK;
}

enum sidestep_status archive_rebuild_parse_tensor(const struct pickle_node *root,
                                                  struct archive_tensor *tensor,
                                                  struct archive_storage *storage,
                                                  struct sidestep_error *err)
{
    struct rebuild call = {0};

    TRY(match_call(root, &call, err));
    TRY(check_hooks(call.hooks, err));
    TRY(read_storage(&call, tensor, storage, err));
    TRY(read_geometry(&call, tensor, err));
    TRY(check_bounds(tensor, storage->bytes, err));
    return read_metadata(call.metadata, tensor, err);
}

struct display_text archive_rebuild_describe(const struct pickle_node *call)
{
    size_t maker = find_maker(call->as.call.callable);
    struct display_text text = {""};

    if (maker == SIZE_MAX)
        return text;
    text = class_of(call, other_functions[maker].class);
    if (text.text[0] == '\0')
        snprintf(text.text, sizeof(text.text), "%s", other_functions[maker].makes);
    return text;
}

enum sidestep_status archive_rebuild_set_data(struct archive_tensor *tensor,
                                              const struct archive_storage *storage,
                                              const struct archive_member *member, bool is_big,
                                              struct sidestep_error *err)
{
    if (member->size != storage->bytes)
        return FAIL(err, SIDESTEP_ECORRUPT, "data/%s has %llu bytes, data.pkl wants %llu",
                    display_name(storage->key).text, (unsigned long long)member->size,
                    (unsigned long long)storage->bytes);
    tensor->data_offset = member->data_offset;
    tensor->data_bytes = member->size;
    tensor->data_crc = member->crc;
    tensor->has_crc = member->has_crc;
    tensor->swapped = is_big && archive_dtype_of(tensor->dtype)->component_bytes > 1;
    return SIDESTEP_OK;
}
