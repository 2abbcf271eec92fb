/* SPDX-License-Identifier: BSD-3-Clause */
/* gather.c -- what a checkpoint holds, from the footers of its shards.  The one place where
 * `.metadata` comes from: at commit, and when a lost one is rebuilt. */
#include "commit/commit.h"

#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "plan/tiling.h"

struct gather {
    const struct footer *footers;
    const char *const *names;
    size_t count;
    struct metadata *out;
    size_t *chunk_room; /* per entry: chunks counted, then chunks filled */
};

static enum sidestep_status copy_failed(struct sidestep_error *err)
{
    return FAIL_NOMEM(err, sizeof(struct metadata_entry));
}

static const int64_t *copy_dims(struct arena *arena, const int64_t *dims, uint32_t ndim)
{
    return arena_copy(arena, dims, ndim * sizeof(*dims));
}

static enum sidestep_status copy_path(struct arena *arena, const struct footer_item *item,
                                      struct metadata_entry *entry, struct sidestep_error *err)
{
    struct sidestep_path_item *path =
        arena_copy(arena, item->path, item->path_length * sizeof(*path));

    if (path == NULL)
        return copy_failed(err);
    for (uint32_t i = 0; i < item->path_length; i++)
        if (path[i].key != NULL &&
            (path[i].key = arena_strndup(arena, path[i].key, strlen(path[i].key))) == NULL)
            return copy_failed(err);
    entry->path = path;
    entry->path_length = item->path_length;
    return SIDESTEP_OK;
}

static enum sidestep_status new_entry(struct gather *g, const struct footer_item *item,
                                      struct sidestep_error *err)
{
    struct arena *arena = &g->out->arena;
    struct metadata_entry *entry = &g->out->entries[g->out->count];
    size_t existing;

    entry->name = arena_strndup(arena, item->name, strlen(item->name));
    if (entry->name == NULL)
        return copy_failed(err);
    entry->is_object = item->is_object;
    entry->dtype = item->dtype;
    entry->dtype_name = sidestep_dtype_name(item->dtype);
    entry->ndim = item->ndim;
    entry->shape = copy_dims(arena, item->shape, item->ndim);
    entry->requires_grad = item->requires_grad;
    if (entry->shape == NULL)
        return copy_failed(err);
    TRY(copy_path(arena, item, entry, err));
    return table_insert(&g->out->names, entry->name, g->out->count++, &existing, err);
}

/* First pass: entries in the order of first sight, and how many chunks each has. */
static enum sidestep_status count_item(struct gather *g, const struct footer_item *item,
                                       struct sidestep_error *err)
{
    size_t at = table_find(&g->out->names, item->name);

    if (at == SIZE_MAX) {
        at = g->out->count;
        TRY(new_entry(g, item, err));
    } else {
        const struct metadata_entry *entry = &g->out->entries[at];
        if (entry->is_object || item->is_object)
            return FAIL(err, SIDESTEP_EDISAGREE, "'%s' was saved twice", item->name);
        if (entry->dtype != item->dtype || entry->ndim != item->ndim ||
            memcmp(entry->shape, item->shape, item->ndim * sizeof(*item->shape)) != 0)
            return FAIL(err, SIDESTEP_EDISAGREE,
                        "tensor '%s': ranks saved different shapes or dtypes", item->name);
    }
    g->chunk_room[at]++;
    return SIDESTEP_OK;
}

static enum sidestep_status fill_item(struct gather *g, const struct footer *footer,
                                      const struct footer_item *item, const char *file,
                                      struct sidestep_error *err)
{
    struct arena *arena = &g->out->arena;
    struct metadata_entry *entry = &g->out->entries[table_find(&g->out->names, item->name)];
    struct metadata_storage storage = {.file = file, .offset = item->offset, .length = item->bytes};

    if (item->transform != 0) {
        const char *name = footer->transforms[item->transform - 1];
        storage.transform = arena_strndup(arena, name, strlen(name));
        if (storage.transform == NULL)
            return copy_failed(err);
    }
    if (entry->is_object) {
        entry->storage = storage;
        return SIDESTEP_OK;
    }
    entry->chunks[entry->chunk_count++] = (struct metadata_chunk){
        .box = {.ndim = item->ndim,
                .offsets = copy_dims(arena, item->box.offsets, item->ndim),
                .lengths = copy_dims(arena, item->box.lengths, item->ndim)},
        .storage = storage,
    };
    const struct box *box = &entry->chunks[entry->chunk_count - 1].box;
    return box->offsets != NULL && box->lengths != NULL ? SIDESTEP_OK : copy_failed(err);
}

static enum sidestep_status check_tiling(const struct metadata_entry *entry, struct box *boxes,
                                         struct sidestep_error *err)
{
    enum tiling_result result;
    size_t culprit = 0;

    for (size_t i = 0; i < entry->chunk_count; i++)
        boxes[i] = entry->chunks[i].box;
    TRY(tiling_check(entry->ndim, entry->shape, boxes, entry->chunk_count, &result, &culprit, err));
    if (result == TILING_EXACT)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EDISAGREE, "tensor '%s': the shards of all ranks %s", entry->name,
                result == TILING_GAP ? "do not cover it" : "overlap");
}

static enum sidestep_status for_each_item(struct gather *g, bool fill, struct sidestep_error *err)
{
    for (size_t f = 0; f < g->count; f++) {
        const char *file =
            fill ? arena_strndup(&g->out->arena, g->names[f], strlen(g->names[f])) : "";
        if (file == NULL)
            return copy_failed(err);
        for (size_t i = 0; i < g->footers[f].count; i++)
            TRY(fill ? fill_item(g, &g->footers[f], &g->footers[f].items[i], file, err)
                     : count_item(g, &g->footers[f].items[i], err));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status make_chunks(struct gather *g, size_t *most, struct sidestep_error *err)
{
    *most = 1;
    for (size_t i = 0; i < g->out->count; i++) {
        struct metadata_entry *entry = &g->out->entries[i];
        if (entry->is_object)
            continue;
        entry->chunks = arena_new(&g->out->arena, g->chunk_room[i], sizeof(*entry->chunks));
        if (entry->chunks == NULL)
            return copy_failed(err);
        *most = g->chunk_room[i] > *most ? g->chunk_room[i] : *most;
    }
    return SIDESTEP_OK;
}

enum sidestep_status commit_metadata_build(const struct footer *footers, const char *const *names,
                                           size_t count, struct metadata *out,
                                           struct sidestep_error *err)
{
    OWNED size_t *chunk_room = NULL;
    OWNED struct box *boxes = NULL;
    size_t total = 0, most;

    for (size_t f = 0; f < count; f++)
        total += footers[f].count;
    chunk_room = memory_new(total, sizeof(*chunk_room));
    out->entries = arena_new(&out->arena, total, sizeof(*out->entries));
    if (chunk_room == NULL || out->entries == NULL)
        return FAIL_NOMEM(err, total * sizeof(*out->entries));
    struct gather g = {footers, names, count, out, chunk_room};
    TRY(for_each_item(&g, false, err));
    TRY(make_chunks(&g, &most, err));
    TRY(for_each_item(&g, true, err));
    boxes = memory_new(most, sizeof(*boxes));
    if (boxes == NULL)
        return FAIL_NOMEM(err, most * sizeof(*boxes));
    for (size_t i = 0; i < out->count; i++)
        if (!out->entries[i].is_object)
            TRY(check_tiling(&out->entries[i], boxes, err));
    return SIDESTEP_OK;
}
