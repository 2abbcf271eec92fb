/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunk_table.h -- finds a chunk by its tensor and its offsets.  A seeded hash table (offsets
 * come from files), which keeps indices and reads the offsets where they are.
 */
#ifndef MODEL_CHUNK_TABLE_H
#define MODEL_CHUNK_TABLE_H

#include "base/base.h"

struct metadata;

struct chunk_table {
    struct chunk_table_slot *slots;
    size_t capacity;
    size_t count;
    uint64_t seed;
};

void chunk_table_release(struct chunk_table *t);

/* Index of the chunk of ${metadata}->entries[entry] that begins at ${offsets}, or SIZE_MAX. */
size_t chunk_table_find(const struct chunk_table *t, const struct metadata *metadata, size_t entry,
                        const int64_t *offsets);
/* Add ${chunk} of ${entry}.  If the table has a chunk with these offsets, ${*existing} is its
 * index and nothing changes, else SIZE_MAX. */
enum sidestep_status chunk_table_insert(struct chunk_table *t, const struct metadata *metadata,
                                        size_t entry, size_t chunk, size_t *existing,
                                        struct sidestep_error *err);

#endif
