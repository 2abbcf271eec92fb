/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * state_dict.c -- collects the tensors and objects that a rank saves or loads.
 *
 * Each function that adds an entry checks everything about it that one rank can check, and names
 * the tensor in its error.  Later stages rely on these checks.  On failure nothing changes.
 */
#include "model/state_dict.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "model/path.h"
#include "model/display.h"
#include "model/value.h"

#define MIN_CAPACITY 64u
#define TENSOR_FLAGS                                                                               \
    (SIDESTEP_TENSOR_REPLICATED | SIDESTEP_TENSOR_REQUIRES_GRAD | SIDESTEP_TENSOR_PINNED |         \
     SIDESTEP_TENSOR_CPU_WRITES | SIDESTEP_TENSOR_FENCED)
#define MAX_EXTENT_BYTES ((uint64_t)1 << 62) /* from the first to the last byte of a shard */

enum sidestep_status sidestep_state_dict_new(struct sidestep_state_dict **state,
                                             struct sidestep_error *err)
{
    if (state == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "the pointer to the new state dict is NULL");
    *state = memory_new(1, sizeof(**state));
    return *state != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, sizeof(**state));
}

void sidestep_state_dict_free(struct sidestep_state_dict **state)
{
    if (state == NULL || *state == NULL)
        return;
    for (size_t i = 0; i < (*state)->count; i++)
        state_entry_set_object(&(*state)->entries[i], NULL, NULL, 0);
    sidestep_state_dict_clear_files(*state);
    free((*state)->files);
    free((*state)->entries);
    free((*state)->box_slots);
    hash_table_release(&(*state)->names);
    arena_release(&(*state)->arena);
    free(*state);
    *state = NULL;
}

struct state_entry *state_dict_find(const struct sidestep_state_dict *state, const char *name)
{
    size_t i = hash_table_find(&state->names, name);

    return i != SIZE_MAX ? &state->entries[i] : NULL;
}

void state_entry_set_object(struct state_entry *entry, struct sidestep_value *value, void *bytes,
                            size_t length)
{
    if (entry->value != NULL)
        sidestep_value_free(&entry->value);
    free(entry->bytes);
    entry->value = value;
    entry->bytes = bytes;
    entry->length = length;
}

void state_entry_extent(const struct state_entry *entry, uint64_t *begin, uint64_t *bytes)
{
    uint64_t size = sidestep_dtype_size(entry->dtype), low = 0, high = 0;

    assert(box_volume(&entry->box) != 0);
    for (uint32_t d = 0; d < entry->ndim; d++) {
        uint64_t steps = (uint64_t)(entry->box.lengths[d] - 1);
        if (entry->strides[d] < 0)
            low += steps * (uint64_t)-entry->strides[d];
        else
            high += steps * (uint64_t)entry->strides[d];
    }
    *begin = (uint64_t)(uintptr_t)entry->data - low * size;
    *bytes = (low + high + 1) * size;
}

struct box_memory state_entry_memory(const struct state_entry *entry)
{
    return (struct box_memory){.box = entry->box,
                               .strides = entry->strides,
                               .data = entry->data,
                               .item_bytes = sidestep_dtype_size(entry->dtype)};
}

/* ---------------------------------------------------------------- names and paths */

static enum sidestep_status check_name(const char *name, struct sidestep_error *err)
{
    if (name == NULL || *name == '\0')
        return FAIL(err, SIDESTEP_EINVAL, "the name is %s", name == NULL ? "NULL" : "empty");
    size_t length = strnlen(name, SIDESTEP_MAX_NAME + 1);
    if (length > SIDESTEP_MAX_NAME)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': the name has more than %u bytes",
                    display_name(name).text, SIDESTEP_MAX_NAME);
    if (!utf8_is_valid(name, length))
        return FAIL(err, SIDESTEP_EINVAL, "'%s': the name is not UTF-8", display_name(name).text);
    return SIDESTEP_OK;
}

static enum sidestep_status check_path_item(const char *name, const struct sidestep_path_item *item,
                                            uint32_t i, struct sidestep_error *err)
{
    if ((item->flags & ~SIDESTEP_PATH_INT_KEY) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "'%s': path[%u] has flags (0x%x) that this library does not know",
                    display_name(name).text, i, item->flags & ~SIDESTEP_PATH_INT_KEY);
    if (item->reserved != 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': path[%u] has reserved fields that are not zero",
                    display_name(name).text, i);
    if (item->key == NULL) {
        if (item->index < 0 && !path_item_is_int_key(item))
            return FAIL(err, SIDESTEP_EINVAL, "'%s': path[%u] is the index %lld",
                        display_name(name).text, i, (long long)item->index);
        return SIDESTEP_OK;
    }
    if (path_item_is_int_key(item))
        return FAIL(err, SIDESTEP_EINVAL, "'%s': path[%u] is both a text and an integer key",
                    display_name(name).text, i);
    size_t length = strnlen(item->key, SIDESTEP_MAX_NAME + 1);
    if (length > SIDESTEP_MAX_NAME)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': the key path[%u] has more than %u bytes",
                    display_name(name).text, i, SIDESTEP_MAX_NAME);
    if (!utf8_is_valid(item->key, length))
        return FAIL(err, SIDESTEP_EINVAL, "'%s': the key path[%u] is not UTF-8",
                    display_name(name).text, i);
    return SIDESTEP_OK;
}

static enum sidestep_status check_path(const char *name, const struct sidestep_path_item *path,
                                       uint32_t path_length, struct sidestep_error *err)
{
    if (path_length > SIDESTEP_MAX_PATH_ITEMS)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': the path has %u items, the limit is %u",
                    display_name(name).text, path_length, SIDESTEP_MAX_PATH_ITEMS);
    if (path_length != 0 && path == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': path_length is %u, but path is NULL",
                    display_name(name).text, path_length);
    for (uint32_t i = 0; i < path_length; i++)
        TRY(check_path_item(name, &path[i], i, err));
    if (path_length != 0 && !path_matches_name(name, path, path_length))
        return FAIL(err, SIDESTEP_EINVAL,
                    "'%s': the items of its path, joined by '.', are another name",
                    display_name(name).text);
    return SIDESTEP_OK;
}

/* Copy the name and the path into ${entry}.  Without a path, the name is its one item. */
static enum sidestep_status copy_names(struct arena *arena, const char *name,
                                       const struct sidestep_path_item *path, uint32_t path_length,
                                       struct state_entry *entry, struct sidestep_error *err)
{
    entry->name = arena_strndup(arena, name, strlen(name));
    if (entry->name == NULL)
        return FAIL_NOMEM(err, strlen(name) + 1);
    entry->path_length = path_length != 0 ? path_length : 1;
    if (path_length != 0)
        return path_copy(arena, path, path_length, &entry->path, err);
    const struct sidestep_path_item item = {.key = entry->name};
    entry->path = arena_copy(arena, &item, sizeof(item));
    return entry->path != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, sizeof(item));
}

/* ---------------------------------------------------------------- the hash table of boxes */

static uint64_t hash_box(const struct sidestep_state_dict *state, size_t first,
                         const struct box *box)
{
    size_t bytes = box->ndim * sizeof(*box->offsets);
    uint64_t seed = state->names.seed + first;

    if (bytes == 0)
        return XXH3_64bits_withSeed("", 0, seed);
    seed = XXH3_64bits_withSeed(box->offsets, bytes, seed);
    return XXH3_64bits_withSeed(box->lengths, bytes, seed);
}

/* The slot of the shard with ${box} and the name of entry ${first}, or the free slot for it. */
static size_t *find_box(const struct sidestep_state_dict *state, size_t first,
                        const struct box *box)
{
    size_t mask = state->box_capacity - 1;
    size_t at = hash_box(state, first, box) & mask;

    for (; state->box_slots[at] != 0; at = (at + 1) & mask) {
        const struct state_entry *entry = &state->entries[state->box_slots[at] - 1];

        if (entry->first_same_name == first && box_equal(&entry->box, box))
            break;
    }
    return &state->box_slots[at];
}

static enum sidestep_status reserve_box(struct sidestep_state_dict *state,
                                        struct sidestep_error *err)
{
    if (state->box_count * 2 < state->box_capacity)
        return SIDESTEP_OK;
    size_t capacity = state->box_capacity != 0 ? state->box_capacity * 2 : MIN_CAPACITY;
    size_t *slots = memory_new(capacity, sizeof(*slots));
    if (slots == NULL)
        return FAIL_NOMEM(err, capacity * sizeof(*slots));
    free(state->box_slots);
    state->box_slots = slots;
    state->box_capacity = capacity;
    for (size_t i = 0; i < state->count; i++)
        if (!state->entries[i].is_object)
            *find_box(state, state->entries[i].first_same_name, &state->entries[i].box) = i + 1;
    return SIDESTEP_OK;
}

static enum sidestep_status reserve_entry(struct sidestep_state_dict *state,
                                          struct sidestep_error *err)
{
    if (state->count >= STATE_MAX_ENTRIES)
        return FAIL(err, SIDESTEP_EINVAL, "the state has %zu entries already, which is the limit",
                    state->count);
    TRY_GROW(state->entries, state->capacity, state->count, err);
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- adding tensors */

enum sidestep_status state_entry_check_memory(const struct state_entry *entry, const void *data,
                                              struct sidestep_error *err)
{
    uint64_t item = sidestep_dtype_size(entry->dtype), below = 0, above = 0;

    if (box_volume(&entry->box) == 0)
        return SIDESTEP_OK;
    if (data == NULL)
        return FAIL(err, SIDESTEP_EINVAL,
                    "'%s': the address is NULL, but the shard has %llu elements",
                    display_name(entry->name).text, (unsigned long long)box_volume(&entry->box));
    for (uint32_t d = 0; d < entry->ndim; d++) {
        int64_t stride = entry->strides[d];
        uint64_t *side = stride < 0 ? &below : &above;
        uint64_t bytes = stride < 0 ? -(uint64_t)stride : (uint64_t)stride;

        if (!checked_mul(bytes, (uint64_t)entry->box.lengths[d] - 1, &bytes) ||
            !checked_mul(bytes, item, &bytes) || !checked_add(*side, bytes, side) ||
            *side > MAX_EXTENT_BYTES)
            return FAIL(err, SIDESTEP_EINVAL,
                        "'%s': strides[%u] is %lld, which puts the shard outside of memory",
                        display_name(entry->name).text, d, (long long)stride);
    }
    if (below > (uintptr_t)data || above + item > UINTPTR_MAX - (uintptr_t)data)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': strides %s put the shard outside of memory",
                    display_name(entry->name).text,
                    display_shape(entry->ndim, entry->strides).text);
    return SIDESTEP_OK;
}

static enum sidestep_status check_header(const struct sidestep_tensor *tensor,
                                         struct sidestep_error *err)
{
    struct display_text name;

    TRY(check_name(tensor->name, err));
    name = display_name(tensor->name);
    if (sidestep_dtype_size(tensor->dtype) == 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': there is no dtype %d", name.text,
                    (int)tensor->dtype);
    if (tensor->ndim > SIDESTEP_MAX_NDIM)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': %u dimensions, the limit is %u", name.text,
                    tensor->ndim, SIDESTEP_MAX_NDIM);
    if (tensor->ndim != 0 && tensor->shape == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': the shape is NULL", name.text);
    if ((tensor->flags & ~TENSOR_FLAGS) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s': this library does not know the flags 0x%x",
                    name.text, tensor->flags & ~TENSOR_FLAGS);
    if (tensor->reserved != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s': reserved is %u", name.text,
                    tensor->reserved);
    return check_path(tensor->name, tensor->path, tensor->path_length, err);
}

/* Check that shards with one name have the same shape and dtype, and different boxes. */
static enum sidestep_status check_same_name(const struct sidestep_state_dict *state,
                                            const struct state_entry *first,
                                            const struct state_entry *entry,
                                            struct sidestep_error *err)
{
    struct display_text name = display_name(entry->name);

    if (first->is_object)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is an object of this state already", name.text);
    if (first->dtype != entry->dtype)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': dtype %s, but %s for an earlier shard", name.text,
                    sidestep_dtype_name(entry->dtype), sidestep_dtype_name(first->dtype));
    if (first->ndim != entry->ndim ||
        memcmp(first->shape, entry->shape, entry->ndim * sizeof(*entry->shape)) != 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': shape %s, but %s for an earlier shard", name.text,
                    display_shape(entry->ndim, entry->shape).text,
                    display_shape(first->ndim, first->shape).text);
    if (*find_box(state, entry->first_same_name, &entry->box) != 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': the box %s was added already", name.text,
                    display_box(&entry->box).text);
    return SIDESTEP_OK;
}

/* Copy the four arrays of ${tensor}, one behind the other.  An array that is NULL gets its
 * default. */
static enum sidestep_status copy_arrays(struct arena *arena, const struct sidestep_tensor *tensor,
                                        struct state_entry *entry, struct sidestep_error *err)
{
    size_t ndim = tensor->ndim, bytes = ndim * sizeof(int64_t);
    int64_t *numbers = arena_new(arena, 4 * ndim, sizeof(*numbers));

    if (numbers == NULL)
        return FAIL_NOMEM(err, 4 * bytes);
    int64_t *offsets = numbers + ndim, *lengths = offsets + ndim, *strides = lengths + ndim;
    if (ndim != 0) {
        memcpy(numbers, tensor->shape, bytes);
        if (tensor->offsets != NULL)
            memcpy(offsets, tensor->offsets, bytes);
        memcpy(lengths, tensor->lengths != NULL ? tensor->lengths : tensor->shape, bytes);
        if (tensor->strides != NULL)
            memcpy(strides, tensor->strides, bytes);
    }
    entry->ndim = tensor->ndim;
    entry->shape = numbers;
    entry->box = (struct box){.ndim = tensor->ndim, .offsets = offsets, .lengths = lengths};
    entry->strides = strides;
    enum sidestep_status status =
        box_check(&entry->box, entry->shape, sidestep_dtype_size(tensor->dtype), err);
    if (status != SIDESTEP_OK) {
        error_wrap(err, "'%s'", display_name(tensor->name).text);
        return status;
    }
    if (tensor->strides == NULL)
        box_row_major_strides(tensor->ndim, lengths, strides);
    return SIDESTEP_OK;
}

/* Append a checked entry.  All memory was reserved, except for the table of names. */
static enum sidestep_status append(struct sidestep_state_dict *state, struct state_entry *entry,
                                   struct sidestep_error *err)
{
    size_t index = state->count, first;

    TRY(hash_table_insert(&state->names, entry->name, index, &first, err));
    entry->next_same_name = SIZE_MAX;
    entry->first_same_name = first != SIZE_MAX ? first : index;
    entry->last_same_name = index;
    state->entries[index] = *entry;
    state->count++;
    if (first != SIZE_MAX) {
        state->entries[state->entries[first].last_same_name].next_same_name = index;
        state->entries[first].last_same_name = index;
    }
    if (!entry->is_object) {
        *find_box(state, entry->first_same_name, &entry->box) = index + 1;
        state->box_count++;
    }
    return SIDESTEP_OK;
}

enum sidestep_status state_dict_add_tensor(struct sidestep_state_dict *state,
                                           const struct sidestep_tensor *tensor,
                                           const struct state_source *reader, size_t number,
                                           struct sidestep_error *err)
{
    struct sidestep_tensor ours;
    struct state_entry entry = {.reader = reader, .reader_tensor = number};

    TRY(options_copy(&ours, sizeof(ours), tensor, "struct sidestep_tensor", err));
    TRY(check_header(&ours, err));
    TRY(reserve_entry(state, err));
    TRY(reserve_box(state, err));

    entry.dtype = ours.dtype;
    entry.data = ours.data;
    entry.flags = ours.flags;
    entry.turn = ours.turn;
    TRY(copy_arrays(&state->arena, &ours, &entry, err));
    TRY(copy_names(&state->arena, ours.name, ours.path, ours.path_length, &entry, err));
    if (reader == NULL)
        TRY(state_entry_check_memory(&entry, entry.data, err));
    const struct state_entry *first = state_dict_find(state, entry.name);
    if (first != NULL) {
        entry.first_same_name = first->first_same_name;
        TRY(check_same_name(state, first, &entry, err));
    }
    return append(state, &entry, err);
}

enum sidestep_status sidestep_state_dict_add_tensor(struct sidestep_state_dict *state,
                                                    const struct sidestep_tensor *tensor,
                                                    struct sidestep_error *err)
{
    if (state == NULL || tensor == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "the %s is NULL",
                    state == NULL ? "state dict" : "tensor");
    return state_dict_add_tensor(state, tensor, NULL, 0, err);
}

/* ---------------------------------------------------------------- objects */

/* On success, the state owns ${value} and ${bytes}. */
static enum sidestep_status add_object(struct sidestep_state_dict *state, const char *name,
                                       const struct sidestep_path_item *path, uint32_t path_length,
                                       struct sidestep_value *value, void *bytes, size_t length,
                                       struct sidestep_error *err)
{
    struct state_entry entry = {
        .is_object = true, .value = value, .bytes = bytes, .length = length};

    if (state == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "the state dict is NULL");
    TRY(check_name(name, err));
    TRY(check_path(name, path, path_length, err));
    const struct state_entry *first = state_dict_find(state, name);
    if (first != NULL)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is %s of this state already",
                    display_name(name).text, first->is_object ? "an object" : "a tensor");
    TRY(reserve_entry(state, err));
    TRY(copy_names(&state->arena, name, path, path_length, &entry, err));
    return append(state, &entry, err);
}

enum sidestep_status
sidestep_state_dict_add_value(struct sidestep_state_dict *state, const char *name,
                              const struct sidestep_path_item *path, uint32_t path_length,
                              struct sidestep_value *value, struct sidestep_error *err)
{
    return add_object(state, name, path, path_length, value, NULL, 0, err);
}

enum sidestep_status sidestep_state_dict_add_bytes(struct sidestep_state_dict *state,
                                                   const char *name,
                                                   const struct sidestep_path_item *path,
                                                   uint32_t path_length, const void *bytes,
                                                   size_t length, struct sidestep_error *err)
{
    OWNED void *copy = NULL;

    if (bytes == NULL && length != 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': %zu bytes at NULL",
                    name != NULL ? display_name(name).text : "", length);
    copy = memory_resize(NULL, length, 1);
    if (copy == NULL)
        return FAIL_NOMEM(err, length);
    if (length != 0)
        memcpy(copy, bytes, length);
    TRY(add_object(state, name, path, path_length, NULL, copy, length, err));
    copy = NULL;
    return SIDESTEP_OK;
}

const struct sidestep_value *sidestep_state_dict_value(const struct sidestep_state_dict *state,
                                                       const char *name)
{
    const struct state_entry *entry =
        state != NULL && name != NULL ? state_dict_find(state, name) : NULL;

    return entry != NULL ? entry->value : NULL;
}

const void *sidestep_state_dict_bytes(const struct sidestep_state_dict *state, const char *name,
                                      size_t *length)
{
    const struct state_entry *entry =
        state != NULL && name != NULL ? state_dict_find(state, name) : NULL;

    if (length != NULL)
        *length = entry != NULL && entry->bytes != NULL ? entry->length : 0;
    return entry != NULL ? entry->bytes : NULL;
}
