/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_list_read.c -- see chunk_list.h: takes what a state needs from a list of chunks. */
#include "format/chunk_list.h"

#include <stdlib.h>
#include <string.h>

/* A tensor with more shards than this on one rank gets all of its chunks, because load_plan_build()
 * finds faster which of them overlap. */
#define MAX_SHARDS_COMPARED 16u

/* Chunks are allocated so many at a time. */
#define CHUNKS_AT_ONCE 1024u

/* What belongs to an entry of the result. */
struct listed_name {
    const struct state_entry *wanted; /* its first shard; NULL: the state does not have it */
    size_t place;                     /* in .metadata, if everything is taken */
};

struct chunk_list_reader {
    struct cursor cursor;
    const struct chunk_list_filter *filter;
    struct metadata *out;
    struct metadata_entry
        *entries; /* in the arena of ${out}, or if everything is taken, allocated */
    size_t entry_capacity;
    struct listed_name *names; /* of the entries */
    size_t name_capacity;
    size_t found;                  /* the name of the previous record; SIZE_MAX: it is not taken */
    size_t next_in_state;          /* the entry after the one that was found last */
    struct metadata_chunk *chunks; /* the next to use ... */
    size_t chunks_left;            /* ... and how many follow it */
    /* The current record. */
    struct chunk_record record;
    bool has_shape;
    bool is_joined;
    bool has_same_name; /* as the previous record */
    char name[SIDESTEP_MAX_NAME + 1];
    int64_t shape[SIDESTEP_MAX_NDIM];
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];
    char transform[FOOTER_MAX_TRANSFORM_BYTES + 1];
    struct sidestep_path_item path[SIDESTEP_MAX_PATH_ITEMS];
    struct arena texts; /* of the path */
};

static bool takes_everything(const struct chunk_list_reader *l)
{
    return l->filter->state == NULL;
}

void chunk_list_reader_free(struct chunk_list_reader **reader)
{
    if (*reader == NULL)
        return;
    arena_release(&(*reader)->texts);
    if (takes_everything(*reader))
        free((*reader)->entries);
    free((*reader)->names);
    free(*reader);
    *reader = NULL;
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

/* Read a text to ${to}, from index ${begin} on.  At most ${most} bytes, with those before it. */
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

/* The first ${common} bytes of the name are those of the previous name. */
static void get_name(struct chunk_list_reader *l)
{
    char before[SIDESTEP_MAX_NAME + 1];
    uint64_t common = get_number(&l->cursor);
    size_t length = strlen(l->name);

    l->record.name = l->name;
    if (common > length) {
        l->cursor.overrun = true;
        return;
    }
    memcpy(before, l->name + common, length - common + 1);
    get_text(&l->cursor, l->name, (size_t)common, SIDESTEP_MAX_NAME);
    int order = strcmp(l->name + common, before);
    l->has_same_name = order == 0 && length != 0;
    if (!l->has_same_name &&
        (order < 0 || l->name[0] == '\0' || !utf8_is_valid(l->name, strlen(l->name))))
        l->cursor.overrun = true;
}

/* Cut the next text of a path from the name, or read it. */
static const char *get_path_text(struct chunk_list_reader *l, size_t length, size_t *cut)
{
    const char *text = l->name + *cut;

    if (!l->is_joined) {
        text = (const char *)cursor_take(&l->cursor, length);
    } else if (length > strlen(text)) {
        text = NULL;
    } else {
        *cut += length;
        *cut += l->name[*cut] == '.';
    }
    if (text == NULL || length > SIDESTEP_MAX_NAME || !utf8_is_valid(text, length))
        return NULL;
    return takes_everything(l) ? arena_strndup(&l->texts, text, length) : "";
}

/* Read the items as texts, and then make integers of those that are. */
static void get_path(struct chunk_list_reader *l)
{
    struct chunk_record *record = &l->record;
    uint64_t numbers = 0, indices = 0;
    size_t cut = 0;

    record->place = (size_t)get_number(&l->cursor);
    uint64_t length = get_number(&l->cursor);
    arena_release(&l->texts); /* of the previous name */
    if (length > SIDESTEP_MAX_PATH_ITEMS)
        l->cursor.overrun = true;
    for (uint64_t i = 0; i < length && !l->cursor.overrun; i++) {
        uint64_t item = get_number(&l->cursor);
        l->path[i] = (struct sidestep_path_item){.key = get_path_text(l, item >> 2, &cut)};
        l->cursor.overrun |= l->path[i].key == NULL || (item & 3) == 3;
        numbers |= (uint64_t)((item & 3) != 0) << i;
        indices |= (uint64_t)((item & 3) == CHUNK_LIST_INDEX) << i;
    }
    if (l->cursor.overrun || !takes_everything(l))
        return;
    l->cursor.overrun = !path_set_int_keys(l->path, (uint32_t)length, numbers);
    for (uint64_t i = 0; i < length; i++)
        if ((indices >> i & 1) != 0)
            l->path[i].flags = 0;
    record->path = l->path;
    record->path_length = (uint32_t)length;
    if (l->is_joined && !path_matches_name(l->name, l->path, record->path_length))
        l->cursor.overrun = true;
}

static void get_shape(struct chunk_list_reader *l)
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

static void get_tensor(struct chunk_list_reader *l, uint8_t flags)
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

static enum sidestep_status get_record(struct chunk_list_reader *l, struct sidestep_error *err)
{
    struct chunk_record *record = &l->record;
    uint8_t flags = cursor_u8(&l->cursor);

    record->is_object = (flags & CHUNK_LIST_OBJECT) != 0;
    record->requires_grad = (flags & CHUNK_LIST_REQUIRES_GRAD) != 0;
    record->is_first = (flags & CHUNK_LIST_FIRST) != 0;
    l->is_joined = (flags & CHUNK_LIST_JOINED) != 0;
    get_name(l);
    if (record->is_first && !l->cursor.overrun)
        get_path(l);
    if (!record->is_object)
        get_tensor(l, flags);
    record->file = (size_t)get_number(&l->cursor);
    record->offset = get_number(&l->cursor);
    record->length = get_number(&l->cursor);
    record->transform = (flags & CHUNK_LIST_TRANSFORM) != 0 ? l->transform : NULL;
    if (record->transform != NULL)
        get_text(&l->cursor, l->transform, 0, FOOTER_MAX_TRANSFORM_BYTES);
    if (!l->cursor.overrun && (flags & ~CHUNK_LIST_ALL_FLAGS) == 0 &&
        record->file < l->filter->file_count)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "a page of the index has an error at byte %zu",
                l->cursor.position);
}

/* ---- names */

static enum sidestep_status copy_path(struct chunk_list_reader *l, struct metadata_entry *entry,
                                      struct sidestep_error *err)
{
    const struct chunk_record *record = &l->record;

    if (!record->is_first)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s': the index does not have its first record",
                    display_name(record->name).text);
    entry->path_length = record->path_length;
    return path_copy(&l->out->arena, l->path, record->path_length, &entry->path, err);
}

static enum sidestep_status add_name(struct chunk_list_reader *l, const struct state_entry *wanted,
                                     struct sidestep_error *err)
{
    const struct chunk_record *record = &l->record;
    struct arena *arena = &l->out->arena;
    size_t i = l->out->count;
    char *name = arena_strndup(arena, record->name, strlen(record->name));
    int64_t *shape = NULL;

    if (!record->is_object)
        shape = arena_new(arena, record->ndim, sizeof(*shape));
    if (name == NULL || (shape == NULL && !record->is_object))
        return FAIL_NOMEM(err, sizeof(l->name));
    TRY_GROW(l->names, l->name_capacity, i, err);
    if (takes_everything(l))
        TRY_GROW(l->entries, l->entry_capacity, i, err);
    else
        TRY_RESERVE(arena, l->entries, l->entry_capacity, i + 1, err);
    l->names[i] = (struct listed_name){.wanted = wanted, .place = record->place};
    struct metadata_entry *entry = &l->entries[i];
    *entry = (struct metadata_entry){.name = name, .is_object = record->is_object};
    if (takes_everything(l))
        TRY(copy_path(l, entry, err));
    else if (wanted != NULL)
        l->out->of_state[wanted - l->filter->state->entries] = i;
    l->out->count++;
    if (record->is_object)
        return SIDESTEP_OK;
    memcpy(shape, record->shape, record->ndim * sizeof(*shape));
    entry->dtype = record->dtype;
    entry->dtype_name = sidestep_dtype_name(record->dtype);
    entry->ndim = record->ndim;
    entry->shape = shape;
    entry->requires_grad = record->requires_grad;
    return SIDESTEP_OK;
}

/* The first shard that the state has of the record's name; SIZE_MAX: it has none.  Names that
 * follow each other in a list mostly do so in a state, too; then no table is searched. */
static size_t find_in_state(struct chunk_list_reader *l, const struct sidestep_state_dict *state)
{
    size_t next = l->next_in_state;

    if (next >= state->count || state->entries[next].first_same_name != next ||
        strcmp(state->entries[next].name, l->record.name) != 0)
        next = hash_table_find(&state->names, l->record.name);
    if (next != SIZE_MAX)
        l->next_in_state = next + 1;
    return next;
}

/* Add the name of the record, if it is taken. */
static enum sidestep_status add_new_name(struct chunk_list_reader *l, struct sidestep_error *err)
{
    const struct sidestep_state_dict *state = l->filter->state;
    size_t first = state != NULL ? find_in_state(l, state) : SIZE_MAX;

    l->found = SIZE_MAX;
    if (state != NULL && first == SIZE_MAX && !l->filter->all_names)
        return SIDESTEP_OK;
    l->found = l->out->count;
    return add_name(l, first != SIZE_MAX ? &state->entries[first] : NULL, err);
}

/* Set l->found to the name of the record, which is added if it is new and taken.  The records of a
 * name follow each other. */
static enum sidestep_status find_name(struct chunk_list_reader *l, struct sidestep_error *err)
{
    if (!l->has_same_name)
        return add_new_name(l, err);
    if (l->found == SIZE_MAX)
        return SIDESTEP_OK;
    const struct metadata_entry *entry = &l->entries[l->found];
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

/* Does the chunk overlap a shard of the state?  True also if there are too many to compare. */
static bool is_needed(const struct chunk_list_reader *l, const struct state_entry *shard)
{
    const struct chunk_record *record = &l->record;
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];

    for (unsigned i = 0; shard != NULL; i++) {
        if (i == MAX_SHARDS_COMPARED)
            return true;
        if (!shard->is_object && shard->ndim == record->ndim &&
            box_intersect(&record->box, &shard->box, offsets, lengths))
            return true;
        shard = shard->next_same_name != SIZE_MAX
                    ? &l->filter->state->entries[shard->next_same_name]
                    : NULL;
    }
    return false;
}

static enum sidestep_status copy_storage(struct chunk_list_reader *l, struct metadata_storage *out,
                                         struct sidestep_error *err)
{
    const struct chunk_record *record = &l->record;

    *out = (struct metadata_storage){
        .file = l->filter->files[record->file], .offset = record->offset, .length = record->length};
    return arena_copy_text(&l->out->arena, record->transform, &out->transform, err);
}

/* Make room for one more chunk of ${entry}, the last one that has any, behind the others. */
static enum sidestep_status reserve_chunk(struct chunk_list_reader *l, struct metadata_entry *entry,
                                          struct sidestep_error *err)
{
    size_t count = entry->chunk_count;

    if (l->chunks_left == 0) {
        l->chunks_left = max_u64(CHUNKS_AT_ONCE, count);
        l->chunks = arena_new(&l->out->arena, count + l->chunks_left, sizeof(*l->chunks));
        if (l->chunks == NULL)
            return FAIL_NOMEM(err, l->chunks_left * sizeof(*l->chunks));
        if (count != 0)
            memcpy(l->chunks, entry->chunks, count * sizeof(*l->chunks));
        entry->chunks = l->chunks;
        l->chunks += count;
    }
    if (count == 0)
        entry->chunks = l->chunks;
    return SIDESTEP_OK;
}

static enum sidestep_status keep_chunk(struct chunk_list_reader *l, struct metadata_entry *entry,
                                       struct sidestep_error *err)
{
    uint32_t ndim = l->record.ndim;
    int64_t *numbers = arena_new(&l->out->arena, 2 * (size_t)ndim, sizeof(*numbers));

    if (numbers == NULL)
        return FAIL_NOMEM(err, 2 * ndim * sizeof(*numbers));
    memcpy(numbers, l->offsets, ndim * sizeof(*numbers));
    memcpy(numbers + ndim, l->lengths, ndim * sizeof(*numbers));
    TRY(reserve_chunk(l, entry, err));
    struct metadata_chunk *chunk = l->chunks++;
    l->chunks_left--;
    chunk->box = (struct box){ndim, numbers, numbers + ndim};
    entry->chunk_count++;
    return copy_storage(l, &chunk->storage, err);
}

static enum sidestep_status take_record(struct chunk_list_reader *l, struct sidestep_error *err)
{
    TRY(find_name(l, err));
    size_t i = l->found;
    if (i == SIZE_MAX || (l->names[i].wanted == NULL && !takes_everything(l)))
        return SIDESTEP_OK;
    if (l->record.is_object)
        return copy_storage(l, &l->entries[i].storage, err);
    if (box_check(&l->record.box, l->shape, sidestep_dtype_size(l->record.dtype), NULL) !=
        SIDESTEP_OK)
        return FAIL(err, SIDESTEP_ECORRUPT, "tensor '%s': a stored chunk lies outside of its shape",
                    display_name(l->record.name).text);
    return takes_everything(l) || is_needed(l, l->names[i].wanted)
               ? keep_chunk(l, &l->entries[i], err)
               : SIDESTEP_OK;
}

/* ---- the result */

enum sidestep_status chunk_list_reader_finish(struct chunk_list_reader *l,
                                              struct sidestep_error *err)
{
    struct metadata *out = l->out;

    if (!takes_everything(l)) {
        out->entries = l->entries;
        return SIDESTEP_OK;
    }
    out->entries = arena_new(&out->arena, out->count, sizeof(*out->entries));
    if (out->entries == NULL)
        return FAIL_NOMEM(err, out->count * sizeof(*out->entries));
    for (size_t i = 0; i < out->count; i++) {
        size_t place = l->names[i].place;
        if (place >= out->count || out->entries[place].name != NULL)
            return FAIL(err, SIDESTEP_ECORRUPT,
                        "the index has two names at one place, or a name is missing");
        out->entries[place] = l->entries[i];
    }
    return metadata_index_names(out, err);
}

/* Prepare ${out} for the names of the state. */
static enum sidestep_status prepare(struct chunk_list_reader *l, struct sidestep_error *err)
{
    const struct sidestep_state_dict *state = l->filter->state;
    struct metadata *out = l->out;

    if (state == NULL)
        return SIDESTEP_OK;
    out->of_state = arena_new(&out->arena, state->count, sizeof(*out->of_state));
    if (out->of_state == NULL)
        return FAIL_NOMEM(err, state->count * sizeof(*out->of_state));
    memset(out->of_state, 0xff, state->count * sizeof(*out->of_state)); /* SIZE_MAX */
    TRY_RESERVE(&out->arena, l->entries, l->entry_capacity, state->names.count, err);
    return SIDESTEP_OK;
}

struct chunk_list_reader *chunk_list_reader_new(const struct chunk_list_filter *filter,
                                                struct metadata *out, struct sidestep_error *err)
{
    struct chunk_list_reader *l = memory_new(1, sizeof(*l));

    if (l == NULL) {
        (void)FAIL_NOMEM(err, sizeof(*l));
        return NULL;
    }
    l->filter = filter;
    l->out = out;
    l->found = SIZE_MAX;
    if (prepare(l, err) != SIDESTEP_OK)
        chunk_list_reader_free(&l);
    return l;
}

static enum sidestep_status take_records(struct chunk_list_reader *l, struct sidestep_error *err)
{
    while (cursor_remaining(&l->cursor) != 0) {
        TRY(get_record(l, err));
        TRY(take_record(l, err));
    }
    return SIDESTEP_OK;
}

/* Begin a page.  Its first record has the previous name, or a later one. */
static enum sidestep_status begin_page(struct chunk_list_reader *l, const char *first,
                                       struct sidestep_error *err)
{
    char before[SIDESTEP_MAX_NAME + 1];

    memcpy(before, l->name, sizeof(before));
    l->name[0] = '\0';
    l->has_shape = false;
    TRY(get_record(l, err));
    int order = strcmp(first, before);
    if (order < 0 || strcmp(l->name, first) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "a page of the index begins with the wrong name");
    l->has_same_name = order == 0;
    return take_record(l, err);
}

enum sidestep_status chunk_list_reader_add(struct chunk_list_reader *l, const void *page,
                                           size_t length, const char *first,
                                           struct sidestep_error *err)
{
    l->cursor = cursor_from_memory(page, length);
    TRY(begin_page(l, first, err));
    return take_records(l, err);
}
