/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_table.c -- see chunk_table.h. */
#include "model/chunk_table.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "model/metadata.h"

#define CHUNK_TABLE_MIN_CAPACITY 64u

struct chunk_table_slot {
    uint64_t hash;
    size_t entry; /* from 1; 0: free */
    size_t chunk;
};

void chunk_table_release(struct chunk_table *t)
{
    free(t->slots);
    *t = (struct chunk_table){0};
}

static uint64_t hash_of(const struct chunk_table *t, size_t entry, uint32_t ndim,
                        const int64_t *offsets)
{
    uint64_t seed = XXH3_64bits_withSeed(&entry, sizeof(entry), t->seed);

    return ndim != 0 ? XXH3_64bits_withSeed(offsets, ndim * sizeof(*offsets), seed) : seed;
}

/* The slot of this chunk, or the free slot for it. */
static struct chunk_table_slot *find_slot(const struct chunk_table *t,
                                          const struct metadata *metadata, size_t entry,
                                          const int64_t *offsets, uint64_t hash)
{
    const struct metadata_entry *tensor = &metadata->entries[entry];
    size_t bytes = tensor->ndim * sizeof(*offsets);
    size_t at = hash & (t->capacity - 1);

    for (;; at = (at + 1) & (t->capacity - 1)) {
        struct chunk_table_slot *slot = &t->slots[at];
        if (slot->entry == 0)
            return slot;
        if (slot->hash != hash || slot->entry != entry + 1)
            continue;
        if (bytes == 0 || memcmp(tensor->chunks[slot->chunk].box.offsets, offsets, bytes) == 0)
            return slot;
    }
}

size_t chunk_table_find(const struct chunk_table *t, const struct metadata *metadata, size_t entry,
                        const int64_t *offsets)
{
    if (t->count == 0)
        return SIZE_MAX;
    uint64_t hash = hash_of(t, entry, metadata->entries[entry].ndim, offsets);
    struct chunk_table_slot *slot = find_slot(t, metadata, entry, offsets, hash);
    return slot->entry != 0 ? slot->chunk : SIZE_MAX;
}

static enum sidestep_status grow(struct chunk_table *t, struct sidestep_error *err)
{
    struct chunk_table bigger = *t;

    bigger.capacity = t->capacity != 0 ? t->capacity * 2 : CHUNK_TABLE_MIN_CAPACITY;
    if (t->capacity == 0)
        TRY(random_bytes(&bigger.seed, sizeof(bigger.seed), err));
    bigger.slots = memory_new(bigger.capacity, sizeof(*bigger.slots));
    if (bigger.slots == NULL)
        return FAIL_NOMEM(err, bigger.capacity * sizeof(*bigger.slots));
    for (size_t i = 0; i < t->capacity; i++) {
        if (t->slots[i].entry == 0)
            continue;
        size_t at = t->slots[i].hash & (bigger.capacity - 1);
        while (bigger.slots[at].entry != 0)
            at = (at + 1) & (bigger.capacity - 1);
        bigger.slots[at] = t->slots[i];
    }
    free(t->slots);
    *t = bigger;
    return SIDESTEP_OK;
}

enum sidestep_status chunk_table_insert(struct chunk_table *t, const struct metadata *metadata,
                                        size_t entry, size_t chunk, size_t *existing,
                                        struct sidestep_error *err)
{
    const struct metadata_entry *tensor = &metadata->entries[entry];
    const int64_t *offsets = tensor->chunks[chunk].box.offsets;

    if (t->count * 4 >= t->capacity * 3)
        TRY(grow(t, err));
    uint64_t hash = hash_of(t, entry, tensor->ndim, offsets);
    struct chunk_table_slot *slot = find_slot(t, metadata, entry, offsets, hash);
    *existing = SIZE_MAX;
    if (slot->entry != 0) {
        *existing = slot->chunk;
        return SIDESTEP_OK;
    }
    *slot = (struct chunk_table_slot){.hash = hash, .entry = entry + 1, .chunk = chunk};
    t->count++;
    return SIDESTEP_OK;
}
