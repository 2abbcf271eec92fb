/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load_plan.c -- see load_plan.h.
 *
 * The metadata comes from a file, so its boxes are checked before they are used.  A shard that the
 * chunks do not cover is refused, because a load that leaves a part of a tensor unchanged looks
 * like a load that worked.
 */
#include "plan/load_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/model.h"
#include "plan/overlap.h"
#include "plan/tiling.h"

/* A shard, and a chunk that it needs. */
struct pair {
    size_t chunk; /* in entry->chunks */
    struct state_entry *shard;
};

struct builder {
    const struct metadata *metadata;
    struct sidestep_state_dict *state;
    struct load_plan *plan;
    size_t chunk_capacity; /* of plan->chunks */
    uint8_t *wanted; /* per entry of the metadata: does the state have its name?  NULL: unexpected
                      * names are not reported */
    size_t next;     /* the entry of the metadata after the one found last */
    /* For the current tensor. */
    struct box *boxes;
    size_t box_capacity;
    size_t *counts;
    size_t count_capacity;
    struct pair *pairs;
    size_t pair_count;
    size_t pair_capacity;
};

void load_plan_release(struct load_plan *plan)
{
    arena_release(&plan->arena);
    *plan = (struct load_plan){0};
}

static void builder_release(struct builder *b)
{
    free(b->wanted);
    free(b->boxes);
    free(b->counts);
    free(b->pairs);
}

static enum sidestep_status add_chunk(struct builder *b, const struct load_plan_chunk *chunk,
                                      struct sidestep_error *err)
{
    struct load_plan *plan = b->plan;

    if (chunk->storage->file == NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s': the metadata does not say where %s%s is stored",
                    display_name(chunk->entry->name).text,
                    chunk->entry->is_object ? "the object" : "the chunk ",
                    chunk->entry->is_object ? "" : display_box(&chunk->box).text);
    TRY_RESERVE(&plan->arena, plan->chunks, b->chunk_capacity, plan->count + 1, err);
    plan->chunks[plan->count++] = *chunk;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- one tensor */

static struct state_entry *next_shard(const struct sidestep_state_dict *state,
                                      const struct state_entry *shard)
{
    return shard->next_same_name != SIZE_MAX ? &state->entries[shard->next_same_name] : NULL;
}

/* Refuse an expanded tensor: it has several elements at one address, which would overwrite each
 * other. */
static enum sidestep_status check_shard(const struct state_entry *shard, struct sidestep_error *err)
{
    if (box_volume(&shard->box) == 0)
        return SIDESTEP_OK;
    for (uint32_t d = 0; d < shard->ndim; d++)
        if (shard->strides[d] == 0 && shard->box.lengths[d] > 1)
            return FAIL(err, SIDESTEP_EINVAL,
                        "'%s': cannot load into a shard whose stride is 0 in dimension %u (length "
                        "%lld): its elements share memory",
                        display_name(shard->name).text, d, (long long)shard->box.lengths[d]);
    return SIDESTEP_OK;
}

/* Check the chunks' boxes, and copy them to ${boxes}. */
static enum sidestep_status check_chunks(const struct metadata_entry *entry, struct box *boxes,
                                         struct sidestep_error *err)
{
    for (size_t i = 0; i < entry->chunk_count; i++) {
        const struct box *box = &entry->chunks[i].box;

        if (box->ndim != entry->ndim)
            return FAIL(err, SIDESTEP_ECORRUPT,
                        "'%s': a chunk has %u dimensions, but the tensor has %u",
                        display_name(entry->name).text, box->ndim, entry->ndim);
        if (box_check(box, entry->shape, sidestep_dtype_size(entry->dtype), err) != SIDESTEP_OK) {
            if (err != NULL)
                err->status = SIDESTEP_ECORRUPT;
            error_wrap(err, "'%s': stored chunk %zu", display_name(entry->name).text, i);
            return SIDESTEP_ECORRUPT;
        }
        boxes[i] = *box;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status check_tiling(const struct metadata_entry *entry,
                                         const struct box *boxes, bool *gaps,
                                         struct sidestep_error *err)
{
    enum tiling_result result = TILING_GAP;
    size_t culprit = SIZE_MAX;

    TRY(tiling_check(entry->ndim, entry->shape, boxes, entry->chunk_count, &result, &culprit, err));
    if (result == TILING_OVERLAP)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s': stored chunks overlap%s%s",
                    display_name(entry->name).text, culprit != SIZE_MAX ? ", one is " : "",
                    culprit != SIZE_MAX ? display_box(&boxes[culprit]).text : "");
    *gaps = result == TILING_GAP;
    return SIDESTEP_OK;
}

/* For a tensor whose chunks leave gaps: check that the chunks b->pairs[from ..] cover ${shard}. */
static enum sidestep_status check_coverage(const struct builder *b,
                                           const struct metadata_entry *entry,
                                           const struct state_entry *shard, size_t from,
                                           struct sidestep_error *err)
{
    OWNED_ARENA arena = {0};
    size_t count = b->pair_count - from;
    struct box *parts = arena_new(&arena, count, sizeof(*parts));
    int64_t *numbers = arena_new(&arena, count, (size_t)2 * shard->ndim * sizeof(*numbers));
    enum tiling_result result = TILING_GAP;

    if (parts == NULL || numbers == NULL)
        return FAIL_NOMEM(err, count * sizeof(*parts));
    for (size_t i = 0; i < count; i++) {
        int64_t *offsets = numbers + i * 2 * shard->ndim, *lengths = offsets + shard->ndim;

        (void)box_intersect(&entry->chunks[b->pairs[from + i].chunk].box, &shard->box, offsets,
                            lengths);
        for (uint32_t d = 0; d < shard->ndim; d++)
            offsets[d] -= shard->box.offsets[d];
        parts[i] = (struct box){shard->ndim, offsets, lengths};
    }
    TRY(tiling_check(shard->ndim, shard->box.lengths, parts, count, &result, NULL, err));
    if (result != TILING_EXACT)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "'%s': the stored chunks do not cover the box %s of the shape %s",
                    display_name(entry->name).text, display_box(&shard->box).text,
                    display_shape(entry->ndim, entry->shape).text);
    return SIDESTEP_OK;
}

/* Append all chunks that ${shard} needs to b->pairs. */
static enum sidestep_status pair_shard(struct builder *b, const struct overlap_index *index,
                                       struct state_entry *shard, struct sidestep_error *err)
{
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];
    size_t from, to;

    overlap_index_find(index, &shard->box, &from, &to);
    for (size_t i = from; i < to; i++) {
        size_t chunk = overlap_index_box_number(index, i);

        if (!box_intersect(&b->boxes[chunk], &shard->box, offsets, lengths))
            continue;
        TRY_GROW(b->pairs, b->pair_capacity, b->pair_count, err);
        b->pairs[b->pair_count++] = (struct pair){chunk, shard};
    }
    return SIDESTEP_OK;
}

static enum sidestep_status pair_shards(struct builder *b, const struct metadata_entry *entry,
                                        const struct overlap_index *index,
                                        struct state_entry *shard, bool gaps,
                                        struct sidestep_error *err)
{
    uint64_t item_bytes = sidestep_dtype_size(entry->dtype);

    b->pair_count = 0;
    for (; shard != NULL; shard = next_shard(b->state, shard)) {
        size_t from = b->pair_count;
        uint64_t volume = box_volume(&shard->box);

        if (volume == 0)
            continue;
        TRY(pair_shard(b, index, shard, err));
        if (gaps)
            TRY(check_coverage(b, entry, shard, from, err));
        if (!checked_add(b->plan->wanted_bytes, volume * item_bytes, &b->plan->wanted_bytes))
            return FAIL(err, SIDESTEP_EINVAL, "the state has more than 2^64 bytes");
    }
    return SIDESTEP_OK;
}

/* Add the chunks of b->pairs to the plan, with their targets in the order of the shards. */
static enum sidestep_status add_chunks(struct builder *b, const struct metadata_entry *entry,
                                       struct sidestep_error *err)
{
    size_t *counts = b->counts;
    struct arena *arena = &b->plan->arena;
    struct state_entry **next = arena_new(arena, b->pair_count, sizeof(struct state_entry *));
    size_t first = b->plan->count;

    if (next == NULL)
        return FAIL_NOMEM(err, b->pair_count * sizeof(struct state_entry *));
    memset(counts, 0, entry->chunk_count * sizeof(*counts));
    for (size_t i = 0; i < b->pair_count; i++)
        counts[b->pairs[i].chunk]++;
    for (size_t i = 0; i < entry->chunk_count; i++) {
        size_t targets = counts[i];
        struct metadata_chunk *chunk = &entry->chunks[i];

        if (targets == 0)
            continue;
        counts[i] = b->plan->count - first; /* from here on: the index of the chunk in the plan */
        TRY(add_chunk(
            b,
            &(struct load_plan_chunk){
                .entry = entry, .storage = &chunk->storage, .box = chunk->box, .targets = next},
            err));
        next += targets;
    }
    for (size_t i = 0; i < b->pair_count; i++) {
        struct load_plan_chunk *chunk = &b->plan->chunks[first + counts[b->pairs[i].chunk]];

        chunk->targets[chunk->target_count++] = b->pairs[i].shard;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status plan_tensor(struct builder *b, const struct metadata_entry *entry,
                                        struct state_entry *first, struct sidestep_error *err)
{
    OWNED_BY(overlap_index_release) struct overlap_index index = {0};
    size_t shards = 0;
    bool gaps = false;

    TRY_GROW(b->boxes, b->box_capacity, entry->chunk_count, err);
    TRY_GROW(b->counts, b->count_capacity, entry->chunk_count, err);
    for (const struct state_entry *s = first; s != NULL; s = next_shard(b->state, s), shards++)
        TRY(check_shard(s, err));
    TRY(check_chunks(entry, b->boxes, err));
    TRY(check_tiling(entry, b->boxes, &gaps, err));
    TRY(overlap_index_build(&index, b->boxes, entry->chunk_count, shards, err));
    TRY(pair_shards(b, entry, &index, first, gaps, err));
    return add_chunks(b, entry, err);
}

static enum sidestep_status plan_object(struct builder *b, const struct metadata_entry *entry,
                                        struct state_entry *wanted, struct sidestep_error *err)
{
    struct state_entry **targets = arena_new(&b->plan->arena, 1, sizeof(struct state_entry *));

    if (targets == NULL)
        return FAIL_NOMEM(err, sizeof(struct state_entry *));
    targets[0] = wanted;
    return add_chunk(
        b,
        &(struct load_plan_chunk){
            .entry = entry, .storage = &entry->storage, .target_count = 1, .targets = targets},
        err);
}

/* ---------------------------------------------------------------- names */

static bool is_match(const struct metadata_entry *saved, const struct state_entry *wanted)
{
    if (saved->is_object || wanted->is_object)
        return saved->is_object == wanted->is_object;
    return saved->dtype == wanted->dtype && saved->ndim == wanted->ndim &&
           (saved->ndim == 0 ||
            memcmp(saved->shape, wanted->shape, saved->ndim * sizeof(*saved->shape)) == 0);
}

/* "name: saved float32 [2,3], wanted object" */
static const char *describe_mismatch(struct load_plan *plan, const struct metadata_entry *saved,
                                     const struct state_entry *wanted)
{
    const char *saved_kind = saved->is_object            ? "object"
                             : saved->dtype_name != NULL ? saved->dtype_name
                                                         : "an unknown dtype";
    return arena_printf(&plan->arena, "%s: saved %s%s%s, wanted %s%s%s", saved->name, saved_kind,
                        saved->is_object ? "" : " ",
                        saved->is_object ? "" : display_shape(saved->ndim, saved->shape).text,
                        wanted->is_object ? "object" : sidestep_dtype_name(wanted->dtype),
                        wanted->is_object ? "" : " ",
                        wanted->is_object ? "" : display_shape(wanted->ndim, wanted->shape).text);
}

static enum sidestep_status add_mismatch(struct load_plan *plan, const struct metadata_entry *saved,
                                         const struct state_entry *wanted,
                                         struct sidestep_error *err)
{
    const char *text = saved->unreadable != NULL
                           ? arena_printf(&plan->arena, "%s: %s", saved->name, saved->unreadable)
                           : describe_mismatch(plan, saved, wanted);

    if (text == NULL)
        return FAIL_NOMEM(err, strlen(saved->name));
    plan->mismatched[plan->mismatched_count++] = text;
    return SIDESTEP_OK;
}

/* Find a saved entry by name.  Try the next one first, because most loads have the order of the
 * save. */
static const struct metadata_entry *find_saved(struct builder *b, const struct state_entry *wanted)
{
    const struct metadata *metadata = b->metadata;
    const struct metadata_entry *saved = NULL;
    const char *name = wanted->name;

    if (metadata->of_state != NULL) {
        size_t i = metadata->of_state[wanted - b->state->entries];
        return i != SIZE_MAX ? &metadata->entries[i] : NULL;
    }
    if (b->next < metadata->count && strcmp(metadata->entries[b->next].name, name) == 0)
        saved = &metadata->entries[b->next];
    else
        saved = metadata_find(metadata, name);
    if (saved != NULL)
        b->next = (size_t)(saved - metadata->entries) + 1;
    return saved;
}

/* ${wanted} is the first entry with its name. */
static enum sidestep_status plan_name(struct builder *b, struct state_entry *wanted,
                                      struct sidestep_error *err)
{
    const struct metadata_entry *saved = find_saved(b, wanted);

    if (saved == NULL) {
        b->plan->missing[b->plan->missing_count++] = wanted->name;
        return SIDESTEP_OK;
    }
    if (b->wanted != NULL)
        b->wanted[saved - b->metadata->entries] = 1;
    if (!is_match(saved, wanted))
        return add_mismatch(b->plan, saved, wanted, err);
    return wanted->is_object ? plan_object(b, saved, wanted, err)
                             : plan_tensor(b, saved, wanted, err);
}

static void find_unexpected(struct builder *b)
{
    for (size_t i = 0; b->wanted != NULL && i < b->metadata->count; i++)
        if (!b->wanted[i])
            b->plan->unexpected[b->plan->unexpected_count++] = b->metadata->entries[i].name;
}

/* ---------------------------------------------------------------- the whole plan */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Order by file, then by offset, then in any fixed order. */
static int compare_chunks(const void *a, const void *b)
{
    const struct load_plan_chunk *x = a, *y = b;
    const char *x_file = x->storage->file, *y_file = y->storage->file;
    int order = x_file != y_file ? strcmp(x_file, y_file) : 0;

    if (order != 0)
        return order;
    if (x->storage->offset != y->storage->offset)
        return x->storage->offset < y->storage->offset ? -1 : 1;
    if (x->entry != y->entry)
        return x->entry < y->entry ? -1 : 1;
    return x->storage < y->storage ? -1 : x->storage > y->storage;
}

static enum sidestep_status allocate(struct builder *b, bool whole, struct sidestep_error *err)
{
    struct load_plan *plan = b->plan;
    size_t names = b->state->names.count, saved = whole ? b->metadata->count : 0;

    plan->missing = arena_new(&plan->arena, names, sizeof(const char *));
    plan->mismatched = arena_new(&plan->arena, names, sizeof(const char *));
    plan->unexpected = arena_new(&plan->arena, saved, sizeof(const char *));
    b->wanted = whole ? memory_new(saved, 1) : NULL;
    if ((whole && b->wanted == NULL) || plan->missing == NULL || plan->mismatched == NULL ||
        plan->unexpected == NULL)
        return FAIL_NOMEM(err, (2 * names + saved) * sizeof(const char *));
    TRY_RESERVE(&plan->arena, plan->chunks, b->chunk_capacity, names, err); /* at least */
    return SIDESTEP_OK;
}

static bool are_sorted(const struct load_plan *plan)
{
    for (size_t i = 1; i < plan->count; i++)
        if (compare_chunks(&plan->chunks[i - 1], &plan->chunks[i]) > 0)
            return false;
    return true;
}

static void sort(struct load_plan *plan)
{
    qsort(plan->missing, plan->missing_count, sizeof(const char *), compare_texts);
    qsort(plan->unexpected, plan->unexpected_count, sizeof(const char *), compare_texts);
    qsort(plan->mismatched, plan->mismatched_count, sizeof(const char *), compare_texts);
    if (!are_sorted(plan)) /* mostly they are */
        qsort(plan->chunks, plan->count, sizeof(*plan->chunks), compare_chunks);
}

enum sidestep_status load_plan_build(const struct metadata *metadata,
                                     struct sidestep_state_dict *state, bool whole,
                                     struct load_plan *out, struct sidestep_error *err)
{
    OWNED_BY(load_plan_release) struct load_plan plan = {0};
    OWNED_BY(builder_release)
    struct builder b = {.metadata = metadata, .state = state, .plan = &plan};

    TRY(allocate(&b, whole, err));
    for (size_t i = 0; i < state->count; i++)
        if (state->entries[i].first_same_name == i)
            TRY(plan_name(&b, &state->entries[i], err));
    find_unexpected(&b);
    sort(&plan);
    *out = plan;
    plan = (struct load_plan){0};
    return SIDESTEP_OK;
}
