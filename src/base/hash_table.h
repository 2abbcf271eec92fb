/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hash_table.h -- names to indices: an open-addressing hash table with a random seed (names come
 * from files, so an attacker may choose them).  Keeps pointers to the names, not copies.
 */
#ifndef BASE_HASH_TABLE_H
#define BASE_HASH_TABLE_H

#include "base/error.h"

struct table {
    struct table_slot *slots;
    size_t capacity;
    size_t count;
    uint64_t seed;
};

void table_release(struct table *t);
#define OWNED_TABLE __attribute__((cleanup(table_release))) struct table

/* Make room for ${count} names, so that those need not be put in their places several times. */
enum sidestep_status table_reserve(struct table *t, size_t count, struct sidestep_error *err);
/* Index stored under ${name}, or SIZE_MAX. */
size_t table_find(const struct table *t, const char *name);
/* Store ${index} under ${name}, which must outlive the table; if the name is there already,
 * ${*existing} is its index and nothing changes, else SIZE_MAX. */
enum sidestep_status table_insert(struct table *t, const char *name, size_t index, size_t *existing,
                                  struct sidestep_error *err);

#endif
