/* SPDX-License-Identifier: BSD-3-Clause */
/* commit_metadata.c -- builds `.metadata` from the footers of the shards.
 *
 * It is the only builder, at commit and when a lost `.metadata` is rebuilt. So whoever has checked
 * that a `.metadata` is the one that was built need not parse it. */
#include "commit/commit.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "plan/plan.h"

struct gather {
    const struct footer *footers;
    const char *const *names;
    size_t count;
    struct metadata *out;
    size_t *entry_of;   /* index of the entry of each item, in the order of files and items */
    size_t chunk_count; /* over all tensors */
};

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

/* First pass: make entries in the order of first sight, and count the chunks of each. */
static enum sidestep_status count_item(struct gather *g, const struct footer_item *item,
                                       size_t *entry_of, struct sidestep_error *err)
{
    size_t at;

    TRY(hash_table_insert(&g->out->names, item->name, g->out->count, &at, err));
    if (at == SIZE_MAX) {
        at = g->out->count++;
        g->out->entries[at] = entry_of_item(item);
    } else {
        const struct metadata_entry *entry = &g->out->entries[at];
        if (entry->is_object || item->is_object)
            return FAIL(err, SIDESTEP_EDISAGREE, "'%s' was saved twice", item->name);
        if (entry->dtype != item->dtype || entry->ndim != item->ndim ||
            memcmp(entry->shape, item->shape, item->ndim * sizeof(*item->shape)) != 0)
            return FAIL(err, SIDESTEP_EDISAGREE,
                        "tensor '%s': ranks saved different shapes or dtypes", item->name);
    }
    *entry_of = at;
    if (!item->is_object) {
        g->out->entries[at].chunk_capacity++;
        g->chunk_count++;
    }
    return SIDESTEP_OK;
}

static void fill_item(struct metadata_entry *entry, const struct footer *footer,
                      const struct footer_item *item, const char *file)
{
    struct metadata_storage storage = {
        .file = file,
        .offset = item->offset,
        .length = item->bytes,
        .transform = item->transform != 0 ? footer->transforms[item->transform - 1] : NULL,
    };

    assert(item->transform <= footer->transform_count);
    if (entry->is_object)
        entry->storage = storage;
    else
        entry->chunks[entry->chunk_count++] =
            (struct metadata_chunk){.box = item->box, .storage = storage};
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

static enum sidestep_status count_items(struct gather *g, struct sidestep_error *err)
{
    size_t *entry_of = g->entry_of;

    for (size_t f = 0; f < g->count; f++)
        for (size_t i = 0; i < g->footers[f].count; i++)
            TRY(count_item(g, &g->footers[f].items[i], entry_of++, err));
    assert((size_t)(entry_of - g->entry_of) >= g->out->count);
    return SIDESTEP_OK;
}

/* One array for the chunks of all tensors. */
static enum sidestep_status make_chunks(struct gather *g, struct sidestep_error *err)
{
    struct metadata_chunk *chunks = arena_new(&g->out->arena, g->chunk_count, sizeof(*chunks));

    if (chunks == NULL)
        return FAIL_NOMEM(err, g->chunk_count * sizeof(*chunks));
    for (size_t i = 0; i < g->out->count; i++) {
        struct metadata_entry *entry = &g->out->entries[i];
        entry->chunks = chunks;
        chunks += entry->chunk_capacity;
        entry->chunk_capacity = 0;
    }
    return SIDESTEP_OK;
}

static void fill_items(struct gather *g)
{
    const size_t *entry_of = g->entry_of;

    for (size_t f = 0; f < g->count; f++)
        for (size_t i = 0; i < g->footers[f].count; i++)
            fill_item(&g->out->entries[*entry_of++], &g->footers[f], &g->footers[f].items[i],
                      g->names[f]);
}

enum sidestep_status commit_metadata_from_footers(const struct footer *footers,
                                                  const char *const *names, size_t count,
                                                  struct metadata *out, struct sidestep_error *err)
{
    OWNED size_t *entry_of = NULL;
    size_t total = 0;

    assert(out->count == 0 && out->entries == NULL);
    for (size_t f = 0; f < count; f++)
        total += footers[f].count;
    entry_of = memory_new(total, sizeof(*entry_of));
    out->entries = arena_new(&out->arena, total, sizeof(*out->entries));
    if (entry_of == NULL || out->entries == NULL)
        return FAIL_NOMEM(err, total * sizeof(*out->entries));
    struct gather g = {footers, names, count, out, entry_of, 0};
    TRY(hash_table_reserve(&out->names, total, err));
    TRY(count_items(&g, err));
    TRY(make_chunks(&g, err));
    fill_items(&g);
    return SIDESTEP_OK;
}

enum sidestep_status commit_metadata_from_footers_checked(const struct footer *footers,
                                                          const char *const *names, size_t count,
                                                          struct metadata *out,
                                                          struct sidestep_error *err)
{
    OWNED struct box *boxes = NULL;
    size_t max_chunks = 1;

    TRY(commit_metadata_from_footers(footers, names, count, out, err));
    for (size_t i = 0; i < out->count; i++)
        max_chunks =
            out->entries[i].chunk_count > max_chunks ? out->entries[i].chunk_count : max_chunks;
    boxes = memory_new(max_chunks, sizeof(*boxes));
    if (boxes == NULL)
        return FAIL_NOMEM(err, max_chunks * sizeof(*boxes));
    for (size_t i = 0; i < out->count; i++)
        if (!out->entries[i].is_object)
            TRY(check_tiling(&out->entries[i], boxes, err));
    return SIDESTEP_OK;
}
