/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunk_table.h -- finds a chunk by its tensor and its offsets: a hash table.
 *
 * The seed is random, because the offsets come from files.  The table keeps indices of entries and
 * chunks; the offsets are in the metadata.
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

/* The index of the chunk of ${metadata}->entries[entry] that begins at ${offsets}, or SIZE_MAX. */
size_t chunk_table_find(const struct chunk_table *t, const struct metadata *metadata, size_t entry,
                        const int64_t *offsets);
/* Add ${chunk} of ${entry}.  If the table has a chunk with these offsets already, nothing changes,
 * and ${*existing} is its index; otherwise it is SIZE_MAX. */
enum sidestep_status chunk_table_insert(struct chunk_table *t, const struct metadata *metadata,
                                        size_t entry, size_t chunk, size_t *existing,
                                        struct sidestep_error *err);

#endif
