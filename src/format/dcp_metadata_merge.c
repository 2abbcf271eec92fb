/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dcp_metadata_merge.c -- see dcp_metadata.h: merges the metadata of single ranks.
 *
 * ${into} keeps its tables of names and chunks from call to call, so that the time for all ranks is
 * linear in the number of chunks.
 */
#include "format/dcp_metadata.h"

#include <string.h>

#include "model/model.h"

#define FIRST_CAPACITY 8u

struct merger {
    struct metadata *into;
    struct sidestep_error *err;
    /* The file name of the previous chunk, and its copy: most chunks have the same. */
    const char *file_from, *file;
};

static enum sidestep_status copy_text(struct merger *m, const char *text, const char **copy)
{
    if (text == NULL)
        return SIDESTEP_OK;
    *copy = arena_strndup(&m->into->arena, text, strlen(text));
    return *copy != NULL ? SIDESTEP_OK : FAIL_NOMEM(m->err, strlen(text) + 1);
}

static enum sidestep_status copy_numbers(struct merger *m, const int64_t *from, uint32_t ndim,
                                         const int64_t **copy)
{
    *copy = arena_copy(&m->into->arena, from, ndim * sizeof(*from));
    return *copy != NULL ? SIDESTEP_OK : FAIL_NOMEM(m->err, ndim * sizeof(*from));
}

static enum sidestep_status copy_storage(struct merger *m, const struct metadata_storage *from,
                                         struct metadata_storage *to)
{
    *to = *from;
    if (from->file != NULL && from->file != m->file_from) {
        TRY(copy_text(m, from->file, &m->file));
        m->file_from = from->file;
    }
    to->file = from->file != NULL ? m->file : NULL;
    return copy_text(m, from->transform, &to->transform);
}

static enum sidestep_status copy_path(struct merger *m, const struct metadata_entry *from,
                                      struct metadata_entry *to)
{
    if (from->path_length == 0)
        return SIDESTEP_OK;
    to->path_length = from->path_length;
    return path_copy(&m->into->arena, from->path, from->path_length, &to->path, m->err);
}

/* Return ${array}, of ${count} items, or a copy of it, with room for ${more}. */
static void *grow(struct merger *m, void *array, size_t item_bytes, size_t count, size_t more,
                  size_t *capacity)
{
    size_t has = *capacity != 0 ? *capacity : count;

    if (count + more <= has)
        return array;
    size_t want = has * 2 > count + more ? has * 2 : count + more;
    want = want > FIRST_CAPACITY ? want : FIRST_CAPACITY;
    void *bigger = arena_new(&m->into->arena, want, item_bytes);
    if (bigger == NULL) {
        (void)FAIL_NOMEM(m->err, want * item_bytes);
        return NULL;
    }
    if (count != 0)
        memcpy(bigger, array, count * item_bytes);
    *capacity = want;
    return bigger;
}

/* Add an entry, without its chunks. */
static enum sidestep_status add_entry(struct merger *m, const struct metadata_entry *from,
                                      size_t *index)
{
    struct metadata *into = m->into;
    size_t existing;

    struct metadata_entry *entries =
        grow(m, into->entries, sizeof(*entries), into->count, 1, &into->capacity);
    if (entries == NULL)
        return SIDESTEP_ENOMEM;
    into->entries = entries;
    struct metadata_entry *to = &entries[into->count];
    *to = (struct metadata_entry){.is_object = from->is_object,
                                  .dtype = from->dtype,
                                  .ndim = from->ndim,
                                  .requires_grad = from->requires_grad};
    TRY(copy_text(m, from->name, &to->name));
    TRY(copy_text(m, from->dtype_name, &to->dtype_name));
    TRY(copy_numbers(m, from->shape, from->ndim, &to->shape));
    TRY(copy_storage(m, &from->storage, &to->storage));
    TRY(copy_path(m, from, to));
    TRY(hash_table_insert(&into->names, to->name, into->count, &existing, m->err));
    *index = into->count++;
    return SIDESTEP_OK;
}

static bool same_kind(const struct metadata_entry *a, const struct metadata_entry *b)
{
    if (a->is_object || b->is_object)
        return a->is_object && b->is_object;
    return a->dtype == b->dtype && strcmp(a->dtype_name, b->dtype_name) == 0 &&
           a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) == 0);
}

static enum sidestep_status add_chunk(struct merger *m, size_t index,
                                      const struct metadata_chunk *from)
{
    struct metadata_entry *entry = &m->into->entries[index];
    size_t i = chunk_table_find(&m->into->chunks, m->into, index, from->box.offsets), existing;
    struct metadata_chunk *chunk = i != SIZE_MAX ? &entry->chunks[i] : NULL;

    if (chunk != NULL && (box_equal(&chunk->box, &from->box) || box_volume(&from->box) == 0))
        return SIDESTEP_OK;
    if (chunk != NULL && box_volume(&chunk->box) != 0)
        return FAIL(m->err, SIDESTEP_ECORRUPT, "tensor '%s': two ranks have different chunks at %s",
                    display_name(entry->name).text,
                    display_shape(entry->ndim, from->box.offsets).text);
    if (chunk == NULL) {
        struct metadata_chunk *chunks =
            grow(m, entry->chunks, sizeof(*chunks), entry->chunk_count, 1, &entry->chunk_capacity);
        if (chunks == NULL)
            return SIDESTEP_ENOMEM;
        entry->chunks = chunks;
        chunk = &chunks[entry->chunk_count];
    }
    struct metadata_chunk copy = {.box.ndim = from->box.ndim};
    TRY(copy_numbers(m, from->box.offsets, from->box.ndim, &copy.box.offsets));
    TRY(copy_numbers(m, from->box.lengths, from->box.ndim, &copy.box.lengths));
    TRY(copy_storage(m, &from->storage, &copy.storage));
    *chunk = copy;
    if (i != SIZE_MAX)
        return SIDESTEP_OK;
    TRY(chunk_table_insert(&m->into->chunks, m->into, index, entry->chunk_count, &existing,
                           m->err));
    entry->chunk_count++;
    return SIDESTEP_OK;
}

static enum sidestep_status merge_entry(struct merger *m, const struct metadata_entry *from)
{
    size_t index = hash_table_find(&m->into->names, from->name);

    if (index == SIZE_MAX)
        TRY(add_entry(m, from, &index));
    else if (!same_kind(&m->into->entries[index], from))
        return FAIL(m->err, SIDESTEP_ECORRUPT, "'%s' has another type or shape on another rank",
                    display_name(from->name).text);
    if (m->into->entries[index].path_length == 0)
        TRY(copy_path(m, from, &m->into->entries[index]));
    for (size_t c = 0; c < from->chunk_count; c++)
        TRY(add_chunk(m, index, &from->chunks[c]));
    return SIDESTEP_OK;
}

enum sidestep_status dcp_metadata_merge(struct metadata *into, const struct metadata *more,
                                        struct sidestep_error *err)
{
    struct merger m = {.into = into, .err = err};

    if (into->names.count != into->count)
        TRY(metadata_index_names(into, err));
    if (into->chunks.capacity == 0)
        TRY(metadata_index_chunks(into, err));
    for (size_t i = 0; i < more->count; i++)
        TRY(merge_entry(&m, &more->entries[i]));
    if (into->save_id == NULL)
        TRY(copy_text(&m, more->save_id, &into->save_id));
    if (into->checkpoint_id == NULL)
        TRY(copy_text(&m, more->checkpoint_id, &into->checkpoint_id));
    return SIDESTEP_OK;
}
