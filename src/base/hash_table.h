/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hash_table.h -- finds the index of a name: a hash table with open addressing.
 *
 * The seed is random, because names come from files, and an attacker may choose them.  The table
 * keeps pointers to the names, not copies.
 */
#ifndef BASE_HASH_TABLE_H
#define BASE_HASH_TABLE_H

#include "base/error.h"
#include "base/memory.h"

struct hash_table {
    struct arena arena; /* has the slots; those of a large table lie on huge pages */
    struct hash_table_slot *slots;
    size_t capacity;
    size_t count;
    uint64_t seed;
};

void hash_table_release(struct hash_table *t);
#define OWNED_HASH_TABLE __attribute__((cleanup(hash_table_release))) struct hash_table

/* Make room for ${count} names in all, so that the table grows once, not step by step. */
enum sidestep_status hash_table_reserve(struct hash_table *t, size_t count,
                                        struct sidestep_error *err);
/* The index stored under ${name}, or SIZE_MAX. */
size_t hash_table_find(const struct hash_table *t, const char *name);
/* Store ${index} under ${name}, which must outlive the table.  If the table has the name already,
 * nothing changes, and ${*existing} is its index; otherwise it is SIZE_MAX. */
enum sidestep_status hash_table_insert(struct hash_table *t, const char *name, size_t index,
                                       size_t *existing, struct sidestep_error *err);

#endif
