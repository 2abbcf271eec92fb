/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hash_table.h -- names to indices: an open-addressing hash table with a random seed (names come
 * from files, so an attacker may choose them).  Keeps pointers to the names, not copies.
 */
#ifndef BASE_HASH_TABLE_H
#define BASE_HASH_TABLE_H

#include "base/error.h"

struct hash_table {
    struct hash_table_slot *slots;
    size_t capacity;
    size_t count;
    uint64_t seed;
};

void hash_table_release(struct hash_table *t);
#define OWNED_HASH_TABLE __attribute__((cleanup(hash_table_release))) struct hash_table

/* Make room for ${count} names, so that those need not be put in their places several times. */
enum sidestep_status hash_table_reserve(struct hash_table *t, size_t count,
                                        struct sidestep_error *err);
/* Index stored under ${name}, or SIZE_MAX. */
size_t hash_table_find(const struct hash_table *t, const char *name);
/* Store ${index} under ${name}, which must outlive the table; if the name is there already,
 * ${*existing} is its index and nothing changes, else SIZE_MAX. */
enum sidestep_status hash_table_insert(struct hash_table *t, const char *name, size_t index,
                                       size_t *existing, struct sidestep_error *err);

#endif
