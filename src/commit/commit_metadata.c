/* SPDX-License-Identifier: BSD-3-Clause */
/* commit_metadata.c -- builds `.metadata` from the footers of the shards; see commit_metadata.h. */
#include "commit/commit_metadata.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "plan/plan.h"

void commit_metadata_builder_release(struct commit_metadata_builder *builder)
{
    arena_release(&builder->scratch);
    *builder = (struct commit_metadata_builder){0};
}

static struct metadata_entry entry_of_item(const struct footer_item *item)
{
    return (struct metadata_entry){
        .name = item->name,
        .is_object = item->is_object,
        .dtype = item->dtype,
        .dtype_name = sidestep_dtype_name(item->dtype),
        .ndim = item->ndim,
        .shape = item->shape,
        .requires_grad = item->requires_grad,
        .path = item->path,
        .path_length = item->path_length,
    };
}

/* Copy the parts of ${entry} that belong to a footer to the arena. */
static enum sidestep_status copy_entry(struct arena *arena, struct metadata_entry *entry,
                                       struct sidestep_error *err)
{
    entry->name = arena_strndup(arena, entry->name, strlen(entry->name));
    entry->shape = arena_copy(arena, entry->shape, entry->ndim * sizeof(*entry->shape));
    if (entry->name == NULL || entry->shape == NULL)
        return FAIL_NOMEM(err, SIDESTEP_MAX_NAME);
    return path_copy(arena, entry->path, entry->path_length, &entry->path, err);
}

static enum sidestep_status add_entry(struct commit_metadata_builder *b,
                                      const struct footer_item *item, struct sidestep_error *err)
{
    struct metadata *out = b->out;
    size_t existing;

    TRY_RESERVE(&out->arena, out->entries, out->capacity, out->count + 1, err);
    out->entries[out->count] = entry_of_item(item);
    if (b->copies)
        TRY(copy_entry(&out->arena, &out->entries[out->count], err));
    TRY(hash_table_insert(&out->names, out->entries[out->count].name, out->count, &existing, err));
    assert(existing == SIZE_MAX); /* find_entry() did not find it */
    out->count++;
    return SIDESTEP_OK;
}

static size_t find_entry(const struct commit_metadata_builder *b, const char *name)
{
    if (b->next < b->out->count && strcmp(b->out->entries[b->next].name, name) == 0)
        return b->next;
    return hash_table_find(&b->out->names, name);
}

/* Find the entry of ${item}, or add it. Entries are in the order in which items add them. */
static enum sidestep_status find_or_add_entry(struct commit_metadata_builder *b,
                                              const struct footer_item *item, size_t *at,
                                              struct sidestep_error *err)
{
    *at = find_entry(b, item->name);
    if (*at == SIZE_MAX) {
        *at = b->out->count;
        return add_entry(b, item, err);
    }
    const struct metadata_entry *entry = &b->out->entries[*at];
    if (entry->is_object || item->is_object)
        return FAIL(err, SIDESTEP_EDISAGREE, "'%s' was saved twice", item->name);
    if (entry->dtype != item->dtype || entry->ndim != item->ndim ||
        memcmp(entry->shape, item->shape, item->ndim * sizeof(*item->shape)) != 0)
        return FAIL(err, SIDESTEP_EDISAGREE, "tensor '%s': ranks saved different shapes or dtypes",
                    item->name);
    return SIDESTEP_OK;
}

/* The codec of ${item}. Few names are in use, most often one, so only the last copy is compared. */
static enum sidestep_status transform_of(struct commit_metadata_builder *b,
                                         const struct footer *footer,
                                         const struct footer_item *item, const char **name,
                                         struct sidestep_error *err)
{
    assert(item->transform <= footer->transform_count);
    *name = item->transform != 0 ? footer->transforms[item->transform - 1] : NULL;
    if (*name == NULL || !b->copies)
        return SIDESTEP_OK;
    if (b->transform == NULL || strcmp(b->transform, *name) != 0)
        TRY(arena_copy_text(&b->out->arena, *name, &b->transform, err));
    *name = b->transform;
    return SIDESTEP_OK;
}

/* ${numbers}: gets the numbers of the box; NULL: the box of the footer is used. */
static struct box box_of(const struct footer_item *item, int64_t *numbers)
{
    size_t bytes = item->ndim * sizeof(*numbers);

    if (numbers == NULL || item->ndim == 0)
        return item->box;
    memcpy(numbers, item->box.offsets, bytes);
    memcpy(numbers + item->ndim, item->box.lengths, bytes);
    return (struct box){item->ndim, numbers, numbers + item->ndim};
}

static enum sidestep_status add_item(struct commit_metadata_builder *b, const struct footer *footer,
                                     const struct footer_item *item, const char *name,
                                     int64_t *numbers, struct sidestep_error *err)
{
    struct metadata_storage storage = {.file = name, .offset = item->offset, .length = item->bytes};
    size_t at;

    TRY(find_or_add_entry(b, item, &at, err));
    TRY(transform_of(b, footer, item, &storage.transform, err));
    b->next = at + 1;
    if (item->is_object) {
        b->out->entries[at].storage = storage;
        return SIDESTEP_OK;
    }
    TRY_RESERVE(&b->scratch, b->chunks, b->capacity, b->count + 1, err);
    b->chunks[b->count++] =
        (struct commit_metadata_chunk){at, {.box = box_of(item, numbers), .storage = storage}};
    b->out->entries[at].chunk_count++;
    return SIDESTEP_OK;
}

/* Allocate one array for the boxes of a file. */
static enum sidestep_status make_numbers(struct commit_metadata_builder *b,
                                         const struct footer *footer, int64_t **numbers,
                                         struct sidestep_error *err)
{
    size_t count = 0;

    *numbers = NULL;
    for (size_t i = 0; b->copies && i < footer->count; i++)
        count += (size_t)2 * footer->items[i].ndim;
    if (count == 0)
        return SIDESTEP_OK;
    *numbers = arena_new(&b->out->arena, count, sizeof(**numbers));
    return *numbers != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, count * sizeof(**numbers));
}

/* Reserve space for the items of the first file. It mostly has all tensors, and later files have
 * other chunks of them. */
static enum sidestep_status reserve_first(struct commit_metadata_builder *b, size_t items,
                                          struct sidestep_error *err)
{
    TRY_RESERVE(&b->out->arena, b->out->entries, b->out->capacity, items, err);
    TRY_RESERVE(&b->scratch, b->chunks, b->capacity, items, err);
    return hash_table_reserve(&b->out->names, items, err);
}

enum sidestep_status commit_metadata_add(struct commit_metadata_builder *b,
                                         const struct footer *footer, const char *name,
                                         struct sidestep_error *err)
{
    int64_t *numbers;

    assert(b->out->chunks.capacity == 0); /* not finished */
    b->next = 0;
    if (b->out->count == 0)
        TRY(reserve_first(b, footer->count, err));
    TRY(make_numbers(b, footer, &numbers, err));
    for (size_t i = 0; i < footer->count; i++) {
        TRY(add_item(b, footer, &footer->items[i], name, numbers, err));
        numbers += numbers != NULL ? (size_t)2 * footer->items[i].ndim : 0;
    }
    return SIDESTEP_OK;
}

enum sidestep_status commit_metadata_finish(struct commit_metadata_builder *b,
                                            struct sidestep_error *err)
{
    struct metadata_chunk *chunks = arena_new(&b->out->arena, b->count, sizeof(*chunks));

    if (chunks == NULL)
        return FAIL_NOMEM(err, b->count * sizeof(*chunks));
    for (size_t i = 0; i < b->out->count; i++) { /* one array for the chunks of all tensors */
        b->out->entries[i].chunks = chunks;
        chunks += b->out->entries[i].chunk_count;
        b->out->entries[i].chunk_count = 0;
    }
    for (size_t i = 0; i < b->count; i++) {
        struct metadata_entry *entry = &b->out->entries[b->chunks[i].entry];
        entry->chunks[entry->chunk_count++] = b->chunks[i].chunk;
    }
    b->out->capacity = 0; /* the entries are complete */
    commit_metadata_builder_release(b);
    return SIDESTEP_OK;
}

static enum sidestep_status check_tiling(const struct metadata_entry *entry, struct box *boxes,
                                         struct sidestep_error *err)
{
    enum tiling_result result;
    size_t culprit = 0;

    assert(!entry->is_object);
    for (size_t i = 0; i < entry->chunk_count; i++)
        boxes[i] = entry->chunks[i].box;
    TRY(tiling_check(entry->ndim, entry->shape, boxes, entry->chunk_count, &result, &culprit, err));
    if (result == TILING_EXACT)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EDISAGREE, "tensor '%s': the shards of all ranks %s", entry->name,
                result == TILING_GAP ? "do not cover it" : "overlap");
}

enum sidestep_status commit_metadata_check_tiling(const struct metadata *metadata,
                                                  struct sidestep_error *err)
{
    OWNED struct box *boxes = NULL;
    size_t most = 1;

    for (size_t i = 0; i < metadata->count; i++)
        most = max_u64(most, metadata->entries[i].chunk_count);
    boxes = memory_new(most, sizeof(*boxes));
    if (boxes == NULL)
        return FAIL_NOMEM(err, most * sizeof(*boxes));
    for (size_t i = 0; i < metadata->count; i++)
        if (!metadata->entries[i].is_object)
            TRY(check_tiling(&metadata->entries[i], boxes, err));
    return SIDESTEP_OK;
}

enum sidestep_status commit_metadata_from_footers(const struct footer *footers,
                                                  const char *const *names, size_t count,
                                                  struct metadata *out, struct sidestep_error *err)
{
    OWNED_METADATA_BUILDER builder = {.out = out};

    assert(out->count == 0 && out->entries == NULL);
    for (size_t f = 0; f < count; f++)
        TRY(commit_metadata_add(&builder, &footers[f], names[f], err));
    return commit_metadata_finish(&builder, err);
}

enum sidestep_status commit_encode_index(const struct metadata *metadata, struct manifest *manifest,
                                         struct buffer *out, struct sidestep_error *err)
{
    TRY(chunk_index_encode(metadata, manifest, out, err));
    if (out->length >= COMMIT_MIN_INDEX_BYTES)
        return SIDESTEP_OK;
    buffer_release(out);
    manifest->index = (struct manifest_index){0};
    return SIDESTEP_OK;
}
