/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_list_read.c -- takes from a list of chunks what a state needs; see chunk_list.h. */
#include "checkpoint/chunk_list.h"

#include <stdlib.h>
#include <string.h>

/* A tensor with more shards than this on one rank gets all of its chunks: load_plan_build() has a
 * faster way to find those that overlap. */
#define MAX_SHARDS_COMPARED 16u

struct kept_chunk {
    size_t entry;
    struct metadata_chunk chunk;
};

/* An entry and what the state has under its name. */
struct listed_name {
    struct metadata_entry entry;
    const struct state_entry *wanted; /* the first; NULL: none */
};

struct list_reader {
    struct cursor cursor;
    const struct chunk_list_wish *wish;
    struct metadata *out;
    struct listed_name *names;
    size_t name_capacity;
    size_t next; /* the name after the one found last: lists of ranks have the same order */
    struct kept_chunk *kept;
    size_t kept_count, kept_capacity;
    /* The current record. */
    struct chunk_record record;
    bool has_shape;
    char name[SIDESTEP_MAX_NAME + 1];
    int64_t shape[SIDESTEP_MAX_NDIM];
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];
    char transform[FOOTER_MAX_TRANSFORM_BYTES + 1];
};

static void list_reader_free(struct list_reader **reader)
{
    if (*reader == NULL)
        return;
    free((*reader)->names);
    free((*reader)->kept);
    free(*reader);
}

/* ---- one record */

static uint64_t get_number(struct cursor *c)
{
    uint64_t number = 0;

    for (unsigned shift = 0; shift < 63; shift += 7) {
        uint8_t byte = cursor_u8(c);
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return number;
    }
    c->overrun = true; /* no number here has 64 bits */
    return 0;
}

static void get_numbers(struct cursor *c, int64_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = (int64_t)get_number(c);
}

/* Read a text to to[begin ..], of at most ${most} bytes with those before it. */
static void get_text(struct cursor *c, char *to, size_t begin, size_t most)
{
    uint64_t length = get_number(c);
    const uint8_t *bytes = length <= most - begin ? cursor_take(c, (size_t)length) : NULL;

    if (bytes == NULL || memchr(bytes, 0, (size_t)length) != NULL) {
        c->overrun = true;
        return;
    }
    memcpy(to + begin, bytes, (size_t)length);
    to[begin + length] = '\0';
}

static void get_name(struct list_reader *l)
{
    uint64_t common = get_number(&l->cursor);

    if (common > strlen(l->name))
        l->cursor.overrun = true;
    else
        get_text(&l->cursor, l->name, (size_t)common, SIDESTEP_MAX_NAME);
    l->record.name = l->name;
}

static void get_shape(struct list_reader *l)
{
    uint64_t ndim = get_number(&l->cursor);

    if (ndim > SIDESTEP_MAX_NDIM) {
        l->cursor.overrun = true;
        return;
    }
    l->record.ndim = (uint32_t)ndim;
    get_numbers(&l->cursor, l->shape, l->record.ndim);
    l->has_shape = true;
}

static void get_tensor(struct list_reader *l, uint8_t flags)
{
    struct chunk_record *record = &l->record;

    record->dtype = (enum sidestep_dtype)cursor_u8(&l->cursor);
    if (sidestep_dtype_size(record->dtype) == 0)
        l->cursor.overrun = true;
    if ((flags & CHUNK_LIST_SAME_SHAPE) == 0)
        get_shape(l);
    else if (!l->has_shape)
        l->cursor.overrun = true;
    if ((flags & CHUNK_LIST_WHOLE) != 0) {
        memset(l->offsets, 0, record->ndim * sizeof(*l->offsets));
        memcpy(l->lengths, l->shape, record->ndim * sizeof(*l->lengths));
    } else {
        get_numbers(&l->cursor, l->offsets, record->ndim);
        get_numbers(&l->cursor, l->lengths, record->ndim);
    }
    record->shape = l->shape;
    record->box = (struct box){record->ndim, l->offsets, l->lengths};
}

static enum sidestep_status get_record(struct list_reader *l, struct sidestep_error *err)
{
    struct chunk_record *record = &l->record;
    uint8_t flags = cursor_u8(&l->cursor);

    record->is_object = (flags & CHUNK_LIST_OBJECT) != 0;
    record->requires_grad = (flags & CHUNK_LIST_REQUIRES_GRAD) != 0;
    get_name(l);
    if (!record->is_object)
        get_tensor(l, flags);
    record->file = (size_t)get_number(&l->cursor);
    record->offset = get_number(&l->cursor);
    record->length = get_number(&l->cursor);
    record->transform = (flags & CHUNK_LIST_TRANSFORM) != 0 ? l->transform : NULL;
    if (record->transform != NULL)
        get_text(&l->cursor, l->transform, 0, FOOTER_MAX_TRANSFORM_BYTES);
    if (!l->cursor.overrun && (flags & ~CHUNK_LIST_ALL_FLAGS) == 0 &&
        record->file < l->wish->file_count)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EPEER,
                "the list of stored chunks that the ranks made together has an error at byte %zu: "
                "do all ranks use the same version of sidestep?",
                l->cursor.position);
}

/* ---- names */

static enum sidestep_status add_name(struct list_reader *l, const struct state_entry *wanted,
                                     struct sidestep_error *err)
{
    const struct chunk_record *record = &l->record;
    struct arena *arena = &l->out->arena;
    size_t i = l->out->count, existing;
    char *name = arena_strndup(arena, record->name, strlen(record->name));
    int64_t *shape = NULL;

    if (!record->is_object)
        shape = arena_new(arena, record->ndim, sizeof(*shape));
    if (name == NULL || (shape == NULL && !record->is_object))
        return FAIL_NOMEM(err, sizeof(l->name));
    TRY_GROW(l->names, l->name_capacity, i, err);
    TRY(hash_table_insert(&l->out->names, name, i, &existing, err));
    l->names[i] = (struct listed_name){.entry = {.name = name, .is_object = record->is_object},
                                       .wanted = wanted};
    l->out->count++;
    if (record->is_object)
        return SIDESTEP_OK;
    struct metadata_entry *entry = &l->names[i].entry;
    memcpy(shape, record->shape, record->ndim * sizeof(*shape));
    entry->dtype = record->dtype;
    entry->dtype_name = sidestep_dtype_name(record->dtype);
    entry->ndim = record->ndim;
    entry->shape = shape;
    entry->requires_grad = record->requires_grad;
    return SIDESTEP_OK;
}

static bool is_next(const struct list_reader *l, size_t i)
{
    return i < l->out->count && strcmp(l->names[i].entry.name, l->record.name) == 0;
}

/* Find the name of the record, or add it if it is wished for. SIZE_MAX: it is not. */
static enum sidestep_status find_name(struct list_reader *l, size_t *found,
                                      struct sidestep_error *err)
{
    *found = is_next(l, l->next) ? l->next
             : is_next(l, 0)     ? 0
                                 : hash_table_find(&l->out->names, l->record.name);
    if (*found == SIZE_MAX) {
        size_t first = hash_table_find(&l->wish->state->names, l->record.name);
        if (first == SIZE_MAX && !l->wish->all_names)
            return SIDESTEP_OK;
        *found = l->out->count;
        return add_name(l, first != SIZE_MAX ? &l->wish->state->entries[first] : NULL, err);
    }
    l->next = *found + 1;
    const struct metadata_entry *entry = &l->names[*found].entry;
    const struct chunk_record *record = &l->record;
    if (entry->is_object || record->is_object)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s' was saved twice", display_name(entry->name).text);
    if (entry->dtype == record->dtype && entry->ndim == record->ndim &&
        memcmp(entry->shape, record->shape, entry->ndim * sizeof(*entry->shape)) == 0)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "tensor '%s': ranks saved different shapes or dtypes",
                display_name(entry->name).text);
}

/* ---- chunks */

/* Does the chunk overlap a shard of the state? True also if that takes long to find out. */
static bool is_needed(const struct list_reader *l, const struct state_entry *shard)
{
    const struct chunk_record *record = &l->record;
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];

    for (unsigned i = 0; shard != NULL; i++) {
        if (i == MAX_SHARDS_COMPARED)
            return true;
        if (!shard->is_object && shard->ndim == record->ndim &&
            box_intersect(&record->box, &shard->box, offsets, lengths))
            return true;
        shard = shard->next_same_name != SIZE_MAX ? &l->wish->state->entries[shard->next_same_name]
                                                  : NULL;
    }
    return false;
}

static enum sidestep_status copy_storage(struct list_reader *l, struct metadata_storage *out,
                                         struct sidestep_error *err)
{
    const struct chunk_record *record = &l->record;

    *out = (struct metadata_storage){
        .file = l->wish->files[record->file], .offset = record->offset, .length = record->length};
    return arena_copy_text(&l->out->arena, record->transform, &out->transform, err);
}

static enum sidestep_status keep_chunk(struct list_reader *l, size_t entry,
                                       struct sidestep_error *err)
{
    uint32_t ndim = l->record.ndim;
    int64_t *numbers = arena_new(&l->out->arena, 2 * (size_t)ndim, sizeof(*numbers));

    if (numbers == NULL)
        return FAIL_NOMEM(err, 2 * ndim * sizeof(*numbers));
    memcpy(numbers, l->offsets, ndim * sizeof(*numbers));
    memcpy(numbers + ndim, l->lengths, ndim * sizeof(*numbers));
    TRY_GROW(l->kept, l->kept_capacity, l->kept_count, err);
    struct kept_chunk *kept = &l->kept[l->kept_count++];
    kept->entry = entry;
    kept->chunk.box = (struct box){ndim, numbers, numbers + ndim};
    l->names[entry].entry.chunk_count++;
    return copy_storage(l, &kept->chunk.storage, err);
}

static enum sidestep_status take_record(struct list_reader *l, struct sidestep_error *err)
{
    size_t i;

    TRY(find_name(l, &i, err));
    if (i == SIZE_MAX || l->names[i].wanted == NULL)
        return SIDESTEP_OK;
    if (l->record.is_object)
        return copy_storage(l, &l->names[i].entry.storage, err);
    if (box_check(&l->record.box, l->shape, sidestep_dtype_size(l->record.dtype), NULL) !=
        SIDESTEP_OK)
        return FAIL(err, SIDESTEP_ECORRUPT, "tensor '%s': a stored chunk lies outside of its shape",
                    display_name(l->record.name).text);
    return is_needed(l, l->names[i].wanted) ? keep_chunk(l, i, err) : SIDESTEP_OK;
}

/* Give each entry its chunks. */
static enum sidestep_status finish(struct list_reader *l, struct sidestep_error *err)
{
    struct metadata *out = l->out;
    struct metadata_chunk *chunks = arena_new(&out->arena, l->kept_count, sizeof(*chunks));

    out->entries = arena_new(&out->arena, out->count, sizeof(*out->entries));
    if (out->entries == NULL || chunks == NULL)
        return FAIL_NOMEM(err, out->count * sizeof(*out->entries));
    for (size_t i = 0; i < out->count; i++) {
        out->entries[i] = l->names[i].entry;
        out->entries[i].chunks = chunks;
        out->entries[i].chunk_count = 0;
        chunks += l->names[i].entry.chunk_count;
    }
    for (size_t k = 0; k < l->kept_count; k++) {
        struct metadata_entry *entry = &out->entries[l->kept[k].entry];
        entry->chunks[entry->chunk_count++] = l->kept[k].chunk;
    }
    return SIDESTEP_OK;
}

enum sidestep_status chunk_list_read(const void *bytes, size_t length,
                                     const struct chunk_list_wish *wish, struct metadata *out,
                                     struct sidestep_error *err)
{
    OWNED_BY(list_reader_free) struct list_reader *l = memory_new(1, sizeof(*l));

    if (l == NULL)
        return FAIL_NOMEM(err, sizeof(*l));
    l->cursor = cursor_from_memory(bytes, length);
    l->wish = wish;
    l->out = out;
    while (cursor_remaining(&l->cursor) != 0) {
        TRY(get_record(l, err));
        TRY(take_record(l, err));
    }
    return finish(l, err);
}
