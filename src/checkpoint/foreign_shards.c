/* SPDX-License-Identifier: BSD-3-Clause */
/* foreign_shards.c -- merges the pieces of a tensor in several files into one entry; see
 * foreign.h. */
#include <string.h>

#include "base/base.h"
#include "checkpoint/foreign.h"
#include "model/model.h"
#include "plan/plan.h"

/* The entries grouped by name: those of one name are pieces of one tensor. */
struct groups {
    size_t *first;  /* per entry: the first entry of that name */
    size_t *pieces; /* per first entry: number of entries of that name */
};

static enum sidestep_status group_entries(const struct metadata *m, struct groups *o,
                                          struct sidestep_error *err)
{
    OWNED_HASH_TABLE names = {0};

    for (size_t i = 0; i < m->count; i++) {
        size_t existing;
        TRY(hash_table_insert(&names, m->entries[i].name, i, &existing, err));
        o->first[i] = existing != SIZE_MAX ? existing : i;
        o->pieces[o->first[i]]++;
    }
    return SIDESTEP_OK;
}

/* Reserve space for all chunks of a tensor, and put its own chunk first. */
static enum sidestep_status begin_entry(struct metadata *m, struct metadata_entry *entry,
                                        size_t pieces, struct sidestep_error *err)
{
    struct metadata_chunk *chunks = arena_new(&m->arena, pieces, sizeof(*chunks));
    int64_t *shape = arena_new(&m->arena, entry->ndim, sizeof(*shape));

    if (chunks == NULL || shape == NULL)
        return FAIL_NOMEM(err, pieces * sizeof(*chunks));
    chunks[0] = entry->chunks[0];
    for (uint32_t d = 0; d < entry->ndim; d++)
        shape[d] = chunks[0].box.offsets[d] + chunks[0].box.lengths[d];
    entry->chunks = chunks;
    entry->shape = shape;
    return SIDESTEP_OK;
}

static enum sidestep_status add_piece(struct metadata_entry *to, const struct metadata_entry *from,
                                      struct sidestep_error *err)
{
    const struct metadata_chunk *chunk = &from->chunks[0];
    int64_t *shape = (int64_t *)(uintptr_t)to->shape; /* allocated by begin_entry() */

    if (to->dtype != from->dtype || to->ndim != from->ndim)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "pieces of '%s' in '%s' and '%s' have different dtypes or dimensions",
                    display_name(to->name).text, to->chunks[0].storage.file, chunk->storage.file);
    for (uint32_t d = 0; d < to->ndim; d++) {
        int64_t end = chunk->box.offsets[d] + chunk->box.lengths[d];
        shape[d] = end > shape[d] ? end : shape[d];
    }
    to->chunks[to->chunk_count++] = *chunk;
    return SIDESTEP_OK;
}

/* Check that the pieces cover the tensor exactly once. */
static enum sidestep_status check_entry(const struct metadata_entry *entry,
                                        struct sidestep_error *err)
{
    enum tiling_result result;

    for (size_t i = 0; i < entry->chunk_count; i++)
        TRY(box_check(&entry->chunks[i].box, entry->shape, sidestep_dtype_size(entry->dtype), err));
    TRY(tiling_check_chunks(entry, &result, err));
    if (result != TILING_EXACT)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s' is in %zu pieces, which %s; are all files there?",
                    display_name(entry->name).text, entry->chunk_count,
                    result == TILING_GAP ? "leave gaps" : "overlap");
    return SIDESTEP_OK;
}

static enum sidestep_status merge(struct metadata *m, struct groups *o, struct sidestep_error *err)
{
    size_t kept = 0;

    TRY(group_entries(m, o, err));
    for (size_t i = 0; i < m->count; i++) {
        struct metadata_entry *entry = &m->entries[i];
        if (o->first[i] == i)
            TRY(begin_entry(m, entry, o->pieces[i], err));
        else
            TRY(add_piece(&m->entries[o->first[i]], entry, err));
    }
    for (size_t i = 0; i < m->count; i++) {
        if (o->first[i] != i)
            continue;
        TRY(check_entry(&m->entries[i], err));
        m->entries[kept++] = m->entries[i];
    }
    m->count = kept;
    return SIDESTEP_OK;
}

enum sidestep_status foreign_merge_shards(struct metadata *metadata, struct sidestep_error *err)
{
    OWNED size_t *first = memory_new(metadata->count, sizeof(*first));
    OWNED size_t *pieces = memory_new(metadata->count, sizeof(*pieces));
    struct groups groups = {.first = first, .pieces = pieces};

    if (first == NULL || pieces == NULL)
        return FAIL_NOMEM(err, 2 * metadata->count * sizeof(*first));
    return merge(metadata, &groups, err);
}
